"""List the runs of the second and the third round of experiments, whose records the chapters read.

Chapters "What training shows", "Finding a token", and "Beyond the trained length". The records are
`recorded/second.json` and `recorded/third.json`; they hold only what the chapters read. Commit
f403233 contains the programs that trained and measured these runs. `SECOND` and `THIRD` list every
run once, in the order of the records.
"""

from dataclasses import replace

from rope.book.training.experiment import BASES, TEXT, Experiment, seeded
from rope.book.training.positions import POSITIONS

# The second round: controls, longer texts, another corpus.

LONGEST = Experiment(context=512, batch=4)
CODE = Experiment(task="code", batch=8, steps=3000, evaluate_every=100)
SHUFFLED = replace(TEXT, task="shuffled")
RECALLED = Experiment(task="recall", layers=2, width=64, heads=2, steps=3000, evaluate_every=100)
LOOKUP = replace(RECALLED, task="lookup")

FEW = (1, 2, 4)  # numbers of questions: below, at and above the two profiles that a bias has
FINDERS = ("none", "learned", "rope", "xpos", "alibi", "t5", "p-rope")
SMALL_FINDERS = ("none", "learned", "rope", "alibi", "t5")
CODE_METHODS = (*POSITIONS, "p-rope")
VARIANTS = ("learned-small", "t5-plain", "p-rope")

WINDOWS = 512  # at most so many windows of validation text
FAR = (31, 63, 95, 119, 127, 191, 255, 383, 511, 767, 1023, 1535, 2039)  # lookup distances
RATIOS = (1, 2, 4, 8, 16)  # length of the input / trained context
DISTANCES = (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # edges of ranges


def _finding(task: Experiment) -> list[Experiment]:
    """Return the task's runs with every method in FINDERS and every base."""
    bases = [base for base in BASES if base != task.base]
    return [*(replace(task, position=name) for name in FINDERS),
            *(replace(task, base=base) for base in bases)]  # fmt: skip


_LONG = [replace(LONGEST, position=name) for name in POSITIONS]
_FEW = [replace(RECALLED, questions=n, position=name) for n in FEW for name in SMALL_FINDERS]
_RECALLS, _LOOKUPS = _finding(RECALLED), _finding(LOOKUP)
_CODE = [replace(CODE, position=name) for name in CODE_METHODS]
#: The first round's text models, for further measurements; their variants; shuffled text.
_TEXT = [*(replace(TEXT, position=name) for name in dict.fromkeys(("rope", *POSITIONS, *VARIANTS))),
         SHUFFLED]  # fmt: skip

SECOND = (
    *seeded([*_LONG, *_FEW, *_RECALLS, *_LOOKUPS, *_TEXT], [0]),
    *seeded(_LOOKUPS, [1, 2]),
    *seeded(_RECALLS, [1, 2]),
    *seeded(_TEXT, [1, 2]),
    *seeded(_LONG, [1, 2]),
    *seeded(_CODE, [0, 1, 2]),
    *seeded(_TEXT, [3, 4]),
    *seeded(_LONG, [3, 4]),
    *seeded(_FEW, [1, 2]),
)

# The third round: controls for causes that the first two rounds only suggest.

#: Does a longer training shrink a lead, or does the end of its schedule?
CODE_SHORT = replace(CODE, steps=300)
#: Does a base fail at large distances, or at distances that training rarely asked for?
EVEN = replace(LOOKUP, task="even lookup")
#: Does a bias fail because of its buckets? And what can one layer answer?
EXACT = replace(RECALLED, position="t5-exact")
ONE_LAYER = [
    replace(RECALLED, layers=1, questions=4, position=name) for name in ("rope", "t5-exact")
]
SHORT_METHODS = ("rope", "none", "sinusoidal", "learned")  # RoPE and the methods it leads most
RANGES = ((0, 16), (16, 64), (64, 128))  # ranges of distances whose mean scores are compared

_BY_BASE = [replace(EVEN, base=base) for base in BASES]
_SHORT = [replace(CODE_SHORT, position=way) for way in SHORT_METHODS]
_FINDERS = [replace(LOOKUP, position=name) for name in FINDERS]

THIRD = (
    *seeded([TEXT]),
    *seeded([EXACT, *ONE_LAYER], [0, 1, 2]),
    *seeded(_BY_BASE, [0, 1, 2]),
    *seeded([replace(TEXT, position="none")]),
    *seeded(_SHORT, [0, 1, 2]),
    *seeded(_FINDERS, [0]),
    *seeded(_FINDERS, [1, 2]),
)
