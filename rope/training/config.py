"""What one training run depends on: chapter "What training shows".

Two runs of equal experiments on one machine with one number of threads give the same numbers.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from rope.checks import check_base, check_count, check_flag, check_number

TASKS = ("text", "recall")
ATTENTIONS = ("softmax", "linear")


@dataclass(frozen=True)
class Experiment:
    """One model, its data and its budget; everything that is chosen, and nothing that is measured.

    task: "text", the next character, or "recall", the token a told number of places back.
    position: a name of `rope.training.POSITIONS`; attention: "softmax" or "linear".
    layers, width (E), heads: of the decoder; context: tokens in a sequence, in training.
    batch, steps: sequences in a step, steps; learning_rate: its peak, reached after `warmup` steps
    and falling to a tenth along a cosine. base, interleaved: of rotary positions.
    evaluate_every: steps between looks at the validation loss. seed: of weights and data order.
    Raises ValueError or TypeError for what no run could be made of.

    >>> Experiment(position="alibi").name
    'text-alibi-softmax-128-s0'
    >>> Experiment(steps=100).key() == Experiment(steps=101).key()
    False
    """

    task: str = "text"
    position: str = "rope"
    attention: str = "softmax"
    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 16
    steps: int = 300
    learning_rate: float = 3e-3
    warmup: int = 20
    weight_decay: float = 0.1
    base: float = 10000.0
    interleaved: bool = False
    evaluate_every: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        from rope.training.positions import POSITIONS

        for name, allowed in (
            ("task", TASKS),
            ("attention", ATTENTIONS),
            ("position", tuple(POSITIONS)),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}"
                )
        for name in ("layers", "width", "heads", "context", "batch", "steps", "evaluate_every"):
            check_count(name, getattr(self, name))
        check_count("warmup", self.warmup, smallest=0)
        check_count("seed", self.seed, smallest=0)
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_base(self.base)
        check_flag("interleaved", self.interleaved)
        for name in ("learning_rate", "weight_decay", "base"):  # 1 and 1.0 are one experiment
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.width % self.heads or self.width // self.heads % 4:
            raise ValueError(
                f"width is {self.width} for {self.heads} heads; each head must get a multiple of 4 "
                "coordinates, since partial rotation turns half of them: change one of the two"
            )
        if self.attention == "linear" and not POSITIONS[self.position].linear:
            raise ValueError(
                f"position is {self.position!r} with linear attention, which has no scores to add "
                "a bias to: use attention='softmax', or one of "
                + ", ".join(name for name, kind in POSITIONS.items() if kind.linear)
            )

    @property
    def head_dim(self) -> int:
        """Coordinates of one head, D."""
        return self.width // self.heads

    @property
    def name(self) -> str:
        """A short name for files and bars; `key` tells apart what it does not."""
        return f"{self.task}-{self.position}-{self.attention}-{self.context}-s{self.seed}"

    def as_dict(self) -> dict[str, Any]:
        """The fields, for a record."""
        return asdict(self)

    def key(self) -> str:
        """Twelve hexadecimal digits that differ where any field does."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
