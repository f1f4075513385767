"""Test frequencies, positions and tables for several axes, against transformers and mpmath."""

from functools import partial
from types import SimpleNamespace

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import check_raises, layouts, normal, quick, seeds, tolerance

from rope import inverse_frequencies, rotary_embedding
from rope.axes import (
    axial_frequencies,
    axis_tables,
    grid_positions,
    mrope_position_ids,
    section_frequencies,
)

AXES, PLANES, DIM = 3, 6, 12
X = normal((2, 4, 6, DIM), 0)
F32, F64 = torch.float32, torch.float64
EPS = torch.finfo(F32).eps
places = st.lists(st.integers(-500, 500), min_size=AXES, max_size=AXES).map(torch.tensor)
real_places = st.lists(st.floats(-500, 500), min_size=AXES, max_size=AXES).map(
    lambda p: torch.tensor(p, dtype=F64)
)
# Angles are below 18,000, three terms and two sums are rounded, and coordinates are below 6.
ANGLE = 18_000 * tolerance(F64, operations=5, scale=6)


def dense(seed):
    """Return a random frequency matrix Theta `[A, R/2]` with entries of size at most 6."""
    return normal((AXES, PLANES), seed).clamp(-6, 6)


def rotate(x, at, theta, interleaved=False, **options):
    cos, sin = axis_tables(at[:, None], theta, dtype=F64)
    return rotary_embedding(x, cos, sin, interleaved=interleaved, **options)


@quick
@given(places, places, places, layouts, seeds)
def test_scores_depend_on_the_offset_along_every_axis(p, q, shift, interleaved, seed):
    x, y = normal((2, 1, 1, 1, DIM), seed)
    theta = dense(seed)

    def score(p, q):
        return (rotate(x, p, theta, interleaved) * rotate(y, q, theta, interleaved)).sum()

    expected = (x * rotate(y, q - p, theta, interleaved)).sum()
    for value in (score(p, q), score(p + shift, q + shift)):
        torch.testing.assert_close(value, expected, rtol=0, atol=DIM * 6 * 3 * ANGLE)


@quick
@given(real_places, real_places, layouts, seeds)
def test_rotations_of_real_positions_are_a_group(p, q, interleaved, seed):
    x, theta = normal((1, 1, 1, DIM), seed), dense(seed)
    once = rotate(x, p, theta, interleaved)
    twice = rotate(once, q, theta, interleaved)
    at_sum = rotate(x, p + q, theta, interleaved)
    torch.testing.assert_close(twice, at_sum, rtol=0, atol=4 * ANGLE)  # the sum is rounded too
    torch.testing.assert_close(once.norm(), x.norm(), rtol=1e-14, atol=0)
    back = rotate(once, p, theta, interleaved, inverse=True)
    torch.testing.assert_close(back, x, rtol=0, atol=tolerance(F64, scale=8))


def test_where_the_planes_go():
    theta = inverse_frequencies(128, 1e6)
    for dealt, sections, owners in (
        (False, (16, 24, 24), [0] * 16 + [1] * 24 + [2] * 24),
        (True, (24, 20, 20), [0, 1, 2] * 20 + [0] * 4),
    ):
        out = section_frequencies(theta, sections, interleaved_sections=dealt)
        assert out.dtype == F64 and out.count_nonzero() == 64
        assert torch.equal(out[owners, range(64)], theta)
    assert torch.equal(section_frequencies(theta, (64, 0, 0))[0], theta)
    assert torch.equal(axial_frequencies(128, 1), inverse_frequencies(128)[None])
    three = axial_frequencies(128, (16, 56, 56))
    assert torch.equal(axial_frequencies(128, (0, 128))[1], inverse_frequencies(128))
    assert torch.equal(three, torch.block_diag(*map(inverse_frequencies, (16, 56, 56))))


def test_shapes_that_tables_take():
    shared, batch = torch.rand(AXES, 6), torch.rand(AXES, 2, 6)
    theta, heads = dense(0), normal((4, AXES, PLANES), 1)
    for ids in (shared, batch):
        for frequencies in (theta, heads):
            out = rotary_embedding(X, *axis_tables(ids, frequencies, dtype=F64))
            for b in range(2):
                for h in range(4):
                    p = ids if ids is shared else ids[:, b]
                    t = frequencies if frequencies is theta else frequencies[h]
                    one = X[b : b + 1, h : h + 1], *axis_tables(p, t, dtype=F64)
                    assert torch.equal(out[b, h], rotary_embedding(*one)[0, 0])
    assert axis_tables(torch.empty(AXES, 0), theta)[0].shape == (0, PLANES)


@pytest.mark.parametrize("ids", [[3, 5], [100_003, -77], [0.3, 1e6 + 0.125]])
def test_a_plane_to_fifty_digits(ids):
    theta = normal((2, 3), 5)
    positions = torch.tensor(ids, dtype=F64)[:, None]
    cos, sin = (table[0, 1] for table in axis_tables(positions, theta, dtype=F64))
    with mpmath.workdps(50):
        angle = sum(
            mpmath.mpf(p) * mpmath.mpf(t) for p, t in zip(ids, theta[:, 1].tolist(), strict=True)
        )
        exact = [float(mpmath.cos(angle)), float(mpmath.sin(angle))]
    # Each term and their sum is rounded to float64; the table adds a unit in its last place.
    allowed = tolerance(F64, float(positions.abs().max()) * 3, operations=3) + 1e-15
    assert [cos.item(), sin.item()] == pytest.approx(exact, rel=0, abs=allowed)


def test_positions():
    for size in ((3,), (2, 3), (2, 3, 4), (1, 1)):
        cells = torch.cartesian_prod(*(torch.arange(n) for n in size)).view(-1, len(size))
        assert torch.equal(grid_positions(*size), cells.T)
    assert torch.equal(mrope_position_ids([5]), torch.arange(5).expand(3, -1))
    assert mrope_position_ids([]).shape == (3, 0)
    assert torch.equal(mrope_position_ids([2, 0, 3]), mrope_position_ids([5]))
    assert mrope_position_ids([1, (3, 1, 2, 2.5), 1]).tolist() == [
        [0, 1, 1, 3, 3, 6, 6, 7],
        [0, 1, 1, 1, 1, 1, 1, 7],
        [0, 1, 2, 1, 2, 1, 2, 7],
    ]
    for layout in ([(2, 3, 4), 6, (1, 9, 2)], [4, (5, 1, 1), (1, 2, 2), 1]):
        ids, start = mrope_position_ids(layout), 0
        for segment in layout:
            count = segment if isinstance(segment, int) else segment[0] * segment[1] * segment[2]
            here, ids = ids[:, :count], ids[:, count:]
            assert (here[:, 0] == start).all()
            start = int(here.max()) + 1


def positions_of(version, name, segments, **video):
    """Return position ids computed by a model's own method, without building the model."""
    path = f"transformers.models.{version}.modeling_{version}"
    model = getattr(pytest.importorskip(path), name)
    kinds, images, videos = [], [], []
    for segment in segments:
        if isinstance(segment, int):
            kinds += [0] * segment
        else:
            time, height, width = segment[:3]
            kinds += [1 if time == 1 else 2] * (time * height * width)
            (images if time == 1 else videos).append([time, 2 * height, 2 * width])
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=4)
    stub = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
    stub.get_vision_position_ids = model.get_vision_position_ids.__get__(stub)
    ids, _ = model.get_rope_index(
        stub,
        torch.zeros(1, len(kinds), dtype=torch.long),
        torch.tensor([kinds]),
        torch.tensor(images) if images else None,
        torch.tensor(videos) if videos else None,
        **video,
    )
    return ids[:, 0]


@pytest.mark.parametrize("segments", [[7, (1, 4, 6), 5, (3, 4, 2), 2], [(1, 3, 3), 2]])
def test_positions_of_qwen(segments):
    theirs = positions_of("qwen2_vl", "Qwen2VLModel", segments)
    assert torch.equal(mrope_position_ids(segments), theirs)


@pytest.mark.parametrize("step", [4.0, 2.7])  # 2 x 2.7 = 5.4 and 3 x 2.7 = 8.1 are rounded down
def test_positions_of_qwen25_have_seconds(step):
    seconds, segments = torch.tensor([step / 4]), [2, (4, 15, 2), 4]
    theirs = positions_of("qwen2_5_vl", "Qwen2_5_VLModel", segments, second_per_grid_ts=seconds)
    assert torch.equal(mrope_position_ids([2, (4, 15, 2, step), 4]), theirs)


def test_text_after_a_long_video_is_not_as_in_transformers():
    """Check that text starts after the largest position, as in arXiv 2409.12191, section 2.1.

    transformers instead gives text after a long video the positions of the video's frames.
    """
    segments = [2, (9, 2, 2), 3]
    ours, theirs = mrope_position_ids(segments), positions_of("qwen2_vl", "Qwen2VLModel", segments)
    assert torch.equal(ours[:, :-3], theirs[:, :-3])
    assert theirs[0, :-3].max() == 10
    assert theirs[0, -3:].tolist() == [4, 5, 6]
    assert ours[0, -3:].tolist() == [11, 12, 13]


def test_vision_of_qwen_is_axial():
    qwen2 = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    config = qwen2.Qwen2VLVisionConfig(embed_dim=2 * 80, num_heads=2)
    ids = grid_positions(30, 40)
    theirs = qwen2.Qwen2VLVisionRotaryEmbedding(config)(torch.ones(1), ids.T)
    for their, our in zip(theirs, axis_tables(ids, axial_frequencies(80)), strict=True):
        # Their frequencies and angles are float32 and rounded; the table adds one more rounding.
        torch.testing.assert_close(their[:, :40], our, rtol=0, atol=41 * EPS)
        assert torch.equal(their[:, 40:], their[:, :40])


THETA, AXIAL, IDS = inverse_frequencies(12), axial_frequencies(8), grid_positions(2, 3)
NAN = torch.tensor([[0.0, float("nan")], [1.0, 1.0]])
V, T = ValueError, TypeError
sections, segments = partial(section_frequencies, THETA), mrope_position_ids
BAD = [  # (call, exception, words in its message)
    (lambda: axial_frequencies(10), V, "dim 5 even"),
    (lambda: axial_frequencies(9), V, "axes 2 (4, 4) 8 9"),
    (lambda: axial_frequencies(8, (2, 4)), V, "axes (2, 4) 6 8"),
    (lambda: sections((2, 2, 1)), V, "sections (2, 2, 1) 5 6"),
    (lambda: sections((4, 3, -1)), V, "sections[2] -1"),
    (lambda: sections((1, 2, 3), interleaved_sections=True), V, "sections (1, 2, 3) 6 (2, 2, 2)"),
    (lambda: sections((3, 3), interleaved_sections=1), T, "interleaved_sections 1"),
    (lambda: grid_positions(2.5, 2.5), T, "sizes[0] 2.5"),
    (lambda: segments([3, (1, 0, 2)]), V, "segments[1][1] 0"),
    (lambda: axis_tables(IDS[:1], AXIAL), V, "position_ids [1, 6] 2"),
    (lambda: axis_tables(NAN, AXIAL), V, "position_ids nan"),
    (lambda: axis_tables(IDS, AXIAL[0]), V, "frequencies [4]"),
    (lambda: axis_tables(IDS.half(), AXIAL), T, "position_ids torch.float16"),
    (lambda: axis_tables(IDS, AXIAL.float()), T, "frequencies torch.float32"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_calls_raise(call, kind, words):
    check_raises(call, kind, words)
