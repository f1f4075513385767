"""A sequence over several devices: chapter "Across devices".

`shards` says which tokens each device holds and where they stand, `attention` computes causal
attention over all of them, `ring` is the way that holds the keys of three devices at most.
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
