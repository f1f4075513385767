"""Rotated values and compressed entries: DeepSeek-V4's attention, beside transformers' own."""

import pytest
import torch

from rope import RotaryEmbedding
from rope.attention.compressed import CompressedAttention, CompressedCache, Indexer
from rope.diagnose import diagnose
from rope.extensions import YaRN

KINDS = ("sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention")
E, H, D, R, RATIO, WINDOW, TOP = 24, 4, 16, 8, 4, 5, 3
# Of an indexer with few heads many sums of relu are exactly 0, and ties are broken by chance.
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}


def random_(layer, seed):
    """Weights whose products have the size of their inputs; sinks and biases of size 1."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in layer.named_parameters():
            scale = x.shape[-1] ** -0.5 if x.dim() == 2 and "bias" not in name else 0.5
            x.copy_(scale * torch.randn(x.shape, generator=noise) + ("norm" in name))
    return layer


class Theirs:
    """transformers' layer alone: rotation, mask and cache are made as its model makes them."""

    def __init__(self, kind, seed=0, scaling=None):
        self.modeling = pytest.importorskip(
            "transformers.models.deepseek_v4.modeling_deepseek_v4", reason="no DeepSeek-V4 there"
        )
        from transformers import DeepseekV4Config
        from transformers.cache_utils import DynamicCache

        config = DeepseekV4Config(
            hidden_size=E, num_attention_heads=H, head_dim=D, q_lora_rank=12, o_groups=2,
            o_lora_rank=6, num_hidden_layers=1, layer_types=[kind], sliding_window=WINDOW,
            index_n_heads=16, index_head_dim=12, index_topk=TOP, partial_rotary_factor=R / D,
            compress_rates=dict.fromkeys(KINDS[1:], RATIO), rope_parameters=scaling,
            attn_implementation="eager",
        )  # fmt: skip
        self.layer = random_(self.modeling.DeepseekV4Attention(config, 0), seed)
        self.rotary = self.modeling.DeepseekV4RotaryEmbedding(config)
        self.cache, self.next, self.kinds = DynamicCache(config=config), 0, ("main", "compress")

    def __call__(self, x):
        ids = torch.arange(self.next, self.next + x.shape[1])
        kept = min(self.next, WINDOW - 1)
        behind = ids[:, None] - torch.arange(self.next - kept, self.next + x.shape[1])
        mask = torch.zeros(len(x), 1, *behind.shape)
        mask.masked_fill_((behind < 0) | (behind >= WINDOW), -torch.inf)
        rows = ids.expand(len(x), -1)
        tables = {kind: self.rotary(x, rows, layer_type=kind) for kind in self.kinds}
        self.next += x.shape[1]
        with torch.no_grad():
            return self.layer(x, tables, rows, mask, past_key_values=self.cache)[0]


def ours(kind, weights=None, rotary=None, seed=0):
    plain = RotaryEmbedding(R, base=1e4 if kind == KINDS[0] else 160_000.0, interleaved=True)
    layer = CompressedAttention(
        E, H, D, query_dim=12, groups=2, group_dim=6, window=WINDOW, rotary=rotary or plain,
        ratio=None if kind == KINDS[0] else RATIO,
        index=(16, 12, TOP) if kind == KINDS[2] else None,
    )  # fmt: skip
    if weights is None:
        return random_(layer, seed)
    layer.load_state_dict(weights)  # under the same names
    return layer


def tokens(length, seed=1, rows=2):
    noise = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, E, generator=noise)


def in_parts(layer, x, parts, start=0):
    cache = CompressedCache(start)
    with torch.no_grad():
        return torch.cat([layer(part, cache) for part in x.split(parts, dim=1)], dim=1)


PARTS = {"at once": [23], "token by token": [1] * 23, "prefill, then tokens": [10, *[1] * 13],
         "in pieces": [3, 7, 1, 12]}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_that_of_transformers(kind, parts, seed):
    theirs, x = Theirs(kind, seed), tokens(23)
    expected = torch.cat([theirs(part) for part in x.split(PARTS[parts], dim=1)], dim=1)
    found = in_parts(ours(kind, theirs.layer.state_dict()), x, PARTS[parts])
    torch.testing.assert_close(found, expected, rtol=0, atol=2.0**-18)


def test_yarn_multiplies_nothing_there():
    """The configuration sets attention_factor to 1, where YaRN's formula gives 1.277."""
    theirs, x = Theirs(KINDS[1], scaling=YARN), tokens(23)
    expected = theirs(x)
    for factor, same in ((1.0, True), (None, False)):
        yarn = YaRN(16.0, 64, attention_factor=factor)
        rotary = RotaryEmbedding(R, base=160_000.0, interleaved=True, extension=yarn)
        found = in_parts(ours(KINDS[1], theirs.layer.state_dict(), rotary), x, [23])
        assert torch.allclose(found, expected, rtol=0, atol=2.0**-18) == same


def exact(kind, seed=0):
    return ours(kind, seed=seed).double()


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_shift_by_a_multiple_of_the_ratio_changes_nothing_and_another_does(kind, parts):
    layer, x = exact(kind), tokens(23).double()
    first = in_parts(layer, x, [23])
    for start in (0, RATIO, 1000 * RATIO, 1, 2, 3, 1001):
        off = (in_parts(layer, x, PARTS[parts], start) - first).abs().amax(dim=(0, 2))  # [S]
        if kind == KINDS[0] or start % RATIO == 0:
            assert off.max() < 2.0**-36
        else:
            assert off[8:].min() > 2.0**-8  # from where an entry is read


def test_what_is_read_is_rotated_by_differences():
    """The sum itself, with matrices: o_m = sum_n w_mn R_{n-m} v_n, and without the way back not."""
    rotary, noise = RotaryEmbedding(D, interleaved=True), torch.Generator().manual_seed(3)
    v = torch.randn(9, D, generator=noise, dtype=torch.float64)
    weights = torch.rand(9, 9, generator=noise, dtype=torch.float64).tril()

    def read(start, back=True):
        turned = rotary.rotate(v[None, None], offset=start)
        out = weights @ turned
        return rotary.rotate(out, offset=start, inverse=True)[0, 0] if back else out[0, 0]

    by_matrices = torch.zeros(9, D, dtype=torch.float64)
    for m in range(9):
        for n in range(m + 1):
            turned = rotary.rotate(v[None, None, n : n + 1], offset=m - n, inverse=True)
            by_matrices[m] += weights[m, n] * turned[0, 0, 0]
    assert (read(0) - by_matrices).abs().max() < 2.0**-44
    assert (read(1000) - read(0)).abs().max() < 2.0**-36
    assert (read(1000, back=False) - read(0, back=False)).abs().max() > 1


def test_it_takes_what_is_given_and_refuses_what_does_not_fit():
    layer = ours(KINDS[2])
    with pytest.raises(ValueError, match="rotary turns 16 coordinates; it must turn at most 12"):
        ours(KINDS[2], rotary=RotaryEmbedding(16))
    assert ours(KINDS[1], rotary=RotaryEmbedding(16))(tokens(9)).shape == (2, 9, E)
    for start in (0, 2):  # no entry yet, or no whole group
        assert in_parts(layer, tokens(3), [1, 2], start).isfinite().all()
    loss = layer(tokens(9)).square().sum()
    loss.backward()
    assert all(p.grad is not None for n, p in layer.named_parameters() if "indexer" not in n)
    one = CompressedAttention(
        E, H, D, query_dim=12, groups=2, group_dim=6, window=1, rotary=RotaryEmbedding(8)
    )
    torch.testing.assert_close(in_parts(one, tokens(4), [1] * 4), in_parts(one, tokens(4), [4]))


def patched(kind, **methods):
    """A layer some of whose methods are wrong ones, which get the right one first."""
    layer = exact(kind)
    for name, wrong in methods.items():
        right = getattr(layer, name)
        setattr(layer, name, lambda *a, wrong=wrong, right=right, **k: wrong(right, *a, **k))
    return layer


def with_rotary(kind, **change):
    base = 1e4 if kind == KINDS[0] else 160_000.0
    return ours(kind, rotary=RotaryEmbedding(R, **({"base": base, "interleaved": True} | change)))


def at_other_base(right, x, ids, inverse=False):
    """The base of the sliding layers for queries, window and output, and not for entries."""
    plain = RotaryEmbedding(R, interleaved=True)
    return torch.cat((x[..., :-R], plain.rotate(x[..., -R:], ids, inverse=inverse)), dim=-1)


def first_turned(right, x, ids, inverse=False):
    return right(x.roll(-R, dims=-1), ids, inverse).roll(R, dims=-1)


def indexer_by_halves(right, c, whole, at):
    if not isinstance(c, Indexer) or not len(at):
        return right(c, whole, at)
    entries = c(whole)[:, None, -len(at) :]
    halves = RotaryEmbedding(R, base=160_000.0)
    return torch.cat((entries[..., :-R], halves.rotate(entries[..., -R:], at)), dim=-1)


SLIDING, HEAVY, SPARSE = KINDS
SPREAD = YaRN(16.0, 64)  # multiplies cos and sin by 1.277
EXACTLY = YaRN(16.0, 64, attention_factor=1.0)
#: What went wrong in public, by the kind of layer: the thread, the layer with the fault, and the
#: first token whose output must move.
PLANTED = {
    "output not rotated back": (
        "Avarok-Cybersecurity/atlas#186", HEAVY, 1,
        lambda kind: patched(kind, _turned=lambda right, x, ids, inverse=False: (
            x if inverse else right(x, ids))),
    ),
    "output rotated on": (
        "ggml-org/llama.cpp#24162", HEAVY, 1,
        lambda kind: patched(kind, _turned=lambda right, x, ids, inverse=False: right(x, ids)),
    ),
    "two bases in one layer": (
        "huggingface/transformers#45910", HEAVY, 1,
        lambda kind: patched(kind, _turned=at_other_base, _made=lambda right, c, whole, at: (
            exact(kind)._turned(c(whole)[:, None, -len(at) :], at) if len(at)
            else right(c, whole, at))),
    ),
    "the other layers' base": (
        "Avarok-Cybersecurity/atlas#276", SLIDING, 1,
        lambda kind: with_rotary(kind, base=160_000.0),
    ),
    "YaRN where there is none": (
        "sgl-project/sglang#34788", SLIDING, 1,
        lambda kind: with_rotary(kind, extension=EXACTLY),
    ),
    "the factor of YaRN": (
        "Avarok-Cybersecurity/atlas#342", HEAVY, 0,
        lambda kind: with_rotary(kind, extension=SPREAD),
    ),
    "entries not rotated": (
        "ml-explore/mlx-lm#1189", HEAVY, 2 * RATIO - 1,
        lambda kind: patched(kind, _made=lambda right, c, whole, at: right(c, whole, 0 * at)),
    ),
    "entries at their number": (
        "AMD-AGI/Primus#928", HEAVY, 2 * RATIO - 1,
        lambda kind: patched(kind, _made=lambda right, c, whole, at: right(c, whole, at // RATIO)),
    ),
    "the indexer by halves": (
        "huggingface/transformers#46842", SPARSE, (TOP + 1) * RATIO - 1,
        lambda kind: patched(kind, _made=indexer_by_halves),
    ),
    "the first coordinates": (
        "ml-explore/mlx-lm#1189", HEAVY, 1, lambda kind: patched(kind, _turned=first_turned),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_public_fault_moves_what_is_read(name):
    _, kind, first, faulty = PLANTED[name]
    x = tokens(64).double()
    scaled = name == "the factor of YaRN"
    right = with_rotary(kind, extension=EXACTLY).double() if scaled else exact(kind)
    wrong = faulty(kind).double()
    off = (in_parts(wrong, x, [64]) - in_parts(right, x, [64])).abs().amax(dim=(0, 2))
    assert off[:first].sum() < 2.0**-36 < 2.0**-10 < off[first:].max()
    assert int((off > 2.0**-20).nonzero()[0]) == first


def queries_and_keys(layer, turn):
    """How a layer turns its queries, and keys or entries: all that `diagnose` looks at."""
    return lambda q, k, ids: (layer._turned(q, ids), turn(k, ids))


def test_a_diagnosis_names_those_of_queries_and_keys():
    plain, wide = RotaryEmbedding(R, interleaved=True), exact(HEAVY)
    halves = RotaryEmbedding(R, base=160_000.0)

    def by_halves(k, ids):
        return torch.cat((k[..., :-R], halves.rotate(k[..., -R:], ids)), dim=-1)

    layers = {name: faulty(kind) for name, (_, kind, _, faulty) in PLANTED.items()}
    seen = {
        "two bases in one layer": (wide._turned, None, "spectra-differ"),
        "the other layers' base": (None, plain, "frequencies"),
        "YaRN where there is none": (None, plain, "frequencies"),
        "the factor of YaRN": (None, with_rotary(HEAVY, extension=EXACTLY).rotary, "attention-sc"),
        "entries not rotated": (lambda k, ids: k.clone(), None, "key-unrotated"),
        "entries at their number": (lambda k, n: wide._turned(k, n // RATIO), None, "spectra"),
        "the indexer by halves": (by_halves, None, "layouts-differ"),
    }
    for name, (turn, expected, code) in seen.items():
        rotate = queries_and_keys(layers[name], turn or layers[name]._turned)
        (found,) = diagnose(rotate, D, expected=expected, max_position=4096).findings
        assert found.code.startswith(code), (name, found)
    for name in layers.keys() - seen.keys():  # the way back, and which coordinates turn
        layer = layers[name]
        rotate = queries_and_keys(layer, layer._turned)
        assert diagnose(rotate, D, expected=wide.rotary, max_position=4096).ok
