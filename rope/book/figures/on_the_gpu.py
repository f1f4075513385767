"""Draw the figures for "Bytes and kernels", which show bytes moved and a decoding step."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.patches import Patch

from rope.book.figures import Picture, panels, picture, subplots
from rope.book.figures.style import BLUE, MUTED, OCHRE, VERMILION


def traffic(programs: Mapping[str, Sequence[tuple[str, float, float]]]) -> Picture:
    """Draw the bytes that each program's calls read and write, one call after the other.

    programs: maps a program's name to its calls, each with a label and the bytes read and written.
    """
    figure, ax = subplots(height=2.3)
    kinds: dict[str, dict[str, Any]] = {
        "read": {"facecolor": BLUE, "edgecolor": BLUE},
        "written": {"facecolor": "none", "edgecolor": VERMILION, "hatch": "///"},
    }
    told = []
    for place, (name, calls) in enumerate(programs.items()):
        end = 0.0
        for label, *amounts in calls:
            ax.text(end + sum(amounts) / 2, place - 0.36, label, ha="center", va="bottom")
            for amount, kind in zip(amounts, kinds.values(), strict=True):
                ax.barh(place, amount - 0.3, 0.6, end + 0.15, **kind)
                end += amount
        ax.text(end + 0.6, place, f"{end:g}", va="center")
        words = ", ".join(f"{label} {read:g} and {wrote:g}" for label, read, wrote in calls)
        told.append(f"{name}: {words}; {end:g} in all.")
    ax.set(xlabel="bytes per pair", xlim=(0, 80), ylim=(len(programs) - 0.5, -0.75))
    ax.set_yticks(range(len(programs)), programs)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    handles = [Patch(label=kind, **look) for kind, look in kinds.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    return picture(figure, alt=f"Bytes that each call reads and writes. {' '.join(told)}")


#: Durations in the diagram. They are chosen for visibility; a launch takes longer than a kernel.
LAUNCH, GAP = 1.0, 0.2
KERNELS = {"neighbor": 0.7, "rotation": 0.3}


def decoding(operations: int) -> Picture:
    """Draw a decoding step on the host and the device, first in eager mode and then fused.

    A kernel starts once it has been launched and the previous kernel has ended.
    operations: the number of kernels in an eager rotation.
    """
    ways = {f"eager: {operations + 2} launches": operations, "fused: 3 launches": 1}
    boxes: dict[str, dict[str, Any]] = {
        "neighbor": {"label": "projection, attention", "facecolor": MUTED, "edgecolor": MUTED},
        "rotation": {"label": "rotation", "facecolor": "none", "edgecolor": OCHRE, "hatch": "///"},
    }
    figure, items = panels(ways, height=3.2, sharex=True)
    for ax, words, rotations in items:
        ax.set(ylim=(1.5, -0.5), xticks=(), xmargin=0.01)
        ax.set_yticks((0, 1), ("host", "device"))
        ax.tick_params(length=0)
        ax.set_title(words, loc="left", fontsize=10)
        ax.grid(visible=False)
        end = 0.0
        for number, kind in enumerate(["neighbor", *["rotation"] * rotations, "neighbor"]):
            ax.barh(0, LAUNCH - 0.06, 0.6, number * LAUNCH, **boxes[kind])
            start = max(end, (number + 1) * LAUNCH) + GAP
            end = start + KERNELS[kind]
            ax.barh(1, KERNELS[kind] - 0.06, 0.6, start, **boxes[kind])
    handles = [Patch(**box) for box in boxes.values()]
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    ax.set_xlabel("time (schematic, not to scale)")
    return picture(
        figure,
        alt="A schematic of two ways to run a projection, a rotation, and an attention, each with "
        "a lane of boxes for the host above one for the device. Eager: the host launches "
        f"{operations + 2} kernels one after another, {operations} of them for the rotation, and "
        "the device waits for each launch. Fused: the host launches three kernels, one of them for "
        "the rotation, and the device still waits for each.",
    )
