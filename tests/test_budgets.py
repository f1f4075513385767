"""How large each wing of the house may be, in lines of Python, C, JavaScript and CSS.

A number may fall with any change; it rises only together with a line in the changelog that says
what was bought with it.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {".py", ".c", ".css", ".js", ".mjs"}
# Patterns of files; those behind a minus are not counted.
LECTURE = """
__init__.py reference.py scalars.py checks.py frequencies.py positions.py layouts.py functional.py
module.py tables.py following.py writable.py
kernels/**/* extensions/**/*
"""
# The wing: its folder, its files in there, its most lines.
BUDGETS = {
    "the lecture's house": ("rope", LECTURE, 3521),
    "the library": ("rope", "**/* -symbolic.py -diagnose/**/* -book/**/*", 7915),
    "diagnose": ("rope/diagnose", "**/*", 2531),
    "rope in all": ("rope", "**/*", 28470),
    "the tests": ("tests", "**/*.py", 22910),
}


@pytest.mark.parametrize("wing", BUDGETS)
def test_a_wing_stays_within_its_lines(wing):
    folder, patterns, most = BUDGETS[wing]
    files = set()
    for pattern in patterns.split():
        matches = {*(ROOT / folder).glob(pattern.removeprefix("-"))}
        files = files - matches if pattern[0] == "-" else files | matches
    texts = [path.read_bytes() for path in files if path.suffix in KINDS]
    assert 0 < sum(text.count(b"\n") for text in texts) <= most
