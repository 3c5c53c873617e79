"""Losses by passes: the same as one pass where it holds everything, and what is refused."""

import pytest
import torch

from efflib import zoo
from efflib.zoo.passes import losses_in_passes


@pytest.fixture(scope="module")
def model():
    return zoo.load("draft")


@pytest.fixture(scope="module")
def text():
    return torch.randint(1, 2000, (2, 12), generator=torch.Generator().manual_seed(0))


def test_one_pass_is_the_loss_of_every_token_but_the_first(model, text):
    with torch.no_grad():
        logits = model(text[:, :-1])
    right = torch.nn.functional.cross_entropy(logits.mT, text[:, 1:], reduction="none")
    torch.testing.assert_close(losses_in_passes(model, text, [(0, 12, 1)]), right)


def test_a_pass_scores_what_it_is_told_and_sees_what_it_reads(model, text):
    losses = losses_in_passes(model, text, [(0, 4, 1), (2, 6, 4), (7, 12, 11)])
    assert losses.shape == (2, 3 + 2 + 1)
    alone = losses_in_passes(model, text[:, 2:6], [(0, 4, 2)])
    torch.testing.assert_close(losses[:, 3:5], alone)
    assert losses_in_passes(model, text, []).shape == (2, 0)


def test_passes_that_do_not_fit_are_refused(model, text):
    for bad in ((0, 13, 1), (0, 4, 0), (3, 6, 3), (0, 4, 4), (-1, 4, 1)):
        with pytest.raises(ValueError):
            losses_in_passes(model, text, [bad])
