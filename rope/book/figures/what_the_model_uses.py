"""Show how a model's heads use distances and planes, for the chapter "What the model uses".

Plane j has a wavelength of 2 pi / theta_j positions. Plane 0 has the highest frequency.
"""

from collections.abc import Mapping, Sequence

from rope.book.figures import Picture, panels, picture
from rope.book.figures.style import BLUE, VERMILION


def scores_by_distance(
    heads: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ticks: Sequence[int]
) -> Picture:
    """Plot each head's mean score against distance, with the curve that the theorem predicts.

    heads: maps each title to a pair: the measured and the predicted scores at distances 0, 1, ...
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
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    ax.set(xlabel="distance, in tokens", xticks=ticks)
    figure.supylabel("mean score", fontsize=10)
    return picture(
        figure,
        alt="Mean score against distance, one panel per head: dots for the measured scores, a line "
        f"for the predicted ones. {'. '.join(summaries)}.",
    )


def norms_by_plane(heads: Mapping[str, Sequence[float]], wavelengths: Sequence[float]) -> Picture:
    """Plot how much each plane can add to a score, with one panel per head.

    heads: maps each title to one product of norms per plane. wavelengths: one per plane.
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
