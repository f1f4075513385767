"""The figure of the context extensions draws what `rope.extensions` computes, plane by plane."""

import html
import json
import re

import pytest
import torch
import vl_convert

import rope
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN
from rope.figures import spectrum

SHORT = (1.0,) * 48
LONG = tuple(1.0 + 1.3 * j for j in range(48))
SEARCHED = {"base": 10_000.0, "length": 4096, "factor": 32.0}
# Vega's labels hold 12 decimals and the searched factors six significant digits.
TOLERANCE = 1e-6


def drawn(method, **sliders):
    """The chart as SVG with the sliders moved, its Vega expressions evaluated."""
    spec = spectrum.spectrum(LONG, **SEARCHED).to_dict()
    values = {"method": method} | sliders
    for parameter in spec["params"]:
        parameter["value"] = values.pop(parameter["name"], parameter.get("value"))
        if "expr" in parameter:
            del parameter["value"]
    assert not values, f"no such slider: {values}"
    return html.unescape(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version="5.20"))


def ratios(svg):
    """theta'/theta by plane, from the dots' labels."""
    dots = re.findall(r'aria-label="j: (\d+); θ′ / θ: ([\d.e−-]+)"', svg)
    in_order = sorted(dots, key=lambda dot: int(dot[0]))
    return torch.tensor([float(y.replace("−", "-")) for _, y in in_order], dtype=torch.float64)


def extension(method, s, length):
    return {
        spectrum.PI: Linear(s),
        spectrum.NTK: NTK(s),
        spectrum.DYNAMIC: DynamicNTK(s, length),
        spectrum.YARN: YaRN(s, length),
        spectrum.LLAMA3: Llama3(s, length),
        spectrum.LONGROPE: LongRoPE(SHORT, LONG, 4096, factor=32.0),
        spectrum.PROPORTIONAL: Proportional(spectrum.KEPT),
    }[method]


@pytest.mark.parametrize("method", spectrum.METHODS)
@pytest.mark.parametrize(("s", "power", "logbase"), [(8, 13, 5.7), (32, 9, 3.2)])
def test_every_plane_is_drawn_at_the_packages_ratio(method, s, power, logbase):
    svg = drawn(method, factor=s, loglength=power, logbase=logbase)
    dim, base, length = spectrum.DIM, 10.0**logbase, 2**power
    if method == spectrum.LONGROPE:  # the sliders do not move it
        dim, base, length, s = 2 * len(LONG), *SEARCHED.values()
    longest = int(s * length)
    plain = rope.inverse_frequencies(dim, base)
    changed = extension(method, float(s), length).scale(plain, base, longest)
    torch.testing.assert_close(ratios(svg), changed / plain, rtol=TOLERANCE, atol=TOLERANCE)
    seen, reached = plain * length, changed * longest  # radians within L, within s L
    unseen = int(((seen < 2 * torch.pi) & (reached > (1 + 1e-6) * seen)).sum())
    assert f"at {longest:,} tokens: new angles in {unseen} planes" in svg


def test_the_reading_follows_its_slider_and_stays_on_a_plane():
    expected = 9.0 ** (-80 / 126)  # plane 40 of 64
    svg = drawn(spectrum.NTK, plane=40, factor=9)
    assert f"plane 40 turns at {expected:.3f} of its speed" in svg
    assert "plane 47 turns at" in drawn(spectrum.LONGROPE, plane=63)


def test_the_alt_text_says_what_each_method_draws():
    text = spectrum.spectrum(LONG, **SEARCHED).to_dict()["description"]
    for word in ("interpolation", "NTK", "YaRN", "Llama 3", "LongRoPE", "p-RoPE"):
        assert word in text
