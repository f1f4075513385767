"""A function of Python as an engine that reads probes and writes answers."""

import torch

from rope.diagnose.files import read, write


def answer(rotate, probes, answers, dtype=torch.float32, shift=None):
    """What `rotate(q, k, position_ids)` answers; shift(k, by): how it moves keys, None if not."""
    tensors, told = read(probes), {}
    for i in sorted({name.partition(".")[0] for name in tensors}):
        q, k, ids, by = (tensors.get(f"{i}.{part}") for part in ("q", "k", "position_ids", "shift"))
        if by is None:
            q, k = (x.to(dtype) for x in (q, k))
            told[f"{i}.q"], told[f"{i}.k"] = rotate(q, k, ids.long())
        elif shift is not None:
            _, k = rotate(k.to(dtype), k.to(dtype), ids.long())
            told[f"{i}.k"] = shift(k, int(by))
    write(answers, told)
