"""Define the interface of context extensions, which change frequencies, and the default extension.

See the chapter "Longer than the training text". For the rotated width R, the frequencies are
float64 `[R/2]`, in radians per position.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Extension(ABC):
    """Define the interface of context extensions, which change frequencies theta_j to theta'_j.

    name: the extension's `rope_type` in configurations.
    To write your own extension, decorate a subclass with `@dataclass(frozen=True)`, declare its
    parameters as fields, and implement `scale`. Extensions that compare equal share tables.
    Set `length_dependent = True` if the frequencies depend on the current sequence length.

    >>> @dataclass(frozen=True)
    ... class Half(Extension):
    ...     def scale(self, inv_freq, base, seq_len=None):
    ...         return inv_freq / 2
    >>> import rope
    >>> rope.inverse_frequencies(4, extension=Half())
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """

    name: ClassVar[str]
    length_dependent: ClassVar[bool] = False

    @abstractmethod
    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        """Return the changed frequencies, float64 `[R/2]`, in radians per position.

        inv_freq: the plain frequencies theta_j = base**(-2j/R), float64 `[R/2]`. seq_len: the
        current sequence length; None means a length up to the trained length.
        Raises ValueError if the formula is not defined for this R or base.
        """

    @property
    def attention_scaling(self) -> float:
        """Return the factor for cos and sin; the scores are multiplied by its square."""
        return 1.0

    def regime(self, seq_len: int | None) -> Hashable:
        """Return a key that is the same for all lengths with the same frequencies.

        The key is None if seq_len is None. By default, a length-dependent extension has a separate
        key for each length, and any other extension always returns None.
        """
        return seq_len if self.length_dependent else None


@dataclass(frozen=True)
class Default(Extension):
    """Leave the frequencies as RoFormer (arXiv 2104.09864, section 3.2.2) defines them."""

    name: ClassVar[str] = "default"

    def scale(self, inv_freq: Tensor, base: float, seq_len: int | None = None) -> Tensor:
        return inv_freq
