"""What the recorded comparison keeps of each trained model: one dict a run.

Every number here is a mean over text or questions that were kept from training.
"""

from typing import Any

from rope.training.data import TextData
from rope.training.defects import DEFECTS, defect
from rope.training.inside import by_distance as scores_by_distance
from rope.training.inside import erased, frozen, plane_norms, position_share
from rope.training.lengths import (
    FACTOR,
    OFFSETS,
    by_distance,
    by_position,
    extended,
    extensions_of,
    shifted,
    tuned,
)
from rope.training.loop import Trained, validation_loss
from rope.training.positions import Rotary

LONG_WINDOWS, SHORT_WINDOWS, BANDS = 16, 64, 4


def measure(trained: Trained, *, thoroughly: bool = False) -> dict[str, Any]:
    """A run's entry in the record: curve, final loss, loss by position, answers by distance.

    thoroughly: for a rotary text model also what its planes do, what known mistakes cost it, and
    how the context extensions serve it.
    """
    model, data = trained.model, trained.data
    experiment = model.experiment
    text = isinstance(data, TextData)
    windows = _windows(trained, experiment.context) if text else 4 * SHORT_WINDOWS
    long = min(LONG_WINDOWS, _windows(trained, FACTOR * experiment.context)) if text else 32
    entry: dict[str, Any] = {
        "experiment": experiment.as_dict(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "curve": {name: [line[name] for line in trained.metrics] for name in ("step", "loss")},
        "loss": validation_loss(model, data, windows),
        "by_position": by_position(model, data, long),
    }
    if not text:
        entry["by_distance"] = by_distance(model, data, windows)
    if thoroughly:
        entry["inside"] = _inside(trained)
        entry["defects"] = _defects(trained)
        entry["shifted"] = _shifted(trained)
        entry["extensions"] = _extensions(trained, long)
    return entry


def _windows(trained: Trained, length: int) -> int:
    """How many windows of this length the validation text holds without an overlap."""
    assert isinstance(trained.data, TextData)
    return (len(trained.data.corpus.validation) - 1) // length


def _inside(trained: Trained) -> dict[str, Any]:
    """Norms, scores by distance, and what the loss loses with each plane, in nats."""
    model, data = trained.model, trained.data
    inputs, _ = data.validation(SHORT_WINDOWS, model.experiment.context)
    q_norm, k_norm = plane_norms(model, inputs)
    score, weight = scores_by_distance(model, inputs)
    planes = model.positions.dim // 2 if isinstance(model.positions, Rotary) else 0
    width = planes // BANDS
    single = [[plane] for plane in range(planes)]
    bands = [list(range(start, start + width)) for start in range(0, planes, width)]
    plain = validation_loss(model, data, SHORT_WINDOWS)
    found: dict[str, Any] = {
        "q_norm": q_norm.tolist(),
        "k_norm": k_norm.tolist(),
        "score": score.tolist(),
        "weight": weight.tolist(),
        "position_share": position_share(model, inputs).tolist(),
    }
    for name, change in (("frozen", frozen), ("erased", erased)):
        for suffix, groups in (("", single), ("_bands", bands)):
            losses = []
            for group in groups:
                with change(model, group):
                    losses.append(validation_loss(model, data, SHORT_WINDOWS) - plain)
            found[name + suffix] = losses
    return found


def _defects(trained: Trained) -> dict[str, float]:
    """The loss in the trained context with each mistake."""
    losses = {"none": validation_loss(trained.model, trained.data, SHORT_WINDOWS)}
    for name in DEFECTS:
        with defect(trained.model, name):
            losses[name] = validation_loss(trained.model, trained.data, SHORT_WINDOWS)
    return losses


def _shifted(trained: Trained) -> dict[str, Any]:
    """The loss when the text begins at another position, exactly and with each rounding."""
    losses = {"exact": shifted(trained.model, trained.data)}
    for name in DEFECTS:
        if name.startswith(("bf16", "float32")):
            with defect(trained.model, name):
                losses[name] = shifted(trained.model, trained.data)
    return {"offset": list(OFFSETS), "loss": losses}


def _extensions(trained: Trained, windows: int) -> dict[str, Any]:
    """Loss by position through each extension, as the model is and after a short training."""
    found = {}
    for name, extension in extensions_of(trained.model.experiment).items():
        follows = extension.length_dependent
        with extended(trained.model, extension) as model:
            plain = by_position(model, trained.data, windows, prefixes=follows)
        found[name] = {"loss": plain["loss"]}
        if not follows:  # a training at one length has one spectrum
            with extended(tuned(trained, extension), extension) as model:
                found[name]["tuned"] = by_position(model, trained.data, windows)["loss"]
                if name == "yarn":
                    with defect(model, "bf16 positions"):
                        read = by_position(model, trained.data, windows)
                    found[name]["tuned, bf16 positions"] = read["loss"]
    return found
