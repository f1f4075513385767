"""rotate(x, y, angle): rotate the pair counterclockwise by an angle in radians."""

import cmath
import decimal
import math

import numpy as np
import torch


def wrong_turns_clockwise_as_nanochat(x, y, angle):
    """The transposed matrix, as nanochat has it on purpose.

    Source: https://github.com/karpathy/nanochat/pull/489 (pull request 489)
    Cause: the pair turns clockwise
    """
    cos, sin = np.cos(angle), np.sin(angle)
    y1 = x * cos + y * sin
    y2 = x * (-sin) + y * cos
    return np.array([y1, y2])


def wrong_gives_degrees_to_cos(x, y, angle):
    """cos and sin get degrees.

    Source: https://github.com/RobLoach/raylib-cpp/issues/271 (issue 271: the wrapper of 5.0.0 says
        degrees, and hands them to cosf and sinf)
    Cause: cos and sin take radians, but they are given degrees
    """
    angle = np.rad2deg(angle)
    return np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y


def wrong_reads_the_new_x(x, y, angle):
    """x is overwritten before y is computed.

    Source: https://github.com/jonobr1/two.js/issues/588 (issue 588)
    Cause: the second line reads the new x
    """
    x = x * math.cos(angle) - y * math.sin(angle)
    y = x * math.sin(angle) + y * math.cos(angle)
    return x, y


def wrong_adds_its_own_angle(x, y, angle):
    """The pair's own angle is added to the angle of the turn.

    Source: https://github.com/maxkueng/victor/issues/37 (issue 37: `rotateBy` of 1.1.0)
    Cause: the pair's own angle is added twice
    """
    rotation = math.atan2(y, x) + angle
    return complex(x, y) * cmath.rect(1, rotation)


def wrong_loses_the_quadrant_in_numpy(x, y, angle):
    """The same in NumPy, where y / 0 is infinite and nothing is raised.

    Source: https://github.com/eerimoq/moblin/pull/479 (pull request 479)
    Cause: atan(y / x) can't tell a pair from the opposite one
    """
    with np.errstate(divide="ignore"):
        own = np.arctan(np.float64(y) / x)
    return np.hypot(x, y) * np.exp(1j * (own + angle))


def right_complex(x, y, angle):
    return complex(x, y) * cmath.exp(1j * angle)


def right_torch_float16(x, y, angle):
    x, y, angle = torch.tensor([x, y, angle], dtype=torch.float16)
    return torch.stack((x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()))


def right_decimal(x, y, angle):
    x, y, c, s = map(decimal.Decimal, (x, y, math.cos(angle), math.sin(angle)))
    return x * c - y * s, x * s + y * c
