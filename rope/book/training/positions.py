"""Eight methods to tell a model where its tokens stand, and four variants of them.

Chapter "What training shows". All come down to three places: a vector added to the embedding, a
linear map of query and key, a number added to the score. `Places` holds them for the positions of
one call; most are empty.

Shapes: H heads, S sequence, D head dimension, R rotated width, E embedding width.
"""

import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from rope.extensions import Default, Extension, Proportional
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.xpos import XPos, decay_rates

if TYPE_CHECKING:  # which knows the methods by name
    from rope.book.training.experiment import Experiment

Tables = tuple[Tensor, Tensor]
T5_BUCKETS, T5_FARTHEST = 32, 128  # of Raffel et al. (arXiv 1910.10683)


class Places(NamedTuple):
    """What the decoder is told about S positions.

    added: `[S, E]`, on the embedding; query, key: cos and sin `[S, R/2]`, to rotate by;
    bias: `[H, S, S]`, on the scores, row m for the query. None where a method does without.
    """

    added: Tensor | None = None
    query: Tables | None = None
    key: Tables | None = None
    bias: Tensor | None = None


class NoPositions(nn.Module):
    """Nothing: the causal mask alone tells first from last (arXiv 2203.16634).

    Each method is made from an `Experiment`; called with integer positions `[S]` it gives `Places`.
    linear: whether linear attention can use it; reach: positions it can tell, None for all.

    >>> from rope.book.training import Experiment
    >>> NoPositions(Experiment())(torch.arange(4))
    Places(added=None, query=None, key=None, bias=None)
    """

    linear: ClassVar[bool] = True
    reach: int | None = None

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__()
        self.experiment = experiment

    def forward(self, position_ids: Tensor) -> Places:
        return Places()


class Sinusoidal(NoPositions):
    """Fixed sines and cosines added to the embedding (Vaswani et al., arXiv 1706.03762).

    >>> from rope.book.training import Experiment
    >>> Sinusoidal(Experiment(width=16))(torch.arange(4)).added.shape
    torch.Size([4, 16])
    """

    def forward(self, position_ids: Tensor) -> Places:
        inv_freq = inverse_frequencies(self.experiment.width, device=position_ids.device)
        cos, sin = rotary_tables(position_ids, inv_freq)
        return Places(added=torch.stack((sin, cos), dim=-1).flatten(-2))


class Learned(NoPositions):
    """A trained vector for each position of the context, and none beyond it (BERT, GPT-2).

    Raises ValueError for a position that has no vector.

    >>> from rope.book.training import Experiment
    >>> Learned(Experiment(context=8)).reach
    8
    """

    start: ClassVar[float] = 1.0  # standard deviation at the start; the characters' own is 1

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.reach = experiment.context
        self.vectors = nn.Embedding(experiment.context, experiment.width)

    def forward(self, position_ids: Tensor) -> Places:
        for position in (int(position_ids.min()), int(position_ids.max())):
            if not 0 <= position < self.experiment.context:
                raise ValueError(
                    f"position {position} has no learned vector; positions must be 0 or more and "
                    f"below {self.experiment.context}: shorten the text, or train a longer context"
                )
        # Scaled as the embedding of the characters is, beside which it is added.
        return Places(added=self.vectors(position_ids) * math.sqrt(self.experiment.width))


class Rotary(NoPositions):
    """Queries and keys rotated to their positions (RoFormer, arXiv 2104.09864).

    inv_freq: float64 `[R/2]`, no parameter and no buffer; `extension` may be set after training.

    >>> from rope.book.training import Experiment
    >>> places = Rotary(Experiment())(torch.arange(4))
    >>> places.query[0].shape, places.query is places.key
    (torch.Size([4, 16]), True)
    """

    share: ClassVar[float] = 1.0  # of a head's coordinates that are rotated

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.extension: Extension = Default()

    @property
    def dim(self) -> int:
        """The rotated width R."""
        return int(self.experiment.head_dim * self.share)

    def frequencies(self, seq_len: int, device: torch.device) -> Tensor:
        """Radians per position, float64 `[R/2]`, as the extension makes them for this length."""
        return inverse_frequencies(
            self.dim,
            self.experiment.base,
            extension=self.extension,
            seq_len=max(seq_len, self.experiment.context),
            device=device,
        )

    def forward(self, position_ids: Tensor) -> Places:
        inv_freq = self.frequencies(int(position_ids.max()) + 1, position_ids.device)
        scale = self.extension.attention_scaling
        tables = rotary_tables(position_ids, inv_freq, scale=scale)
        return Places(query=tables, key=tables)


class PartialRotary(Rotary):
    """The first half of each head rotated, the rest left without a position (GPT-NeoX: a quarter).

    >>> from rope.book.training import Experiment
    >>> PartialRotary(Experiment())(torch.arange(4)).query[0].shape
    torch.Size([4, 8])
    """

    share = 0.5


class Decaying(Rotary):
    """xPos: rotation and decay (arXiv 2212.10554), its scale base half of the trained context.

    >>> from rope.book.training import Experiment
    >>> _, (cos_q, _), (cos_k, _), _ = Decaying(Experiment())(torch.arange(129))
    >>> cos = Rotary(Experiment())(torch.arange(129)).query[0]
    >>> torch.allclose(cos_q * cos_k, cos**2), (cos_q / cos)[128, 0]  # (0.4 / 1.4)**2
    (True, tensor(0.0816))
    """

    linear = False

    def forward(self, position_ids: Tensor) -> Places:
        last = int(position_ids.max())
        reach = XPos(self.dim, self.experiment.context / 2).reach()
        if last > reach:
            raise ValueError(
                f"position {last} decays beyond float32; positions must be at most {reach:.0f} for "
                f"a context of {self.experiment.context}: shorten the text, or train a longer one"
            )
        inv_freq = self.frequencies(last + 1, position_ids.device)
        scale = self.extension.attention_scaling
        cos, sin = rotary_tables(position_ids, inv_freq, dtype=torch.float64, scale=scale)
        power = position_ids.double().unsqueeze(-1) / (self.experiment.context / 2)
        decay = decay_rates(self.dim, device=position_ids.device) ** power
        return Places(
            query=((cos * decay).float(), (sin * decay).float()),
            key=((cos / decay).float(), (sin / decay).float()),
        )


class ALiBi(NoPositions):
    """A score lowered by the distance, by another slope in each head (arXiv 2108.12409).

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
    """A trained number for each bucket of distances and head (T5, arXiv 1910.10683).

    Distances below 16 have a bucket each, longer ones share 16 more, growing with the distance;
    all from 128 on share the last.

    >>> T5Bias.bucket(torch.tensor([-3, 0, 5, 16, 127, 10_000]))
    tensor([ 0,  0,  5, 16, 31, 31])
    """

    linear = False

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.numbers = nn.Embedding(T5_BUCKETS, experiment.heads)

    @staticmethod
    def bucket(distance: Tensor) -> Tensor:
        """The bucket of each distance m - n; keys that lie ahead are masked and get the first."""
        exact = T5_BUCKETS // 2
        distance = distance.clamp(min=0)
        growth = torch.log(distance.clamp(min=1) / exact) / math.log(T5_FARTHEST / exact)
        shared = (exact + growth * (T5_BUCKETS - exact)).long().clamp(max=T5_BUCKETS - 1)
        return torch.where(distance < exact, distance, shared)

    def forward(self, position_ids: Tensor) -> Places:
        distance = position_ids[:, None] - position_ids  # [S, S], m - n
        # Scaled as the embedding is: else its steps would be too short for a number added alone.
        scale = math.sqrt(self.experiment.width)
        return Places(bias=scale * self.numbers(self.bucket(distance)).permute(2, 0, 1))


#: Every method by the name that an experiment gives it.
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


# Four variants, each to answer one question about one of the eight.


class LearnedSmall(Learned):
    """Learned vectors that start a hundred times smaller: does their own noise cost what they lose?

    >>> import torch
    >>> from rope.book.training import Decoder, Experiment
    >>> model = Decoder(Experiment(position="learned-small"), tokens=5)
    >>> round(model.positions(torch.arange(128)).added.std().item(), 3)
    0.01
    """

    start: ClassVar[float] = 0.01


class T5Plain(T5Bias):
    """T5's numbers without the factor sqrt(E), which makes their steps as large as an embedding's.

    >>> from rope.book.training import Experiment
    >>> import torch
    >>> numbers = T5Plain(Experiment(width=16, heads=2))
    >>> _ = torch.nn.init.ones_(numbers.numbers.weight)
    >>> numbers(torch.arange(2)).bias.max().item()
    1.0
    """

    def forward(self, position_ids: Tensor) -> Places:
        bias = super().forward(position_ids).bias
        assert bias is not None
        return Places(bias=bias / math.sqrt(self.experiment.width))


class T5Exact(T5Bias):
    """T5's bias without buckets: a trained number for each distance within the context.

    >>> from rope.book.training import Experiment
    >>> T5Exact(Experiment(context=64)).numbers.weight.shape
    torch.Size([64, 4])
    """

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.reach = experiment.context
        self.numbers = nn.Embedding(experiment.context, experiment.heads)

    @staticmethod
    def bucket(distance: Tensor) -> Tensor:
        """The distance itself; keys that lie ahead are masked and get the first number."""
        return distance.clamp(min=0)


class ProportionalRotary(Rotary):
    """p-RoPE with p = 1/2: the slower half of the planes stands still (arXiv 2410.06205).

    >>> from rope.book.training import Experiment
    >>> import torch
    >>> cos, sin = ProportionalRotary(Experiment())(torch.arange(4)).query
    >>> cos.shape, bool((sin[1:, :8] > 0).all()), sin[:, 8:].abs().max().item()
    (torch.Size([4, 16]), True, 0.0)
    """

    def __init__(self, experiment: "Experiment") -> None:
        super().__init__(experiment)
        self.extension = Proportional(0.5)


#: All that an experiment can name.
METHODS: dict[str, type[NoPositions]] = POSITIONS | {
    "learned-small": LearnedSmall,
    "t5-plain": T5Plain,
    "t5-exact": T5Exact,
    "p-rope": ProportionalRotary,
}
