"""Test the second corpus and the lookup task against plain searches and counts."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import small_models
import torch
from small_models import lines

from rope.book.training import Experiment, library, second, train
from rope.book.training.data import (
    IGNORED,
    NAMES,
    SYMBOLS,
    LookupData,
    RecallData,
    commonest,
    share_right,
)

SMALL = Experiment(layers=2, width=16, heads=2, context=8, batch=4, steps=6, warmup=1)
sharp = partial(small_models.sharp, SMALL)

pytestmark = pytest.mark.usefixtures("one_thread")


# The library's corpus.


def test_no_long_stretch_stands_in_both_parts():
    """Check shared text that is whole, at an end, repeated, overlapping, or joined by a removal."""
    files = {f"{i:02}.py": lines(400, i) for i in range(20)}
    license = lines(200, 100)
    for name in ("00.py", "03.py", "10.py", "19.py"):
        files[name] = license + files[name] + license[:100]
    kept = files["10.py"][250:320]
    files["05.py"] = kept[:40] + license[:90] + kept[40:]  # once joined, 70 shared characters
    corpus = library.split(files)
    training, validation = (corpus.decode(part) for part in (corpus.training, corpus.validation))
    assert validation == files["00.py"] + files["10.py"]
    assert not library.shared(corpus.training, corpus.validation).any()
    whole = [f"{i:02}.py" for i in range(20) if i not in (0, 3, 5, 10, 19)]
    assert all(files[name] in training for name in whole) and license not in training
    assert corpus.vocabulary == "".join(sorted(set(training + validation)))


@pytest.mark.parametrize("length", [1, 24, 64])
def test_shared_stretches_are_those_of_a_search(length):
    text, other = lines(600, 1), lines(300, 2)
    text = text[:100] + other[50:150] + text[100:] + other[-64:]
    got = library.shared(*(torch.tensor(list(part.encode())) for part in (text, other)), length)
    stretches = {other[i : i + length] for i in range(len(other) - length + 1)}
    expected = np.zeros(len(text), bool)
    for start in range(len(text) - length + 1):
        if text[start : start + length] in stretches:
            expected[start : start + length] = True
    assert got.tolist() == expected.tolist() and expected.any()


# Tasks.


def stated(tokens, at):
    """Return where the name asked for at `at` was stated before, and the set of its symbols."""
    name = tokens[at] - SYMBOLS * NAMES
    before = [n for n in range(0, at, 2) if tokens[n] // SYMBOLS == name]
    return before, {tokens[n] % SYMBOLS for n in before}


@pytest.mark.parametrize("length", [16, 17])
def test_lookups_are_answered_by_what_was_stated(length):
    data = LookupData(replace(SMALL, task="lookup", context=length))
    for inputs, targets in (data.training(1), data.validation(5, length)):
        assert inputs.shape == targets.shape and inputs.shape[1] == length
        for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert all(token < SYMBOLS * NAMES for token in tokens[::2])
            assert all(SYMBOLS * NAMES <= token < data.tokens for token in tokens[1::2])
            for at, answer in enumerate(wanted):
                if at % 2 == 0:
                    assert answer == IGNORED
                    continue
                before, symbols = stated(tokens, at)
                assert symbols == ({answer} if before else set()) or answer == IGNORED
                assert (answer == IGNORED) == (not before)


@pytest.mark.parametrize("distance", [9, 101])
def test_far_answers_stand_exactly_so_far(distance):
    data = LookupData(replace(SMALL, task="lookup", context=16))
    inputs, targets = data.far(6, distance)
    assert inputs.shape[1] == distance + NAMES - 1
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        asked = [at for at, answer in enumerate(wanted) if answer != IGNORED]
        assert len(asked) == NAMES // 2
        for at in asked:
            before, symbols = stated(tokens, at)
            assert before == [at - distance] and symbols == {wanted[at]}
    with pytest.raises(ValueError, match=r"distance.*30.*odd"):
        data.far(6, 30)


def test_lookups_are_counted_as_by_hand():
    run = train(replace(SMALL, task="lookup", context=128, steps=2), progress=False)
    inputs, targets = run.data.far(second.SEQUENCES, 31)
    with torch.no_grad():
        guess = run.model(inputs).argmax(-1)
    asked = list(map(tuple, (targets != IGNORED).nonzero().tolist()))
    right = sum(bool(guess[place] == targets[place]) for place in asked)
    assert second.answered(run.model, run.data, 31) == pytest.approx(right / len(asked))


def test_the_floors_are_those_of_a_count():
    inputs, targets = RecallData(Experiment(task="recall")).validation(4, 100)
    for last in (None, 5):
        guess = commonest(inputs, last)
        for row, at in np.ndindex(4, 100):
            seen = inputs[row, : at + 1 : 2].tolist()[-(last or 100) :]
            assert guess[row, at] == max(range(SYMBOLS), key=lambda s: (seen.count(s), -s))
        asked = (targets != IGNORED).nonzero().tolist()
        right = sum(bool(guess[place] == targets[place]) for place in map(tuple, asked))
        assert share_right(guess, targets) == right / len(asked)
