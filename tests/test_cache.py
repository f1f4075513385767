"""Test caches whose tokens are padded, moved, dropped and limited to a window.

The oracle is a plain loop over scores, one row at a time, without padding or a cache.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import normal

from rope import RotaryEmbedding, reference
from rope.attention import KVCache, RotaryAttention
from rope.book.tolerance import within
from rope.extensions import DynamicNTK

DOUBLE, WIDTH = torch.float64, 12
POLICIES = ("rotated", "plain")


def make(**options):
    torch.manual_seed(0)
    return RotaryAttention(WIDTH, 3, 1, head_dim=4, **options).to(DOUBLE)


def cache_for(layer, batch, room, **options):
    return KVCache(batch, layer.num_kv_heads, room, layer.head_dim, dtype=DOUBLE, **options)


def row_by_row(layer, x, distance):
    """Return [S, E] from x [S, E]; distance(m, n) is m - n, or None if key n is hidden."""
    dim, theta = layer.head_dim, reference.inverse_frequencies(layer.rotary.dim)
    q, k, v = (
        each(x).unflatten(-1, (-1, dim)) for each in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    out = torch.zeros_like(q)
    for m in range(len(x)):
        visible = [n for n in range(len(x)) if distance(m, n) is not None]
        for h in range(layer.num_heads):
            distances = [distance(m, n) for n in visible]
            rotated = reference.rotate_matrix(
                q[m, h].expand(len(visible), -1).numpy(), distances, theta, interleaved=False
            )
            kv = h * layer.num_kv_heads // layer.num_heads
            scores = (torch.from_numpy(rotated) * k[visible, kv]).sum(1) / dim**0.5
            out[m, h] = scores.softmax(0) @ v[visible, kv]
    return layer.o_proj(out.flatten(1))


def equal(actual, expected, roundings=256):
    return within(actual, expected, roundings, size=max(1.0, expected.abs().max().item()))


def windowed(window, sinks):
    def distance(m, n):
        if n > m or (window is not None and m - n >= window and n >= sinks):
            return None
        return m - n

    return distance


@st.composite
def texts(draw):
    """Draw a window, and calls on a batch whose rows are padded at random places."""
    window, sinks = draw(st.none() | st.integers(2, 5)), draw(st.integers(0, 2))
    batch, calls = (
        draw(st.integers(1, 3)),
        draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)),
    )
    real = torch.tensor(
        [[draw(st.integers(0, 3)) > 0 for _ in range(sum(calls))] for _ in range(batch)]
    )
    room = sum(calls) if window is None else window + sinks + draw(st.integers(0, 3))
    return window, sinks if window else 0, calls, real, room


@settings(max_examples=40)
@given(text=texts(), policy=st.sampled_from(POLICIES))
@torch.no_grad()
def test_padded_rows_with_a_window_equal_unpadded_rows(text, policy):
    window, sinks, calls, real, room = text
    layer = make(window=window, sinks=sinks)
    x = normal((*real.shape, WIDTH), 1)
    cache = cache_for(layer, len(x), room if window else x.shape[1], policy=policy)
    masks = real.split(calls, dim=1)
    outs = [
        layer(part, cache=cache, attention_mask=mask)
        for part, mask in zip(x.split(calls, dim=1), masks, strict=True)
    ]
    out = torch.cat(outs, dim=1)
    assert out.isfinite().all() and cache.keys.shape[2] == cache.positions.shape[1]
    for row, mask in enumerate(real):
        if mask.any():
            expected = row_by_row(layer, x[row, mask], windowed(window, sinks))
            assert equal(out[row, mask], expected)
    whole = layer(x, attention_mask=real)  # without a cache
    assert equal(whole[real], out[real]) if real.any() else True


@pytest.mark.parametrize("policy", POLICIES)
@torch.no_grad()
def test_a_full_cache_continues(policy):
    """Check a prompt longer than the cache, followed by single tokens."""
    window, sinks = 6, 2
    layer = make(window=window, sinks=sinks)
    x, cache = normal((1, 40, WIDTH), 1), cache_for(layer, 1, window + sinks, policy=policy)
    out = torch.cat([layer(part, cache=cache) for part in x.split((25, *[1] * 15), dim=1)], dim=1)
    expected = row_by_row(layer, x[0], windowed(window, sinks))
    assert equal(out[0], expected) and equal(layer(x)[0], expected)
    assert sorted(cache.positions[0].tolist()) == [0, 1, *range(34, 40)]


@pytest.mark.parametrize("policy", POLICIES)
@torch.no_grad()
def test_all_moves_before_a_read_count(policy):
    rotary, k = RotaryEmbedding(4), normal((2, 1, 6, 6), 0)
    cache, ids = KVCache(2, 1, 6, 6, policy=policy, dtype=DOUBLE), torch.arange(6).repeat(2, 1)
    cache.append(k if policy == "plain" else rotary.rotate(k), k, rotary=rotary)
    for delta, slots in ((torch.tensor([7, 0]), ids < 3), (100, ids % 2 == 1), (2, ids == 5)):
        cache.shift(delta, slots)
        ids = torch.where(slots, ids + torch.as_tensor(delta).view(-1, 1), ids)
    assert within(cache.read(rotary)[0], rotary.rotate(k, ids), roundings=16, size=4 * 110)


class Rows:
    """Model a cache: one list of [position, key, value] entries per row."""

    def __init__(self, batch):
        self.rows = [[] for _ in range(batch)]

    def append(self, k, v, real):
        for b, row in enumerate(self.rows):
            for s in range(k.shape[2]):
                if real[b, s]:
                    last = max((at for at, _, _ in row), default=-1)
                    row.append([last + 1, k[b, 0, s], v[b, 0, s]])

    def agrees(self, cache, rotary):
        keys, values = cache.read(rotary)
        for b, row in enumerate(self.rows):
            slots = (cache.positions[b] >= 0).nonzero()[:, 0]
            held = sorted(
                (cache.positions[b, slot].item(), values[b, 0, slot].item(), slot) for slot in slots
            )
            expected = sorted((at, v.item(), k) for at, k, v in row)
            if [token[:2] for token in held] != [token[:2] for token in expected]:
                return False
            for (at, _, slot), (_, _, k) in zip(held, expected, strict=True):
                right = rotary.rotate(k[None, None, None], torch.tensor([at]))[0, 0, 0]
                if not within(keys[b, 0, slot], right, roundings=8, size=4 * 100):
                    return False
        return True


def draw_mask(data, rows, columns):
    flags = [data.draw(st.booleans()) for _ in range(rows * columns)]
    return torch.tensor(flags, dtype=torch.bool).view(rows, columns)


@settings(max_examples=60)
@given(data=st.data(), policy=st.sampled_from(POLICIES))
@torch.no_grad()
def test_after_any_moves_keys_are_rotated_to_their_positions(data, policy):
    rotary, batch, room, count = RotaryEmbedding(4), 2, 9, 0
    cache, rows = KVCache(batch, 1, room, 6, value_dim=1, policy=policy, dtype=DOUBLE), Rows(batch)
    for _ in range(data.draw(st.integers(1, 12))):
        batch, held = len(rows.rows), cache.positions >= 0
        choice = data.draw(st.sampled_from(["append", "append", "shift", "keep", "rows"]))
        before = copy.deepcopy(cache)
        if choice == "append":
            size = data.draw(st.integers(0, min(3, room - cache.length)))
            real = draw_mask(data, batch, size)
            k = normal((batch, 1, size, 6), count)
            v = torch.arange(count, count + batch * size, dtype=DOUBLE).view(batch, 1, size, 1)
            count += batch * size
            ids = cache.slots.next_position_ids(size, attention_mask=real)
            places = ids.clamp(min=0)
            cache.append(
                k if policy == "plain" else rotary.rotate(k, places), v, ids, rotary=rotary
            )
            rows.append(k, v, real)
        elif choice == "shift":
            delta = torch.tensor([data.draw(st.integers(-4, 40)) for _ in range(batch)])
            slots = draw_mask(data, batch, room) if data.draw(st.booleans()) else None
            moved = held if slots is None else held & slots
            if (moved & (cache.positions + delta[:, None] < 0)).any():
                with pytest.raises(ValueError, match=r"delta.* -"):
                    cache.shift(delta, slots)
                assert same(cache, before)
            else:
                values = cache.values[:, 0, :, 0]
                for b, row in enumerate(rows.rows):
                    for token in row:
                        token[0] += int(delta[b]) * (token[2] in values[b, moved[b]])
                cache.shift(delta if batch > 1 else int(delta), slots)
        elif choice == "keep":
            mask = draw_mask(data, batch, room)
            values = cache.values[:, 0, :, 0]
            stay = mask & held
            rows.rows = [
                [token for token in row if token[2] in values[b, stay[b]]]
                for b, row in enumerate(rows.rows)
            ]
            cache.keep(mask)
        else:
            chosen = [
                data.draw(st.integers(0, batch - 1)) for _ in range(data.draw(st.integers(1, 3)))
            ]
            other = cache.fork()
            cache.reorder(torch.tensor(chosen))
            assert same(other, before)
            rows.rows = [[list(token) for token in rows.rows[b]] for b in chosen]
        if data.draw(st.booleans()):  # a read in between could hide a lost move
            assert rows.agrees(cache, rotary), choice
    assert rows.agrees(cache, rotary)


def same(cache, other):
    """Return True if two caches are equal bit for bit."""
    mine, theirs = (vars(c) | vars(c.slots) | {"slots": None} for c in (cache, other))
    return mine.keys() == theirs.keys() and all(
        torch.equal(part, theirs[name]) if isinstance(part, torch.Tensor) else part == theirs[name]
        for name, part in mine.items()
    )


@torch.no_grad()
def test_a_length_dependent_spectrum_is_that_of_a_full_cache():
    rotary = RotaryEmbedding(4, extension=DynamicNTK(4.0, 8))
    layer, x = make(rotary=rotary), normal((1, 24, WIDTH), 0)
    for policy in POLICIES:
        cache = cache_for(layer, 1, 24, policy=policy)
        layer(x[:, :20], cache=cache)
        cache.keep(cache.positions >= 3)
        cache.shift(-3)
        out = layer(x[:, 20:], cache=cache)
        other = copy.deepcopy(layer)
        other.rotary.fix_length(24)
        assert equal(out, other(x[:, 3:])[:, -4:])
        cache.shift(1)
        with pytest.raises(ValueError, match=r"seq_len.*DynamicNTK"):
            cache.read(rotary)


def test_a_cache_filled_under_inference_mode_works_outside():
    layer, x = make(window=4), normal((2, 9, WIDTH), 1)
    real, outs = torch.tensor([[0, 1, 1], [1, 1, 1]]), []
    for mode in (torch.inference_mode, torch.no_grad):
        cache = cache_for(layer, 2, 5, policy="plain")
        with mode():
            layer(x[:, :3], cache=cache, attention_mask=real)
            cache.shift(1)
            cache.reorder(torch.tensor([1, 0]))
        with torch.no_grad():
            outs.append(torch.cat([layer(part, cache=cache) for part in x[:, 3:].split(1, 1)], 1))
        assert cache.positions.amax(1).tolist() == [9, 8]
    assert torch.equal(*outs)


def started(**options):
    cache, x = KVCache(2, 1, 7, 4, **options), torch.ones(2, 1, 3, 4)
    cache.append(x, x, torch.tensor([[-1, 2, 3], [4, 5, 6]]), rotary=RotaryEmbedding(4))
    return cache


ONES = torch.ones(2, 1, 1, 4)
WRONG = {
    r"delta .*-1": lambda c: c.shift(-3),
    r"delta .*float32": lambda c: c.shift(torch.ones(2)),
    r"delta .*\[3\].*\[2\]": lambda c: c.shift(torch.arange(3)),
    r"slots .*int64 \[2, 7\].*bool": lambda c: c.shift(1, torch.zeros(2, 7).long()),
    "out of range": lambda c: c.reorder(torch.tensor([0, 2])),
    r"position_ids .*-2.* -1": lambda c: c.append(ONES, ONES, torch.tensor([-2])),
    r"position_ids .*6.*window": lambda c: c.check(ONES, ONES, torch.tensor([[7], [6]]), window=3),
    r"3 .*7 .*5 .*=8": lambda c: c.check(*torch.ones(2, 2, 1, 5, 4)),
    r"3 .*7 .*9 .*=9": lambda c: c.check(*torch.ones(2, 2, 1, 9, 4), window=6, sinks=3),
    r"k .*\[1, 1, 1, 4\]": lambda c: c.append(ONES[:1], ONES),
    r"v .*float64": lambda c: c.append(ONES, ONES.double()),
    r"k .*gradients": lambda c: c.append(ONES.clone().requires_grad_(), ONES),
}


@pytest.mark.parametrize("names", WRONG)
def test_a_failed_call_leaves_the_cache_unchanged(names):
    cache = started()
    before = cache.fork()
    with pytest.raises((ValueError, TypeError, IndexError), match=names):
        WRONG[names](cache)
    assert same(cache, before)


def test_a_plain_cache_needs_a_rotary_embedding():
    cache = started(policy="plain")
    for call in (lambda: cache.append(ONES, ONES), lambda: (cache.shift(1), cache.read())):
        with pytest.raises(ValueError, match=r"rotary is None"):
            call()
    with pytest.raises(ValueError, match=r"policy.*'raw'.*rotated.*plain"):
        KVCache(1, 1, 1, 4, policy="raw")


X = normal((2, 8, WIDTH), 0)
LAYER_WRONG = {
    "sinks.* 2 .*window.*None": lambda: make(sinks=2),
    "causal.*window": lambda: make(window=4)(X, causal=False),
    "segment_ids.*cache": lambda: make()(X, cache=started(), segment_ids=torch.ones(8).long()),
    r"attention_mask.*\[8\].*\[2, 8\]": lambda: make()(X, attention_mask=torch.ones(8).long()),
}


@pytest.mark.parametrize("names", LAYER_WRONG)
def test_bad_arguments_of_the_layer_raise(names):
    with pytest.raises((ValueError, TypeError), match=names):
        LAYER_WRONG[names]()


@torch.no_grad()
def test_compiled_steps_at_a_full_cache_are_traced_once(traced):
    backend, graphs = traced
    layer, x = make(window=4, sinks=1), normal((2, 20, WIDTH), 1)
    cache, other = cache_for(layer, 2, 5), cache_for(layer, 2, 5)
    step = torch.compile(layer, fullgraph=True, backend=backend)
    layer(x[:, :7], cache=cache)
    compiled = [step(x[:, i : i + 1], cache=cache) for i in range(7, 20)]
    layer(x[:, :7], cache=other)
    assert equal(torch.cat(compiled, 1), layer(x[:, 7:], cache=other))
    assert len(graphs) <= 2


@torch.no_grad()
def test_a_window_counts_positions_not_tokens():
    layer, x, ids = make(window=4), normal((1, 3, WIDTH), 1), [0, 1, 100]
    expected = row_by_row(
        layer, x[0], lambda m, n: 1 if (m, n) == (1, 0) else 0 if m == n else None
    )
    for cache in (None, cache_for(layer, 1, 9)):
        assert equal(layer(x, torch.tensor(ids), cache=cache)[0], expected)


@torch.no_grad()
def test_compiled_steps_overwrite_no_visible_token():
    """Check that compiled code, which can't read position_ids, raises before it loses a key."""
    torch.compiler.reset()
    layer, x = make(window=4), normal((1, 12, WIDTH), 1)
    cache = cache_for(layer, 1, 6)
    step = torch.compile(layer, backend="eager")
    layer(x[:, :4], cache=cache)

    def decode():
        for token in x[:, 6:].split(1, dim=1):
            step(token, torch.tensor([[3]]), cache=cache)  # positions don't increase

    with pytest.raises(RuntimeError, match="no slot"):
        decode()
