"""Show queries and keys of a real model in an interactive figure that needs no kernel.

Chapter "The explorer". The cell's output contains the entire figure: the vectors in half
precision, the arithmetic (`explorer_model.js`), the drawing code (`explorer_draw.js`), the
controls (`explorer_view.js`), and the style sheet (`explorer.css`).
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

from rope.extensions import Extension
from rope.frequencies import inverse_frequencies

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("explorer_model.js", "explorer_draw.js", "explorer_view.js")
FARTHEST = 16_384  # the greatest distance to which a reader can move a key


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
    *,
    base: float,
    trained: int,
    stretches: Mapping[str, Extension],
    start: Mapping[str, int],
    questions: Sequence[Mapping[str, Any]],
    alt: str,
) -> Explorer:
    """Return an interactive figure of some heads' queries, keys, and attention on a text.

    words: the S tokens as strings. heads: maps each displayed name to a head's q and k before the
    rotation, `[S, D]` each, in the interleaved layout. trained: the model's training length.
    stretches: maps each displayed name to an extension that a reader can choose.
    start: the `head` (its index in `heads`), `query`, and `key` to show first; `query` and `key`
    are indices into the text. `fast` and `slow`, the planes on the two large dials, are optional.
    By default, these are planes 0 and floor(0.75 P) of P planes.
    questions: dicts with the keys `ask`, `options`, `right` (the index of the right option),
    `answer`, `numbers` (the numbers to compare before and after the guess), `before`, and `after`
    (the states before and after it). A state has the keys of `start` and, optionally, `distance`,
    `shift`, and `stretch`. A question should be about the text and the two large dials, because
    the page keeps these in view next to it.
    """
    q, k = (torch.stack(halves).half() for halves in zip(*heads.values(), strict=True))
    spectra: list[dict[str, Any]] = []
    for name, extension in (("none", None), *stretches.items()):
        inv_freq = inverse_frequencies(q.shape[-1], base, extension=extension)
        scale = 1.0 if extension is None else extension.attention_scaling
        spectra.append({"name": name, "inv_freq": inv_freq.tolist(), "scale": scale})
    data = {
        "heads": list(heads),
        "trained": trained,
        "farthest": FARTHEST,
        "words": list(words),
        "q": base64.b64encode(q.numpy().astype("<f2").tobytes()).decode("ascii"),
        "k": base64.b64encode(k.numpy().astype("<f2").tobytes()).decode("ascii"),
        "stretches": spectra,
        "start": dict(start),
        "questions": [dict(question) for question in questions],
    }
    return Explorer(data, " ".join(alt.split()))


def stored(data: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the queries and keys from a figure's data, float16 `[H, S, D]` each."""
    shape = (len(data["heads"]), len(data["words"]), -1)
    q, k = (
        torch.frombuffer(bytearray(base64.b64decode(data[name])), dtype=torch.float16).view(shape)
        for name in ("q", "k")
    )
    return q, k
