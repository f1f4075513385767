"""The rotary part of published configurations, to read and to test with: facts, a few lines each.

Chapter "Longer than the training text". The files stand in `rope/config/examples`.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("examples")

#: The names that `example` takes.
EXAMPLES: tuple[str, ...] = tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))


def example(name: str) -> dict[str, Any]:
    """The keys about rotation of one published configuration, a fresh dict each time.

    Raises ValueError for a name that is not in EXAMPLES.

    >>> example("gemma-7b")["head_dim"]
    256
    """
    if name not in EXAMPLES:
        raise ValueError(f"name is {name!r}; it must be one of {', '.join(EXAMPLES)}: pass one")
    return dict(json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))
