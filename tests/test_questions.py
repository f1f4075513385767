"""Test that each answer on the questions page is short and links to an existing place.

The strict build checks the headings that links name.
"""

import re
from pathlib import Path

import pytest
from nbformat.v4 import reads as read

from rope.book.tools.numbers import claimed, is_printed, printed

CHAPTERS = Path(__file__).parents[1] / "chapters"
TEXT = (CHAPTERS / "questions.md").read_text(encoding="utf-8")
ANSWERS = dict(re.findall(r"^### (.+\?)\n\n(.+)$", TEXT, re.M))
PAGES = {path.name: path.read_text(encoding="utf-8") for path in CHAPTERS.glob("*.ipynb")}
LABELS = {
    label: name
    for name, page in PAGES.items()
    for pair in re.findall(r"\(([\w-]+)\)=|:label: ([\w-]+)", page)
    for label in pair if label
}  # fmt: skip


def test_there_are_some_forty():
    assert len(ANSWERS) == TEXT.count("\n### ") >= 40, "an entry lacks a question or an answer"


@pytest.mark.parametrize("question", ANSWERS)
def test_answer_is_short_and_points_somewhere(question):
    answer = ANSWERS[question]
    files = re.findall(r"\]\(([\w.]+)(?:#[\w-]+)?\)", answer)
    labels = re.findall(r"(?<=\]\(#)[\w-]+(?=\))|(?<=\{prf:ref\}`)[\w-]+(?=`)", answer)
    assert files or labels, "the answer links to no page"
    assert all((CHAPTERS / file).exists() for file in files)
    assert {*labels} <= {*LABELS}
    assert len(answer.split()) <= 60
    pages = {*files, *(LABELS[label] for label in labels)} & {*PAGES}
    known = [value for page in pages for value in printed(read(PAGES[page]))]
    lost = [number for number, value in claimed(answer) if not is_printed(number, value, known)]
    assert not lost, f"no cell of {sorted(pages)} prints {lost}"
