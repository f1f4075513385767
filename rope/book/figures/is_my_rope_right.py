"""Faults seen at a glance: the position that each plane shows, against the position it was given.

Chapter "Is my RoPE right?". A plane of frequency theta that comes out at the angle a shows the
position a / theta. Planes that are wrong alike were given a wrong position; planes that differ have
wrong frequencies, or rounded tables.
"""

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import COLOURS, DASHES, MUTED, line_style

Shown = Mapping[str, Sequence[float]]


def positions_shown(
    patients: Mapping[str, tuple[range, Shown]], findings: Mapping[str, str]
) -> Picture:
    """A small picture a fault, lettered: stairs of the positions that up to three planes show.

    patients: by name, the positions given and what each plane shows at them, by the plane's name;
    findings: by the patient's name, written under it.
    """
    rows = -(-len(patients) // 2)
    figure, axes = subplots(rows, 2, height=0.45 + 1.62 * rows)
    seen = []
    lettered = zip(ascii_lowercase, patients.items(), axes.flat, strict=False)
    for letter, (name, (given, shown)), ax in lettered:
        ax.plot(given, given, "-", color=MUTED, linewidth=1)
        # Later planes are drawn thinner, so that those which agree are seen under each other.
        looks = zip(COLOURS, DASHES, (4, 2.2, 1.2), strict=False)
        for (plane, places), (colour, dash, width) in zip(shown.items(), looks, strict=False):
            style = {"color": colour, "linestyle": line_style(dash), "linewidth": width}
            ax.step(given, places, where="mid", label=plane, **style)
        ax.set_title(f"{letter}  {name}\n{findings[name]}", loc="left", fontsize=10)
        ax.set_xticks([given[0], given[len(given) // 2], given[-1]])
        ax.locator_params(axis="y", nbins=3)
        seen.append(f"{letter}, {name} ({findings[name]}): {_told(given, shown)}")
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    figure.supxlabel("position given", fontsize=10)
    figure.supylabel("position shown", fontsize=10)
    planes = ", ".join(next(iter(patients.values()))[1])
    return picture(
        figure,
        alt="Small pictures, a fault each: the position shown against the position given, as "
        f"stairs of {planes}, beside a thin line on which both are equal. {'; '.join(seen)}.",
    )


def _told(given: range, shown: Shown) -> str:
    """What the planes show at the last position, and the furthest off; once where they agree."""
    ends = dict.fromkeys(f"{places[-1]:.4g}" for places in shown.values())
    pairs = [zip(given, places, strict=True) for places in shown.values()]
    most = dict.fromkeys(f"{max(abs(m - place) for m, place in pair):.3g}" for pair in pairs)
    return f"at {given[-1]} they show {', '.join(ends)}, off by up to {', '.join(most)}"
