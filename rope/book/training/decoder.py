"""Define a minimal decoder for the chapter "What training shows".

    x <- x + Attention(norm(x)),    x <- x + MLP(norm(x)),    logits = W norm(x).

One exchangeable module, `positions`, supplies everything that the decoder knows about positions.

Shapes: B batch, H heads, S sequence, D head dimension, E embedding width.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from rope.book.training.corpus import generator
from rope.book.training.experiment import Experiment
from rope.book.training.linear import linear_attention
from rope.book.training.positions import POSITIONS, Places
from rope.functional import rotary_embedding


class Attention(nn.Module):
    """Attend causally with the given `Places`; the projections have no biases."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        self.experiment = experiment
        self.project = nn.Linear(experiment.width, 3 * experiment.width, bias=False)
        self.out = nn.Linear(experiment.width, experiment.width, bias=False)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        q, k, v = self.heads(x)  # [B, H, S, D] each
        if self.experiment.attention == "linear":
            mixed = linear_attention(q, k, v, *(places.query or ()))
        else:
            q, k = self.rotate(q, k, places)
            causal = places.bias is None  # a bias already contains the mask
            mixed = scaled_dot_product_attention(q, k, v, attn_mask=places.bias, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return each head's q, k and v, `[B, H, S, D]`, before any rotation."""
        split = self.project(x).unflatten(-1, (3, self.experiment.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        return q, k, v

    def rotate(self, q: Tensor, k: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Return q and k rotated to their positions."""
        if places.query is not None:
            q = rotary_embedding(q, *places.query)
        if places.key is not None:
            k = rotary_embedding(k, *places.key)
        return q, k


class Block(nn.Module):
    """Apply one layer to `[B, S, E]`: attention, then an MLP four times as wide."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        width = experiment.width
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(experiment)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        x = x + self.attention(self.before_attention(x), places)
        return x + self.down(gelu(self.up(self.before_mlp(x))))


class Decoder(nn.Module):
    """Compute logits with a decoder over a vocabulary of `tokens` tokens.

    Weights are initialized from normal distributions: the embedding with variance 1/E (its output
    is scaled by sqrt(E)), projections with standard deviation 0.02, and projections into the
    residual stream with 0.02 / sqrt(2 * layers).
    A call with tokens, int64 `[B, S]`, returns logits `[B, S, tokens]`. position_ids: integers
    `[S]`, 0 ... S-1 if None.

    >>> model = Decoder(Experiment(width=16, heads=2, layers=1), tokens=10)
    >>> model(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(self, experiment: Experiment, tokens: int) -> None:
        super().__init__()
        self.experiment = experiment
        self.embedding = nn.Embedding(tokens, experiment.width)
        self.positions = POSITIONS[experiment.position](experiment)
        self.blocks = nn.ModuleList(Block(experiment) for _ in range(experiment.layers))
        self.norm = nn.RMSNorm(experiment.width)
        self.head = nn.Linear(experiment.width, tokens, bias=False)
        self._start()

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)
        places = self.places(position_ids)
        x = self.embedding(tokens) * math.sqrt(self.experiment.width)  # [B, S, E]
        if places.added is not None:
            x = x + places.added
        for block in self.blocks:
            x = block(x, places)
        return self.head(self.norm(x))

    def places(self, position_ids: Tensor) -> Places:
        """Return the `Places` for the layers; a bias also holds the causal mask."""
        places = self.positions(position_ids)
        if places.bias is None:
            return places
        ahead = torch.ones_like(places.bias, dtype=torch.bool).triu(1)  # True for later keys
        masked = places.bias.masked_fill(ahead, -math.inf)
        return places._replace(bias=masked.unsqueeze(0))

    def _start(self) -> None:
        for name, weight in self.named_parameters():
            random = generator(self.experiment.seed, name)  # the same for all methods
            if name.startswith(("embedding.", "positions.vectors.")):
                nn.init.normal_(weight, std=self.experiment.width**-0.5, generator=random)
            elif name.startswith("positions."):
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                into_residual = name.endswith(("out.weight", "down.weight"))
                shrink = math.sqrt(2 * self.experiment.layers) if into_residual else 1.0
                nn.init.normal_(weight, std=0.02 / shrink, generator=random)
