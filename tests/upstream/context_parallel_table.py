"""Show that PyTorch's `context_parallel` silently splits a longer table unlike the tokens.

Unless the first buffer's length is a multiple of twice the number of processes, it cuts each buffer
into equal contiguous parts by that buffer's own length. With 18 tokens and a table of 64 rows,
process 1 has tokens 9-17 but rows 32-40. Run: python context_parallel_table.py
"""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.multiprocessing.spawn import spawn


def run(rank: int, folder: str) -> None:
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for length in (16, 18):
        tokens, table = torch.arange(length), torch.arange(64)
        with context_parallel(mesh, buffers=[tokens, table], buffer_seq_dims=[0, 0]):
            if rank == 1:
                here = len(tokens)
                print(f"torch {torch.__version__}, {length} tokens, process 1 of 0 and 1:")
                print("  tokens  ", tokens.tolist())
                print("  expected", tokens.tolist())
                print("  got rows", table[:here].tolist())
                wrong = tokens.tolist() != table[:here].tolist()
                assert wrong == (length == 18), "PyTorch has changed this"
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (folder,), 2)
