"""One linked figure of a trained model's queries and keys, which moves without a kernel.

Chapter "The explorer". The output of a cell holds all of it: the vectors in half precision, the
arithmetic (`explorer_model.js`), the drawings (`explorer_draw.js`), the controls
(`explorer_view.js`) and the looks (`explorer.css`).
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
from rope.book.training.defects import check_rotary
from rope.book.training.inside import calls
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("explorer_model.js", "explorer_draw.js", "explorer_view.js")
FARTHEST = 512  # the greatest distance that a key can be moved to


@dataclass(frozen=True, repr=False)
class Explorer:
    """The figure: its data, and the sentence that stands for it where it is not seen."""

    data: Mapping[str, Any]
    alt: str

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}

    def html(self) -> str:
        """The figure as a part of a page, with its scripts, its style and its data."""
        # No string of the JSON may end the script element.
        text = json.dumps(self.data, ensure_ascii=False).replace("<", "\\u003c")
        look, *scripts = (
            (STATIC / name).read_text(encoding="utf-8") for name in ("explorer.css", *SCRIPTS)
        )
        label = html.escape(self.alt, quote=True)
        return (
            f'<div class="rope-explorer" role="group" aria-label="{label}">\n'
            f"<style>\n{look}</style>\n"
            f'<script type="application/json">{text}</script>\n'
            f"<noscript><p>This figure moves, which needs JavaScript. {label}</p></noscript>\n"
            f"<script>\n(function () {{\n{''.join(scripts)}}})();\n</script>\n</div>"
        )


def vectors(model: Decoder, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The queries and keys of every head before their rotation, in half precision.

    tokens: int64 `[S]`. Returns two float16 tensors `[layers, H, S, D]`, half-split.
    Raises ValueError for a model that does not rotate the whole head, half-split.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> vectors(model, torch.tensor([1, 2, 3, 4]))[0].shape
    torch.Size([3, 2, 4, 8])
    """
    rotary, experiment = check_rotary(model), model.experiment
    if experiment.interleaved or rotary.dim != experiment.head_dim:
        raise ValueError(
            f"interleaved is {experiment.interleaved} and {rotary.dim} of {experiment.head_dim} "
            "dimensions rotate; the explorer shows whole heads, half-split: train such a model"
        )
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
    """The figure of what a model's heads do with a text.

    text, tokens: the same S characters, as a string and as int64 `[S]`.
    stretches: what the reader may stretch the spectrum by, under the names they are shown by.
    start: layer, head, query and key that it opens with, the last two as places in the text; and,
    if not 0 and three quarters of the planes, `fast` and `slow`, the planes that are large.
    questions: what it asks; each has `ask`, `options`, `right` (which of them), `answer`, the
    `numbers` that it says before and after the guess, and the states `before` and `after` it, as
    `start` and with `distance`, `shift`, `stretch`.
    Raises ValueError for a text and tokens of unequal length, and as `vectors` does.
    """
    if len(text) != len(tokens):
        raise ValueError(
            f"text has {len(text)} characters and tokens {len(tokens)}; they must be the same: "
            "decode the tokens"
        )
    experiment = model.experiment
    q, k = vectors(model, tokens)
    spectra: list[dict[str, Any]] = []
    for name, extension in (("none", None), *stretches.items()):
        inv_freq = inverse_frequencies(experiment.head_dim, experiment.base, extension=extension)
        scale = 1.0 if extension is None else extension.attention_scaling
        spectra.append({"name": name, "inv_freq": inv_freq.tolist(), "scale": scale})
    data = {
        "layers": experiment.layers,
        "heads": experiment.heads,
        "trained": experiment.context,
        "farthest": FARTHEST,
        "text": list(text),
        "q": _base64(q),
        "k": _base64(k),
        "stretches": spectra,
        "start": dict(start),
        "questions": [dict(question) for question in questions],
    }
    return Explorer(data, " ".join(alt.split()))


def stored(data: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The queries and keys that a figure holds, as `vectors` gives them."""
    shape = (data["layers"], data["heads"], len(data["text"]), -1)
    q, k = (
        torch.frombuffer(bytearray(base64.b64decode(data[name])), dtype=torch.float16).view(shape)
        for name in ("q", "k")
    )
    return q, k


def _base64(halves: Tensor) -> str:
    return base64.b64encode(halves.numpy().astype("<f2").tobytes()).decode("ascii")
