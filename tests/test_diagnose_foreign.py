"""`rope.diagnose` on rotary-embedding-torch (0.9.1): its use is right, its misuses are named."""

import pytest

import rope
from rope.diagnose import diagnose

peer = pytest.importorskip("rotary_embedding_torch")
ROTARY = peer.RotaryEmbedding(dim=32)
EXPECTED = rope.RotaryEmbedding(32, interleaved=True)


def by_freqs(q, k, freqs, freqs_k=None):
    freqs_k = freqs if freqs_k is None else freqs_k
    return tuple(peer.apply_rotary_emb(each[:, None], x) for x, each in ((q, freqs), (k, freqs_k)))


def test_its_own_use_is_right():
    for expected in (None, EXPECTED):
        report = diagnose(lambda q, k, ids: by_freqs(q, k, ROTARY(ids)), 64, expected=expected)
        assert report.ok and not report.findings, str(report)
        assert (report.query.layout, report.query.rotary_dim) == ("interleaved", 32)


MISUSES = {
    "rotate_queries_or_keys counts by itself": (
        "positions-ignored",
        lambda q, k, ids: tuple(ROTARY.rotate_queries_or_keys(x) for x in (q, k)),
    ),
    "[B, H, S, D] taken for [B, S, H, D]": (
        "wrong-axis",
        lambda q, k, ids: tuple(ROTARY.rotate_queries_or_keys(x, seq_dim=-3) for x in (q, k)),
    ),
    "the first row's frequencies": (
        "batch-mixed",
        lambda q, k, ids: by_freqs(q, k, ROTARY(ids[:1])),
    ),
    "keys one late": (
        "query-key-offset",
        lambda q, k, ids: by_freqs(q, k, ROTARY(ids), ROTARY(ids + 1)),
    ),
    "positions interpolated": (
        "frequencies",
        lambda q, k, ids: by_freqs(q, k, ROTARY(ids / 4)),
    ),
    "the whole head": (
        "width",
        lambda q, k, ids: by_freqs(q, k, peer.RotaryEmbedding(dim=64)(ids)),
    ),
    "weights in half order": (
        "layout",
        lambda q, k, ids: rope.RotaryEmbedding(32)(q, k, ids),
    ),
    "a model cast to bfloat16": (
        "low-precision-angles",
        lambda q, k, ids: by_freqs(q, k, peer.RotaryEmbedding(dim=32).bfloat16()(ids).to(q)),
    ),
    "freqs in the activations' dtype": (
        "low-precision-angles",
        lambda q, k, ids: by_freqs(q, k, ROTARY(ids).bfloat16()),
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_one_finding(name):
    code, rotate = MISUSES[name]
    report = diagnose(rotate, 64, expected=EXPECTED)
    assert [each.code for each in report.findings] == [code], str(report)


def test_xpos_centred_on_the_text_is_no_norm():
    """Its factors leave float32 at the ends of long texts; nearer by they follow the length."""
    xpos = peer.RotaryEmbedding(dim=32, use_xpos=True)

    def rotate(q, k, ids):
        freqs, power = xpos(ids)[:, None], (ids - (ids.max() + 1) // 2) / xpos.scale_base
        scale = (xpos.scale ** power[..., None]).repeat_interleave(2, -1)[:, None]
        q = peer.apply_rotary_emb(freqs, q, scale=scale)
        return q, peer.apply_rotary_emb(freqs, k, scale=1 / scale)

    report = diagnose(rotate, 64)
    assert report.ok, str(report)
    codes = [each.code for each in report.findings]
    assert codes == ["decay", "length-dependent", "reach"] and report.query.base == 10000
