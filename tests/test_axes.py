import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import layouts, normal, quick, seeds, tolerance

from rope import inverse_frequencies, rotary_embedding
from rope.axes import (
    axial_frequencies,
    axis_tables,
    grid_positions,
    join_spectra,
    mrope_position_ids,
    section_frequencies,
)

AXES, PLANES, DIM = 3, 6, 12
SECTIONS = (2, 2, 2)
GRID = grid_positions(2, 1, 3)  # [3, 6]
X = normal((2, 4, 6, DIM), 0)
places = st.lists(st.integers(-500, 500), min_size=AXES, max_size=AXES)
reals = st.lists(st.floats(-500, 500), min_size=AXES, max_size=AXES)


def dense(seed):
    """A Theta whose angles at coordinates up to 1,000 stay below 3 * 1,000 * 6."""
    return normal((AXES, PLANES), seed).clamp(-6, 6)


def turn(x, at, theta, interleaved=False, **options):
    cos, sin = axis_tables(torch.as_tensor(at)[:, None], theta, dtype=torch.float64)
    return rotary_embedding(x, cos, sin, interleaved=interleaved, **options)


# Angles below 18,000, each of whose three terms and two sums is rounded; coordinates below 6.
ANGLE = 18_000 * tolerance(torch.float64, operations=5, scale=6)


@quick
@given(places, places, places, layouts, seeds)
def test_scores_depend_on_the_offset_along_every_axis(p, q, shift, interleaved, seed):
    x, y = normal((2, 1, 1, 1, DIM), seed)
    theta = dense(seed)
    p, q, shift = (torch.tensor(at) for at in (p, q, shift))

    def score(p, q):
        turned = turn(x, p, theta, interleaved), turn(y, q, theta, interleaved)
        return (turned[0] * turned[1]).sum()

    alone = (x * turn(y, q - p, theta, interleaved)).sum()
    for value in (score(p, q), score(p + shift, q + shift)):
        torch.testing.assert_close(value, alone, rtol=0, atol=DIM * 6 * 3 * ANGLE)


@quick
@given(reals, layouts, seeds)
def test_norm_is_kept_and_inverse_undoes_it(p, interleaved, seed):
    x = normal((1, 1, 1, DIM), seed)
    p = torch.tensor(p, dtype=torch.float64)
    out = turn(x, p, dense(seed), interleaved)
    torch.testing.assert_close(out.norm(), x.norm(), rtol=1e-14, atol=0)
    back = turn(out, p, dense(seed), interleaved, inverse=True)
    torch.testing.assert_close(back, x, rtol=0, atol=tolerance(torch.float64, scale=8))


@quick
@given(places, places, layouts, seeds)
def test_group_law(p, q, interleaved, seed):
    x, theta = normal((1, 1, 1, DIM), seed), dense(seed)
    together = turn(x, torch.tensor(p) + torch.tensor(q), theta, interleaved)
    apart = turn(turn(x, p, theta, interleaved), q, theta, interleaved)
    torch.testing.assert_close(apart, together, rtol=0, atol=3 * ANGLE)


@quick
@given(st.permutations(range(AXES)), places, seeds)
def test_axes_may_be_renamed(order, p, seed):
    theta = section_frequencies(inverse_frequencies(DIM), SECTIONS)
    p = torch.tensor(p)[:, None]
    for table, same in zip(
        axis_tables(p, theta), axis_tables(p[list(order)], theta[list(order)]), strict=True
    ):
        assert torch.equal(table, same)  # one term of each sum is not 0, so its order is nothing
    x = normal((1, 1, 1, DIM), seed)
    renamed = turn(x, p[list(order), 0], dense(seed)[list(order)])
    torch.testing.assert_close(renamed, turn(x, p[:, 0], dense(seed)), rtol=0, atol=2 * ANGLE)


def test_where_the_planes_go():
    theta = inverse_frequencies(128, 1e6)
    for dealt, owners in (
        (False, [0] * 16 + [1] * 24 + [2] * 24),
        (True, [0, 1, 2] * 20 + [0] * 4),
    ):
        sections = (24, 20, 20) if dealt else (16, 24, 24)
        out = section_frequencies(theta, sections, interleaved_sections=dealt)
        assert out.dtype == torch.float64
        for plane, axis in enumerate(owners):
            assert out[axis, plane] == theta[plane]
        assert out.count_nonzero() == 64
    assert torch.equal(section_frequencies(theta, (64, 0, 0))[0], theta)
    assert torch.equal(axial_frequencies(128, 1), inverse_frequencies(128)[None])
    three = axial_frequencies(128, (16, 56, 56))
    assert torch.equal(three[1, 8:36], inverse_frequencies(56))
    assert torch.equal(three, join_spectra(*(inverse_frequencies(w) for w in (16, 56, 56))))


def test_positions():
    for size in ((3,), (2, 3), (2, 3, 4), (1, 1)):
        cells = torch.cartesian_prod(*(torch.arange(n) for n in size)).view(-1, len(size))
        assert torch.equal(grid_positions(*size), cells.T)
    assert torch.equal(mrope_position_ids([5]), torch.arange(5).expand(3, -1))
    assert mrope_position_ids([]).shape == (3, 0)
    assert torch.equal(mrope_position_ids([2, 0, 3]), mrope_position_ids([5]))
    video = mrope_position_ids([1, (3, 1, 2, 2.5), 1])
    assert video.tolist() == [
        [0, 1, 1, 3, 3, 6, 6, 7],
        [0, 1, 1, 1, 1, 1, 1, 7],
        [0, 1, 2, 1, 2, 1, 2, 7],
    ]
    frames = mrope_position_ids([(4, 1, 1, 2.7)])[0]
    assert frames.tolist() == [0, 2, 5, 8]  # 2.7, 5.4 and 8.1 rounded down, not to the nearest
    for layout in ([(2, 3, 4), 6, (1, 9, 2)], [4, (5, 1, 1), (1, 2, 2), 1]):
        ids, start = mrope_position_ids(layout), 0
        for segment in layout:
            count = segment if isinstance(segment, int) else segment[0] * segment[1] * segment[2]
            here, ids = ids[:, :count], ids[:, count:]
            assert (here[:, 0] == start).all()
            start = int(here.max()) + 1


def test_shapes_that_tables_take():
    one, batch = torch.rand(AXES, 6), torch.rand(AXES, 2, 6)
    theta, heads = dense(0), normal((4, AXES, PLANES), 1)
    for ids in (one, batch):
        for frequencies in (theta, heads):
            cos, sin = axis_tables(ids, frequencies, dtype=torch.float64)
            out = rotary_embedding(X, cos, sin)
            for b in range(2):
                for h in range(4):
                    p = ids if ids is one else ids[:, b]
                    t = frequencies if frequencies is theta else frequencies[h]
                    alone = rotary_embedding(
                        X[b : b + 1, h : h + 1], *axis_tables(p, t, dtype=torch.float64)
                    )
                    assert torch.equal(out[b, h], alone[0, 0])
    assert axis_tables(torch.empty(AXES, 0), theta)[0].shape == (0, PLANES)
