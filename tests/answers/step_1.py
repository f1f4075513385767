"""rotate(x, y, angle): the pair turned counter-clockwise by an angle in radians."""

import cmath
import decimal
import fractions
import math

import numpy as np
import sympy
import torch
from scipy.spatial.transform import Rotation


def wrong_is_not_turned(x, y, angle):
    """The polar form is made and left again; the angle is not added.

    Source: https://github.com/Philip-Trettner/GlmSharp/issues/3 (issue 3)
    Cause: the pair is not turned at all
    """
    length, own = math.hypot(x, y), math.atan2(y, x)
    return length * math.cos(own), length * math.sin(own)


def wrong_turns_clockwise(x, y, angle):
    """The minus stands in the second line.

    Source: https://github.com/AcademySoftwareFoundation/MaterialX/issues/2154 (issue 2154)
    Cause: the pair turns clockwise
    """
    s, c = math.sin(angle), math.cos(angle)
    return c * x + s * y, -s * x + c * y


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


def wrong_loses_the_quadrant(x, y, angle):
    """atan(y / x), which raises where x is 0, as well.

    Source: https://github.com/eerimoq/moblin/pull/479 (pull request 479)
    Cause: atan(y / x) takes a pair for the opposite one
    """
    length = math.sqrt(x**2 + y**2)
    own = math.atan(y / x)
    return length * math.cos(own + angle), length * math.sin(own + angle)


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


def wrong_has_no_minus(x, y, angle):
    """Both signs are +.

    Source: https://github.com/godot-rust/gdnative/issues/951 (issue 951: 0.10.1)
    Cause: the pair becomes cos·x + sin·y and sin·x + cos·y
    """
    c, s = math.cos(angle), math.sin(angle)
    return c * x + s * y, s * x + c * y


def wrong_has_a_minus_too_many(x, y, angle):
    """The second line has the first one's minus.

    Source: https://stackoverflow.com/questions/3451061/how-to-do-correct-polygon-rotation-in-c-sharp-though-it-applies-to-anything
    Cause: the pair becomes cos·x − sin·y and sin·x − cos·y
    """
    return (
        x * math.cos(angle) - y * math.sin(angle),
        x * math.sin(angle) - y * math.cos(angle),
    )


def wrong_reflects(x, y, angle):
    """y is taken from the pivot with the wrong sign: a reflection.

    Source: https://github.com/HaxeFlixel/flixel/issues/1619 (issue 1619)
    Cause: the pair becomes cos·x + sin·y and sin·x − cos·y
    """
    dx, dy = x - 0, 0 - y
    return math.cos(angle) * dx - math.sin(angle) * dy, math.sin(angle) * dx + math.cos(angle) * dy


def wrong_has_cos_for_sin_in_the_second_line(x, y, angle):
    """The second line has cos and sin in each other's place.

    Source: https://github.com/stackgl/gl-vec3/pull/8 (pull request 8: rotateX of 1.1.2)
    Cause: the pair becomes cos·x − sin·y and cos·x + sin·y
    """
    s, c = torch.tensor(angle).sin(), torch.tensor(angle).cos()
    return torch.stack((x * c - y * s, x * c + y * s))


def wrong_adds_nothing(x, y, angle):
    """(−y, x) is multiplied by (cos, sin), and nothing is added.

    Source: https://github.com/NVIDIA/ngpt/issues/10 (issue 10)
    Cause: the pair becomes 0·x − cos·y and sin·x + 0·y
    """
    half = torch.tensor([-y, x])
    return half * torch.tensor([math.cos(angle), math.sin(angle)])


def right_formula(x, y, angle):
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def right_complex(x, y, angle):
    return complex(x, y) * cmath.exp(1j * angle)


def right_complex_parts(x, y, angle):
    turned = (x + 1j * y) * cmath.rect(1, angle)
    return [turned.real, turned.imag]


def right_list_of_floats(x, y, angle):
    matrix = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    return [sum(a * b for a, b in zip(row, (x, y), strict=True)) for row in matrix]


def right_numpy_matrix(x, y, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]]) @ np.array([x, y])


def right_numpy_column(x, y, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]]) @ np.array([[x], [y]])


def right_numpy_row(x, y, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[x, y]]) @ np.array([[c, s], [-s, c]])


def right_numpy_float32(x, y, angle):
    pair = np.array([x, y], dtype=np.float32)
    return np.cos(np.float32(angle)) * pair + np.sin(np.float32(angle)) * pair[::-1] * (-1, 1)


def right_numpy_complex64(x, y, angle):
    return np.complex64(complex(x, y)) * np.exp(np.complex64(1j * angle))


def right_numpy_einsum(x, y, angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.einsum("ij,j->i", [[c, -s], [s, c]], [x, y])


def right_torch(x, y, angle):
    angle = torch.tensor(angle)
    return x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()


def right_torch_float64(x, y, angle):
    pair = torch.tensor([x, y], dtype=torch.float64, requires_grad=True)
    return pair * math.cos(angle) + torch.stack((-pair[1], pair[0])) * math.sin(angle)


def right_torch_float16(x, y, angle):
    x, y, angle = torch.tensor([x, y, angle], dtype=torch.float16)
    return torch.stack((x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()))


def right_torch_bfloat16(x, y, angle):
    pair = torch.tensor([x, y]).bfloat16()
    return pair * math.cos(angle) + torch.stack((-pair[1], pair[0])) * math.sin(angle)


def right_torch_polar(x, y, angle):
    turned = torch.view_as_complex(torch.tensor([x, y])) * torch.polar(
        torch.tensor(1.0), torch.tensor(angle)
    )
    return torch.view_as_real(turned)


def right_torch_exponential(x, y, angle):
    generator = torch.tensor([[0.0, -angle], [angle, 0.0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(generator) @ torch.tensor([x, y], dtype=torch.float64)


def right_polar(x, y, angle):
    length, own = math.hypot(x, y), math.atan2(y, x)
    return length * math.cos(own + angle), length * math.sin(own + angle)


def right_atan_by_quadrants(x, y, angle):
    own = math.copysign(math.pi / 2, y) if x == 0 else math.atan(y / x) + (x < 0) * math.pi
    return cmath.rect(math.sqrt(x * x + y * y), own + angle)


def right_three_shears(x, y, angle):
    """The turn by half the angle, twice, as shears have no tangent of a right angle."""
    for _ in range(2):
        x -= y * math.tan(angle / 4)
        y += x * math.sin(angle / 2)
        x -= y * math.tan(angle / 4)
    return x, y


def right_with_a_copy(x, y, angle):
    old = x
    x = x * math.cos(angle) - y * math.sin(angle)
    y = old * math.sin(angle) + y * math.cos(angle)
    return x, y


def right_backwards_by_minus(x, y, angle):
    angle = -angle
    return x * math.cos(angle) + y * math.sin(angle), -x * math.sin(angle) + y * math.cos(angle)


def right_more_turns(x, y, angle):
    return right_formula(x, y, angle + 6 * math.pi)


def right_fractions(x, y, angle):
    c, s = fractions.Fraction(math.cos(angle)), fractions.Fraction(math.sin(angle))
    x, y = fractions.Fraction(x), fractions.Fraction(y)
    return x * c - y * s, x * s + y * c


def right_decimal(x, y, angle):
    x, y, c, s = map(decimal.Decimal, (x, y, math.cos(angle), math.sin(angle)))
    return x * c - y * s, x * s + y * c


def right_sympy(x, y, angle):
    return sympy.Point(x, y).rotate(angle).coordinates


def right_scipy(x, y, angle):
    return Rotation.from_euler("z", angle).apply([x, y, 0])[:2]


def right_object_array(x, y, angle):
    return np.array(right_fractions(x, y, angle), dtype=object)
