"""A trained model writes on: chapter "What training shows".

Each character is drawn from what the model expects after the last `context` ones, which slide.

Shapes: S sequence.
"""

import torch
from torch import Tensor

from rope.book.training.corpus import Corpus, generator
from rope.book.training.decoder import Decoder
from rope.checks import check_count
from rope.scalars import check_number


@torch.no_grad()
def write(
    model: Decoder,
    corpus: Corpus,
    prompt: str,
    length: int,
    *,
    seed: int = 0,
    temperature: float = 0.8,
) -> str:
    """The prompt and `length` more characters, each drawn after the model's own last ones.

    The window never exceeds the trained context and its positions start at 0, so that every
    method can write on. temperature: what logits are divided by; 0 takes the likeliest character.
    Raises ValueError for an empty prompt, a strange character in it, a corpus of more characters
    than the model has, a negative length or temperature; TypeError for what is no text or number.

    >>> from rope.book.training import Experiment
    >>> from rope.book.training.corpus import corpus_of
    >>> corpus = corpus_of("abc" * 10)
    >>> model = Decoder(Experiment(width=16, heads=2, context=4), tokens=3)
    >>> text = write(model, corpus, "abca", 10)
    >>> len(text), text.startswith("abca"), text == write(model, corpus, "abca", 10)
    (14, True, True)
    """
    tokens = _start(model, corpus, prompt)
    check_count("length", length, smallest=0)
    check_count("seed", seed, smallest=0)
    check_number("temperature", temperature, at_least=0)
    random, device = generator(seed, "write"), model.embedding.weight.device
    for _ in range(length):
        window = tokens[-model.experiment.context :].to(device)
        logits = model(window[None])[0, -1].double().cpu()
        if temperature == 0:
            drawn = logits.argmax(keepdim=True)
        else:
            drawn = (logits / temperature).softmax(0).multinomial(1, generator=random)
        tokens = torch.cat((tokens, drawn))
    return corpus.decode(tokens)


def _start(model: Decoder, corpus: Corpus, prompt: str) -> Tensor:
    """The prompt's tokens, once they have been looked at."""
    if not isinstance(prompt, str):
        raise TypeError(f"prompt is {prompt!r}; it must be text, so pass a string")
    if not prompt:
        raise ValueError("prompt is ''; it must hold a character to go on from: pass one")
    tokens = corpus.encode(prompt)
    if int(tokens.max()) >= model.head.out_features:
        raise ValueError(
            f"the prompt holds token {int(tokens.max())}; the model knows "
            f"{model.head.out_features}, counted from 0: pass the corpus that it was trained on"
        )
    return tokens
