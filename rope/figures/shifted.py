"""The loss when all positions grow by an offset: chapter "What the model uses".

Scores depend on differences of positions alone, so that with exact angles the line is flat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rope.figures.picture import Picture, picture
from rope.figures.style import subplots
from rope.figures.ways import capitalised, check_some, draw, look, spread

WORDS = {
    "exact": "exact angles",
    "bf16 positions": "bfloat16 positions",
    "bf16 tables": "bfloat16 tables",
    "bf16 angles": "bfloat16 angles",
    "float32 product": "float32 angles",
}


def shifted(
    offsets: Sequence[int],
    losses: Mapping[str, Sequence[Sequence[float]]],
    *,
    quantity: str = "validation loss",
) -> Picture:
    """The loss against the offset that positions start at, one line for each way to form angles.

    losses: by name ("exact", or a defect's), for each seed one loss an offset. A line is the mean
    over seeds, its band goes from the least to the greatest. The offsets stand at even distances,
    since the first is 0. Raises ValueError where there is nothing to draw, or where losses and
    offsets are not equally many.
    """
    check_some(losses)
    found = {name: spread(runs) for name, runs in losses.items()}
    for name, line in found.items():
        if len(line.mean) != len(offsets):
            raise ValueError(
                f"{name!r} has {len(line.mean)} losses for {len(offsets)} offsets; there must be "
                "one for each: pass the offsets that it was measured at"
            )
    figure, ax = subplots(height=3.2 + 0.11 * (len(found) + 1))
    places = range(len(offsets))
    for name, line in found.items():
        draw(ax, places, line, look(name, found) | {"label": WORDS.get(name, name)})
    ax.set_xticks(places, [f"{offset:,}" for offset in offsets], rotation=45)
    ax.set(xlabel="offset of all positions", ylabel=quantity)
    figure.legend(loc="outside upper left", ncols=2)
    said = "; ".join(
        f"{WORDS.get(name, name)} {line.mean[0]:.2f} at {offsets[0]:,}, "
        f"{line.mean[-1]:.2f} at {offsets[-1]:,}"
        for name, line in found.items()
    )
    return picture(
        figure,
        alt=f"{capitalised(quantity)} against an offset of all positions, from {offsets[0]:,} to "
        f"{offsets[-1]:,}, mean of the seeds with a band from the least to the greatest. {said}.",
    )
