"""Steps 1 to 3, in Python alone: a pair, a score, the angles of a head.

Chapters "Rotation in two dimensions" and "Many dimensions". The tables give each cause its formula.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import atan, atan2, cos, degrees, exp, hypot, log, pi, radians, sin, tau
from operator import mul
from random import Random
from typing import Any

from rope.book.judge.answers import Function, Part, Unusable, numbers

Pair = tuple[float, float]


def rotate(x: float, y: float, angle: float) -> Pair:
    """The pair turned counter-clockwise by an angle in radians.

    >>> rotate(1, 0, 0)
    (1.0, 0.0)
    """
    return x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)


def _pairs(draw: Random) -> list[tuple[Any, ...]]:
    simple = [(1.0, 0.0, pi / 2), (-1.0, 1.0, pi / 2), (3.0, 4.0, 1.0)]
    pair = lambda: (draw.uniform(-3, 3), draw.uniform(-3, 3))
    drawn = [(*pair(), draw.uniform(-size, size)) for size in (3, 20) for _ in range(10)]
    return [*simple, *drawn, (0.0, 1.0, pi / 2)]


FACTORS: dict[str, Callable[[float], float]] = {
    "+ 0": lambda a: 0, "+ cos": cos, "+ sin": sin,
    "− cos": lambda a: -cos(a), "− sin": lambda a: -sin(a),
}  # fmt: skip


def _matrix(*factors: str) -> Function:
    a, b, c, d = (FACTORS[factor] for factor in factors)
    return lambda x, y, t: (a(t) * x + b(t) * y, c(t) * x + d(t) * y)


MATRICES = {
    "{}·x {}·y and {}·x {}·y; it must be cos·x − sin·y and sin·x + cos·y".format(*four)
    .replace("and + ", "and ")
    .removeprefix("+ "): _matrix(*four)
    for four in product(FACTORS, repeat=4)
    if four != ("+ cos", "− sin", "+ sin", "+ cos")
}
# fmt: off
PAIR: dict[str, Function] = {
    "the pair is not turned at all": lambda x, y, a: (x, y),
    "the pair turns clockwise: −sin belongs into the first line, +sin into the second":
        lambda x, y, a: rotate(x, y, -a),
    "the angle is in radians, and is taken for degrees": lambda x, y, a: rotate(x, y, radians(a)),
    "cos and sin take radians, and are given degrees": lambda x, y, a: rotate(x, y, degrees(a)),
    "the second line reads the new x; both lines must read the old one":
        lambda x, y, a: (x := rotate(x, y, a)[0], rotate(x, y, a)[1]),
    "the first line reads the new y; both lines must read the old one":
        lambda x, y, a: (rotate(x, new := rotate(x, y, a)[1], a)[0], new),
    "each coordinate is multiplied alone; sin must multiply the other one":
        lambda x, y, a: (x * cos(a) - x * sin(a), y * cos(a) + y * sin(a)),
    "the pair is turned to the angle; it must be turned by the angle":
        lambda x, y, a: rotate(hypot(x, y), 0, a),
    "the pair's own angle comes in twice; its coordinates hold it already":
        lambda x, y, a: rotate(x, y, a + atan2(y, x)),
    "atan(y / x) takes a pair for the opposite one: use atan2(y, x)":
        lambda x, y, a: rotate(hypot(x, y), 0, a + atan(y / (x or 1e-99))),
    "the results are cut to whole numbers": lambda x, y, a: tuple(map(int, rotate(x, y, a))),
}
# fmt: on
LINES = {f"the pair becomes {lines}": turn for lines, turn in MATRICES.items()}


def score(q: Pair, k: Pair, m: float, n: float, theta: float, turn: Function = rotate) -> float:
    """The dot product of q, turned to position m, and k, turned to position n.

    >>> score((1, 0), (1, 0), 5, 5, 0.3)
    1.0
    """
    (a, b), (c, d) = turn(*q, m * theta), turn(*k, n * theta)
    return float(a * c + b * d)


def _scores(draw: Random) -> list[tuple[Any, ...]]:
    a, b = (1.0, 0.0), (0.0, 1.0)
    simple = [(a, a, 0, 1, 0.5), (a, b, 1, 3, 0.5), (b, (2.0, 1.0), 3, 1, 0.5)]
    one = lambda: (draw.uniform(-1, 1), draw.uniform(-1, 1))
    more = ((one(), one(), draw.randrange(12), draw.randrange(12)) for _ in range(20))
    return [*simple, *((*given, draw.uniform(0.1, 1)) for given in more)]


def _real(result: Any) -> Any:
    if isinstance(result, complex) or "complex" in str(getattr(result, "dtype", "")):
        raise Unusable("it is a complex number; the score is its real part")
    return result


def _knows(position: Callable[[int, int], int]) -> Function:
    """A score that knows another function of m and n than n − m."""
    return lambda q, k, m, n, theta: score(q, k, 0, position(m, n), theta)


# fmt: off
SCORE: dict[str, Function] = {
    "no position is used, or the same for both: turn q by m, and k by n": _knows(lambda m, n: 0),
    "only the query is turned": _knows(lambda m, n: -m),
    "only the key is turned": _knows(lambda m, n: n),
    "the key turns the other way, so the score knows m + n: turn both alike":
        _knows(lambda m, n: -n - m),
    "the query turns the other way, so the score knows m + n: turn both alike":
        _knows(lambda m, n: n + m),
    "that is the score of n and m: both turn clockwise, or the positions have changed places":
        _knows(lambda m, n: m - n),
    "query and key are turned twice as far": _knows(lambda m, n: 2 * (n - m)),
    "the key is turned twice": _knows(lambda m, n: 2 * n - m),
    "the distance |n − m| is used: what comes before and what after are told apart no more":
        _knows(lambda m, n: abs(n - m)),
    "theta is not used: the angle is the position times theta":
        lambda q, k, m, n, theta: score(q, k, m, n, 1),
    "a position is divided by theta; it must be multiplied":
        lambda q, k, m, n, theta: score(q, k, m, n, 1 / theta),
    "the product of two complex numbers needs the conjugate of one of them":
        lambda q, k, m, n, theta: score((q[0], -q[1]), k, -m, n, theta),
    "the turned query stands in the place of the key":
        lambda q, k, m, n, theta: score(q, q, 0, m + n, theta),
    "query and key are crossed: both lines of a rotation must read the same vector":
        lambda q, k, m, n, t: rotate(q[0], q[1], m * t)[0] ** 2 + rotate(k[0], k[1], n * t)[1] ** 2,
    "q[1] k[0] is under the cosine, where q[1] k[1] must be": lambda q, k, m, n, theta:
        score(q, k, m, n, theta) + q[1] * (k[0] - k[1]) * cos((n - m) * theta),
    "it is divided by √2; scaling comes with the layer": lambda *given: score(*given) / 2**0.5,
} | {
    f"k, turned by (n − m)·theta, becomes {lines}": lambda q, k, m, n, theta, turn=turn:
        sum(map(mul, q, turn(*k, (n - m) * theta)))
    for lines, turn in MATRICES.items()
} | {f"in the rotation, {said}": partial(score, turn=wrong) for said, wrong in PAIR.items()}
# fmt: on


def angles(position: float, head_dim: int, base: float) -> list[float]:
    """The angle of each plane at a position: position * base ** (-2j / head_dim).

    >>> angles(5, 4, 100)
    [5.0, 0.5]
    """
    return [position * base ** (-2 * j / head_dim) for j in range(head_dim // 2)]


def _positions(draw: Random) -> list[tuple[Any, ...]]:
    simple = [(1, 4, 100.0), (1, 6, 1000.0), (2, 8, 10000.0), (0, 4, 100.0)]
    more = ((draw.randrange(100), 2 * draw.randrange(3, 40)) for _ in range(8))
    return [*simple, *((*given, draw.uniform(50, 1e6)) for given in more)]


def _exponents(formula: Callable[[int, int], float]) -> Function:
    """The angles for another exponent of the base, a formula in j and head_dim."""
    return lambda m, d, base: [m * base ** formula(j, d) for j in range(d // 2)]


def _over_head_dim(a: int, b: int) -> Function:
    return _exponents(lambda j, d: (a * j + b) / d)


TIMES = {"−j": -1, "−2j": -2, "−4j": -4, "j": 1, "2j": 2, "4j": 4}
PLUS = {"": 0, " + 1": 1, " − 1": -1, " + 2": 2, " − 2": -2}
# fmt: off
ANGLES: dict[str, Function] = {
    f"{by}{plus} is divided by head_dim, with j from 0; it must be −2j": _over_head_dim(a, b)
    for (by, a), (plus, b) in product(TIMES.items(), PLUS.items()) if (a, b) != (-2, 0)
} | {
    "angles are in radians, and these are in degrees": lambda m, d, base: [
        degrees(angle) for angle in angles(m, d, base)
    ],
    "the last exponent is −1, as of a linspace with its end: divide j by head_dim // 2":
        _exponents(lambda j, d: -2 * j / (d - 2)),
    "all exponents are 0, as // makes them; they must be −2j / head_dim":
        _exponents(lambda j, d: 0),
    "// rounds the exponents down to whole numbers; they must be −2j / head_dim":
        _exponents(lambda j, d: -2 * j // d),
    "/ head_dim // 2 divides twice, and rounds: put head_dim // 2 in brackets":
        lambda m, d, base: [m * exp(j * (-log(base) / d // 2)) for j in range(d // 2)],
    "base and exponent stand in each other's place":
        lambda m, d, base: [m * (2 * j / d) ** (1 / base) for j in range(d // 2)],
    "j runs over the coordinates; it must run over the planes, range(head_dim // 2)":
        lambda m, d, base: [m * base ** (-2 * j / d) for j in range(d)],
    "the base is always 10,000": lambda m, d, base: angles(m, d, 1e4),
    "the position is missing: these are the frequencies": lambda m, d, base: angles(1, d, base),
    "positions count from 0, and here from 1": lambda m, d, base: angles(m + 1, d, base),
    "a factor π is too many: frequencies are in radians": lambda m, *to: angles(pi * m, *to),
    "each angle stands there twice, once a coordinate; give one for each plane":
        lambda *given: [angle for angle in angles(*given) for _ in "xy"],
    "all angles stand there twice, one list behind the other; give one for each plane":
        lambda *given: angles(*given) * 2,
}
# fmt: on


def _on_the_circle(result: Any) -> list[Pair]:
    """Where angles point to: whole turns make no difference."""
    return [(cos(angle % tau), sin(angle % tau)) for angle in numbers(result)]


TWO, MANY = "Rotation in two dimensions", "Many dimensions"
PARTS = {
    1: (Part("rotate", TWO, _pairs, {"": rotate}, PAIR | LINES),),
    2: (Part("score", TWO, _scores, {"": score}, SCORE, view=_real, roundings=128),),
    3: (Part("angles", MANY, _positions, {"": angles}, ANGLES, view=_on_the_circle),),
}
