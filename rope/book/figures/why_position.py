"""Draw attention weights under masks, for the chapter "Why position?"."""

from collections.abc import Mapping

from torch import Tensor

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.style import BLUE


def weight_tables(tables: Mapping[str, Tensor]) -> Picture:
    """Draw one table of attention weights per mask, with one row per query.

    tables: maps each mask's name to its weights `[S, S]`. The larger a weight, the darker its cell.
    A weight of 0 is left blank.
    """
    figure, items = panels(tables, columns=2, height=2.7)
    summaries = []
    for ax, name, table in items:
        for m, row in enumerate(table.tolist()):
            for n, weight in enumerate(row):
                shapes.box(ax, n - 0.5, m - 0.5, facecolor=BLUE, alpha=0.65 * weight)
                share = f"{weight:.2f}".removeprefix("0") if weight else ""
                ax.text(n, m, share, **shapes.CENTERED)
        edges = (-0.55, len(table) - 0.45)
        ax.set(title=name, xlim=edges, ylim=edges[::-1], aspect="equal", xlabel="key $n$")
        ax.set(xticks=range(len(table)), yticks=range(len(table)), ylabel="query $m$")
        ax.tick_params(length=0)
        ax.grid(False)
        seen = (f"query {m} sees {row.count_nonzero()} keys" for m, row in enumerate(table))
        summaries.append(f"{name}: {', '.join(seen)}.")
    return picture(
        figure,
        alt="A table of attention weights for each mask, with one row per query and one column per "
        "key. In each row, the keys that the query sees share its attention equally. "
        + " ".join(summaries),
    )
