"""Show how single heads of a language model use distances and planes.

Chapter "What the model uses". Plane j has the wavelength 2 pi / theta_j positions; plane 0 has the
highest frequency.
"""

import math
from collections.abc import Mapping, Sequence

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.seeds import look
from rope.book.figures.style import BLUE, VERMILION


def scores_by_distance(
    heads: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ticks: Sequence[int]
) -> Picture:
    """Plot each head's mean score against distance, on the curve that the theorem predicts.

    heads: maps each title to the measured and the predicted scores at the distances 0, 1, 2, ...
    """
    figure, items = panels(heads, height=0.9 + 1.7 * len(heads), sharex=True)
    summaries = []
    for ax, title, (measured, predicted) in items:
        distances = range(len(measured))
        ax.plot(distances, predicted, "-", color=VERMILION, label="from the mean query and key")
        dots = {"color": BLUE, "linestyle": "none", "markersize": 4.5}
        ax.plot(distances, measured, "o", label="mean of the measured scores", **dots)
        ax.set_title(title, loc="left", fontsize=10)
        near = "; ".join(
            f"{distance}: {measured[distance]:.1f} measured, {predicted[distance]:.1f} predicted"
            for distance in (0, 1, 2, 4, len(measured) - 1)
        )
        summaries.append(f"{title}, at distance {near}")
    items[0][0].legend(loc="upper right")
    ax.set(xlabel="distance, in tokens", xticks=ticks)
    figure.supylabel("mean score", fontsize=10)
    return picture(
        figure,
        alt="Mean score against distance, one panel per head: dots for the measured scores, a line "
        f"for the predicted ones. {'. '.join(summaries)}.",
    )


def norms_by_plane(heads: Mapping[str, Sequence[float]], wavelengths: Sequence[float]) -> Picture:
    """Plot how much each plane can add to a score, with one panel per head.

    heads: maps each title to one product of norms per plane. wavelengths: in positions.
    """
    planes = len(wavelengths)
    figure, items = panels(heads, height=1.3 + 1.2 * len(heads), sharex=True)
    summaries = []
    for ax, title, norms in items:
        ax.bar(range(planes), norms, color=BLUE, width=0.75)
        ax.set_title(title, loc="left", fontsize=10)
        largest = sorted(range(planes), key=lambda plane: -norms[plane])[:4]
        parts = ", ".join(f"{norms[plane]:.1f} in plane {plane}" for plane in largest)
        summaries.append(f"{title}: {parts}")
    ticks = range(0, planes, 8)
    ax.set(xlabel="plane $j$", xticks=ticks)
    top = items[0][0].secondary_xaxis("top")
    top.set_xticks(ticks, [f"{wavelengths[plane]:,.0f}" for plane in ticks])
    top.set_xlabel("wavelength, in positions")
    items[0][0].set_title(items[0][1], loc="left", fontsize=10, pad=34)
    figure.supylabel("$|q_j|\\,|k_j|/\\sqrt{d}$", fontsize=10)
    return picture(
        figure,
        alt="One bar per plane, highest frequency first: the product of the mean norms of query "
        f"and key. The largest bars: {'; '.join(summaries)}.",
    )


def base_curve(
    bases: Sequence[float], losses: Mapping[str, Sequence[Sequence[float]]], *, bound: float
) -> Picture:
    """Plot a loss against the base, with a line through the means in each panel.

    losses: maps each title ("within the trained length") to one loss per seed for each base.
    bound: a base to mark, such as the smallest base that a paper recommends.
    """
    figure, items = panels(losses, height=0.5 + 1.8 * len(losses), sharex=True)
    style, summaries = look("rope", ()), []
    dots = {"color": style["color"], "linestyle": "none", "alpha": 0.6, "markersize": 5}
    for ax, title, groups in items:
        means = [math.fsum(seeds) / len(seeds) for seeds in groups]
        for base, seeds in zip(bases, groups, strict=True):
            ax.plot([base] * len(seeds), seeds, "o", markeredgewidth=0, **dots)
        ax.plot(bases, means, **style)
        ax.set_xscale("log")
        first = ax is items[0][0]
        ax.set_title(title, loc="left", fontsize=10, pad=18 if first else 6)
        shapes.mark(ax, bound, f"bound {bound:,.0f}" if first else "")
        at = [f"{mean:.3f} at {base:,.0f}" for base, mean in zip(bases, means, strict=True)]
        summaries.append(f"{title}: {', '.join(at)}")
    shapes.x_ticks(ax, bases)
    ax.set_xlabel("base $b$")
    figure.supylabel("validation loss", fontsize=10)
    return picture(
        figure,
        alt="Validation loss against the base, one dot per seed, a line through the means. "
        f"{'; '.join(summaries)}. A dotted line marks the bound, {bound:,.0f}.",
    )
