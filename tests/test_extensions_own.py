"""Extensions of a reader's own: what their classes may be, and what their `scale` may return."""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch

from rope import RotaryEmbedding, inverse_frequencies
from rope.extensions import Extension, Linear


@dataclass(frozen=True)
class Following(Extension):
    """Slower with each position in use, without a word on regimes."""

    name = "following"
    paper = "none"

    @property
    def length_dependent(self):
        return True

    def scale(self, inv_freq, base, seq_len=None):
        return inv_freq / (1 if seq_len is None else seq_len)


@dataclass(frozen=True)
class Returning(Extension):
    """Whatever it is made with."""

    what: object
    name = "returning"
    paper = "none"

    def scale(self, inv_freq, base, seq_len=None):
        return self.what(inv_freq)


@dataclass(frozen=True, slots=True)
class Slotted(Extension):
    """A dataclass with slots is made twice over, and must be allowed."""

    factor: float
    name = "slotted"
    paper = "none"

    def scale(self, inv_freq, base, seq_len=None):
        return inv_freq / self.factor


def test_each_length_is_a_regime_unless_the_class_says_otherwise():
    extension = Following()
    assert [extension.regime(n) for n in (None, 3, 4)] == [None, 3, 4]
    x = torch.ones(1, 1, 1, 8)
    rotary = RotaryEmbedding(8, 16, extension=extension)
    for length in (2, 3):
        expected = RotaryEmbedding(8, 16, extension=Linear(float(length)))
        assert torch.equal(
            rotary.rotate(x, offset=length - 1), expected.rotate(x, offset=length - 1)
        )
        turned = rotary.rotate(x, offset=1, seq_len=length)
        assert torch.equal(turned, expected.rotate(x, offset=1))


V, T = ValueError, TypeError
BAD = {
    "a plane": (lambda f: f[:1], V, r"Returning.scale returned shape \[1\].*must be \[4\].*freq"),
    "two axes": (lambda f: f[None], V, r"returned shape \[1, 4\] on cpu; it must be \[4\]"),
    "elsewhere": (lambda f: f.to("meta"), V, r"\[4\] on meta; it must be \[4\] on cpu"),
    "float32": (lambda f: f.float(), T, r"returned torch.float32; it must be a float64 tensor"),
    "a list": (lambda f: f.tolist(), T, "returned list; it must be a float64 tensor"),
    "nothing": (lambda f: None, T, "returned NoneType; it must be a float64 tensor"),
    "infinite": (lambda f: f / 0, V, "returned inf; all frequencies must be finite: stop"),
    "nan": (lambda f: f * float("nan"), V, "returned nan; all frequencies must be finite: stop"),
}


@pytest.mark.parametrize(("what", "kind", "message"), BAD.values(), ids=BAD)
def test_what_scale_returns_is_looked_at(what, kind, message):
    with pytest.raises(kind, match=message):
        inverse_frequencies(8, extension=Returning(what))
    with pytest.raises(kind, match=message):
        RotaryEmbedding(8, extension=Returning(what))


def test_frequencies_that_no_number_can_be_read_from_are_let_through():
    """On meta, in a tracer and in compiled code a look at the values would fail."""
    extension, plain = Slotted(2.0), inverse_frequencies(8)
    make = lambda **options: inverse_frequencies(8, extension=extension, **options)
    assert make(device="meta").is_meta
    torch.compiler.reset()
    compiled = torch.compile(make, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(), plain / 2)
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        assert make().shape == (4,)
    refused = torch.compile(
        lambda: inverse_frequencies(8, extension=Returning(lambda f: f / 0)), backend="aot_eager"
    )
    with pytest.raises(RuntimeError, match=r"Returning.scale must return finite frequencies"):
        refused()


def test_numbers_that_are_no_fields_are_refused_when_the_class_is_written():
    """Half(2.0) == Half(3.0) would be true: no field tells them apart."""
    for base in (Extension, Linear):
        with pytest.raises(TypeError, match=r"Half has an __init__ of its own.*@dataclass\(frozen"):

            class Half(base):
                def __init__(self, factor):
                    self.by = factor

    assert Slotted(2.0) == Slotted(2.0) != Slotted(3.0)
    assert hash(Slotted(2.0)) == hash(copy.deepcopy(Slotted(2.0)))
    assert pickle.loads(pickle.dumps(Slotted(2.0))) == Slotted(2.0)
