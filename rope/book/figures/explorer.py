"""Show a real model's queries and keys in an interactive figure for the chapter "The explorer".

The figure needs no kernel, because the cell's output contains the vectors, the arithmetic
(`explorer_model.js`), the drawing code (`explorer_draw.js`), the controls (`explorer_view.js`), and
the style sheet (`explorer.css`).
"""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("explorer_model.js", "explorer_draw.js", "explorer_view.js")


@dataclass(frozen=True, repr=False)
class Explorer:
    """Hold the figure's data, and the alt text for readers who can't see the figure."""

    data: Mapping[str, Any]
    alt: str

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def html(self) -> str:
        """Return the figure as an HTML fragment with its scripts, style sheet, and data."""
        # A "<" in the JSON could end the script element.
        text = json.dumps(self.data, ensure_ascii=False).replace("<", "\\u003c")
        style, *scripts = (
            (STATIC / name).read_text(encoding="utf-8") for name in ("explorer.css", *SCRIPTS)
        )
        label = html.escape(self.alt, quote=True)
        return (
            f'<div class="rope-explorer" role="group" aria-label="{label}">\n'
            f"<style>\n{style}</style>\n"
            f'<script type="application/json">{text}</script>\n'
            f"<noscript><p>This figure moves, which needs JavaScript. {label}</p></noscript>\n"
            f"<script>\n(function () {{\n{''.join(scripts)}}})();\n</script>\n</div>"
        )


def explorer(
    words: Sequence[str],
    heads: Mapping[str, tuple[Tensor, Tensor]],
    inv_freq: Tensor,
    *,
    trained: int,
    start: Mapping[str, int],
    questions: Sequence[Mapping[str, Any]],
    alt: str,
) -> Explorer:
    """Return an interactive figure of some heads' queries, keys, and attention on a text.

    words: the S tokens as strings. heads: maps each displayed name to a head's q and k before the
    rotation, `[S, D]` each, in the interleaved layout. trained: the model's training length.
    start: the state to show first, with the keys `head` (its index in `heads`), `query` and `key`
    (indices into the text), `fast` and `slow` (the planes on the two large dials).
    questions: dicts with the keys `ask`, `options`, `right` (the index of the right option),
    `answer`, `numbers` (the numbers to compare before and after the guess), `before`, and `after`
    (the states before and after the guess). A state holds only what differs from `start`, and it
    may also hold a `distance`.
    """
    q, k = (torch.stack(both) for both in zip(*heads.values(), strict=True))
    data = {
        "heads": list(heads),
        "trained": trained,
        "words": list(words),
        "q": base64.b64encode(q.numpy().astype("<f4").tobytes()).decode("ascii"),
        "k": base64.b64encode(k.numpy().astype("<f4").tobytes()).decode("ascii"),
        "inv_freq": inv_freq.tolist(),
        "start": dict(start),
        "questions": [dict(question) for question in questions],
    }
    return Explorer(data, " ".join(alt.split()))


def stored(data: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the queries and keys from a figure's data, float32 `[H, S, D]` each."""
    shape = (len(data["heads"]), len(data["words"]), -1)
    q, k = (
        torch.frombuffer(bytearray(base64.b64decode(data[name])), dtype=torch.float32).view(shape)
        for name in ("q", "k")
    )
    return q, k
