"""Reading the rotation out of transformers' configurations, with nothing dropped in silence.

Chapter "Longer than the training text". `import rope.config` needs torch alone. What a file leaves
out, the model's class in transformers says; without transformers, the families of `models.GENERAL`
are read by name, and others where model_type is left out. Of published configurations the rotary
parts stand in `rope/config/examples`, a few lines each.
"""

import json
from pathlib import Path
from typing import Any

from rope.config.settings import RotarySettings, rotary_settings

__all__ = ["EXAMPLES", "RotarySettings", "example", "rotary_settings"]

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
