"""Define steps 1 to 3, which don't need torch: rotate a pair, score two pairs, list angles."""

from __future__ import annotations

from math import cos, pi, sin, tau
from random import Random
from typing import Any

from rope.book.judge.answers import EPS, Arguments, Part, Unusable, dtypes, numbers


def _pairs(draw: Random) -> list[Arguments]:
    simple = [(1.0, 0.0, pi / 2), (-1.0, 1.0, pi / 2), (3.0, 4.0, 1.0)]
    pair = lambda: (draw.uniform(-3, 3), draw.uniform(-3, 3))
    drawn = [(*pair(), draw.uniform(-size, size)) for size in (3, 20) for _ in range(10)]
    return [*simple, *drawn, (0.0, 1.0, pi / 2)]


def _scores(draw: Random) -> list[Arguments]:
    a, b = (1.0, 0.0), (0.0, 1.0)
    simple = [(a, a, 0, 1, 0.5), (a, b, 1, 3, 0.5), (b, (2.0, 1.0), 3, 1, 0.5)]
    pair = lambda: (draw.uniform(-1, 1), draw.uniform(-1, 1))
    drawn = ((pair(), pair(), draw.randrange(12), draw.randrange(12)) for _ in range(20))
    return [*simple, *((*arguments, draw.uniform(0.1, 1)) for arguments in drawn)]


def _positions(draw: Random) -> list[Arguments]:
    simple = [(1, 4, 100.0), (1, 6, 1000.0), (2, 8, 10000.0), (0, 4, 100.0)]
    drawn = ((draw.randrange(100), 2 * draw.randrange(3, 40)) for _ in range(8))
    return [*simple, *((*arguments, draw.uniform(50, 1e6)) for arguments in drawn)]


def _real(result: Any) -> Any:
    if isinstance(result, complex) or "complex" in " ".join(dtypes(result)):
        raise Unusable("the result is a complex number; return its real part, which is the score")
    return result


def _on_the_circle(result: Any) -> list[tuple[float, float]]:
    """Return each angle's point on the unit circle, so that angles 2 pi apart compare as equal."""
    if coarse := EPS.keys() & dtypes(result):
        raise Unusable(f"the angles are {coarse.pop()}, which is too coarse: use float32 or better")
    return [(cos(angle % tau), sin(angle % tau)) for angle in numbers(result)]


TWO, MANY = "Rotation in two dimensions", "Many dimensions"
PARTS = {
    1: (Part(1, "rotate", TWO, _pairs),),
    2: (Part(2, "score", TWO, _scores, earlier=(1,), view=_real, roundings=128),),
    3: (Part(3, "angles", MANY, _positions, view=_on_the_circle),),
}
