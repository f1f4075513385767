"""Show a trained model's queries and keys in one linked figure that moves without a kernel.

Chapter "The explorer". The output of a cell contains the whole figure: the vectors in half
precision, the arithmetic (`explorer_model.js`), the drawings (`explorer_draw.js`), the controls
(`explorer_view.js`) and the style (`explorer.css`).
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

from rope.book.training.decoder import Decoder
from rope.book.training.inside import calls
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("explorer_model.js", "explorer_draw.js", "explorer_view.js")
FARTHEST = 512  # the greatest distance to which a reader can move a key


@dataclass(frozen=True, repr=False)
class Explorer:
    """Hold the figure's data, and the alt text for readers who don't see it."""

    data: Mapping[str, Any]
    alt: str

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def html(self) -> str:
        """Return the figure as a part of a page, with its scripts, its style and its data."""
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


def vectors(model: Decoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the queries and keys of every head before their rotation, in half precision.

    model: must rotate the whole head, half-split. tokens: int64 `[S]`.
    Returns two float16 tensors `[layers, H, S, D]`.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> vectors(model, torch.tensor([1, 2, 3, 4]))[0].shape
    torch.Size([3, 2, 4, 8])
    """
    with torch.no_grad():
        layers = [attention.heads(x)[:2] for attention, x, _ in calls(model, tokens[None])]
    q, k = (torch.stack([both[part][0] for both in layers]).half() for part in (0, 1))
    return q, k


def explorer(
    model: Decoder,
    text: str,
    tokens: Tensor,
    *,
    stretches: Mapping[str, Extension],
    start: Mapping[str, int],
    questions: Sequence[Mapping[str, Any]],
    alt: str,
) -> Explorer:
    """Return the figure of what a model's heads do with a text.

    model: as for `vectors`. text, tokens: the same S characters, as a string and as int64 `[S]`.
    stretches: the extensions that a reader can choose, by the names shown.
    start: layer, head, query and key to open with, the last two as places in the text; also
    `fast` and `slow`, the planes of the large dials, unless they are plane 0 and the plane at
    three quarters.
    questions: each has `ask`, `options`, `right` (the index of the right option), `answer`, the
    `numbers` to compare before and after the guess, and the states `before` and `after` it, like
    `start` and with `distance`, `shift`, `stretch`.
    """
    experiment = model.experiment
    spectra: list[dict[str, Any]] = []
    for name, extension in (("none", None), *stretches.items()):
        inv_freq = inverse_frequencies(experiment.head_dim, experiment.base, extension=extension)
        scale = 1.0 if extension is None else extension.attention_scaling
        spectra.append({"name": name, "inv_freq": inv_freq.tolist(), "scale": scale})
    q, k = (
        base64.b64encode(halves.numpy().astype("<f2").tobytes()).decode("ascii")
        for halves in vectors(model, tokens)
    )
    data = {
        "layers": experiment.layers,
        "heads": experiment.heads,
        "trained": experiment.context,
        "farthest": FARTHEST,
        "text": list(text),
        "q": q,
        "k": k,
        "stretches": spectra,
        "start": dict(start),
        "questions": [dict(question) for question in questions],
    }
    return Explorer(data, " ".join(alt.split()))


def stored(data: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the queries and keys that a figure contains, like `vectors`."""
    shape = (data["layers"], data["heads"], len(data["text"]), -1)
    q, k = (
        torch.frombuffer(bytearray(base64.b64decode(data[name])), dtype=torch.float16).view(shape)
        for name in ("q", "k")
    )
    return q, k
