"""Define eight methods that encode token positions.

The chapter "What training shows" compares these methods. A method can act in three places: it can
add a vector to the embedding, rotate and scale queries and keys, or add a number to each score.
`Places` holds the values for one call; most of them are None.

Shapes: H heads, S sequence, D head dimension, R rotated width, E embedding width.
"""

import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from rope.frequencies import inverse_frequencies, rotary_tables
from rope.xpos import decay_rates

if TYPE_CHECKING:  # experiment imports this module
    from rope.book.training.experiment import Experiment

Tables = tuple[Tensor, Tensor]
T5_BUCKETS, T5_FARTHEST = 32, 128  # from Raffel et al. (arXiv 1910.10683)


class Places(NamedTuple):
    """Hold the values that a method passes to the decoder for S positions, or None if unused.

    added: the vectors `[S, E]` added to the embedding. query, key: the cos and sin `[S, R/2]` that
    rotate queries and keys. bias: the numbers `[H, S, S]` added to the scores, one row per query.
    """

    added: Tensor | None = None
    query: Tables | None = None
    key: Tables | None = None
    bias: Tensor | None = None


class NoPositions(nn.Module):
    """Return empty `Places`: only the causal mask conveys the order (arXiv 2203.16634).

    Every position method is created from an `Experiment`. Calling it with integer positions `[S]`
    returns `Places`.
    linear: True if linear attention can use the method.

    >>> from rope.book.training import Experiment
    >>> NoPositions(Experiment())(torch.arange(4))
    Places(added=None, query=None, key=None, bias=None)
    """

    linear: ClassVar[bool] = True

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__()
        self.experiment = experiment

    def forward(self, position_ids: Tensor) -> Places:
        return Places()


class Sinusoidal(NoPositions):
    """Add fixed sines and cosines to the embedding (Vaswani et al., arXiv 1706.03762).

    >>> from rope.book.training import Experiment
    >>> Sinusoidal(Experiment(width=16))(torch.arange(4)).added.shape
    torch.Size([4, 16])
    """

    def forward(self, position_ids: Tensor) -> Places:
        inv_freq = inverse_frequencies(self.experiment.width, device=position_ids.device)
        cos, sin = rotary_tables(position_ids, inv_freq)
        return Places(added=torch.stack((sin, cos), dim=-1).flatten(-2))


class Learned(NoPositions):
    """Add a trained vector for each position in the context; later positions have none (GPT-2).

    Raises IndexError for a position that has no vector.

    >>> from rope.book.training import Experiment
    >>> Learned(Experiment(context=8))(torch.arange(4)).added.shape
    torch.Size([4, 128])
    """

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.vectors = nn.Embedding(experiment.context, experiment.width)

    def forward(self, position_ids: Tensor) -> Places:
        # Use the scale of the character embedding, to which the vectors are added.
        return Places(added=self.vectors(position_ids) * math.sqrt(self.experiment.width))


class Rotary(NoPositions):
    """Rotate queries and keys to their positions (RoFormer, arXiv 2104.09864).

    >>> from rope.book.training import Experiment
    >>> places = Rotary(Experiment())(torch.arange(4))
    >>> places.query[0].shape, places.query is places.key
    (torch.Size([4, 16]), True)
    """

    share: ClassVar[float] = 1.0  # the rotated share of a head's coordinates

    @property
    def dim(self) -> int:
        """Return the rotated width R."""
        return int(self.experiment.head_dim * self.share)

    def forward(self, position_ids: Tensor) -> Places:
        inv_freq = inverse_frequencies(self.dim, self.experiment.base, device=position_ids.device)
        tables = rotary_tables(position_ids, inv_freq)
        return Places(query=tables, key=tables)


class PartialRotary(Rotary):
    """Rotate the first half of each head and leave the rest unrotated (GPT-NeoX rotates 1/4).

    >>> from rope.book.training import Experiment
    >>> PartialRotary(Experiment())(torch.arange(4)).query[0].shape
    torch.Size([4, 8])
    """

    share = 0.5


class Decaying(Rotary):
    """Rotate and decay as xPos does (arXiv 2212.10554); scale_base is half the context length.

    >>> from rope.book.training import Experiment
    >>> _, (cos_q, _), (cos_k, _), _ = Decaying(Experiment())(torch.arange(129))
    >>> cos = Rotary(Experiment())(torch.arange(129)).query[0]
    >>> torch.allclose(cos_q * cos_k, cos**2), (cos_q / cos)[128, 0]  # (0.4 / 1.4)**2
    (True, tensor(0.0816))
    """

    linear = False

    def forward(self, position_ids: Tensor) -> Places:
        inv_freq = inverse_frequencies(self.dim, self.experiment.base, device=position_ids.device)
        cos, sin = rotary_tables(position_ids, inv_freq, dtype=torch.float64)
        power = position_ids.double().unsqueeze(-1) / (self.experiment.context / 2)
        decay = decay_rates(self.dim, device=position_ids.device) ** power
        return Places(
            query=((cos * decay).float(), (sin * decay).float()),
            key=((cos / decay).float(), (sin / decay).float()),
        )


class ALiBi(NoPositions):
    """Lower each score in proportion to the distance, with one slope per head (arXiv 2108.12409).

    >>> from rope.book.training import Experiment
    >>> ALiBi(Experiment(width=16, heads=2))(torch.arange(3)).bias[0]
    tensor([[ 0.0000,  0.0625,  0.1250],
            [-0.0625,  0.0000,  0.0625],
            [-0.1250, -0.0625,  0.0000]])
    """

    linear = False

    def forward(self, position_ids: Tensor) -> Places:
        heads = self.experiment.heads
        head = torch.arange(1, heads + 1, device=position_ids.device)
        slopes = torch.exp2(-8.0 * head / heads)  # [H]
        offset = position_ids - position_ids[:, None]  # [S, S], n - m
        return Places(bias=slopes[:, None, None] * offset)


class T5Bias(NoPositions):
    """Add a trained number for each head and bucket of distances (T5, arXiv 1910.10683).

    Each distance below 16 has its own bucket. Longer distances share 16 buckets that widen with the
    distance; all distances from 128 on share the last bucket.

    >>> T5Bias.bucket(torch.tensor([-3, 0, 5, 16, 127, 10_000]))
    tensor([ 0,  0,  5, 16, 31, 31])
    """

    linear = False

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.numbers = nn.Embedding(T5_BUCKETS, experiment.heads)

    @staticmethod
    def bucket(distance: Tensor) -> Tensor:
        """Return the bucket of each distance m - n. Later keys, which are masked, get bucket 0."""
        exact = T5_BUCKETS // 2
        distance = distance.clamp(min=0)
        growth = torch.log(distance.clamp(min=1) / exact) / math.log(T5_FARTHEST / exact)
        shared = (exact + growth * (T5_BUCKETS - exact)).long().clamp(max=T5_BUCKETS - 1)
        return torch.where(distance < exact, distance, shared)

    def forward(self, position_ids: Tensor) -> Places:
        distance = position_ids[:, None] - position_ids  # [S, S], m - n
        # Use the scale of the embedding, because training steps would otherwise be too small.
        scale = math.sqrt(self.experiment.width)
        return Places(bias=scale * self.numbers(self.bucket(distance)).permute(2, 0, 1))


#: The eight methods, by the names that an experiment uses.
POSITIONS: dict[str, type[NoPositions]] = {
    "none": NoPositions,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rope": Rotary,
    "partial": PartialRotary,
    "alibi": ALiBi,
    "t5": T5Bias,
    "xpos": Decaying,
}
