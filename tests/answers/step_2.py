"""score(q, k, m, n, theta): q at position m and k at position n turned, and their dot product."""

import cmath
import math
from fractions import Fraction

import numpy as np
import torch


def turned(pair, angle):
    x, y = pair
    c, s = math.cos(angle), math.sin(angle)
    return np.array([x * c - y * s, x * s + y * c])


def wrong_gives_both_one_position(q, k, m, n, theta):
    """All tokens of a window get the position of its first.

    Source: https://github.com/jundot/omlx/pull/2363 (pull request 2363)
    Cause: no position is used, or the same for both
    """
    start = min(m, n)
    return float(turned(q, start * theta) @ turned(k, start * theta))


def wrong_leaves_the_key(q, k, m, n, theta):
    """The turned key goes to the cache, and the score takes the one before.

    Source: https://github.com/kvcache-ai/sglang/pull/66 (pull request 66)
    Cause: only the query is turned
    """
    cache = []
    q, cached = turned(q, m * theta), turned(k, n * theta)
    cache.append(cached)
    return q @ np.array(k)


def wrong_leaves_the_query_at_0(q, k, m, n, theta):
    """Each generated token is at position 0, so its query stays as it is.

    Source: https://github.com/Blaizzy/mlx-vlm/issues/1983 (issue 1983: Qwen3-Omni)
    Cause: only the key is turned
    """
    position_ids = np.arange(1)
    return turned(q, position_ids[0] * theta).dot(turned(k, n * theta))


def wrong_negates_the_sine_of_the_key(q, k, m, n, theta):
    """Said to be needed for a difference of positions, it makes a sum.

    Source: https://github.com/huggingface/transformers/issues/30900 (issue 30900)
    Cause: the key turns the other way, so the score knows m + n
    """
    rotate_half = lambda x: torch.stack((-x[1], x[0]))
    q, k = torch.tensor(q), torch.tensor(k)
    q_embed = q * math.cos(m * theta) + rotate_half(q) * math.sin(m * theta)
    k_embed = k * math.cos(n * theta) + rotate_half(k) * -math.sin(n * theta)
    return q_embed @ k_embed


def wrong_turns_both_clockwise(q, k, m, n, theta):
    """Both matrices are transposed, so the score knows m − n.

    Source: https://github.com/karpathy/nanochat/pull/489 (pull request 489)
    Cause: that is the score of n and m: both turn clockwise
    """

    def apply(x, t):
        return [x[0] * math.cos(t) + x[1] * math.sin(t), -x[0] * math.sin(t) + x[1] * math.cos(t)]

    a, b = apply(q, m * theta), apply(k, n * theta)
    return a[0] * b[0] + a[1] * b[1]


def wrong_doubles_positions(q, k, m, n, theta):
    """scale is 2 where nothing says it.

    Source: https://github.com/lablup/mlxcel/issues/1324 (issue 1324: InternLM3)
    Cause: query and key are turned twice as far
    """
    scaling = {}
    scale = scaling.get("linear", 2.0)
    return turned(q, m * scale * theta) @ turned(k, n * scale * theta)


def wrong_turns_the_cached_key_again(q, k, m, n, theta):
    """A key is turned where it goes into the cache and where it comes out.

    Source: https://github.com/NeuraLegion/shainet/pull/110 (pull request 110: a review of it)
    Cause: the key is turned twice
    """
    cached = turned(k, n * theta)
    return turned(q, m * theta) @ turned(cached, n * theta)


def wrong_forgets_the_sign_of_the_distance(q, k, m, n, theta):
    """The sine is the same for what is ahead and what is behind.

    Source: https://github.com/speechbrain/speechbrain/issues/3070 (issue 3070: RelPosEncXL)
    Cause: the distance |n − m| is used
    """
    distance = abs(m - n)
    return np.dot(q, turned(k, distance * theta))


def wrong_divides_by_theta(q, k, m, n, theta):
    """The position is divided by the frequency.

    Source: https://github.com/xlite-dev/LeetCUDA/issues/289 (issue 289)
    Cause: a position is divided by theta
    """
    return turned(q, m / theta) @ turned(k, n / theta)


def wrong_forgets_the_conjugate(q, k, m, n, theta):
    """The dot product of complex vectors conjugates none of them.

    Source: https://github.com/josdejong/mathjs/issues/1761 (issue 1761: `dot`)
    Cause: the product of two complex numbers needs the conjugate of one of them
    """
    a = complex(*q) * cmath.exp(1j * m * theta)
    b = complex(*k) * cmath.exp(1j * n * theta)
    return (a * b).real


def wrong_writes_the_query_into_the_key(q, k, m, n, theta):
    """The turned query lands in the key, which is turned then; the query stays as it is.

    Source: https://github.com/vllm-project/vllm-omni/pull/3828 (pull request 3828: HiDream)
    Cause: the turned query stands in the place of the key
    """
    k = turned(q, m * theta)
    k = turned(k, n * theta)
    return float(np.array(q) @ k)


def wrong_crosses_query_and_key(q, k, m, n, theta):
    """Two of the four results come from the other vector.

    Source: https://github.com/hpcaitech/ColossalAI/issues/6428 (issue 6428: fused_rotary_emb)
    Cause: query and key are crossed
    """
    (q_0, q_1), (k_0, k_1) = q, k
    out_q0 = q_0 * math.cos(m * theta) - q_1 * math.sin(m * theta)
    out_q1 = k_0 * math.sin(n * theta) + k_1 * math.cos(n * theta)
    out_k0 = q_0 * math.cos(m * theta) - q_1 * math.sin(m * theta)
    out_k1 = k_0 * math.sin(n * theta) + k_1 * math.cos(n * theta)
    return out_q0 * out_k0 + out_q1 * out_k1


def wrong_index_in_the_last_term(q, k, m, n, theta):
    """The last of four terms has the first coordinate of the key.

    Source: https://github.com/labmlai/annotated_deep_learning_paper_implementations/pull/232 (pull
        request 232: the formula in the docstring)
    Cause: q[1] k[0] is under the cosine
    """
    c, s = math.cos((m - n) * theta), math.sin((m - n) * theta)
    return q[0] * k[0] * c + q[0] * k[1] * s - q[1] * k[0] * s + q[1] * k[0] * c


def wrong_returns_the_complex_product(q, k, m, n, theta):
    """The imaginary part is kept, as by `vdot`, which was taken for the sum of products.

    Source: https://github.com/numpy/numpy/issues/9467 (issue 9467)
    Cause: it is a complex number
    """
    a = np.array([complex(*q)]) * np.exp(1j * m * theta)
    b = np.array([complex(*k)]) * np.exp(1j * n * theta)
    return np.vdot(a, b)


def wrong_rotation_reads_the_new_x(q, k, m, n, theta):
    """In the rotation, x is overwritten before y is computed.

    Source: https://github.com/FreeCAD/FreeCAD/pull/7128 (pull request 7128: Vector2d)
    Cause: in the rotation, the second line reads the new x
    """

    def rotate(x, y, angle):
        x = x * math.cos(angle) - y * math.sin(angle)
        y = x * math.sin(angle) + y * math.cos(angle)
        return x, y

    (a, b), (c, d) = rotate(*q, m * theta), rotate(*k, n * theta)
    return a * c + b * d


def right_turns_the_key_by_the_distance(q, k, m, n, theta):
    return np.dot(q, turned(k, (n - m) * theta))


def right_complex_with_the_key_conjugated(q, k, m, n, theta):
    return (complex(*q) * complex(*k).conjugate() * cmath.rect(1, (m - n) * theta)).real


def torch_score(dtype):
    def scored(q, k, m, n, theta):
        turn = lambda x, t: x * t.cos() + torch.stack((-x[1], x[0])) * t.sin()
        q, k = (torch.tensor(pair, dtype=dtype) for pair in (q, k))
        theta = torch.tensor(theta, dtype=dtype)
        return turn(q, m * theta) @ turn(k, n * theta)

    return scored


right_torch_float32 = torch_score(torch.float32)
right_torch_float64 = torch_score(torch.float64)


def right_torch_float16(q, k, m, n, theta):
    """Angles in float32, as they are to be, and all else in float16."""
    c, s = torch.tensor([m * theta, n * theta]).cos(), torch.tensor([m * theta, n * theta]).sin()
    x = torch.tensor([q, k], dtype=torch.float16)
    half = torch.stack((-x[:, 1], x[:, 0]), dim=1)
    x = x * c.half()[:, None] + half * s.half()[:, None]
    return x[0] @ x[1]


def right_torch_needs_a_gradient(q, k, m, n, theta):
    q = torch.tensor(q, dtype=torch.float64, requires_grad=True)
    t = (n - m) * theta
    k = torch.tensor(turned(k, t))
    return (q * k).sum()


def right_fractions(q, k, m, n, theta):
    a, b = (list(map(Fraction, turned(x, t * theta))) for x, t in ((q, m), (k, n)))
    return a[0] * b[0] + a[1] * b[1]
