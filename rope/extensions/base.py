"""What every context extension is: a map of the spectrum, and the one that changes nothing.

Chapter "Longer than the training text". Shapes: R rotated width; frequencies are float64 `[R/2]`,
in radians per position.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rope.checks import check_finite


@dataclass(frozen=True)
class Extension(ABC):
    """A change of the spectrum, theta_j -> theta'_j; equal, hashed and printed by its numbers.

    name: what configurations call it; paper: where its formula comes from.
    To make one's own: `@dataclass(frozen=True)`, numbers as fields, `scale`, and where it depends
    on the length `length_dependent`. A class with an `__init__` of its own is refused with
    TypeError; what `scale` returns is looked at by `inverse_frequencies`.

    >>> @dataclass(frozen=True)
    ... class Half(Extension):
    ...     def scale(self, inv_freq, base, seq_len=None):
    ...         return inv_freq / 2
    >>> import rope
    >>> rope.inverse_frequencies(4, extension=Half())
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """

    name: ClassVar[str]
    paper: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass with slots is made twice, the second time with the __init__ of its fields.
        if "__init__" in vars(cls) and "__dataclass_params__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__} has an __init__ of its own; its numbers must be fields, or two of "
                "different numbers would be equal: write @dataclass(frozen=True) above the class, "
                "the fields in it, and __post_init__ for their checks"
            )

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

        Unless a class says otherwise, each length is a regime where the spectrum depends on it.

        >>> Default().regime(10**6)
        """
        return seq_len if self.length_dependent else None


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


def check_scaled(extension: Extension, plain: Tensor, scaled: Tensor) -> None:
    """Refuse changed frequencies that are not as many as the plain ones, float64 and finite."""
    name, planes = type(extension).__name__, len(plain)
    if not isinstance(scaled, Tensor) or scaled.dtype != torch.float64:
        kind = scaled.dtype if isinstance(scaled, Tensor) else type(scaled).__name__
        raise TypeError(
            f"{name}.scale returned {kind}; it must be a float64 tensor, or far positions get "
            "wrong angles: compute it from inv_freq without a cast"
        )
    if scaled.shape != plain.shape or scaled.device != plain.device:
        raise ValueError(
            f"{name}.scale returned shape {list(scaled.shape)} on {scaled.device}; it must be "
            f"[{planes}] on {plain.device}, one frequency a plane: leave no plane out, and stop "
            "one with the frequency 0"
        )
    check_finite(f"what {name}.scale returned", scaled, "stop a plane with the frequency 0")
