"""Read the texts of all findings from `findings.txt`: what is wrong, and what to do about it.

The entry of a code has a severity, a section of the book, a sentence, or one per symptom, a remedy,
and perhaps a source. Lines may continue, indented. Notes may be intentional in some models.
"""

import re
from importlib.resources import files
from typing import NamedTuple


class Text(NamedTuple):
    """A sentence with {facts} to fill in (or one per variant), and the fields of a `Finding`."""

    code: str
    severity: str
    sentence: str | dict[str, str]
    remedy: str
    section: str
    source: str


def _texts(block: str) -> dict[str, Text]:
    """Return the texts in a block by code."""
    texts = {}
    for entry in re.split(r"\n(?=\S)", block.strip()):
        head, *lines = re.sub(r"\n {4}", " ", entry).split("\n  ")
        severity, code, section = re.findall(r"^(\w+) (\S+) \((.*)\)$", head)[0]
        source = lines.pop().removeprefix("Source: ") if lines[-1].startswith("Source: ") else ""
        remedy = lines.pop().removeprefix("> ")
        sentences = dict(re.findall(r"^(?:(\w+): )?(.*)$", line)[0] for line in lines)
        texts[code] = Text(code, severity, sentences.get("", sentences), remedy, section, source)
    return texts


_FILE = files("rope.diagnose").joinpath("findings.txt").read_text(encoding="utf-8")
_, _functions, _configurations = re.split("^# .*$", _FILE, flags=re.MULTILINE)
CODES = _texts(_functions)
CONFIGURATION = _texts(_configurations)
