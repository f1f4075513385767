"""Show which device computes which query-key pairs, for the chapter "Across devices"."""

from collections.abc import Mapping

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.style import COLORS, GRID, INK
from rope.parallel import Shards


def split(splits: Mapping[str, Shards]) -> Picture:
    """Draw each split's causal query-key pairs, with one row per query and one column per key.

    splits: maps each name to a split of the same number of tokens over at most six devices. Each
    row has the color and the number of the device that holds the query.
    """
    figure, items = panels(splits, columns=len(splits), height=2.3, sharey=True)
    summaries = []
    for ax, name, shards in items:
        size, pairs = len(shards.positions), []
        for device, tokens in enumerate(shards.tokens):
            for m in tokens.tolist():
                shapes.box(ax, 0, m, m + 1, facecolor=COLORS[device], alpha=0.45, edgecolor=GRID)
                ax.text(m + 0.5, m + 0.5, str(device), color=INK, **shapes.CENTERED)
            pairs.append(f"{int((tokens + 1).sum())}")
            held = f"tokens {tokens.tolist()}, {pairs[-1]} pairs"
            summaries.append(f"{name}, device {device}: {held}")
        ax.set(title=f"{name}\n{' and '.join(pairs)} pairs", xlabel="key", aspect="equal")
        ax.set(xlim=(0, size), ylim=(size, 0))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks([token + 0.5 for token in range(size)], range(size))
        ax.tick_params(length=0)
        ax.grid(visible=False)
    figure.axes[0].set_ylabel("query")
    return picture(
        figure,
        alt="One triangle of causal pairs per split. A query's row has one square per key that it "
        f"sees, in the color of the device that holds the query. {'; '.join(summaries)}.",
    )
