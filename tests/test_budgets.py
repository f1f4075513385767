"""Check the number of lines of Python, C, JavaScript and CSS in each part of the project.

The limits may only go down, so new code must replace old code.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {".py", ".c", ".css", ".js", ".mjs"}
# File patterns; a leading minus excludes the files that match.
CORE = """
__init__.py reference.py checks.py frequencies.py positions.py layouts.py functional.py module.py
tables.py kernels/**/* extensions/**/*
"""
# Each part: its folder, its file patterns, and the most lines that it may have.
BUDGETS = {
    "the core path": ("rope", CORE, 3000),
    "the library": ("rope", "**/* -symbolic.py -diagnose/**/* -book/**/*", 6500),
    "diagnose": ("rope/diagnose", "**/*", 2120),
    "rope in all": ("rope", "**/*", 19500),
    "the tests": ("tests", "**/*.py **/*.js", 14100),
}


@pytest.mark.parametrize("part", BUDGETS)
def test_a_part_stays_within_its_lines(part):
    folder, patterns, most = BUDGETS[part]
    files = set()
    for pattern in patterns.split():
        matches = {*(ROOT / folder).glob(pattern.removeprefix("-"))}
        files = files - matches if pattern[0] == "-" else files | matches
    texts = [path.read_bytes() for path in files if path.suffix in KINDS]
    assert 0 < sum(text.count(b"\n") for text in texts) <= most
