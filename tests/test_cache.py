"""Caches whose tokens are padded, moved, dropped, windowed and drafted.

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
from rope.extensions import DynamicNTK
from rope.tolerance import allowed, within

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


def windowed(window, sinks, in_cache):
    def distance(m, n):
        if n > m or (window is not None and m - n >= window and n >= sinks):
            return None
        if in_cache and n < sinks:
            return min(m, window + sinks - 1) - n
        return m - n

    return distance


@st.composite
def texts(draw):
    """A window, and calls of a batch whose rows are padded on either side, or in the middle."""
    window, sinks = draw(st.none() | st.integers(2, 5)), draw(st.integers(0, 2))
    batch, calls = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    real = torch.tensor(
        [[draw(st.integers(0, 3)) > 0 for _ in range(sum(calls))] for _ in range(batch)]
    )
    room = sum(calls) if window is None else window + sinks + draw(st.integers(0, 3))
    return window, sinks if window else 0, calls, real, room


@settings(max_examples=60)
@given(text=texts(), policy=st.sampled_from(POLICIES), along=st.booleans())
@torch.no_grad()
def test_padded_rows_with_a_window_are_the_rows_alone(text, policy, along):
    window, sinks, calls, real, room = text
    layer = make(window=window, sinks=sinks, sink_positions="cache" if along else "text")
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
            expected = row_by_row(layer, x[row, mask], windowed(window, sinks, along))
            assert equal(out[row, mask], expected)
    if not along or window is None or x.shape[1] <= window + sinks:
        whole = layer(x, attention_mask=real)  # without a cache
        assert equal(whole[real], out[real]) if real.any() else True


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("extra", [0, 3])
@torch.no_grad()
def test_a_full_cache_goes_on_for_ever(along, policy, extra):
    """One sequence, no padding; a prompt that is longer than the room, then single tokens."""
    window, sinks = 6, 2
    layer = make(window=window, sinks=sinks, sink_positions="cache" if along else "text")
    x, cache = normal((2, 40, WIDTH), 1), hold(layer, 2, window + sinks + extra, policy=policy)
    where = cache.keys.data_ptr(), cache.values.data_ptr()
    out = torch.cat([layer(part, cache=cache) for part in x.split((25, *[1] * 15), dim=1)], dim=1)
    for row in range(2):
        assert equal(out[row], row_by_row(layer, x[row], windowed(window, sinks, along)))
    assert where == (cache.keys.data_ptr(), cache.values.data_ptr())
    held = sorted(set(cache.positions[0].tolist()) - {-1})
    assert held[:sinks] == [0, 1] and held[-window:] == list(range(40 - window, 40))
    stored = layer.k_proj(x[:1]).unflatten(-1, (1, -1)).transpose(1, 2)
    if policy == "rotated":  # what is stored is what came, the sinks too
        rotated = layer.rotary.rotate(stored)[0, 0, held]
        assert equal(cache.keys[0, 0, cache.positions[0].argsort()][-len(held) :], rotated)


class Rows:
    """What a cache should hold: for each row a list of [position, key, value]."""

    def __init__(self, batch):
        self.rows, self.count = [[] for _ in range(batch)], 0

    def append(self, k, v, real):
        for b, row in enumerate(self.rows):
            for s in range(k.shape[2]):
                if real[b, s]:
                    row.append([max((one[0] for one in row), default=-1) + 1, k[b, 0, s], v[b, 0, s]])

    def agrees(self, cache, rotary):
        keys, values = cache.read(rotary)
        for b, row in enumerate(self.rows):
            slots = (cache.positions[b] >= 0).nonzero()[:, 0]
            held = sorted((cache.positions[b, slot].item(), values[b, 0, slot].item(), slot) for slot in slots)
            mine = sorted((at, v.item(), k) for at, k, v in row)
            if [one[:2] for one in held] != [one[:2] for one in mine]:
                return False
            for (at, _, slot), (_, _, k) in zip(held, mine, strict=True):
                right = rotary.rotate(k[None, None, None], torch.tensor([at]))[0, 0, 0]
                if not within(keys[b, 0, slot], right, roundings=8, size=4 * 100):
                    return False
        return True


@settings(max_examples=80)
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
            real = torch.tensor([[data.draw(st.booleans()) for _ in range(size)] for _ in range(batch)])
            real = real.bool().view(batch, size)
            k = normal((batch, 1, size, 6), count)
            v = torch.arange(count, count + batch * size, dtype=DOUBLE).view(batch, 1, size, 1)
            count += batch * size
            ids, _ = cache.next_ids(size, None, None, attention_mask=real)
            at = ids.clamp(min=0)
            cache.append(k if policy == "plain" else rotary.rotate(k, at), v, ids, rotary=rotary)
            rows.append(k, v, real)
        elif choice == "shift":
            delta = torch.tensor([data.draw(st.integers(-4, 40)) for _ in range(batch)])
            slots = torch.tensor([[data.draw(st.booleans()) for _ in range(room)] for _ in range(batch)])
            if data.draw(st.booleans()):
                slots = None
            moved = held if slots is None else held & slots
            if (moved & (cache.positions + delta[:, None] < 0)).any():
                with pytest.raises(ValueError, match="moves a token to -"):
                    cache.shift(delta, slots)
                assert same(cache, before)
            else:
                values = cache.values[:, 0, :, 0]
                for b, row in enumerate(rows.rows):
                    for one in row:
                        one[0] += int(delta[b]) * (one[2] in values[b, moved[b]])
                cache.shift(delta if batch > 1 else int(delta), slots)
        elif choice in ("drop", "keep"):
            mask = torch.tensor([[data.draw(st.booleans()) for _ in range(room)] for _ in range(batch)])
            values = cache.values[:, 0, :, 0]
            stay = mask & held if choice == "keep" else held & ~mask
            rows.rows = [
                [one for one in row if one[2] in values[b, stay[b]]] for b, row in enumerate(rows.rows)
            ]
            getattr(cache, choice)(mask if choice == "keep" else mask & held)
        else:
            chosen = [data.draw(st.integers(0, batch - 1)) for _ in range(data.draw(st.integers(1, 3)))]
            other = cache.fork()
            cache.reorder(torch.tensor(chosen))
            assert same(other, before)
            rows.rows = [[list(one) for one in rows.rows[b]] for b in chosen]
        assert rows.agrees(cache, rotary), choice


def same(cache, other):
    """Whether two caches are alike, to the last bit."""
    mine, theirs = vars(cache), vars(other)
    return mine.keys() == theirs.keys() and all(
        torch.equal(one, theirs[name]) if isinstance(one, torch.Tensor) else one == theirs[name]
        for name, one in mine.items()
        if name != "_draft"
    )
