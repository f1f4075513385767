"""Plot the position that each plane shows against the given position, for "Is my RoPE right?".

If a plane of frequency theta was rotated by the angle a, it shows the position a / theta. If all
planes show the same wrong position, they were given that position. If the planes differ, their
frequencies are wrong or their tables are rounded.
"""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

from rope.book.figures import Picture, panels, picture
from rope.book.figures.style import COLORS, MUTED


def positions_shown(
    cases: Mapping[str, tuple[range, Mapping[str, Sequence[float]]]], findings: Mapping[str, str]
) -> Picture:
    """Draw one lettered panel per bug, with a row of dots for each of up to three planes.

    cases: maps each bug's name to a pair: the given positions, and a dict from each plane's name to
    the positions that the plane shows. findings: maps each bug's name to its finding.
    """
    figure, items = panels(cases, columns=2, height=0.45 + 1.62 * -(-len(cases) // 2))
    summaries = []
    for letter, (ax, name, (given, shown)) in zip(ascii_lowercase, items, strict=False):
        ax.plot(given, given, "-", color=MUTED, linewidth=1)
        # Later planes get smaller dots, so that dots behind them remain visible.
        looks = zip(COLORS, (5.5, 3.6, 1.8), strict=False)
        for (plane, places), (color, size) in zip(shown.items(), looks, strict=False):
            ax.plot(given, places, "o", color=color, markersize=size, label=plane)
        ax.set_title(f"{letter}  {name}\n{findings[name]}", loc="left", fontsize=10)
        ax.set_xticks([given[0], given[len(given) // 2], given[-1]])
        ax.locator_params(axis="y", nbins=3)
        ends = dict.fromkeys(f"{places[-1]:.4g}" for places in shown.values())
        summaries.append(
            f"{letter}, {name} ({findings[name]}): planes at {given[-1]} show {', '.join(ends)}"
        )
    handles, names = items[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    figure.supxlabel("position given", fontsize=10)
    figure.supylabel("position shown", fontsize=10)
    return picture(
        figure,
        alt="Small panels, one per bug: the position shown against the position given, as dots "
        f"of {', '.join(names)}, next to a thin line where both are equal. {'; '.join(summaries)}.",
    )
