"""Read the rotation out of transformers' configurations; nothing about it is silently dropped.

Chapter "Longer than the training text". `import rope.config` needs only torch. A model's class in
transformers supplies what a file leaves out; without transformers, you can read the families of
`models.GENERAL`, and others if you leave model_type out. `rope/config/examples` holds the rotary
parts of published configurations.
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
    """Return the keys about rotation of a published configuration, as a new dict.

    name: one of EXAMPLES.

    >>> example("gemma-7b")["head_dim"]
    256
    """
    return dict(json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))
