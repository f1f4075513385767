"""Rotate queries and keys with one Triton kernel, which reads and writes each vector once.

See the chapter "Bytes and kernels". A plane needs only four multiplications and two additions, so
memory traffic determines the time. With e bytes per element, rotating q `[B, H, S, D]` and
k `[B, H_kv, S, D]` moves

    2 e B (H + H_kv) S D    bytes for the vectors (one read, one write), and
    8 B S R/2 (H + H_kv) / HEADS    bytes for the float32 tables, most of them from the cache.

A program rotates TOKENS positions in HEADS heads of one sequence. It loads its table rows once and
uses them for each of its heads. The backward pass runs the same kernel, with INVERSE negated.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _rotate_kernel(
    q_ptr,
    k_ptr,
    q_out_ptr,
    k_out_ptr,
    cos_ptr,
    sin_ptr,
    ids_ptr,
    q_b, q_h, q_s, q_d,
    k_b, k_h, k_s, k_d,
    qo_b, qo_h, qo_s, qo_d,
    ko_b, ko_h, ko_s, ko_d,
    t_b, t_h, t_s, t_j,
    i_b, i_s,
    heads_q, heads_k, length, rows,
    PLANES: tl.constexpr,  # R/2; a constant, so the offsets within a row are constants too
    PLANES_2: tl.constexpr,  # the next power of two, which Triton's ranges require
    REST: tl.constexpr,  # the D - R coordinates to copy; 0 if q_out is q
    REST_2: tl.constexpr,
    TOKENS: tl.constexpr,  # positions per program
    HEADS: tl.constexpr,  # heads per program; the loop over heads is unrolled, so loads overlap
    INTERLEAVED: tl.constexpr,  # the layout; a branch on a constant costs nothing
    INVERSE: tl.constexpr,  # rotate back; forward and backward differ only in the sine's sign
    HAS_IDS: tl.constexpr,  # look up rows by position id; otherwise token s has row s
    HEAD_TABLES: tl.constexpr,  # load separate tables for each head
):  # fmt: skip
    # Use only one axis of the grid, because the other two allow at most 65,535 programs. Tokens
    # vary fastest, so that neighboring programs read neighboring memory.
    program = tl.program_id(0).to(tl.int64)
    token_tiles = tl.cdiv(length, TOKENS)
    q_tiles = tl.cdiv(heads_q, HEADS)
    head_tiles = q_tiles + tl.cdiv(heads_k, HEADS)
    s = (program % token_tiles) * TOKENS + tl.arange(0, TOKENS)
    head_tile = (program // token_tiles) % head_tiles
    b = program // token_tiles // head_tiles

    # A position outside the tables has no row; its vector becomes NaN.
    in_sequence = s < length
    row = s
    has_row = in_sequence
    if HAS_IDS:
        row = tl.load(ids_ptr + b * i_b + s * i_s, mask=in_sequence, other=0).to(tl.int64)
        has_row = in_sequence & (row >= 0) & (row < rows)
    j = tl.arange(0, PLANES_2).to(tl.int64)
    table = b * t_b + row[:, None] * t_s + j[None, :] * t_j
    table_mask = has_row[:, None] & (j < PLANES)[None, :]
    cos = tl.load(cos_ptr + table, mask=table_mask, other=float("nan")).to(tl.float32)
    sin = tl.load(sin_ptr + table, mask=table_mask, other=float("nan")).to(tl.float32)

    # A program's heads belong either to q or to k; only the pointers and strides differ.
    if head_tile < q_tiles:
        first_head = head_tile * HEADS
        _rotate_heads(
            q_ptr + b * q_b, q_out_ptr + b * qo_b, q_h, q_s, q_d, qo_h, qo_s, qo_d,
            first_head, heads_q, s, length, cos, sin, cos_ptr, sin_ptr, table, table_mask, t_h,
            PLANES, PLANES_2, REST, REST_2, HEADS, INTERLEAVED, INVERSE, HEAD_TABLES,
        )  # fmt: skip
    else:
        first_head = (head_tile - q_tiles) * HEADS
        _rotate_heads(
            k_ptr + b * k_b, k_out_ptr + b * ko_b, k_h, k_s, k_d, ko_h, ko_s, ko_d,
            first_head, heads_k, s, length, cos, sin, cos_ptr, sin_ptr, table, table_mask, t_h,
            PLANES, PLANES_2, REST, REST_2, HEADS, INTERLEAVED, INVERSE, HEAD_TABLES,
        )  # fmt: skip


@triton.jit
def _rotate_heads(
    x_ptr, out_ptr, x_h, x_s, x_d, o_h, o_s, o_d,
    first_head, heads, s, length, cos, sin, cos_ptr, sin_ptr, table, table_mask, t_h,
    PLANES: tl.constexpr, PLANES_2: tl.constexpr, REST: tl.constexpr, REST_2: tl.constexpr,
    HEADS: tl.constexpr, INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr,
    HEAD_TABLES: tl.constexpr,
):  # fmt: skip
    """Rotate up to HEADS heads, starting with first_head, at the positions s."""
    j = tl.arange(0, PLANES_2).to(tl.int64)
    for i in tl.static_range(HEADS):
        h = first_head + i
        here = s < tl.where(h < heads, length, 0)  # all False for a head beyond the last
        if HEAD_TABLES:
            mask = table_mask & here[:, None]
            cos = tl.load(cos_ptr + table + h * t_h, mask=mask, other=float("nan")).to(tl.float32)
            sin = tl.load(sin_ptr + table + h * t_h, mask=mask, other=float("nan")).to(tl.float32)
        x_row = x_ptr + h * x_h + s[:, None] * x_s
        o_row = out_ptr + h * o_h + s[:, None] * o_s
        if INTERLEAVED:
            # Load whole pairs: loading every second coordinate would read each cache line twice.
            at = tl.arange(0, 2 * PLANES_2).to(tl.int64)[None, :]
            pairs_mask = here[:, None] & (at < 2 * PLANES)
            pairs = tl.load(x_row + at * x_d, mask=pairs_mask).to(tl.float32)
            x, y = tl.split(tl.reshape(pairs, (pairs.shape[0], PLANES_2, 2)))
        else:
            at = j[None, :]
            pairs_mask = here[:, None] & (at < PLANES)
            x = tl.load(x_row + at * x_d, mask=pairs_mask).to(tl.float32)
            y = tl.load(x_row + (at + PLANES) * x_d, mask=pairs_mask).to(tl.float32)
        if INVERSE:
            rotated_x = x * cos + y * sin
            rotated_y = y * cos - x * sin
        else:
            rotated_x = x * cos - y * sin
            rotated_y = y * cos + x * sin
        # Only the store rounds to the dtype of the vectors.
        kind = out_ptr.dtype.element_ty
        if INTERLEAVED:
            pairs = tl.reshape(tl.join(rotated_x, rotated_y), (s.shape[0], 2 * PLANES_2))
            tl.store(o_row + at * o_d, pairs.to(kind), mask=pairs_mask)
        else:
            tl.store(o_row + at * o_d, rotated_x.to(kind), mask=pairs_mask)
            tl.store(o_row + (at + PLANES) * o_d, rotated_y.to(kind), mask=pairs_mask)
        if REST > 0:
            r = tl.arange(0, REST_2).to(tl.int64)[None, :]
            rest_mask = here[:, None] & (r < REST)
            rest = tl.load(x_row + (r + 2 * PLANES) * x_d, mask=rest_mask)
            tl.store(o_row + (r + 2 * PLANES) * o_d, rest, mask=rest_mask)


def tile(planes: int, length: int, heads: int) -> tuple[int, int, int]:
    """Return the numbers of tokens, heads, and warps per program. planes must be a power of two.

    With these numbers, each thread loads 16 bytes at a time, and the loads for one head overlap
    with the rotation of another. The numbers are the same for all lengths above 1, so that the
    kernel isn't compiled again for each length.
    """
    tokens = 1 if length == 1 else max(1, min(16, 1024 // planes))
    return tokens, min(4, triton.next_power_of_2(max(1, heads))), 1 if tokens * planes <= 128 else 4


def launch(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    *,
    interleaved: bool,
    inverse: bool,
) -> None:
    """Rotate q and k in one launch, and write the results to q_out and k_out, which may be q and k.

    q, q_out: `[B, H, S, D]`; k, k_out: `[B, H_kv, S, D]`, where H_kv may be 0. All are float16,
    bfloat16, or float32, with any strides. cos, sin: `[S, R/2]`, or four axes that broadcast to
    `[B, H, S, R/2]`; or `[N, R/2]` with integer position_ids `[S]` or `[B, S]`. The host reads no
    positions, so a position outside the tables results in NaN. The caller must check the rest.
    """
    batch, heads_q, length, head_dim = q.shape
    heads_k = k.shape[1]
    if heads_k == 0:  # k has no memory, so pass q; no program rotates a head of k
        k, k_out = q, q_out
    planes = cos.shape[-1]
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    if position_ids is None:
        ids, id_steps, rows = cos, [0, 0], 0
    else:
        ids, rows = position_ids, cos.shape[0]
        id_steps = [0, *ids.stride()] if ids.dim() == 1 else [*ids.stride()]
    sizes = zip(cos.shape, cos.stride(), strict=True)
    steps = [0 if size == 1 else step for size, step in sizes]
    steps = [0, 0, *steps] if cos.dim() == 2 else steps
    rest = 0 if q_out is q else head_dim - 2 * planes
    planes_2 = triton.next_power_of_2(planes)
    tokens, heads, warps = tile(planes_2, length, heads_q)
    tiles = batch * triton.cdiv(length, tokens)
    programs = tiles * (triton.cdiv(heads_q, heads) + triton.cdiv(heads_k, heads))
    if programs == 0:
        return
    # Triton launches on the current device, which may differ from q's device.
    with torch.cuda.device_of(q) if q.is_cuda else nullcontext():
        _rotate_kernel[(programs,)](
            q, k, q_out, k_out, cos, sin, ids,
            *q.stride(), *k.stride(), *q_out.stride(), *k_out.stride(), *steps, *id_steps,
            heads_q, heads_k, length, rows,
            PLANES=planes, PLANES_2=planes_2,
            REST=rest,
            REST_2=triton.next_power_of_2(max(rest, 1)),
            TOKENS=tokens,
            HEADS=heads,
            INTERLEAVED=interleaved,
            INVERSE=inverse,
            HAS_IDS=position_ids is not None,
            HEAD_TABLES=steps[1] != 0,
            num_warps=warps,
            enable_fp_fusion=False,  # fused multiply-adds would round differently from the formula
        )  # fmt: skip
