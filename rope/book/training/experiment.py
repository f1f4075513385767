"""Define training runs for the chapter "What training shows".

Equal experiments have equal results on the same machine with the same number of threads.
`rope.book.training.plans` has the runs that this package no longer trains.
"""

from dataclasses import dataclass

from rope.book.training.positions import POSITIONS

ATTENTIONS = ("softmax", "linear")


@dataclass(frozen=True)
class Experiment:
    """Hold all choices for one run: the model, its data, and its budget.

    task: "text": predict the next character in CPython's help topics. The other tasks have only
    recorded runs. "code": the same for CPython's library. "recall": name the symbol that is a given
    number of positions back. "lookup": give the symbol that belongs to a name. "even lookup": the
    same, with equally many questions at each distance.
    position: a name in `rope.book.training.POSITIONS`; some recorded runs name a variant.
    attention: "softmax" or "linear".
    layers, width (E), heads: the decoder's sizes; context: tokens per training sequence.
    batch: sequences per step. steps: the number of steps. learning_rate: the peak, which is reached
    after `warmup` steps. The rate then falls along a cosine to a tenth of the peak. base: the
    base of RoPE's frequencies. evaluate_every: the number of steps between validation losses. seed:
    determines the initial weights and the order of the data.
    questions: the number of different questions in the recall task.
    Raises ValueError for an unknown attention, and for linear attention with a bias.

    >>> Experiment(position="alibi").head_dim
    32
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
    evaluate_every: int = 20
    seed: int = 0
    questions: int = 32

    def __post_init__(self) -> None:
        if self.attention not in ATTENTIONS:
            raise ValueError(f"attention is {self.attention!r}; it must be 'softmax' or 'linear'")
        if self.attention == "linear" and not POSITIONS[self.position].linear:
            raise ValueError(
                f"position is {self.position!r} with linear attention, which has no scores to add "
                "a bias to; use attention='softmax', or one of "
                + ", ".join(name for name, method in POSITIONS.items() if method.linear)
            )

    @property
    def head_dim(self) -> int:
        """Return the head dimension D."""
        return self.width // self.heads


RATES = (1e-3, 3e-3, 6e-3)
LINEAR = ("none", "sinusoidal", "rope")

TEXT = Experiment()
LONGER = Experiment(context=256, batch=8)
#: An experiment that the chapter can train live, with one seed.
LIVE = Experiment(
    layers=2, width=64, heads=2, context=64, steps=200, learning_rate=6e-3, evaluate_every=10
)
LIVE_WAYS = ("none", "sinusoidal", "learned", "rope")
