"""score(q, k, m, n, theta): rotate q to position m, k to position n; return q · k."""

import cmath
import math

import numpy as np
import torch


def rotated(pair, angle):
    x, y = pair
    c, s = math.cos(angle), math.sin(angle)
    return np.array([x * c - y * s, x * s + y * c])


def wrong_gives_both_one_position(q, k, m, n, theta):
    """All tokens of a window get the position of its first.

    Source: https://github.com/jundot/omlx/pull/2363 (pull request 2363)
    Cause: the positions are not used, or both use the same position
    """
    start = min(m, n)
    return float(rotated(q, start * theta) @ rotated(k, start * theta))


def wrong_negates_the_sine_of_the_key(q, k, m, n, theta):
    """Said to be needed for a difference of positions, it makes a sum.

    Source: https://github.com/huggingface/transformers/issues/30900 (issue 30900)
    Cause: the key is rotated the other way, so the score depends on m + n
    """
    rotate_half = lambda x: torch.stack((-x[1], x[0]))
    q, k = torch.tensor(q), torch.tensor(k)
    q_embed = q * math.cos(m * theta) + rotate_half(q) * math.sin(m * theta)
    k_embed = k * math.cos(n * theta) + rotate_half(k) * -math.sin(n * theta)
    return q_embed @ k_embed


def wrong_forgets_the_conjugate(q, k, m, n, theta):
    """The dot product of complex vectors conjugates none of them.

    Source: https://github.com/josdejong/mathjs/issues/1761 (issue 1761: `dot`)
    Cause: the product of two complex numbers needs the conjugate of one of them
    """
    a = complex(*q) * cmath.exp(1j * m * theta)
    b = complex(*k) * cmath.exp(1j * n * theta)
    return (a * b).real


def wrong_crosses_query_and_key(q, k, m, n, theta):
    """Two of the four results come from the other vector.

    Source: https://github.com/hpcaitech/ColossalAI/issues/6428 (issue 6428: fused_rotary_emb)
    Cause: query and key are mixed
    """
    (q_0, q_1), (k_0, k_1) = q, k
    out_q0 = q_0 * math.cos(m * theta) - q_1 * math.sin(m * theta)
    out_q1 = k_0 * math.sin(n * theta) + k_1 * math.cos(n * theta)
    out_k0 = q_0 * math.cos(m * theta) - q_1 * math.sin(m * theta)
    out_k1 = k_0 * math.sin(n * theta) + k_1 * math.cos(n * theta)
    return out_q0 * out_k0 + out_q1 * out_k1


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
    return np.dot(q, rotated(k, (n - m) * theta))


def right_complex_with_the_key_conjugated(q, k, m, n, theta):
    return (complex(*q) * complex(*k).conjugate() * cmath.rect(1, (m - n) * theta)).real


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
    k = torch.tensor(rotated(k, t))
    return (q * k).sum()
