"""What every context extension is: a map of the spectrum, and the one that changes nothing.

Chapter "Longer than the training text". Shapes: R rotated width; frequencies are float64 `[R/2]`,
in radians per position.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Extension(ABC):
    """A change of the spectrum, theta_j -> theta'_j; equal, hashed and printed by its numbers.

    name: what configurations call it; paper: where its formula comes from.
    """

    name: ClassVar[str]
    paper: ClassVar[str]

    @abstractmethod
    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        """The changed frequencies, float64 `[R/2]`, of the plain ones, theta_j = base**(-2j/R).

        seq_len: the length in use, for the extensions that depend on it; None means no longer than
        the trained length. Raises ValueError where R or the base does not suit the formula.

        >>> import rope
        >>> Default().scale(rope.inverse_frequencies(4), 10000.0)
        tensor([1.0000, 0.0100], dtype=torch.float64)
        """

    @property
    def attention_scaling(self) -> float:
        """What cos and sin are multiplied by; scores change by its square.

        >>> Default().attention_scaling
        1.0
        """
        return 1.0

    @property
    def reach(self) -> int | None:
        """The longest context that the formula is made for; None where it names none.

        >>> Default().reach
        """
        return None

    @property
    def length_dependent(self) -> bool:
        """Whether the spectrum depends on the length in use.

        >>> Default().length_dependent
        False
        """
        return False

    def regime(self, seq_len: int | None) -> Hashable:
        """Lengths of one regime share one spectrum; None is the regime of the trained length.

        >>> Default().regime(10**6)
        """
        return None


@dataclass(frozen=True)
class Default(Extension):
    """No extension: the frequencies of RoFormer (arXiv 2104.09864), section 3.2.2.

    >>> Default() == Default()
    True
    """

    name: ClassVar[str] = "default"
    paper: ClassVar[str] = "RoFormer, arXiv 2104.09864, section 3.2.2"

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return inv_freq
