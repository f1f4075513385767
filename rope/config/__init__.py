"""Read RoPE settings from transformers configurations without silently dropping any setting.

See the chapter "Longer than the training text". `import rope.config` needs only torch. If a file
omits a value, the model's class in transformers supplies it. Without transformers, you can read
configurations of the types in `models.GENERAL`. For any other model, remove the key model_type.
`rope/config/examples` contains the RoPE keys of published configurations.
"""

import json
from pathlib import Path
from typing import Any

from rope.config.settings import RotarySettings, rotary_settings

__all__ = ["EXAMPLES", "RotarySettings", "example", "rotary_settings"]

_FOLDER = Path(__file__).with_name("examples")

#: The names that `example` accepts.
EXAMPLES: tuple[str, ...] = tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))


def example(name: str) -> dict[str, Any]:
    """Return the RoPE keys of a published configuration as a new dict.

    name: one of the names in EXAMPLES.

    >>> example("gemma-7b")["head_dim"]
    256
    """
    return dict(json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))
