"""Half or interleaved order of W_q's and W_k's rows: what the weights alone can tell.

Training leaves rows of one plane with like norms, and norms that change slowly from plane to plane.
So over the rows of a head the profile of log norms is slow once through the planes, twice over in
half order and stretched in interleaved order. Three cosines over the planes are fitted in both
orders; what they leave over is the evidence. Chapter "Two layouts".

Shapes: D head dimension, R rotated width, N profiles, one of each head of q and k.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rope.checks import check_count
from rope.scalars import check_dim

SHUFFLES = 256
SIGMAS, EVIDENCE = 5.0, 0.15  # what an answer needs
_QUERY = re.compile(r"(^|\.)q_proj\.weight$")
_FUSED = re.compile(r"(^|\.)(qkv_proj|query_key_value|c_attn|Wqkv|qkv|in_proj)(\.|_)weight$")


@dataclass(frozen=True)
class RowOrder:
    """The order of rows that the weights point to.

    layout: "half", "interleaved", or None where it cannot be told. evidence: ln of what is left
    over in interleaved order to what is in half order, above 0 for half. sigmas: the evidence over
    its standard deviation for shuffled rows. An answer needs 0.15, and 5 sigmas.
    """

    layout: str | None
    evidence: float
    sigmas: float

    def __str__(self) -> str:
        said = "cannot be told" if self.layout is None else f"{self.layout} order"
        return f"{said}: evidence {self.evidence:+.2f}, {abs(self.sigmas):.1f} sigmas"


def diagnose_weights(
    state_dict: Mapping[str, Tensor],
    heads: int | tuple[int, int],
    *,
    rotary_dim: int | None = None,
) -> RowOrder:
    """Whether the rows of W_q and W_k stand in half or in interleaved order, as far as they tell.

    state_dict: with `q_proj.weight` and `k_proj.weight` of each layer, as transformers' Llama has
    them, and gains `q_norm.weight`, `k_norm.weight` if any; biases are not looked at. heads: H, or
    (H, H_kv). rotary_dim: R, the first rows of a head; all of them when None. Calibrated on models
    trained by `rope.book.training`, 2 or 4 layers, 200 or 300 steps: 14 with heads of 32 and 64
    coordinates, bases from 100 to a million, two with rows that were interleaved in training, were
    told rightly at 5.6 to 26 sigmas, as they are and permuted into the other order. Heads of 16
    coordinates (4.6 sigmas), 50 steps, models without rotation and untrained weights could not be
    told. Profiles of noise passed both bars in at most 2 of 29,400 draws. No released model was
    among them, and whatever else makes norms follow the row's number, such as a gain, misleads it:
    an answer is evidence, and the text that a model writes in each order decides. Raises ValueError
    for fused or missing projections, and rows that heads do not divide.

    >>> rows = torch.linspace(2, 1, 16).repeat(2).unsqueeze(1)  # large for fast planes, twice
    >>> noise = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    >>> weights = {f"{name}_proj.weight": rows.repeat(2, 1) * noise for name in "qk"}
    >>> diagnose_weights(weights, heads=2).layout
    'half'
    """
    heads = (heads, heads) if isinstance(heads, int) else heads
    for name, count in zip(("heads", "key heads"), heads, strict=True):
        check_count(name, count)
    profile = torch.cat(list(_profiles(state_dict, heads)))  # [N, D]
    width = profile.shape[1] if rotary_dim is None else rotary_dim
    check_dim(width, "rotary_dim")
    if not 8 <= width <= profile.shape[1]:
        raise ValueError(
            f"rotary_dim is {width}; it must be from 8 to {profile.shape[1]}, the rows of a head: "
            "fewer have no profile"
        )
    profile = profile[:, :width] - profile[:, :width].mean(dim=1, keepdim=True)
    products = profile.T @ profile  # [R, R]; the fits need no more
    noise = torch.Generator().manual_seed(0)
    shuffled = [torch.randperm(width, generator=noise) for _ in range(SHUFFLES)]
    chance = torch.tensor([_evidence(products[each][:, each]) for each in shuffled])
    evidence = _evidence(products)
    sigmas = evidence / max(float(chance.square().mean().sqrt()), 1e-12)
    layout = "half" if sigmas > 0 else "interleaved"
    told = abs(sigmas) >= SIGMAS and abs(evidence) >= EVIDENCE
    return RowOrder(layout if told else None, evidence, sigmas)


def _profiles(state_dict: Mapping[str, Tensor], heads: tuple[int, int]) -> Iterator[Tensor]:
    """Log norms of the rows `[H, D]`, of q and k in every layer, with the gains of a norm."""
    queries = [name for name in state_dict if _QUERY.search(name)]
    if not queries:
        fused = [name for name in state_dict if _FUSED.search(name)]
        found = f"{fused[0]!r}, which is fused" if fused else "none of that name"
        raise ValueError(
            f"state_dict holds {found}; q_proj.weight and k_proj.weight must stand apart: split "
            "the rows of q and k, and name them so"
        )
    for query in queries:
        for letter, count in zip("qk", heads, strict=True):
            name = f"{letter}_proj.weight".join(query.rsplit("q_proj.weight", 1))
            if name not in state_dict:
                raise ValueError(f"state_dict has {query!r} and no {name!r}; both must be there")
            weight = state_dict[name].detach().double()
            if weight.dim() != 2 or weight.shape[0] % count:
                raise ValueError(
                    f"{name} is {list(weight.shape)}, for {count} heads; it must be a matrix with "
                    "as many rows for each: pass heads=(H, H_kv)"
                )
            norms = weight.norm(dim=1).unflatten(0, (count, -1))
            gain = state_dict.get(name.replace("_proj.", "_norm."))
            if gain is not None:  # one for all heads [D], or for each [H * D]
                norms = norms * gain.detach().double().abs().unflatten(0, (-1, norms.shape[1]))
            yield norms.clamp(min=1e-30).log()


def _evidence(products: Tensor) -> float:
    """ln of the squares left over in interleaved order to those in half order."""
    planes = torch.arange(len(products) // 2, dtype=torch.float64)
    left = []
    for number in (planes.repeat_interleave(2), planes.repeat(2)):
        angle = (number + 0.5)[:, None] * torch.arange(3.0) * (math.pi / len(planes))
        basis = torch.linalg.qr(angle.cos()).Q  # [R, 3]
        left.append(products.trace() - (basis.T @ products @ basis).trace())
    return float((left[0] / left[1].clamp(min=1e-300)).clamp(min=1e-300).log())
