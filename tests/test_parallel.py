"""Compare positions and attention across several processes with one process."""

from pathlib import Path
from typing import Any

import parallel_jobs as jobs
import pytest
import torch
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from parallel_jobs import CASES
from torch import distributed as dist
from torch.distributed.tensor.experimental import _attention as torch_attention

import rope
from rope import parallel
from rope.book.measured import devices
from rope.book.measured.devices import across
from rope.extensions import DynamicNTK
from rope.parallel import METHODS, ring

PROCESSES = 4
TWO = torch.arange(2)
ULPS = 16  # allowed error in units of rounding of the largest number
needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch lacks gloo"
)


@pytest.fixture(scope="session")
def results(tmp_path_factory, request) -> tuple[list[dict[str, Any]], Path]:
    """Start the processes once for all workers; return each one's results, and the checkpoint."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if hasattr(request.config, "workerinput") else folder
    file, checkpoint = folder / "processes.pt", folder / "checkpoint"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            torch.save(None, file)  # if the processes fail, don't start them again
            torch.save(across(jobs.everything, PROCESSES, str(checkpoint)), file)
    loaded = torch.load(file)
    assert loaded is not None, "the processes failed; see the first test that used them"
    return loaded, checkpoint


@needs_gloo
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("split", "heads"), CASES)
def test_attention_equals_that_of_one_process(results, split, heads, method):
    name = f"{split}, {heads[0]} heads over {heads[1]}, {method}"
    for here in results[0]:
        assert len(here["float64"][name]) == 4
        assert all(off <= ULPS for off in here["float64"][name])  # NaN fails too


@needs_gloo
@pytest.mark.parametrize("method", METHODS)
def test_attention_in_other_settings(results, method):
    for here in results[0]:
        rounded = here["bfloat16"][f"packed, 4 heads over 2, {method}"]
        assert len(rounded) == 4 and all(off <= 1 for off in rounded)
        some = {name: off for (name, of), off in here["otherwise"].items() if of == method}
        assert set(some) == {"scale", "float16", "autocast", "only keys", "some"}
        assert some["scale"] <= ULPS and some["some"] <= ULPS and some["only keys"] == 0
        assert some["float16"] <= 1 and some["autocast"] <= 1
        keys = devices.S // PROCESSES * 2 * 2 * devices.D
        sent = (2 * (PROCESSES - 1) + 4 * PROCESSES) * keys  # bfloat16, and float32 gradients
        assert here["sent"]["ring"][2] == sent


@needs_gloo
def test_bad_arguments_raise_in_every_process(results):
    for here in results[0]:
        assert [name for name, raised in here["errors"].items() if not raised] == []


@needs_gloo
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.skipif(not jobs.FSDP_ON_CPU, reason="PyTorch 2.6 has FSDP2 on a GPU only")
def test_fsdp_and_checkpoints_leave_the_tables_alone(results):
    from torch.distributed.checkpoint import load

    for here in results[0]:
        assert here["fsdp"] == {"output": True, "keys": ["project.weight"], "tables": True}
    layer = jobs.Layer()
    state = {"project.weight": torch.zeros(8, 8)}
    load(state, checkpoint_id=str(results[1]), no_dist=True)  # in one process
    assert torch.equal(state["project.weight"], layer.project.weight)


SPLITTERS = {
    "contiguous": parallel.contiguous,
    "head-tail": parallel.head_tail,
    "round robin": parallel.round_robin,
}


@given(st.data())
def test_every_token_is_in_one_part_and_comes_back(data):
    name, devices = data.draw(st.sampled_from(list(SPLITTERS))), data.draw(st.integers(1, 5))
    unit = 2 * devices if name == "head-tail" else 1
    lengths = [unit * n for n in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))]
    split, x = SPLITTERS[name], torch.randn(2, 3, sum(lengths))
    for shards in (split(sum(lengths), devices), parallel.packed(lengths, devices, split)):
        assert len(shards) == devices
        parts = [shards.local(x, device) for device in range(devices)]
        assert torch.equal(shards.full(parts), x)
        assert torch.cat(shards.tokens).sort().values.tolist() == list(range(sum(lengths)))
        assert torch.equal(
            torch.cat(shards.tokens)[shards.inverse_order], torch.arange(sum(lengths))
        )
        if name == "head-tail":
            assert len({len(part) for part in shards.tokens}) == 1


@pytest.mark.skipif(
    not hasattr(torch_attention, "_HeadTailLoadBalancer"),
    reason="this PyTorch has no such balancers",
)
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_shards_are_those_of_pytorch(devices):
    order = torch.cat(parallel.head_tail(24, devices).tokens)
    balancer = torch_attention._HeadTailLoadBalancer(24, devices, "cpu")
    assert balancer._generate_indices()[0].tolist() == order.tolist()
    lengths = [2 * devices, 6 * devices]
    balancer = torch_attention._PerDocumentHeadTailLoadBalancer([lengths], devices, "cpu")
    expected = parallel.packed(lengths, devices).tokens
    if torch.__version__ < (2, 14):  # lists a document's parts for all devices before the next's
        first, second = (torch.cat(parallel.head_tail(n, devices).tokens) for n in lengths)
        expected = (first, lengths[0] + second)
    assert balancer._generate_indices()[0].tolist() == torch.cat(expected).tolist()
    for length in (1, 5, 9, 24):
        chunks = torch.arange(length).chunk(devices)
        ours = parallel.contiguous(length, devices).tokens
        assert all(torch.equal(a, b) for a, b in zip(chunks, ours, strict=False))
        assert not any(map(len, ours[len(chunks) :]))


def test_length_dependent_extensions_need_the_whole_length():
    rotary, x = rope.RotaryEmbedding(8, extension=DynamicNTK(4.0, 8)), torch.randn(1, 1, 16, 8)
    whole, shards = rotary.rotate(x), parallel.contiguous(16, 2)
    for device, own_length in ((0, 8), (1, 16)):
        part, ids = shards.local(x, device), shards.position_ids(device)
        out = rotary.rotate(part, ids, seq_len=int(shards.positions.max()) + 1)
        assert torch.equal(out, shards.local(whole, device))
        rotary.fix_length(own_length)
        wrong = rotary.rotate(x)  # the spectrum without seq_len
        rotary.fix_length(None)
        assert torch.equal(rotary.rotate(part, ids), shards.local(wrong, device))


@needs_gloo
def test_a_ring_in_blocks_of_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(ring, "ROWS", 3)
    meet = f"file://{tmp_path}/meet"  # a port may be in use
    torch.distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    try:
        shards = parallel.contiguous(8, 1)
        whole = jobs.random_heads(shards, (4, 2), torch.float64)
        grad = torch.randn(2, 4, 8, 6, dtype=torch.float64)
        here = jobs.across_devices(jobs.mesh_of_all(), shards, whole, grad, "ring")
        for ours, right in zip(here, jobs.on_one_device(shards, whole, grad), strict=True):
            assert jobs.ulps(ours, right, right) <= ULPS
    finally:
        torch.distributed.destroy_process_group()


def test_packed_positions_are_those_of_each_document():
    """Check THD positions: the second device must not start at position 0 (Megatron issue 5243)."""
    shards = parallel.packed([4, 8], 2)
    assert [part.tolist() for part in shards.tokens] == [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]
    assert shards.position_ids(0).tolist() == [0, 3, 0, 1, 6, 7]
    assert shards.position_ids(1).tolist() == [1, 2, 2, 3, 4, 5]
    tokens = parallel.round_robin(7, 3).tokens
    assert [part.tolist() for part in tokens] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: parallel.head_tail(18, 2), r"seq_len.*18.*2"),
        (lambda: parallel.packed([8, 6], 2), r"seq_len.*6.*2"),
        (lambda: parallel.contiguous(8, 2).position_ids(-1), r"device.*-1"),
        (lambda: parallel.Shards((TWO, TWO), torch.arange(4)), r"tokens.*\[0, 1, 0"),
        (lambda: parallel.contiguous(8, 2).local(torch.zeros(1, 1, 7), 0), r"x .*7"),
    ],
)
def test_bad_splits_raise(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@needs_gloo
def test_a_process_that_fails_ends_the_others():
    with pytest.raises(RuntimeError, match=r"process 1 of 2.*RuntimeError: no such method"):
        across(jobs.fails_on_one, 2)
