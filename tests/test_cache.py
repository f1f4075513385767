"""Caches whose tokens are padded, moved, dropped and windowed.

The oracle is a plain loop: one row at a time, without padding or a cache, a score at a time.
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


def hold(layer, batch, room, **options):
    return KVCache(batch, layer.num_kv_heads, room, layer.head_dim, dtype=DOUBLE, **options)


def row_by_row(layer, x, distance):
    """[S, E] from [S, E]: distance(m, n) says how far back query m sees key n, None: not at all."""
    dim, theta = layer.head_dim, reference.inverse_frequencies(layer.rotary.dim)
    q, k, v = (
        each(x).unflatten(-1, (-1, dim)) for each in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    out = torch.zeros_like(q)
    for m in range(len(x)):
        seen = [n for n in range(len(x)) if distance(m, n) is not None]
        for h in range(layer.num_heads):
            back = [distance(m, n) for n in seen]
            turned = reference.rotate_matrix(
                q[m, h].expand(len(seen), -1).numpy(), back, theta, interleaved=False
            )
            kv = h * layer.num_kv_heads // layer.num_heads
            scores = (torch.from_numpy(turned) * k[seen, kv]).sum(1) / dim**0.5
            out[m, h] = scores.softmax(0) @ v[seen, kv]
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
    """A window, and calls of a batch whose rows are padded on either side, or in the middle."""
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
def test_padded_rows_with_a_window_are_the_rows_alone(text, policy):
    window, sinks, calls, real, room = text
    layer = make(window=window, sinks=sinks)
    x = normal((*real.shape, WIDTH), 1)
    # Padding takes slots too, until they are used again.
    cache = hold(layer, len(x), room if window else x.shape[1], policy=policy)
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
@pytest.mark.parametrize("extra", [0, 3])
@torch.no_grad()
def test_a_full_cache_goes_on_for_ever(policy, extra):
    """One sequence, no padding; a prompt that is longer than the room, then single tokens."""
    window, sinks = 6, 2
    layer = make(window=window, sinks=sinks)
    x, cache = normal((2, 40, WIDTH), 1), hold(layer, 2, window + sinks + extra, policy=policy)
    where = cache.keys.data_ptr(), cache.values.data_ptr()
    out = torch.cat([layer(part, cache=cache) for part in x.split((25, *[1] * 15), dim=1)], dim=1)
    for row in range(2):
        assert equal(out[row], row_by_row(layer, x[row], windowed(window, sinks)))
    assert where == (cache.keys.data_ptr(), cache.values.data_ptr())
    held = sorted(set(cache.positions[0].tolist()) - {-1})
    assert held[:sinks] == [0, 1] and held[-window:] == list(range(40 - window, 40))


class Rows:
    """What a cache should hold: for each row a list of [position, key, value]."""

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
def test_after_any_moves_keys_stand_where_positions_say(data, policy):
    rotary, batch, room, count = RotaryEmbedding(4), 2, 9, 0
    cache, rows = KVCache(batch, 1, room, 6, value_dim=1, policy=policy, dtype=DOUBLE), Rows(batch)
    for _ in range(data.draw(st.integers(1, 12))):
        batch, held = len(rows.rows), cache.positions >= 0
        choice = data.draw(st.sampled_from(["append", "append", "shift", "drop", "keep", "rows"]))
        before = copy.deepcopy(cache)
        if choice == "append":
            size = data.draw(st.integers(0, min(3, room - cache.length)))
            real = draw_mask(data, batch, size)
            k = normal((batch, 1, size, 6), count)
            v = torch.arange(count, count + batch * size, dtype=DOUBLE).view(batch, 1, size, 1)
            count += batch * size
            ids, _ = cache.tokens.next_ids(size, None, None, attention_mask=real)
            at = ids.clamp(min=0)
            cache.append(k if policy == "plain" else rotary.rotate(k, at), v, ids, rotary=rotary)
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
        elif choice in ("drop", "keep"):
            mask = draw_mask(data, batch, room)
            values = cache.values[:, 0, :, 0]
            stay = mask & held if choice == "keep" else held & ~mask
            rows.rows = [
                [token for token in row if token[2] in values[b, stay[b]]]
                for b, row in enumerate(rows.rows)
            ]
            getattr(cache, choice)(mask)
        else:
            chosen = [
                data.draw(st.integers(0, batch - 1)) for _ in range(data.draw(st.integers(1, 3)))
            ]
            other = cache.fork()
            cache.reorder(torch.tensor(chosen))
            assert same(other, before)
            rows.rows = [[list(token) for token in rows.rows[b]] for b in chosen]
        if data.draw(st.booleans()):  # a read in between may repair what several moves spoilt
            assert rows.agrees(cache, rotary), choice
    assert rows.agrees(cache, rotary)


def same(cache, other):
    """Whether two caches are alike, to the last bit."""
    mine, theirs = (vars(held) | vars(held.tokens) | {"tokens": None} for held in (cache, other))
    return mine.keys() == theirs.keys() and all(
        torch.equal(part, theirs[name]) if isinstance(part, torch.Tensor) else part == theirs[name]
        for name, part in mine.items()
    )


@pytest.mark.parametrize("policy", POLICIES)
@torch.no_grad()
def test_moves_of_different_tokens_all_count_before_a_read(policy):
    """Rows and slots apart, and nothing read in between; once read, beams take their keys along."""
    rotary, k = RotaryEmbedding(4), normal((2, 1, 6, 6), 0)
    cache, ids = KVCache(2, 1, 6, 6, policy=policy, dtype=DOUBLE), torch.arange(6).repeat(2, 1)
    cache.append(k if policy == "plain" else rotary.rotate(k), k, rotary=rotary)
    for delta, slots in ((torch.tensor([7, 0]), ids < 3), (100, ids % 2 == 1), (2, ids == 5)):
        cache.shift(delta, slots)
        ids = torch.where(slots, ids + torch.as_tensor(delta).view(-1, 1), ids)
    right = rotary.rotate(k, ids)
    assert within(cache.read(rotary)[0], right, roundings=16, size=4 * 110)
    rows = torch.tensor([1, 1])
    cache.reorder(rows)
    assert torch.equal(cache.positions, ids[rows])
    assert within(cache.read(rotary)[0], right[rows], roundings=16, size=4 * 110)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@torch.no_grad()
def test_a_thousand_moves_are_one_rotation(dtype, policy):
    """With a read after every seventh one; moved step by step, bfloat16 keys end 60 % off."""
    rotary, k = RotaryEmbedding(128), normal((1, 2, 16, 128), 0, dtype)
    cache = KVCache(1, 2, 16, 128, policy=policy, dtype=dtype)
    ids = torch.arange(5000, 5016)
    cache.append(k if policy == "plain" else rotary.rotate(k, ids), k, ids, rotary=rotary)
    for step in range(1000):
        cache.shift(-1)
        if step % 7 == 0:
            cache.read(rotary)
    right = rotary.rotate(k.double(), ids - 1000)
    off = (cache.read(rotary)[0].double() - right).norm(dim=-1) / right.norm(dim=-1)
    assert off.max() <= torch.finfo(dtype).eps * (2 if dtype == torch.float32 else 1)


@torch.no_grad()
def test_a_spectrum_that_follows_the_length_is_that_of_the_room():
    rotary = RotaryEmbedding(4, extension=DynamicNTK(4.0, 8))
    layer, x = make(rotary=rotary), normal((1, 24, WIDTH), 0)
    for policy in POLICIES:
        cache = hold(layer, 1, 24, policy=policy)
        layer(x[:, :20], cache=cache)
        cache.keep(cache.positions >= 3)
        cache.shift(-3)
        out = layer(x[:, 20:], cache=cache)
        other = copy.deepcopy(layer)
        other.rotary.fix_length(24)
        assert equal(out, other(x[:, 3:])[:, -4:])
        cache.shift(1)
        with pytest.raises(ValueError, match=r"seq_len.*dynamic"):
            cache.read(rotary)


def test_a_cache_filled_under_inference_mode_goes_on_outside():
    """As one that was filled outside of it, moved and reordered alike."""
    layer, x = make(window=4), normal((2, 9, WIDTH), 1)
    real, outs = torch.tensor([[0, 1, 1], [1, 1, 1]]), []
    for mode in (torch.inference_mode, torch.no_grad):
        cache = hold(layer, 2, 5, policy="plain")
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
    r"delta .*9007199254740994": lambda c: c.shift(torch.tensor([2**53 - 1, 0])),
    r"delta .*float32": lambda c: c.shift(torch.ones(2)),
    r"delta .*\[3\].*\[2\]": lambda c: c.shift(torch.arange(3)),
    r"slots .*int64 \[2, 7\].*bool": lambda c: c.shift(1, torch.zeros(2, 7).long()),
    "out of range": lambda c: c.reorder(torch.tensor([0, 2])),
    r"position_ids .*-2.* -1": lambda c: c.append(ONES, ONES, torch.tensor([-2])),
    r"position_ids .*9007199254740992": lambda c: c.append(ONES, ONES, torch.tensor([2**53])),
    r"position_ids .*6.*window": lambda c: c.check(ONES, ONES, torch.tensor([[7], [6]]), window=3),
    r"3 of 7 .*5 .*grow.* 8": lambda c: c.check(*torch.ones(2, 2, 1, 5, 4)),
    r"3 of 7 .*9 .*grow.* 9": lambda c: c.check(*torch.ones(2, 2, 1, 9, 4), window=6, sinks=3),
}


@pytest.mark.parametrize("names", WRONG)
def test_a_call_that_fails_leaves_the_cache_as_it_was(names):
    cache = started()
    before = cache.fork()
    with pytest.raises((ValueError, TypeError, IndexError), match=names):
        WRONG[names](cache)
    assert same(cache, before)


@pytest.mark.parametrize("moved", [0, 1])
@pytest.mark.parametrize("policy", POLICIES)
@torch.no_grad()
def test_a_fork_and_its_cache_go_on_by_themselves(policy, moved):
    layer, x, y = make(), normal((2, 9, WIDTH), 1), normal((2, 5, WIDTH), 2)
    cache = hold(layer, 2, 9, policy=policy)
    layer(x[:, :4], cache=cache)
    cache.shift(moved)
    other = cache.fork()
    assert equal(layer(y, cache=other), layer(torch.cat((x[:, :4], y), dim=1))[:, 4:])
    assert equal(layer(x[:, 4:], cache=cache), layer(x)[:, 4:])


def test_a_plain_cache_needs_what_rotates_it():
    cache = started(policy="plain")
    before = cache.fork()
    with pytest.raises(ValueError, match=r"8 .*head_dim 4"):
        cache.append(ONES, ONES, rotary=RotaryEmbedding(8))
    assert same(cache, before)
    for call in (lambda: cache.append(ONES, ONES), lambda: (cache.shift(1), cache.read())):
        with pytest.raises(ValueError, match=r"rotary is None"):
            call()
    with pytest.raises(ValueError, match=r"policy.*'raw'.*rotated.*plain"):
        KVCache(1, 1, 1, 4, policy="raw")
    cache.shift(-1)
    assert torch.equal(cache.keys, before.keys) and torch.equal(cache.positions, before.positions)


LAYER_WRONG = {
    "sinks.* 2 .*window.*None": lambda: make(sinks=2),
    "window.* 1; .*2": lambda: make(window=1),
    "window.* 4; .*causal": lambda: make(window=4)(X, causal=False),
    r"attention_mask.*\[8\].*\[2, 8\]": lambda: make()(X, attention_mask=torch.ones(8).long()),
    "attention_mask.* 3": lambda: make()(X, attention_mask=torch.full((2, 8), 3)),
    "attention_mask.*float32": lambda: make()(X, attention_mask=torch.ones(2, 8)),
}
X = normal((2, 8, WIDTH), 0)


@pytest.mark.parametrize("names", LAYER_WRONG)
def test_an_argument_that_the_layer_cannot_take_is_named(names):
    with pytest.raises((ValueError, TypeError), match=names):
        LAYER_WRONG[names]()


@torch.no_grad()
def test_compiled_steps_at_a_full_cache_are_traced_once(traced):
    backend, graphs = traced
    layer, x = make(window=4, sinks=1), normal((2, 20, WIDTH), 1)
    cache, other = hold(layer, 2, 5), hold(layer, 2, 5)
    step = torch.compile(layer, fullgraph=True, backend=backend)
    layer(x[:, :7], cache=cache)
    compiled = [step(x[:, i : i + 1], cache=cache) for i in range(7, 20)]
    layer(x[:, :7], cache=other)
    assert equal(torch.cat(compiled, 1), layer(x[:, 7:], cache=other))
    assert len(graphs) <= 2


@torch.no_grad()
def test_ids_with_gaps_meet_the_window_with_a_cache_and_without():
    layer, x, ids = make(window=4), normal((1, 3, WIDTH), 1), [0, 1, 100]
    expected = row_by_row(
        layer, x[0], lambda m, n: 1 if (m, n) == (1, 0) else 0 if m == n else None
    )
    for cache in (None, hold(layer, 1, 9)):
        assert equal(layer(x, torch.tensor(ids), cache=cache)[0], expected)


@pytest.mark.parametrize("padding", [-1, 0])
@torch.no_grad()
def test_padding_may_have_any_id(padding):
    layer, x = make(window=4), normal((1, 5, WIDTH), 1)
    mask, ids = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[padding, padding, 0, 1, 2]])
    cache = hold(layer, 1, 9)
    for out in (
        layer(x, ids, attention_mask=mask),
        layer(x, ids, cache=cache, attention_mask=mask),
    ):
        assert equal(out[:, 2:], layer(x[:, 2:]))
    assert cache.positions.tolist()[0][:5] == [-1, -1, 0, 1, 2]


@torch.no_grad()
def test_a_cache_rolled_back_reads_no_more_than_it_holds():
    layer, x = make(), normal((1, 40, WIDTH), 1)
    cache = hold(layer, 1, 64)
    layer(x, cache=cache)
    cache.keep((cache.positions >= 0) & (cache.positions < 10))
    assert cache.read()[0].shape[2] == cache.length == 10
    assert equal(layer(x[:, 10:12], cache=cache), layer(x[:, :12])[:, 10:])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("what", ["in order", "moved", "segments"])
@torch.no_grad()
def test_a_cache_that_grew_is_one_that_was_large(policy, what):
    layer, x = make(), normal((2, 12, WIDTH), 1)
    caches, outs = [hold(layer, 2, room, policy=policy) for room in (6, 12)], []
    for cache in caches:
        options = {"segment_ids": torch.tensor([0, 0, 1, 1])} if what == "segments" else {}
        layer(x[:, :4], cache=cache, **options)
        if what == "moved":
            cache.drop(cache.positions == 1)
            cache.shift(5)
        outs.append(layer(x[:, 4:6], cache=cache))
        if cache is caches[0]:
            cache.grow(12)
        outs.append(layer(x[:, 6:], cache=cache))
        cache.shift(-1, cache.positions > 2)
        outs.append(cache.read(layer.rotary)[0])
        outs.append(cache.positions)
    assert all(torch.equal(a, b) for a, b in zip(outs[:4], outs[4:], strict=True))


@torch.no_grad()
def test_keys_of_two_lengths_are_not_mixed():
    """An extension that follows the length rotates all keys for one: that of the room."""
    layer = make(rotary=RotaryEmbedding(4, extension=DynamicNTK(4.0, 8)))
    x, cache = normal((1, 24, WIDTH), 1), hold(layer, 1, 12)
    layer(x[:, :12], cache=cache)
    cache.grow(24)
    with pytest.raises(ValueError, match=r"12 .*24 .*fix_length"):
        layer(x[:, 12:], cache=cache)
    cache.reset()
    early = hold(layer, 1, 24)
    outs = [layer(part, cache=each) for each in (cache, early) for part in x.split(12, dim=1)]
    assert all(torch.equal(a, b) for a, b in zip(outs[:2], outs[2:], strict=True))
    layer.rotary.fix_length(24)
    assert equal(torch.cat(outs[:2], dim=1), layer(x))


def test_after_a_removal_no_token_is_of_the_last_call():
    cache, x = KVCache(1, 1, 8, 2), torch.ones(1, 1, 3, 2)
    cache.append(x, x)
    cache.drop(cache.positions == 2)
    assert cache.tokens.latest.shape == (1, 0)
    assert cache.tokens.sight().shape == (1, 0, 2)


def test_rows_that_are_left_say_how_long_the_cache_is():
    cache, x = KVCache(2, 1, 6, 4), torch.ones(2, 1, 6, 4)
    cache.append(x, x)
    cache.drop(torch.tensor([[False] * 6, [False] + [True] * 5]))
    cache.reorder(torch.tensor([1]))
    assert cache.length == 1
    cache.append(x[:1, :, :4], x[:1, :, :4])
    assert sorted(cache.positions[0].tolist()) == [-1, 0, 1, 2, 3, 4]


def test_each_row_goes_on_with_the_sequence_before_its_padding():
    cache, x = KVCache(2, 1, 9, 4), torch.ones(2, 1, 3, 4)
    cache.append(x, x, torch.tensor([[0, 1, -1], [0, 1, 0]]), torch.tensor([[1, 1, 0], [1, 1, 2]]))
    positions, segments = cache.tokens.next_ids(1)
    assert positions.tolist() == [[2], [1]] and segments.tolist() == [[1], [2]]
    x = x[:, :, :1]
    cache.append(x, x, torch.tensor([[2], [-1]]), torch.tensor([[1], [0]]))  # a row of padding
    positions, segments = cache.tokens.next_ids(1)
    assert positions.tolist() == [[3], [1]] and segments.tolist() == [[1], [2]]
    with pytest.raises(ValueError, match=r"segment_ids.*position_ids"):
        cache.append(x, x, segment_ids=segments - 1)  # another sequence must say where it is
    cache.append(x, x, segment_ids=segments)
    cache.append(x, x, torch.tensor([[9], [8]]), segments - 1)
    assert cache.positions[:, :6].tolist() == [[0, 1, -1, 2, 3, 9], [0, 1, 0, -1, 1, 8]]


@pytest.mark.parametrize("how", ["ids that stay", "a shift onto others"])
@torch.no_grad()
def test_compiled_steps_overwrite_no_token_that_is_seen(how):
    """What eager code rejects by reading positions fails there, and not in silence."""
    torch.compiler.reset()
    layer, x = make(window=4), normal((1, 12, WIDTH), 1)
    cache = hold(layer, 1, 6)
    step = torch.compile(layer, backend="eager")
    if how == "ids that stay":
        layer(x[:, :4], cache=cache)
        ids = torch.tensor([[3]])
    else:
        layer(x[:, :6], cache=cache)
        ids = None
        for at in range(5):
            cache.shift(5 - at, cache.positions == at)

    def go_on():
        for token in x[:, 6:].split(1, dim=1):
            step(token, ids, cache=cache)

    with pytest.raises(RuntimeError, match="no slot"):
        go_on()
