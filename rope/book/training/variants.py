"""Three methods beside the eight, each to answer one question about one of them.

`METHODS` holds all that an experiment can name: the eight of `POSITIONS` and these.
"""

import math
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from rope.book.training.positions import (
    POSITIONS,
    Learned,
    NoPositions,
    Places,
    Rotary,
    T5Bias,
)
from rope.extensions import Proportional

if TYPE_CHECKING:
    from rope.book.training.experiment import Experiment


class LearnedSmall(Learned):
    """Learned vectors that start a hundred times smaller: does their own noise cost what they lose?

    >>> import torch
    >>> from rope.book.training import Decoder, Experiment
    >>> model = Decoder(Experiment(position="learned-small"), tokens=5)
    >>> round(model.positions(torch.arange(128)).added.std().item(), 3)
    0.01
    """

    start: ClassVar[float] = 0.01


class T5Plain(T5Bias):
    """T5's numbers without the factor sqrt(E), which makes their steps larger than all others.

    >>> from rope.book.training import Experiment
    >>> import torch
    >>> numbers = T5Plain(Experiment(width=16, heads=2))
    >>> _ = torch.nn.init.ones_(numbers.numbers.weight)
    >>> numbers(torch.arange(2)).bias.max().item()
    1.0
    """

    def forward(self, position_ids: Tensor) -> Places:
        bias = super().forward(position_ids).bias
        assert bias is not None
        return Places(bias=bias / math.sqrt(self.experiment.width))


class ProportionalRotary(Rotary):
    """p-RoPE with p = 1/2: the slower half of the planes stands still (arXiv 2410.06205).

    >>> from rope.book.training import Experiment
    >>> import torch
    >>> cos, sin = ProportionalRotary(Experiment())(torch.arange(4)).query
    >>> cos.shape, bool((sin[1:, :8] > 0).all()), sin[:, 8:].abs().max().item()
    (torch.Size([4, 16]), True, 0.0)
    """

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.extension = Proportional(0.5)


METHODS: dict[str, type[NoPositions]] = POSITIONS | {
    "learned-small": LearnedSmall,
    "t5-plain": T5Plain,
    "p-rope": ProportionalRotary,
}
