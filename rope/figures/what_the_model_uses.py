"""What a trained model does with its planes, its distances and its base: "What the model uses".

Plane j has the wavelength 2 pi / theta_j positions; plane 0 is the fastest. Shapes: L layers,
H heads, S sequence.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rope.figures import Picture, picture, shapes, subplots
from rope.figures.seeds import check_some, draw, look, spread, spreads
from rope.figures.style import BLUE, INK, MUTED, VERMILION

# The words for the methods of `shifted`.
ANGLES = {
    "exact": "exact angles",
    "bf16 positions": "bfloat16 positions",
    "bf16 tables": "bfloat16 tables",
    "bf16 angles": "bfloat16 angles",
}


def ablation(
    frozen: Sequence[Sequence[float]],
    erased: Sequence[Sequence[float]],
    wavelengths: Sequence[float],
    context: int,
) -> Picture:
    """How much the loss rises when one plane is kept from rotating, and when it is left out.

    frozen, erased: for each seed one increase a plane; wavelengths: of the planes, in positions.
    A dot is the mean over seeds, a bar runs from the least to the greatest. A dotted line stands
    where the wavelength passes the trained length `context`.
    Raises ValueError where the numbers of planes differ.
    """
    found = spreads({"not turned": frozen, "left out": erased}, wavelengths, "wavelengths")
    planes = len(wavelengths)
    edge = float(np.interp(math.log(context), np.log(wavelengths), range(planes)))
    figure, axes = subplots(2, 1, height=4.4, sharex=True)
    styles = ({"color": BLUE, "fmt": "o"}, {"color": VERMILION, "fmt": "s"})
    for ax, (name, (mean, low, high)), style in zip(axes, found.items(), styles, strict=True):
        bars = np.subtract(mean, low), np.subtract(high, mean)
        marks = {"linestyle": "none", "markersize": 5, "elinewidth": 1.5}
        ax.errorbar(range(planes), mean, bars, **style, **marks)
        ax.axhline(0, color=MUTED, linewidth=1)
        shapes.mark(ax, edge, f"trained length {context:,}" if ax is axes[1] else "")
        ax.set_ylabel(name)
    ticks = list(range(0, planes, max(1, planes // 5)))
    axes[1].set(xlabel="plane $j$", xticks=ticks)
    top = axes[0].secondary_xaxis("top")
    top.set_xticks(ticks, [f"{wavelengths[j]:,.0f}" for j in ticks])
    top.set_xlabel("wavelength, in positions")
    figure.supylabel("how much the loss rises", fontsize=10)
    said = " ".join(f"{name.capitalize()}: {_peaks(line.mean)}" for name, line in found.items())
    return picture(
        figure,
        alt=f"How much the loss rises, by plane, from the fastest to the slowest of {planes}; a "
        "dot for the mean over seeds, a bar from the least to the greatest seed. "
        f"{said} Wavelengths run from {wavelengths[0]:,.1f} to {wavelengths[-1]:,.0f} positions. "
        f"Planes from {math.ceil(edge)} on have longer ones than the trained {context:,}.",
    )


def _peaks(increases: Sequence[float]) -> str:
    """The three planes that matter most, and the one that matters least."""
    order = sorted(range(len(increases)), key=lambda j: -increases[j])
    most = ", ".join(f"{increases[j]:.4f} at plane {j}" for j in order[:3])
    return f"most {most}; least {increases[order[-1]]:.4f} at plane {order[-1]}."


def mean_by_distance(
    scores: Sequence[Sequence[Sequence[float]]],
    heads: Sequence[tuple[int, int]],
    *,
    last: int | None = None,
) -> Picture:
    """A mean score against the distance m - n, for some heads and, bold, for all.

    scores: `[L][H][S]`, as `rope.training.inside.by_distance` has them. heads: (layer, head);
    last: the greatest distance drawn. Raises ValueError for a head that is not there.
    """
    for layer, head in heads:
        if not (0 <= layer < len(scores) and 0 <= head < len(scores[0])):
            raise ValueError(
                f"head ({layer}, {head}) is not there; there are {len(scores)} layers of "
                f"{len(scores[0])} heads, counted from 0: choose among them"
            )
    every = spread([head for layer in scores for head in layer]).mean
    size = len(every) if last is None else last + 1
    lines = {f"layer {layer}, head {head}": scores[layer][head][:size] for layer, head in heads}
    figure, ax = subplots(height=3.2 + 0.11 * (len(lines) + 1))
    for name, line in lines.items():
        ax.plot(line, label=name, **look(name, lines) | {"linewidth": 1.5})
    bold = {"color": INK, "linestyle": "-", "linewidth": 3}
    ax.plot(every[:size], label="mean of all heads", **bold)
    ax.set(xlabel="distance $m - n$", ylabel="mean score")
    figure.legend(loc="outside upper left", ncols=2)
    lines["the mean of all heads, bold"] = every[:size]
    said = "; ".join(_course(name, line) for name, line in lines.items())
    return picture(figure, alt=f"Mean score against the distance, from 0 to {size - 1}. {said}.")


def _course(name: str, line: Sequence[float]) -> str:
    """A line's value at its start, its peak and its end."""
    peak = line.index(max(line))
    text = f"{name}: {line[0]:.3g} at 0"
    if peak not in (0, len(line) - 1):
        text += f", greatest {line[peak]:.3g} at {peak}"
    return text + f", {line[-1]:.3g} at {len(line) - 1}"


def base_curve(
    bases: Sequence[float], losses: Mapping[str, Sequence[Sequence[float]]], *, bound: float
) -> Picture:
    """A loss against the base, logarithmic: one panel each, a dot a seed, a line through the means.

    losses: by the words above the panel ("within the trained length"), for each base its seeds.
    bound: a base to mark, as the least one that a paper recommends.
    Raises ValueError where a panel has not as many entries as there are bases.
    """
    check_some(losses)
    height = 0.5 + 1.8 * len(losses)
    figure, _ = subplots(len(losses), 1, height=height, sharex=True)
    panels, style, said = figure.axes, look("rope", ()), []
    dots = {"color": style["color"], "linestyle": "none", "alpha": 0.6, "markersize": 5}
    for ax, (title, groups) in zip(panels, losses.items(), strict=True):
        means = [math.fsum(seeds) / len(seeds) for seeds in groups]
        for base, seeds in zip(bases, groups, strict=True):
            ax.plot([base] * len(seeds), seeds, "o", markeredgewidth=0, **dots)
        ax.plot(bases, means, **style)
        ax.set_xscale("log")
        first = ax is panels[0]
        ax.set_title(title, loc="left", fontsize=10, pad=18 if first else 6)
        shapes.mark(ax, bound, f"bound {bound:,.0f}" if first else "")
        at = [f"{mean:.3f} at {base:,.0f}" for base, mean in zip(bases, means, strict=True)]
        said.append(f"{title}: {', '.join(at)}")
    ax.set_xticks(bases, [f"{base:,.0f}" for base in bases])
    ax.minorticks_off()
    ax.set_xlabel("base $b$")
    figure.supylabel("validation loss", fontsize=10)
    return picture(
        figure,
        alt="Validation loss against the base, a dot a seed, a line through the means. "
        + "; ".join(said)
        + f". A dotted line marks the bound, {bound:,.0f}.",
    )


def shifted(offsets: Sequence[int], losses: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """The loss against the offset that positions start at, one line for each method to form angles.

    Scores depend on differences of positions alone, so that with exact angles the line is flat.
    losses: by name ("exact", or a defect's), for each seed one loss an offset. A line is the mean
    over seeds, its band goes from the least to the greatest. The offsets stand at even distances,
    since the first is 0. Raises ValueError where there is nothing to draw, or where losses and
    offsets are not equally many.
    """
    found = spreads(losses, offsets, "offsets")
    figure, ax = subplots(height=3.2 + 0.11 * (len(found) + 1))
    places = range(len(offsets))
    said = []
    for name, line in found.items():
        words = ANGLES.get(name, name)
        draw(ax, places, line, look(name, found) | {"label": words})
        start, end = f"{line.mean[0]:.2f} at {offsets[0]:,}", f"{line.mean[-1]:.2f}"
        said.append(f"{words} {start}, {end} at {offsets[-1]:,}")
    ax.set_xticks(places, [f"{offset:,}" for offset in offsets], rotation=45)
    ax.set(xlabel="offset of all positions", ylabel="validation loss")
    figure.legend(loc="outside upper left", ncols=2)
    return picture(
        figure,
        alt=f"Validation loss against an offset of all positions, from {offsets[0]:,} to "
        f"{offsets[-1]:,}, mean of the seeds with a band from the least to the greatest. "
        f"{'; '.join(said)}.",
    )
