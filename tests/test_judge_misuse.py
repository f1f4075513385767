"""What is no answer to steps 4 to 6 is told so in a sentence, and nothing of it is accepted."""

from random import Random

import pytest
import torch

from rope.book.judge import asked, verdict

STEPS = (4, 5, 6)
USELESS = {
    "nothing": lambda *given: None,
    "the template": lambda *given: ...,
    "a word": lambda *given: "cos",
    "two words": lambda *given: ("cos", "sin"),
    "an empty tuple": lambda *given: (),
    "a number": lambda *given: 1.0,
    "a generator": lambda *given: (1.0 for _ in "ab"),
    "NaN": lambda *given: tuple(
        torch.full_like(x, torch.nan, dtype=torch.float) for x in given[:2]
    ),
    "an error": lambda *given: 1 / 0,
    "no function": 3,
    "of one argument": lambda given: given,
    "what it was given": lambda *given: given[0] if len(given[0].shape) == 4 else given[:2],
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("useless", USELESS.values(), ids=USELESS)
def test_what_is_no_answer_is_told_so(step, useless):
    said = verdict(step, useless)
    assert not said.right
    assert said.text.startswith(f"✗ Step {step}: {said.cause}.")
    assert 'See "' in said.text
    assert 'See ""' not in said.text


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("known", [1, None], ids=["the simplest", "all that the judge asks"])
def test_what_was_learned_by_heart_is_not_accepted(step, known):
    part = asked(step)[0]
    truth = next(iter(part.right.values()))
    learned = {str(given): truth(*given) for given in part.inputs(Random(step))[:known]}
    for otherwise in (lambda *given: None, lambda *given: next(iter(learned.values()))):
        answer = lambda *given, rest=otherwise: learned.get(str(given)) or rest(*given)
        if step == 5:
            answer = lambda *given, rest=otherwise: learned.get(str(given), rest(*given))
        assert not verdict(step, answer).right
