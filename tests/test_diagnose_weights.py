"""What weights tell about the order of their rows, and that they are not made to tell more."""

from dataclasses import replace

import pytest
import torch

from rope.book.training import train
from rope.book.training.experiment import LIVE
from rope.book.training.results import trained
from rope.diagnose import diagnose_weights
from rope.layouts import half_to_interleaved

PREFIX = "model.layers.{}.self_attn.{}_proj.weight"


def projections(model):
    """The state dict of one of our decoders, by the names of transformers' Llama."""
    return {
        PREFIX.format(layer, name): rows
        for layer, block in enumerate(model.blocks)
        for name, rows in zip("qk", block.attention.project.weight.detach().chunk(3), strict=False)
    }


def by_head(weights, heads, change):
    return {
        name: change(rows.unflatten(0, (heads, -1))).flatten(0, 1) for name, rows in weights.items()
    }


def interleaved(weights, heads):
    """The same model in the other layout: rows drawn alike, then permuted, are rows drawn alike."""
    return by_head(weights, heads, lambda rows: half_to_interleaved(rows.mT).mT)


@pytest.fixture(scope="module")
def stored():
    return projections(trained().model)


def test_the_stored_model_is_told_in_both_orders(stored):
    half, other = diagnose_weights(stored, 4), diagnose_weights(interleaved(stored, 4), 4)
    assert (half.layout, other.layout) == ("half", "interleaved")
    assert half.evidence > 0.3 and other.evidence < -0.3
    assert str(half).startswith("half order: evidence +0.4")


def test_what_leaves_the_order_leaves_the_answer(stored):
    """Heads in another order, one key head for a group, one gain for all, and one layer."""
    turned = by_head(stored, 4, lambda rows: rows.flip(0))
    assert diagnose_weights(turned, 4).evidence == pytest.approx(
        diagnose_weights(stored, 4).evidence
    )
    grouped = {
        name: rows.unflatten(0, (4, -1))[0] if "k_proj" in name else rows
        for name, rows in stored.items()
    }
    gains = {
        name.replace("_proj", "_norm"): torch.full((32,), 3.0) for name in stored if ".0." in name
    }
    first = {name: rows for name, rows in stored.items() if ".0." in name}
    for weights, heads in ((grouped, (4, 1)), (stored | gains, 4), (first, 4)):
        assert diagnose_weights(weights, heads).layout == "half"


def test_a_gain_of_the_norm_counts(stored):
    """Gains that undo the norms leave nothing to tell."""
    undone = {name.replace("_proj", "_norm"): 1 / rows.norm(dim=1) for name, rows in stored.items()}
    assert diagnose_weights(stored | undone, 4).layout is None


def test_what_cannot_be_told_is_not(stored):
    for seed in range(40):
        noise = torch.Generator().manual_seed(seed)
        dim = (16, 32, 64, 128)[seed % 4]
        untrained = {
            PREFIX.format(layer, name): torch.randn(4 * dim, 128, generator=noise)
            for layer in range(2)
            for name in "qk"
        }
        assert diagnose_weights(untrained, 4).layout is None, seed
        shuffled = by_head(
            stored, 4, lambda rows, noise=noise: rows[:, torch.randperm(32, generator=noise)]
        )
        assert diagnose_weights(shuffled, 4).layout is None, seed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 300}, "half"),
        ({"seed": 301, "interleaved": True}, "interleaved"),
        ({"seed": 302, "position": "none"}, None),
        ({"seed": 303, "steps": 20}, None),
    ],
)
def test_fresh_models_are_told(changed, told):
    model = train(replace(LIVE, **changed), progress=False).model
    assert diagnose_weights(projections(model), 2).layout == told


@pytest.mark.parametrize(
    ("weights", "heads", "options", "words"),
    [
        ({"h.0.attn.c_attn.weight": torch.ones(6, 2)}, 1, {}, "'h.0.attn.c_attn.weight', which is"),
        (
            {"self_attn.qkv_proj.weight": torch.ones(6, 2)},
            1,
            {},
            "which is fused; .*split the rows",
        ),
        ({"lm_head.weight": torch.ones(6, 2)}, 1, {}, "state_dict holds none of that name"),
        ({"q_proj.weight": torch.ones(8, 2)}, 1, {}, "and no 'k_proj.weight'; both must"),
        ({"q_proj.weight": torch.ones(8, 2)}, 3, {}, r"q_proj.weight is \[8, 2\], for 3 heads"),
        ({f"{c}_proj.weight": torch.ones(8, 2) for c in "qk"}, 2, {}, "rotary_dim is 4; it must"),
    ],
)
def test_bad_weights_are_refused_in_words(weights, heads, options, words):
    with pytest.raises(ValueError, match=words):
        diagnose_weights(weights, heads, **options)
