"""Reading the rotation out of transformers' configurations, with nothing dropped in silence.

Chapter "Longer than the training text". `import rope.config` needs torch alone: a configuration is
taken as the dict that it is.
"""

from rope.config.examples import EXAMPLES, example
from rope.config.settings import RotarySettings, rotary_settings

__all__ = ["EXAMPLES", "RotarySettings", "example", "rotary_settings"]
