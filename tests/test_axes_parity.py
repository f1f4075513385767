"""Against the packages in use and mpmath: oracles that are not ours, and where they err."""

from types import SimpleNamespace

import mpmath
import pytest
import torch
from strategies import normal, tolerance

from rope import inverse_frequencies, rotary_embedding
from rope.axes import (
    MixedRotaryEmbedding,
    MultiAxisRotaryEmbedding,
    axial_frequencies,
    axis_tables,
    grid_positions,
    join_spectra,
    mrope_position_ids,
)

qwen2 = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
qwen25 = pytest.importorskip("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl")
qwen3 = pytest.importorskip("transformers.models.qwen3_vl.modeling_qwen3_vl")
lucidrains = pytest.importorskip("rotary_embedding_torch")

DIM, BASE = 128, 1e6
SEGMENTS = [7, (1, 4, 6), 5, (3, 4, 2), 2]
IDS = mrope_position_ids(SEGMENTS)
EPS = torch.finfo(torch.float32).eps
# Two products of values below 6 and a sum: three roundings.
EXACT = tolerance(torch.float64, scale=6, operations=3)


def near(largest):
    """Their frequency and angle are float32: both round, and the table does once more."""
    return largest * EPS + EPS


@pytest.mark.parametrize(
    ("peer", "config", "sections", "dealt"),
    [
        (qwen2.Qwen2VLRotaryEmbedding, qwen2.Qwen2VLTextConfig, (16, 24, 24), False),
        (qwen25.Qwen2_5_VLRotaryEmbedding, qwen25.Qwen2_5_VLTextConfig, (16, 24, 24), False),
        (qwen3.Qwen3VLTextRotaryEmbedding, qwen3.Qwen3VLTextConfig, (24, 20, 20), True),
    ],
)
def test_sections_of_qwen(peer, config, sections, dealt):
    parameters = {"rope_type": "default", "rope_theta": BASE, "mrope_section": list(sections)}
    config = config(
        hidden_size=2 * DIM, num_attention_heads=2, head_dim=DIM, rope_parameters=parameters
    )
    ids = torch.stack((IDS, IDS.flip(1)), dim=1)  # [3, B, S]
    theirs = peer(config)(torch.ones(1), ids)
    rotary = MultiAxisRotaryEmbedding.mrope(DIM, sections, BASE, interleaved_sections=dealt)
    for their, our in zip(theirs, axis_tables(ids, rotary.frequencies), strict=True):
        torch.testing.assert_close(
            their[..., : DIM // 2], our[:, 0], rtol=0, atol=near(int(ids.max()))
        )
    # The operation alone, on one pair of tables.
    q, k = normal((2, 4, ids.shape[-1], DIM), 0), normal((2, 2, ids.shape[-1], DIM), 1)
    tables = axis_tables(ids, rotary.frequencies, dtype=torch.float64)
    doubled = (torch.cat((table[:, 0],) * 2, dim=-1) for table in tables)
    for our, their in zip(
        rotary(q, k, ids), qwen2.apply_rotary_pos_emb(q, k, *doubled), strict=True
    ):
        torch.testing.assert_close(our, their, rtol=0, atol=EXACT)


def theirs_of(model, segments, merge=2, **video):
    """Position ids by a model's own rule, called without building the model."""
    kinds, images, videos = [], [], []
    for segment in segments:
        if isinstance(segment, int):
            kinds += [0] * segment
        else:
            time, height, width = segment[:3]
            kinds += [1 if time == 1 else 2] * (time * height * width)
            (images if time == 1 else videos).append([time, merge * height, merge * width])
    vision = SimpleNamespace(spatial_merge_size=merge, tokens_per_second=4)
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


@pytest.mark.parametrize("segments", [SEGMENTS, [4], [(1, 3, 3), 2], [1, (2, 2, 5), (1, 1, 1), 1]])
def test_positions_of_qwen(segments):
    assert torch.equal(mrope_position_ids(segments), theirs_of(qwen2.Qwen2VLModel, segments))


@pytest.mark.parametrize("step", [4.0, 2.7])  # 2.7 twice is 5.4, 2.7 thrice 8.1: rounded down
def test_positions_of_qwen25_have_seconds(step):
    theirs = theirs_of(
        qwen25.Qwen2_5_VLModel, [2, (4, 15, 2), 4], second_per_grid_ts=torch.tensor([step / 4])
    )
    assert torch.equal(mrope_position_ids([2, (4, 15, 2, step), 4]), theirs)


def test_after_a_long_video_transformers_goes_back_in_time():
    """Their count moves on by the rows or columns alone: text lands among the video's frames.

    The paper (arXiv 2409.12191, section 2.1) starts it past the largest position so far.
    """
    segments = [2, (9, 2, 2), 3]
    ours, theirs = mrope_position_ids(segments), theirs_of(qwen2.Qwen2VLModel, segments)
    assert torch.equal(ours[:, :-3], theirs[:, :-3])
    assert theirs[0, :-3].max() == 10
    assert theirs[0, -3:].tolist() == [4, 5, 6]
    assert ours[0, -3:].tolist() == [11, 12, 13]


def test_vision_of_qwen_is_axial():
    config = qwen2.Qwen2VLVisionConfig(embed_dim=2 * 80, num_heads=2)
    peer = qwen2.Qwen2VLVisionRotaryEmbedding(config)
    ids = grid_positions(30, 40)
    theirs = peer(torch.ones(1), ids.T)
    for their, our in zip(theirs, axis_tables(ids, axial_frequencies(80)), strict=True):
        torch.testing.assert_close(their[:, :40], our, rtol=0, atol=near(40))
        assert torch.equal(their[:, 40:], their[:, :40])


@pytest.mark.parametrize("sizes", [(5,), (4, 7), (3, 4, 5)])
def test_axial_frequencies_of_rotary_embedding_torch(sizes):
    width = 16
    peer = lucidrains.RotaryEmbedding(dim=width)
    freqs = peer.get_axial_freqs(*sizes).flatten(0, -2).detach()  # [S, A width]
    x = normal((2, 3, freqs.shape[0], freqs.shape[1]), 0)
    rotary = MultiAxisRotaryEmbedding.axial(width * len(sizes), len(sizes), interleaved=True)
    theirs = lucidrains.apply_rotary_emb(freqs.double(), x)
    ours = rotary.rotate(x, grid_positions(*sizes))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=12 * near(max(sizes)))


def test_pixels_of_rotary_embedding_torch():
    width, sizes = 16, (6, 9)
    peer = lucidrains.RotaryEmbedding(dim=width, freqs_for="pixel", max_freq=20)
    freqs = peer.get_axial_freqs(*sizes).flatten(0, -2).detach()
    spectrum = torch.linspace(1, 10, width // 2, dtype=torch.float64) * torch.pi
    rotary = MultiAxisRotaryEmbedding(join_spectra(spectrum, spectrum), interleaved=True)
    ids = torch.cartesian_prod(*(torch.linspace(-1, 1, n, dtype=torch.float64) for n in sizes)).T
    x = normal((1, 2, 54, 2 * width), 0)
    theirs = lucidrains.apply_rotary_emb(freqs.double(), x)
    # Angles up to 10 pi, whose position, frequency and product they round.
    torch.testing.assert_close(rotary.rotate(x, ids), theirs, rtol=0, atol=12 * 3 * near(10 * 3.15))


def test_rotary_embedding_torch_forgets_the_offset_of_the_second_axis():
    """Its cache is looked up by length alone, so an axis as long as the first copies its angles."""
    peer = lucidrains.RotaryEmbedding(dim=4)
    freqs = peer.get_axial_freqs(3, 3, offsets=(0, 7))[0, :, 4].detach()
    assert freqs.tolist() == [0, 1, 2]
    cos, _ = axis_tables(
        grid_positions(3, 3) + torch.tensor([[0], [7]]), axial_frequencies(8), dtype=torch.float64
    )
    torch.testing.assert_close(cos[:3, 2], torch.tensor([7.0, 8, 9]).double().cos())


@pytest.mark.parametrize("ids", [[3, 5], [100_003, -77], [0.3, 1e6 + 0.125]])
def test_a_plane_to_fifty_digits(ids):
    theta = normal((2, 3), 5)
    positions = torch.tensor(ids, dtype=torch.float64)[:, None]
    cos, sin = axis_tables(positions, theta, dtype=torch.float64)
    out = rotary_embedding(
        torch.tensor([1.0, 0.0]).double().expand(1, 1, 1, 2),
        *(table[:, 1:2] for table in (cos, sin)),
    )
    with mpmath.workdps(50):
        angle = sum(
            mpmath.mpf(p.item()) * mpmath.mpf(t.item())
            for p, t in zip(positions[:, 0], theta[:, 1], strict=True)
        )
        expected = [float(mpmath.cos(angle)), float(mpmath.sin(angle))]
    # Each term and their sum is rounded to float64; the table adds a unit in its last place.
    allowed = tolerance(torch.float64, float(positions.abs().max()) * 3, operations=3) + 1e-15
    torch.testing.assert_close(
        out.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=allowed
    )


def test_mixed_is_the_complex_product_of_the_paper():
    """RoPE-ViT: x e^{i (theta_x p_x + theta_y p_y)} on pairs, head by head."""
    torch.manual_seed(0)
    rotary = MixedRotaryEmbedding(16, 3, interleaved=True)
    x, ids = normal((2, 3, 20, 16), 0), grid_positions(4, 5).flip(0)
    theta = rotary.frequencies.detach().double()[:, :, None]  # [H, A, 1, R/2]
    angle = theta[:, 0] * ids[0, :, None] + theta[:, 1] * ids[1, :, None]
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    torch.testing.assert_close(rotary.rotate(x, ids), expected, rtol=0, atol=EXACT)


def test_float32_angles_are_what_ours_avoid():
    """A dense Theta at position 100,000: float32 angles miss the second decimal, ours do not."""
    theta = normal((2, 64), 1)
    ids = torch.tensor([[100_000, 99_999], [77_777, 100_001]])
    exact = axis_tables(ids, theta, dtype=torch.float64)[0]
    ours = axis_tables(ids, theta)[0]
    rows, narrow = ids.float()[..., None], theta.float()[:, None]
    early = (rows[0] * narrow[0] + rows[1] * narrow[1]).cos()
    assert (ours - exact).abs().max() <= EPS / 4 * (1 + 1e-6)
    assert (early - exact).abs().max() > 1e-2
    assert inverse_frequencies(2)[0] == 1
