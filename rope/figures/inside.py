"""What a trained model does with its planes and distances: chapter "What the model uses".

Plane j has the wavelength 2 pi / theta_j positions; plane 0 is the fastest. Every function takes
plain numbers as the record holds them; the alternative texts are made from them. Shapes: L layers,
H heads, S sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rope.figures.picture import Picture, picture
from rope.figures.style import BLUE, COLOURS, INK, MUTED, VERMILION, subplots
from rope.figures.ways import capitalised, look, spread

Grid = Sequence[Sequence[Sequence[float]]]


def norm_heat_map(q_norm: Grid, k_norm: Grid) -> Picture:
    """The mean length of each plane's pair in q and in k: planes across, one row a head.

    Each `[L][H][planes]`, as `rope.training.inside.plane_norms` has them. Colours go up in steps,
    so that a cell can be found on the bar. Raises ValueError where the two differ in shape.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import MaxNLocator

    rows = [[head for layer in norms for head in layer] for norms in (q_norm, k_norm)]
    shapes = [[len(norms), len(norms[0]), len(norms[0][0])] for norms in (q_norm, k_norm)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"q_norm is {shapes[0]} and k_norm {shapes[1]}; both must be [layers, heads, planes] "
            "of one model: pass what plane_norms gives"
        )
    heads, planes = shapes[0][1:]
    every = [norm for part in rows for head in part for norm in head]
    ticks = MaxNLocator(nbins=8).tick_values(min(every), max(every))
    levels = [float(level) for level in ticks]
    colours = _colours(len(levels) - 1)
    figure, axes = subplots(1, 2, height=0.24 * len(rows[0]) + 1.6, sharey=True)
    for ax, title, part in zip(axes, "qk", rows, strict=True):
        _cells(ax, part, levels, colours)
        for edge in range(heads, len(part), heads):
            ax.axhline(edge, color=INK, linewidth=1)
        ax.set(title=title, xlabel="plane $j$", xlim=(0, planes), ylim=(len(part), 0))
        ax.set_xticks([j + 0.5 for j in range(0, planes, 4)], range(0, planes, 4))
        ax.grid(False)
    labels = [f"{row // heads}.{row % heads}" for row in range(len(rows[0]))]
    axes[0].set_yticks([row + 0.5 for row in range(len(rows[0]))], labels)
    axes[0].set_ylabel("layer.head")
    scale = ScalarMappable(BoundaryNorm(levels, len(colours)), ListedColormap(colours))
    bar = figure.colorbar(scale, ax=axes, location="bottom", aspect=30, pad=0.02)
    bar.set_label("mean length of the plane's pair")
    said = [_norm_words(title, part, heads) for title, part in zip("qk", rows, strict=True)]
    return picture(
        figure,
        alt="Two heat maps of the mean length of each plane's pair, for q and for k; planes "
        f"across, the fastest on the left, one row for each head of {shapes[0][0]} layers. "
        + " ".join(said),
    )


def _colours(count: int) -> list[str]:
    """From dark blue to yellow by lightness too, so that no colour vision is needed to order them.

    None is a role of the style, which the page would put its theme's colour in the place of.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [
        to_hex(colormaps["cividis"](0.5 if count == 1 else k / (count - 1))) for k in range(count)
    ]


def _cells(
    ax: Any, rows: Sequence[Sequence[float]], levels: Sequence[float], colours: Sequence[str]
) -> None:
    """One path a colour, with all its cells: a path a cell would make the picture large."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    inset = 0.04
    for k, colour in enumerate(colours):
        low, high = levels[k], levels[k + 1] if k + 1 < len(colours) else math.inf
        corners: list[tuple[float, float]] = []
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                if low <= value < high:
                    left, right, top, bottom = x + inset, x + 1 - inset, y + inset, y + 1 - inset
                    corners += [(left, top), (right, top), (right, bottom), (left, bottom)]
                    corners += [(left, top)]
        if corners:
            codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
            path = Path(corners, codes * (len(corners) // 5))
            ax.add_patch(PathPatch(path, facecolor=colour, linewidth=0))


def _norm_words(title: str, rows: Sequence[Sequence[float]], heads: int) -> str:
    """The largest entry, and how the fast half compares with the slow one."""
    planes = len(rows[0])
    largest, row, plane = max(
        (value, y, x) for y, found in enumerate(rows) for x, value in enumerate(found)
    )
    half = planes // 2
    fast = math.fsum(value for found in rows for value in found[:half]) / (half * len(rows))
    slow = math.fsum(value for found in rows for value in found[half:])
    slow /= (planes - half) * len(rows)
    return (
        f"{title}: the largest is {largest:.2f}, plane {plane} of head {row % heads} in layer "
        f"{row // heads}; planes 0 to {half - 1} have {fast:.2f} on average, planes {half} to "
        f"{planes - 1} {slow:.2f}."
    )


def ablation(
    frozen: Sequence[Sequence[float]],
    erased: Sequence[Sequence[float]],
    wavelengths: Sequence[float],
    context: int,
) -> Picture:
    """How much the loss rises when one plane is kept from turning, and when it is left out.

    frozen, erased: for each seed one increase a plane; wavelengths: of the planes, in positions.
    A dot is the mean over seeds, a bar runs from the least to the greatest. A dotted line stands
    where the wavelength passes the trained length `context`.
    Raises ValueError where the numbers of planes differ.
    """
    parts = {
        "not turned": (spread(frozen), BLUE, "o"),
        "left out": (spread(erased), VERMILION, "s"),
    }
    planes = len(wavelengths)
    for name, (found, _, _) in parts.items():
        if len(found.mean) != planes:
            raise ValueError(
                f"{name}: {len(found.mean)} planes for {planes} wavelengths; there must be one "
                "wavelength a plane: pass those of the model that was measured"
            )
    figure, axes = subplots(2, 1, height=4.4, sharex=True)
    edge = _crossing(wavelengths, context)
    for ax, (name, (found, colour, marker)) in zip(axes, parts.items(), strict=True):
        bars = [
            [mean - low for mean, low in zip(found.mean, found.low, strict=True)],
            [high - mean for mean, high in zip(found.mean, found.high, strict=True)],
        ]
        marks = {"color": colour, "linestyle": "none", "markersize": 5, "elinewidth": 1.5}
        ax.errorbar(range(planes), found.mean, bars, fmt=marker, **marks)
        ax.axhline(0, color=MUTED, linewidth=1)
        if edge is not None:
            ax.axvline(edge, color=INK, linestyle=":", linewidth=1)
        ax.set_ylabel(name)
    ticks = list(range(0, planes, max(1, planes // 5)))
    axes[1].set(xlabel="plane $j$", xticks=ticks)
    above = axes[0].secondary_xaxis("top")
    above.set_xticks(ticks, [f"{wavelengths[j]:,.0f}" for j in ticks])
    above.set_xlabel("wavelength, in positions")
    figure.supylabel("how much the loss rises", fontsize=10)
    if edge is not None:
        words = {"transform": axes[1].get_xaxis_transform(), "ha": "center", "va": "bottom"}
        axes[1].text(edge, 1.01, f"trained length {context:,}", color=INK, **words)
    said = " ".join(
        f"{capitalised(name)}: {_peaks(found.mean)}" for name, (found, _, _) in parts.items()
    )
    crossing = f"None passes the trained length, {context:,}."
    if edge is not None:
        crossing = (
            f"Planes from {math.ceil(edge)} on have longer ones than the trained {context:,}."
        )
    return picture(
        figure,
        alt=f"How much the loss rises, by plane, from the fastest to the slowest of {planes}; a "
        "dot for the mean over seeds, a bar from the least to the greatest seed. "
        f"{said} Wavelengths run from {wavelengths[0]:,.1f} to {wavelengths[-1]:,.0f} positions. "
        + crossing,
    )


def _crossing(wavelengths: Sequence[float], context: int) -> float | None:
    """Where between the planes the wavelength passes the length; None where it never does."""
    for j, (low, high) in enumerate(pairwise(wavelengths)):
        if low <= context < high:
            return j + math.log(context / low) / math.log(high / low)
    return None


def _peaks(increases: Sequence[float]) -> str:
    """The three planes that matter most, and the one that matters least."""
    order = sorted(range(len(increases)), key=lambda j: -increases[j])
    most = ", ".join(f"{increases[j]:.4f} at plane {j}" for j in order[:3])
    return f"most {most}; least {increases[order[-1]]:.4f} at plane {order[-1]}."


def mean_by_distance(
    values: Grid,
    heads: Sequence[tuple[int, int]],
    *,
    quantity: str = "mean score",
    last: int | None = None,
) -> Picture:
    """A mean score or weight against the distance m - n, for some heads and, bold, for all.

    values: `[L][H][S]`, as `rope.training.inside.by_distance` has them. heads: (layer, head), at
    most six. last: the greatest distance drawn. Raises ValueError for a head that is not there.
    """
    if len(heads) > len(COLOURS):
        raise ValueError(f"{len(heads)} heads; at most {len(COLOURS)} can be told apart: choose")
    for layer, head in heads:
        if not (0 <= layer < len(values) and 0 <= head < len(values[0])):
            raise ValueError(
                f"head ({layer}, {head}) is not there; there are {len(values)} layers of "
                f"{len(values[0])} heads, counted from 0: choose among them"
            )
    lines = {f"layer {layer}, head {head}": values[layer][head] for layer, head in heads}
    every = spread([head for layer in values for head in layer]).mean
    size = len(every) if last is None else last + 1
    figure, ax = subplots(height=3.2 + 0.11 * (len(lines) + 1))
    for name, line in lines.items():
        ax.plot(range(size), line[:size], label=name, **look(name, lines) | {"linewidth": 1.5})
    bold = {"color": INK, "linestyle": "-", "linewidth": 3}
    ax.plot(range(size), every[:size], label="mean of all heads", **bold)
    ax.set(xlabel="distance $m - n$", ylabel=quantity)
    figure.legend(loc="outside upper left", ncols=2)
    said = "; ".join(_course(name, line[:size]) for name, line in lines.items())
    return picture(
        figure,
        alt=f"{capitalised(quantity)} against the distance, from 0 to {size - 1}. {said}; "
        + _course("the mean of all heads, bold", every[:size])
        + ".",
    )


def _course(name: str, line: Sequence[float]) -> str:
    """A line's value at its start, its peak and its end."""
    peak = max(range(len(line)), key=lambda distance: line[distance])
    text = f"{name}: {line[0]:.3g} at 0"
    if peak not in (0, len(line) - 1):
        text += f", greatest {line[peak]:.3g} at {peak}"
    return text + f", {line[-1]:.3g} at {len(line) - 1}"
