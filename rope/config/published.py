"""The rotary part of published configurations, to read and to test with: facts, a few lines each.

Chapter "Longer than the training text". The files stand in `rope/config/examples`.
"""

import json
from importlib.resources import files
from typing import Any

_FOLDER = files("rope.config") / "examples"

#: The names that `example` takes.
EXAMPLES: tuple[str, ...] = tuple(
    sorted(
        file.name.removesuffix(".json") for file in _FOLDER.iterdir() if file.name.endswith(".json")
    )
)


def example(name: str) -> dict[str, Any]:
    """The keys about rotation of one published configuration, a fresh dict each time.

    Raises ValueError for a name that is not in EXAMPLES.

    >>> example("gemma-7b")["head_dim"]
    256
    """
    if name not in EXAMPLES:
        raise ValueError(f"name is {name!r}; it must be one of {', '.join(EXAMPLES)}: pass one")
    return dict(json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))
