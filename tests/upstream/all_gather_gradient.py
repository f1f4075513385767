"""Show that PyTorch permutes the gradient of `all_gather` on gloo if it is a transposed view.

The backward pass of the deprecated `torch.distributed.nn.functional.all_gather` may get a gradient
that isn't contiguous, but gloo reads its memory as if it were. Run: python all_gather_gradient.py
"""

import tempfile
import warnings

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.multiprocessing.spawn import spawn

warnings.simplefilter("ignore", FutureWarning)


def run(rank: int, folder: str) -> None:
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    x = torch.zeros(2, 3, requires_grad=True)
    parts = all_gather(x)
    asked = torch.arange(6.0).reshape(2, 3)
    sum((part.T * asked.T.contiguous()).sum() for part in parts).backward()
    if rank == 0:
        print("torch", torch.__version__)
        print("expected", (2 * asked).flatten().tolist())
        print("got     ", x.grad.flatten().tolist())
        assert not torch.equal(x.grad, 2 * asked), "PyTorch has fixed this"
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (folder,), 2)
