"""Train and measure small language models that differ in how they encode positions.

The models use the library as any other model would. `train` trains one model.
`python -m rope.book.training` repeats the recorded runs of the chapter "What training shows".

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, E embedding width.
"""

from rope.book.training.corpus import Corpus, load_corpus
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import Experiment
from rope.book.training.loop import train
from rope.book.training.positions import POSITIONS

__all__ = ["POSITIONS", "Corpus", "Decoder", "Experiment", "load_corpus", "train"]
