"""Answer probes with a Python function, as an engine in any language would."""

import torch

from rope.diagnose.replay import read, write


def answer(rotate, probes, answers, dtype=torch.float32, shift=None):
    """Answer each probe with `rotate(q, k, position_ids)`, or with `shift(k, by)` to move keys."""
    tensors, results = read(probes), {}
    for i in sorted({name.partition(".")[0] for name in tensors}):
        q, k, ids, by = (tensors.get(f"{i}.{part}") for part in ("q", "k", "position_ids", "shift"))
        if by is None:
            q, k = (x.to(dtype) for x in (q, k))
            results[f"{i}.q"], results[f"{i}.k"] = rotate(q, k, ids.long())
        elif shift is not None:
            _, k = rotate(k.to(dtype), k.to(dtype), ids.long())
            results[f"{i}.k"] = shift(k, int(by))
    write(answers, results)
