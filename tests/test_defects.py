"""Test that the package doesn't have the defects of other implementations."""

import pytest
import torch
from strategies import Recorder, normal
from torch import nn

from rope import RotaryEmbedding
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, YaRN


def poisoned(model):
    """Return a model from meta with uninitialized memory, which is filled with NaN."""
    torch.use_deterministic_algorithms(True)  # torch.empty then fills with NaN
    try:
        return model.to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_call_in_bf16_does_not_change_later_calls_in_fp32():
    """Check that a bfloat16 call leaves no trace.

    rotary-embedding-torch caches the angles from its first call in the dtype of that call.
    """
    package, x = pytest.importorskip("rotary_embedding_torch"), torch.ones(1, 1, 2048, 8)
    theirs, fresh = package.RotaryEmbedding(8), package.RotaryEmbedding(8)
    theirs.rotate_queries_or_keys(x.bfloat16())
    spoilt = theirs.rotate_queries_or_keys(x) - fresh.rotate_queries_or_keys(x)
    assert spoilt.abs().max() > 1
    ours, expected = RotaryEmbedding(8, 16), RotaryEmbedding(8, 2048).rotate(x)
    ours.rotate(x.bfloat16())
    assert torch.equal(ours.rotate(x), expected)


def test_a_cast_of_the_model_does_not_change_the_frequencies():
    """Check a cast; transformers casts its frequencies with the model (issue 29285)."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=256, num_attention_heads=2)
    theirs, ids = llama.LlamaRotaryEmbedding(config), torch.arange(4096)[None]
    before = theirs(torch.ones(1), ids)[0]
    assert (theirs.to(torch.bfloat16)(torch.ones(1), ids)[0] - before).abs().max() > 1
    ours, x = RotaryEmbedding(128, 16), torch.ones(1, 1, 4096, 128)
    expected = ours.rotate(x)
    assert torch.equal(ours.to(torch.bfloat16).rotate(x), expected)


@pytest.mark.parametrize(
    "extension",
    [None, Linear(4.0), NTK(4.0), DynamicNTK(4.0, 16), YaRN(4.0, 16), Llama3(4.0, 16)],
)
def test_angles_go_through_no_matrix_product(extension):
    """Check that computing angles uses no matrix product.

    In TF32, a matrix product rounds every position above 2,048 (transformers issue 48428).
    """
    with Recorder() as recorder:
        rotary = RotaryEmbedding(8, 4, extension=extension)
        for dtype in (torch.float32, torch.float64):
            x = normal((1, 1, 40, 8), 0, dtype)
            rotary(x, x, torch.arange(40))
    seen = {name.removeprefix("aten.") for name in recorder.seen}
    assert {"mul", "cos", "sin"} <= seen
    # The Recorder sees outer, einsum and matmul as one of these operations, or as mul.
    assert not seen & {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addr"}


@pytest.mark.parametrize("extension", [None, YaRN(4.0, 16)], ids=str)
def test_frequencies_are_initialized_after_meta(extension):
    """Check to_empty, which leaves inv_freq uninitialized in transformers and torchtitan."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=32, num_attention_heads=4)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), RotaryEmbedding(8, 16, extension=extension))
        theirs = llama.LlamaRotaryEmbedding(config)
    model, theirs = poisoned(model), poisoned(theirs)
    assert model[0].weight.isnan().all() and theirs.inv_freq.isnan().all()
    fresh, x = RotaryEmbedding(8, 16, extension=extension), normal((1, 1, 9, 8), 0, torch.float32)
    assert torch.equal(model[1].rotate(x), fresh.rotate(x))
    assert torch.equal(model[1].inv_freq, fresh.inv_freq)
