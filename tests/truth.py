"""Compute exact spectra, cosines, and sines with mpmath, as the oracle for the tests of tables.

This module implements theta'_j of each extension a second time, plane by plane, from the paper. It
shares only the parameters in the extension object with `rope.extensions`. cos(m theta'_j) and
sin(m theta'_j) are computed with 50 digits.

Shapes: R rotated width.
"""

import mpmath
from mpmath import mpf

DIGITS = 50


def spectrum(dim, base, extension, seq_len=None):
    """Return the R/2 frequencies theta'_j of an extension, as mpmath numbers with 50 digits.

    >>> from rope.extensions import Linear
    >>> mpmath.nstr(spectrum(4, 10000.0, Linear(4.0))[1], 3)
    '0.0025'
    """
    with mpmath.workdps(DIGITS):
        return [_frequency(extension, j, dim, mpf(base), seq_len) for j in range(dim // 2)]


def attention_scaling(extension):
    """Return the factor on cos and sin with 50 digits.

    It is the extension's `attention_factor` if that is set. Otherwise, it is
    sqrt(1 + ln s / ln L) for LongRoPE; (0.1 m ln s + 1) / (0.1 m' ln s + 1) for YaRN with mscale m
    and mscale_all_dim m'; 0.1 ln s + 1 for YaRN unless both are set; and 1 otherwise.
    """
    with mpmath.workdps(DIGITS):
        factor = getattr(extension, "attention_factor", None)
        if factor is not None:
            return mpf(factor)
        if extension.name == "longrope":
            trained = extension.original_max_position_embeddings
            return mpmath.sqrt(1 + mpmath.log(extension.factor, trained))
        if extension.name != "yarn":
            return mpf(1)
        growth = mpmath.log(extension.factor) / 10
        above, below = extension.mscale, extension.mscale_all_dim
        if above and below:
            return (1 + mpf(above) * growth) / (1 + mpf(below) * growth)
        return 1 + growth


def exact_row(position, frequencies, scale=1):
    """Return the pairs (cos, sin) of position * theta_j, multiplied by `scale`, with 50 digits."""
    with mpmath.workdps(DIGITS):
        pairs = (mpmath.cos_sin(position * theta) for theta in frequencies)
        return [(scale * cosine, scale * sine) for cosine, sine in pairs]


def _frequency(extension, j, dim, base, seq_len):
    """Return theta'_j by the formula in the extension's paper."""

    def plain(base):
        return base ** (-mpf(2 * j) / dim)

    trained = getattr(extension, "original_max_position_embeddings", 0)
    theta, factor = plain(base), mpf(getattr(extension, "factor", None) or 1)
    match extension.name:
        case "default":
            return theta
        case "linear":
            return theta / factor
        case "ntk":
            return plain(base * factor ** (mpf(dim) / (dim - 2)))
        case "dynamic":
            growth = factor * max(seq_len or 0, trained) / trained - (factor - 1)
            return plain(base * growth ** (mpf(dim) / (dim - 2)))
        case "yarn":
            low, high = (
                dim * mpmath.log(trained / (2 * mpmath.pi * mpf(beta))) / (2 * mpmath.log(base))
                for beta in (extension.beta_fast, extension.beta_slow)
            )
            if extension.truncate:
                low, high = mpmath.floor(low), mpmath.ceil(high)
            low, high = max(low, mpf(0)), min(high, mpf(dim - 1))
            ramp = min(max((j - low) / (high - low), mpf(0)), mpf(1))
            return theta * (1 - ramp + ramp / factor)
        case "llama3":
            periods = trained * theta / (2 * mpmath.pi)
            low, high = mpf(extension.low_freq_factor), mpf(extension.high_freq_factor)
            share = min(max((periods - low) / (high - low), mpf(0)), mpf(1))
            return (1 - share) * theta / factor + share * theta
        case "longrope":
            longer = (seq_len or 0) > trained
            return theta / mpf((extension.long_factor if longer else extension.short_factor)[j])
        case "proportional":
            rotated = int(extension.partial_rotary_factor * dim // 2)
            return theta / factor if j < rotated else mpf(0)
    raise ValueError(f"no exact formula for the extension {extension.name!r}; add it to truth.py")
