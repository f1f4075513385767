"""rotate(x, y, angle): the pair turned counter-clockwise by an angle in radians."""

import cmath
import math


def wrong_reads_the_new_x(x, y, angle):
    """x is overwritten before y is computed.

    Source: https://stackoverflow.com/questions/PLACEHOLDER
    Cause: the second line reads the new x
    """
    x = x * math.cos(angle) - y * math.sin(angle)
    y = x * math.sin(angle) + y * math.cos(angle)
    return x, y


def right_complex(x, y, angle):
    return complex(x, y) * cmath.exp(1j * angle)
