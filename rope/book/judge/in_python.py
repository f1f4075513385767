"""Steps 1 to 3, in Python alone: a pair, a score, the angles of a head.

Chapters "Rotation in two dimensions" and "Many dimensions".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import cos, sin
from random import Random
from typing import Any

from rope.book.judge.answers import Function, Part, numbers

Pair = tuple[float, float]


def rotate(x: float, y: float, angle: float) -> Pair:
    """The pair turned counter-clockwise by an angle in radians.

    >>> rotate(1, 0, 0)
    (1.0, 0.0)
    """
    return x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)


def _pairs(draw: Random) -> list[tuple[Any, ...]]:
    simple = [(1.0, 0.0, math.pi / 2), (0.0, 1.0, math.pi / 2), (3.0, 4.0, 1.0)]
    return [*simple, *(tuple(draw.uniform(-3, 3) for _ in "xya") for _ in range(20))]


def _turned(formula: Callable[[float, float, float, float], Pair]) -> Function:
    """A formula in x, y, c = cos and s = sin of the angle."""
    return lambda x, y, angle: formula(x, y, cos(angle), sin(angle))


PAIR = {
    "the pair is not turned at all": _turned(lambda x, y, c, s: (x, y)),
    "the pair turns clockwise: −sin belongs into the first line, +sin into the second": (
        _turned(lambda x, y, c, s: (x * c + y * s, y * c - x * s))
    ),
    "the angle is in radians, and is taken for degrees": (
        lambda x, y, angle: rotate(x, y, math.radians(angle))
    ),
    "cos and sin take radians, and are given degrees": (
        lambda x, y, angle: rotate(x, y, math.degrees(angle))
    ),
    "the second line reads the new x; both lines must read the old one": (
        _turned(lambda x, y, c, s: (x * c - y * s, (x * c - y * s) * s + y * c))
    ),
    "the first line reads the new y; both lines must read the old one": (
        _turned(lambda x, y, c, s: (x * c - (x * s + y * c) * s, x * s + y * c))
    ),
    "both signs are +, or both −, so the pair changes its length": (
        _turned(lambda x, y, c, s: (x * c + y * s, x * s + y * c))
    ),
    "both terms of the second line differ in sign: a reflection, not a rotation": (
        _turned(lambda x, y, c, s: (x * c + y * s, x * s - y * c))
    ),
    "the first line is turned, and the second has the signs of a reflection": (
        _turned(lambda x, y, c, s: (x * c - y * s, x * s - y * c))
    ),
    "cos and sin stand in each other's place": (
        _turned(lambda x, y, c, s: (x * s - y * c, x * c + y * s))
    ),
    "the two results stand in each other's place": (
        _turned(lambda x, y, c, s: (x * s + y * c, x * c - y * s))
    ),
    "each coordinate is multiplied alone; each must get something of the other": (
        _turned(lambda x, y, c, s: (x * c, y * s))
    ),
    "the pair keeps its length and forgets its own direction": (
        _turned(lambda x, y, c, s: (math.hypot(x, y) * c, math.hypot(x, y) * s))
    ),
    "atan(y / x) takes a pair for the opposite one: use atan2(y, x)": (
        _turned(lambda x, y, c, s: rotate(math.hypot(x, y), 0, math.atan(y / x)))
    ),
}


def score(q: Pair, k: Pair, m: int, n: int, theta: float) -> float:
    """The dot product of q, turned to position m, and k, turned to position n.

    >>> score((1, 0), (1, 0), 5, 5, 0.3)
    1.0
    """
    (a, b), (c, d) = rotate(*q, m * theta), rotate(*k, n * theta)
    return a * c + b * d


def _scores(draw: Random) -> list[tuple[Any, ...]]:
    simple = [((1.0, 0.0), (1.0, 0.0), 0, 1, 0.5), ((1.0, 0.0), (0.0, 1.0), 1, 3, 0.5)]
    pair = lambda: (draw.uniform(-3, 3), draw.uniform(-3, 3))
    more = range(20)
    return simple + [
        (pair(), pair(), draw.randrange(30), draw.randrange(30), draw.uniform(0.1, 1)) for _ in more
    ]


def _complex(formula: Callable[..., Any]) -> Function:
    """A formula in q, k as complex numbers, m, n and e(x), the unit number at the angle x theta."""
    return lambda q, k, m, n, theta: formula(
        complex(*q), complex(*k), m, n, lambda x: complex(cos(x * theta), sin(x * theta))
    )


def _dot(a: complex, b: complex) -> float:
    return (a.conjugate() * b).real


SCORE = {
    "no position is used": _complex(lambda q, k, m, n, e: _dot(q, k)),
    "only the query is turned": _complex(lambda q, k, m, n, e: _dot(q * e(m), k)),
    "only the key is turned": _complex(lambda q, k, m, n, e: _dot(q, k * e(n))),
    "both are turned to one position, so it knows none": (
        _complex(lambda q, k, m, n, e: _dot(q * e(m), k * e(m)))
    ),
    "query and key are turned in opposite directions: it knows m + n": (
        _complex(lambda q, k, m, n, e: _dot(q * e(m), k * e(-n)))
    ),
    "the key is turned clockwise and the query the other way: it knows m + n": (
        _complex(lambda q, k, m, n, e: _dot(q * e(-m), k * e(n)))
    ),
    "the product of two complex numbers needs the conjugate of the query": (
        _complex(lambda q, k, m, n, e: (q * e(m) * k * e(n)).real)
    ),
    "both turn clockwise, or the positions have changed places: it knows m − n": (
        _complex(lambda q, k, m, n, e: _dot(q, k * e(m - n)))
    ),
    "the distance |n − m| is used: what comes before and what after are told apart no more": (
        _complex(lambda q, k, m, n, e: _dot(q, k * e(abs(n - m))))
    ),
    "the part with the sine is missing": (
        _complex(lambda q, k, m, n, e: _dot(q, k) * e(n - m).real)
    ),
    "that is the sine part alone: take the real part of the product": (
        _complex(lambda q, k, m, n, e: (q.conjugate() * k * e(n - m)).imag)
    ),
    "it is a complex number; the score is its real part": (
        _complex(lambda q, k, m, n, e: q.conjugate() * k * e(n - m))
    ),
    "positions are added to the vectors; they must turn them": (
        lambda q, k, m, n, theta: sum((a + m) * (b + n) for a, b in zip(q, k, strict=True))
    ),
    "position vectors are added to query and key; positions must turn them": (
        _complex(lambda q, k, m, n, e: _dot(q + e(m), k + e(n)))
    ),
    "the first coordinates alone are multiplied; a dot product adds both": (
        _complex(lambda q, k, m, n, e: (q * e(m)).real * (k * e(n)).real)
    ),
    "it is divided by √2; scaling comes with the layer": (
        _complex(lambda q, k, m, n, e: _dot(q * e(m), k * e(n)) / 2**0.5)
    ),
}


def angles(position: float, head_dim: int, base: float) -> list[float]:
    """The angle of each plane at a position: position * base ** (-2j / head_dim).

    >>> angles(5, 4, 100)
    [5.0, 0.5]
    """
    return [position * base ** (-2 * j / head_dim) for j in range(head_dim // 2)]


def _positions(draw: Random) -> list[tuple[Any, ...]]:
    simple = [(1, 4, 100.0), (1, 6, 1000.0), (2, 8, 10000.0), (0, 4, 100.0)]
    drawn = [
        (draw.randrange(100), 2 * draw.randrange(3, 40), draw.uniform(50, 1e6)) for _ in "8" * 8
    ]
    return simple + drawn


def _exponents(formula: Callable[[int, int], float]) -> Function:
    """The angles for another exponent of the base, a formula in j and head_dim."""
    return lambda m, d, base: [m * float(base) ** formula(j, d) for j in range(d // 2)]


ANGLES = {
    "the exponent lacks its 2: −j / d where −2j / d is meant": _exponents(lambda j, d: -j / d),
    "the exponent has a 2 too many: a j that goes in steps of 2 is 2j already": (
        _exponents(lambda j, d: -4 * j / d)
    ),
    "the formula counts from 1 and the code from 0: exponent −2(j − 1) / d": (
        _exponents(lambda j, d: -2 * (j - 1) / d)
    ),
    "planes are counted from 1: the first must turn by the position itself": (
        _exponents(lambda j, d: -2 * (j + 1) / d)
    ),
    "the exponent is half a step off: −(2j + 1) / d": _exponents(lambda j, d: -(2 * j + 1) / d),
    "the minus of the exponent is missing, so angles grow from plane to plane": _exponents(
        lambda j, d: 2 * j / d
    ),
    "the last plane has exponent −1: linspace has taken its end in": (
        _exponents(lambda j, d: -j / (d // 2 - 1))
    ),
    "// makes whole numbers of the exponents: use /": _exponents(lambda j, d: -(2 * j // d)),
    "// rounds the exponents down to whole numbers: use /": _exponents(lambda j, d: -2 * j // d),
    "the base is always 10,000": lambda m, d, base: angles(m, d, 1e4),
    "the position is missing: these are the frequencies": lambda m, d, base: angles(1, d, base),
    "positions count from 0, and here from 1": lambda m, d, base: angles(m + 1, d, base),
    "a factor 2π is too many: frequencies are in radians": (
        lambda m, d, base: angles(2 * math.pi * m, d, base)
    ),
    "the slowest plane comes first": lambda m, d, base: angles(m, d, base)[::-1],
    "each angle stands there twice, once a coordinate; give one for each plane": (
        lambda m, d, base: [angle for angle in angles(m, d, base) for _ in "xy"]
    ),
    "all angles stand there twice, one list behind the other; give one for each plane": (
        lambda m, d, base: angles(m, d, base) * 2
    ),
}


def _on_the_circle(result: Any) -> list[Pair]:
    """Where angles point to: whole turns make no difference."""
    return [(cos(angle), sin(angle)) for angle in numbers(result)]


TWO, MANY = "Rotation in two dimensions", "Many dimensions"
PARTS = {
    1: (Part("rotate", TWO, _pairs, {"": rotate}, PAIR),),
    2: (Part("score", TWO, _scores, {"": score}, SCORE),),
    3: (Part("angles", MANY, _positions, {"": angles}, ANGLES, view=_on_the_circle),),
}
