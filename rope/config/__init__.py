"""Reading the rotation out of transformers' configurations, with nothing dropped in silence.

Chapter "Longer than the training text". `import rope.config` needs torch alone. What a file leaves
out, the model's class in transformers says; without transformers, the families of `models.GENERAL`
are read by name, and others where model_type is left out.
"""

from rope.config.published import EXAMPLES, example
from rope.config.settings import RotarySettings, rotary_settings

__all__ = ["EXAMPLES", "RotarySettings", "example", "rotary_settings"]
