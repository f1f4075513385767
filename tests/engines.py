"""Answer probes with a Python function, as an engine in any language would."""

import torch

from rope.diagnose.replay import read, write


def answer(rotate, probes, answers, dtype=torch.float32):
    """Answer each probe with `rotate(q, k, position_ids)`."""
    tensors, results = read(probes), {}
    for i in sorted({name.partition(".")[0] for name in tensors}):
        q, k, ids = (tensors[f"{i}.{part}"] for part in ("q", "k", "position_ids"))
        results[f"{i}.q"], results[f"{i}.k"] = rotate(q.to(dtype), k.to(dtype), ids.long())
    write(answers, results)
