"""Small language models that differ in how they know positions, trained and measured.

Chapters "What training shows", "What the model uses" and "Beyond the trained length". It uses the
rest of the package as a model would.
`python -m rope.training train` trains one; `python -m rope.training sweep` makes the recorded
comparison.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, E embedding width.
"""

from rope.training.corpus import Corpus, load_corpus
from rope.training.decoder import Decoder
from rope.training.experiment import Experiment
from rope.training.loop import train
from rope.training.positions import POSITIONS

__all__ = ["POSITIONS", "Corpus", "Decoder", "Experiment", "load_corpus", "train"]
