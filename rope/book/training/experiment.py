"""What a training run depends on, and the runs of the comparison: chapter "What training shows".

Two runs of equal experiments on one machine with one number of threads give the same numbers.
`PLAN` holds every run, in the order in which they answer the chapters' questions; the runs of the
second round are in `rope.book.training.second`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rope.book.training.positions import METHODS, POSITIONS
from rope.checks import check_base, check_count

ATTENTIONS = ("softmax", "linear")
TASKS = ("text", "code", "shuffled", "recall", "lookup", "even lookup")
CHOICES = {"task": TASKS, "attention": ATTENTIONS, "position": METHODS}
FARTHEST = 32  # questions that the recall task knows


@dataclass(frozen=True)
class Experiment:
    """One model, its data and its budget; everything that is chosen, and nothing that is measured.

    task: the next character of "text" (CPython's topics), of "code" (its library), of "shuffled"
    text; "recall", the symbol a told number of places back; "lookup", the symbol of a told name;
    "even lookup", the same asked equally often from each distance.
    position: a name of `rope.book.training.POSITIONS` or of its variants; attention: "softmax" or
    "linear".
    layers, width (E), heads: of the decoder; context: tokens in a sequence, in training.
    batch, steps: sequences in a step, steps; learning_rate: its peak, reached after `warmup` steps
    and falling to a tenth along a cosine. base, interleaved: of rotary positions.
    evaluate_every: steps from one validation loss to the next. seed: of weights and data order.
    questions: of the recall task, 1 to 32, that of 32 unless said otherwise.
    Raises ValueError or TypeError for what no run could be made of.

    >>> Experiment(position="alibi").name
    'text-alibi-softmax-128-s0'
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
    questions: int = FARTHEST

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}"
                )
        counts = ("layers", "width", "heads", "context", "batch", "steps", "evaluate_every")
        for name in (*counts, "questions"):
            check_count(name, getattr(self, name))
        if self.questions > FARTHEST:
            raise ValueError(
                f"questions is {self.questions}; it must be at most {FARTHEST}, for which there "
                "are tokens: pass fewer"
            )
        check_count("warmup", self.warmup, smallest=0)
        check_count("seed", self.seed, smallest=0)
        check_base(self.base)
        for name in ("learning_rate", "weight_decay", "base"):  # 1 and 1.0 are recorded alike
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.width % self.heads or self.width // self.heads % 4:
            raise ValueError(
                f"width is {self.width} for {self.heads} heads; each head must get a multiple of 4 "
                "coordinates, since partial rotation rotates half of them: change one of the two"
            )
        if self.attention == "linear" and not METHODS[self.position].linear:
            raise ValueError(
                f"position is {self.position!r} with linear attention, which has no scores to add "
                "a bias to: use attention='softmax', or one of "
                + ", ".join(name for name, method in POSITIONS.items() if method.linear)
            )

    @property
    def head_dim(self) -> int:
        """Coordinates of one head, D."""
        return self.width // self.heads

    @property
    def name(self) -> str:
        """A short name for a progress bar; it does not tell all experiments apart."""
        return f"{self.task}-{self.position}-{self.attention}-{self.context}-s{self.seed}"


SEEDS = tuple(range(5))
BASES = (100.0, 1e3, 1e4, 1e6)
RATES = (1e-3, 3e-3, 6e-3)
LINEAR = ("none", "sinusoidal", "rope")

TEXT = Experiment()
LONGER = Experiment(context=256, batch=8)
#: Small enough to be trained on the page, where the chapter does so with one seed.
LIVE = Experiment(
    layers=2, width=64, heads=2, context=64, steps=200, learning_rate=6e-3, evaluate_every=10
)
LIVE_WAYS = ("none", "sinusoidal", "learned", "rope")


def seeded(runs: Sequence[Experiment], seeds: Sequence[int] = SEEDS) -> list[Experiment]:
    """Each of the runs with the first seed, then with the next."""
    return [replace(run, seed=seed) for seed in seeds for run in runs]


#: Every run once; a sweep that is stopped has answered the first questions.
PLAN = tuple(
    dict.fromkeys(
        (
            *seeded([replace(TEXT, position=name) for name in POSITIONS]),
            *seeded([replace(LIVE, position=name) for name in LIVE_WAYS]),
            *seeded([replace(TEXT, base=base) for base in BASES]),
            *seeded([replace(TEXT, position=name, attention="linear") for name in LINEAR]),
            *(replace(TEXT, position=way, learning_rate=r) for r in RATES for way in POSITIONS),
            *seeded([replace(LONGER, position=name) for name in POSITIONS]),
        )
    )
)
