"""A report as one figure: recovered against expected, or a configuration against the default.

Matplotlib loads only when something is drawn.
"""

from pathlib import Path
from typing import Any

import torch

from rope.diagnose.configuration import ConfigurationReport
from rope.diagnose.report import Report
from rope.frequencies import inverse_frequencies

SHOWN = 5  # planes whose errors are drawn, from the fastest to the slowest


def save(report: Report | ConfigurationReport, path: str | Path) -> Path:
    """Draw a report into an SVG file, and return its path.

    Of a function: the frequency of each plane as recovered from query and key, against those
    expected or else named by the report, and by how much the query's angles differ from these at
    the positions probed. Of a configuration: its frequencies against those without extension.
    Raises ValueError for a path that does not end in .svg, and where nothing was recovered;
    ImportError without Matplotlib.
    """
    path = Path(path)
    if path.suffix != ".svg":
        raise ValueError(
            f"the figure's path is {str(path)!r}; it must end in .svg, which is what is drawn: "
            "rename it"
        )
    draw = _angles if isinstance(report, Report) else _spectra
    path.write_text(draw(report), encoding="utf-8")  # type: ignore[arg-type]
    return path


def _angles(report: Report) -> str:
    from rope.book.figures import picture, subplots

    found = {"query": report.query, "key": report.key}
    if report.query.errors is None or report.key.inv_freq is None:
        raise ValueError(
            "no frequency was recovered, so there is nothing to draw; mend the findings first: "
            + ", ".join(each.code for each in report.findings)
        )
    assert report.query.reference is not None and report.query.positions is not None
    figure, (left, right) = subplots(2, height=6.4)
    left.plot(report.query.reference, color="0.5", linewidth=4, alpha=0.5, label="reference")
    for (name, each), marker in zip(found.items(), "o+", strict=True):
        left.plot(each.inv_freq, marker, markersize=4, label=name)
    left.set(xlabel="plane j", ylabel="radians per position", yscale="log")
    left.legend()
    planes = (~report.query.errors.isnan().any(0)).nonzero()[:, 0]
    chosen = planes[torch.linspace(0, len(planes) - 1, min(SHOWN, len(planes))).long()].unique()
    for j in chosen.tolist():
        off = report.query.errors[1:, j].abs().clamp(min=1e-12)  # nothing turns at position 0
        right.plot(report.query.positions[1:], off, label=f"plane {j}")
    right.axhline(0.01, color="0.5", linewidth=1, linestyle=":")
    right.set(xlabel="position", ylabel="query's angle is off by, rad", yscale="log")
    right.set_xscale("log", base=2)
    right.set_ylim(5e-13, 10)
    right.legend(ncols=2)
    codes = ", ".join(each.code for each in report.findings) or "none"
    alt = f"Recovered and expected frequencies by plane, and angle errors by position. {codes}."
    return picture(figure, alt=alt).svg


def _spectra(report: ConfigurationReport) -> str:
    from rope.book.figures import picture, subplots

    if not report.settings:
        raise ValueError(
            "the configuration cannot be read, so there is nothing to draw; mend it first: "
            + report.findings[0].sentence
        )
    figure, axis = subplots(height=4.0)
    for kind, settings in report.settings.items():
        length = report.length or settings.max_position_embeddings
        shared: dict[str, Any] = dict(dim=settings.dim, base=settings.base)
        axis.plot(inverse_frequencies(**shared), color="0.5", linewidth=4, alpha=0.5)
        theta = inverse_frequencies(**shared, extension=settings.extension, seq_len=length)
        axis.plot(theta, label=f"{kind}: {settings.extension.name}, base {settings.base:g}")
        if length is not None:
            axis.axhline(2 * torch.pi / length, color="0.5", linewidth=1, linestyle=":")
    axis.set(xlabel="plane j", ylabel="radians per position", yscale="log")
    axis.set_title("Broad: without extension. Dotted: one turn within the length.", fontsize=10)
    axis.legend()
    alt = "The frequency of each plane, with and without the extension."
    return picture(figure, alt=alt).svg
