"""Compute attention over a sequence that is split across devices.

See the chapter "Across devices". `shards` splits the tokens and keeps their positions. `attention`
computes causal attention over all tokens, by all-gather, Ulysses, or ring attention. `ring`
implements ring attention, in which a device holds only one block of keys at a time.
"""

from rope.parallel.attention import METHODS, context_parallel_attention
from rope.parallel.shards import Shards, contiguous, head_tail, packed, round_robin

__all__ = [
    "METHODS",
    "Shards",
    "context_parallel_attention",
    "contiguous",
    "head_tail",
    "packed",
    "round_robin",
]
