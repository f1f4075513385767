"""Split text into the model's tokens: byte-level BPE, with every digit a separate token.

The vocabulary and the merges are in the model's file. The model's pre-tokenizer, which llama.cpp
calls `smollm`, separates the digits before GPT-2's byte level splits the rest.
"""

from functools import cache

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from rope.book.model.weights import field

CONTROL = 3  # the type of a token that marks structure, such as <|im_start|>


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer that the model's file describes."""
    words = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    made = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    made.decoder = decoders.ByteLevel()
    kinds = field("tokenizer.ggml.token_type")
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
    made.add_special_tokens([AddedToken(word, special=True) for word in control])
    return made


def encode(text: str) -> Tensor:
    """Return the text's tokens, int64 `[S]`. A control token's text becomes that token."""
    return torch.tensor(tokenizer().encode(text, add_special_tokens=False).ids, dtype=torch.int64)


def decode(tokens: Tensor) -> str:
    """Return the text of tokens `[S]`, including control tokens."""
    return tokenizer().decode(tokens.tolist(), skip_special_tokens=False)
