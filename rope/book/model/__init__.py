"""Load SmolLM2-135M, an open language model with rotary embeddings, and change its rotation.

`weights` downloads and reads the model's file, `tokens` splits text, `network` predicts the next
token, `changes` defines changes to the rotation, and `losses` measures their effects. The model
is published under Apache 2.0. Its weights are not in this repository.
"""

from rope.book.model.network import SmolLM2
from rope.book.model.tokens import decode, encode
from rope.book.model.weights import ModelMissing, field, model_file, tensors

__all__ = ["ModelMissing", "SmolLM2", "decode", "encode", "field", "model_file", "tensors"]
