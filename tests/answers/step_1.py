"""rotate(x, y, angle): the pair turned counter-clockwise by an angle in radians."""

import cmath
import decimal
import math

import numpy as np
import torch


def wrong_is_not_turned(x, y, angle):
    """The polar form is made and left again; the angle is not added.

    Source: https://github.com/Philip-Trettner/GlmSharp/issues/3 (issue 3)
    Cause: the pair is not turned at all
    """
    length, own = math.hypot(x, y), math.atan2(y, x)
    return length * math.cos(own), length * math.sin(own)


def wrong_turns_clockwise_as_nanochat(x, y, angle):
    """The transposed matrix, as nanochat has it on purpose.

    Source: https://github.com/karpathy/nanochat/pull/489 (pull request 489)
    Cause: the pair turns clockwise
    """
    cos, sin = np.cos(angle), np.sin(angle)
    y1 = x * cos + y * sin
    y2 = x * (-sin) + y * cos
    return np.array([y1, y2])


def wrong_converts_to_radians_again(x, y, angle):
    """An angle in radians is converted from degrees once more.

    Source: https://github.com/processing/p5.js/pull/2976 (pull request 2976, WebGL's rotate)
    Cause: the angle is in radians, and is taken for degrees
    """
    t = angle * math.pi / 180
    return x * math.cos(t) - y * math.sin(t), x * math.sin(t) + y * math.cos(t)


def wrong_gives_degrees_to_cos(x, y, angle):
    """cos and sin get degrees.

    Source: https://github.com/RobLoach/raylib-cpp/issues/271 (issue 271: the wrapper of 5.0.0 says
        degrees, and hands them to cosf and sinf)
    Cause: cos and sin take radians, and are given degrees
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


def wrong_multiplies_each_coordinate_alone(x, y, angle):
    """The vector that meets sin is (−x, y) where it must be (−y, x).

    Source: https://github.com/hkproj/pytorch-llama/issues/9 (issue 9: slide 25, last two rows)
    Cause: each coordinate is multiplied alone
    """
    pair, other = np.array([x, y]), np.array([-x, y])
    return pair * np.cos(angle) + other * np.sin(angle)


def wrong_turns_to_the_angle(x, y, angle):
    """The pair's own angle is taken off first, so it ends at the angle given.

    Source: https://github.com/maxkueng/victor/issues/25 (issue 25: what `rotate` is to do there)
    Cause: the pair is turned to the angle
    """
    rotation = angle - math.atan2(y, x)
    return (
        x * math.cos(rotation) - y * math.sin(rotation),
        x * math.sin(rotation) + y * math.cos(rotation),
    )


def wrong_adds_its_own_angle(x, y, angle):
    """The pair's own angle is added to the angle of the turn.

    Source: https://github.com/maxkueng/victor/issues/37 (issue 37: `rotateBy` of 1.1.0)
    Cause: the pair's own angle comes in twice
    """
    rotation = math.atan2(y, x) + angle
    return complex(x, y) * cmath.rect(1, rotation)


def wrong_loses_the_quadrant_in_numpy(x, y, angle):
    """The same in NumPy, where y / 0 is infinite and nothing is raised.

    Source: https://github.com/eerimoq/moblin/pull/479 (pull request 479)
    Cause: atan(y / x) takes a pair for the opposite one
    """
    with np.errstate(divide="ignore"):
        own = np.arctan(np.float64(y) / x)
    return np.hypot(x, y) * np.exp(1j * (own + angle))


def wrong_cuts_to_whole_numbers(x, y, angle):
    """Coordinates are made int, as for a screen.

    Source: https://mail.python.org/pipermail/python-list/2013-July/652756.html (23 July 2013)
    Cause: the results are cut to whole numbers
    """
    sin, cos = math.sin(angle), math.cos(angle)
    return [int(x * cos - y * sin), int(x * sin + y * cos)]


def wrong_adds_nothing(x, y, angle):
    """(−y, x) is multiplied by (cos, sin), and nothing is added.

    Source: https://github.com/NVIDIA/ngpt/issues/10 (issue 10)
    Cause: the pair becomes 0·x − cos·y and sin·x + 0·y
    """
    half = torch.tensor([-y, x])
    return half * torch.tensor([math.cos(angle), math.sin(angle)])


def right_complex(x, y, angle):
    return complex(x, y) * cmath.exp(1j * angle)


def right_numpy_column(x, y, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]]) @ np.array([[x], [y]])


def right_torch_float16(x, y, angle):
    x, y, angle = torch.tensor([x, y, angle], dtype=torch.float16)
    return torch.stack((x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()))


def right_decimal(x, y, angle):
    x, y, c, s = map(decimal.Decimal, (x, y, math.cos(angle), math.sin(angle)))
    return x * c - y * s, x * s + y * c
