"""Provide what several test files share: Hypothesis strategies, tolerances, tensors, recorders."""

import copy
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from torch.utils._python_dispatch import TorchDispatchMode

from rope import inverse_frequencies, rotary_tables
from rope.extensions import DynamicNTK, Linear, Llama3, LongRoPE, YaRN

quick = settings(deadline=None, derandomize=True, max_examples=25)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
}
TRAINED = 32
EXTENSIONS = {  # for rotated width R = 8
    "none": None,
    "linear": Linear(4.0),
    "yarn": YaRN(4.0, TRAINED),
    "llama3": Llama3(4.0, TRAINED),
    "dynamic": DynamicNTK(4.0, TRAINED),
    "longrope": LongRoPE((1.0, 1.5, 2.0, 2.5), (2.0, 3.0, 5.0, 8.0), TRAINED, factor=8.0),
}
CHANGES = {  # common changes to a model, which must not change its tables
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "half": lambda model: model.half(),
    "double": lambda model: model.double(),
    "there and back": lambda model: model.half().float(),
    "device and dtype": lambda model: model.to("cpu", torch.bfloat16),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "share_memory": lambda model: model.share_memory(),
    "frozen": lambda model: model.requires_grad_(False).eval(),
}


def tolerance(dtype, scale=1.0, operations=4):
    """Return the error of `operations` roundings, each at most eps/2 times `scale`."""
    return operations * torch.finfo(dtype).eps / 2 * scale


def normal(shape, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def tables(positions, dim, dtype=torch.float64):
    return rotary_tables(positions, inverse_frequencies(dim), dtype=dtype)


class Recorder(TorchDispatchMode):
    """Record the names of the operations that run inside the `with` block."""

    def __enter__(self):
        self.seen = []
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))

    def operators(self):
        return [name for name in self.seen if name.startswith("rope.")]


def check_raises(call, kind, words):
    """Check that the call raises exactly this type, and that its message contains each word."""
    with pytest.raises(kind) as caught:
        call()
    assert caught.type is kind
    message = str(caught.value)
    assert not [word for word in words.split() if word not in message], message


seeds = st.integers(0, 2**31)
even = st.integers(1, 8).map(lambda planes: 2 * planes)
sizes = st.integers(1, 4)
positions = st.integers(0, 5000)
layouts = st.booleans()
