"""The story of mixtures: orderings, controls, and that its controls are what their names say."""

import pytest
import torch

from efflib import zoo
from efflib.plots.style import figure
from efflib.zoo.phenomena import moe as story
from efflib.zoo.phenomena.story import QUICK, Mean, windows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_claims_and_plot(figures):
    claims = story.claims(figures)
    assert len({c.text for c in claims}) == len(claims) == 11
    assert all(c.holds for c in claims), [c for c in claims if not c.holds]
    _, axes = figure(2)
    story.plot(Mean.of([figures]), axes)
    assert all(ax.has_data() for ax in axes)


def test_without_a_limit_nothing_is_dropped_and_with_places_for_all_nothing_changes():
    model = zoo.load("moe")
    ids = windows("code", True, QUICK, 0)[:2, :64]
    experts = story.choices(model, ids)[0]
    assert story.dropped(experts, 4.0) == 0.0 < story.dropped(experts, 0.5)
    with torch.no_grad():
        same = story.with_capacity(model, 4.0)(ids)
        torch.testing.assert_close(same, model(ids), rtol=0, atol=1e-4)


def test_batches_hold_every_token_once():
    ids = torch.arange(24).view(4, 6)
    for kind in ("one text", "many texts", "by lot"):
        rows = story.batches(ids, kind, 4, 0)
        assert rows.shape == (6, 4) and sorted(rows.flatten().tolist()) == list(range(24))
    assert story.batches(ids, "one text", 4, 0)[0].tolist() == [0, 1, 2, 3]
    assert story.batches(ids, "many texts", 4, 0)[0].tolist() == [0, 6, 12, 18]


def test_experts_in_common():
    a = torch.tensor([[0, 1], [2, 3]])
    assert story.in_common(a, a.flip(1)) == 1.0
    assert story.in_common(a, torch.tensor([[1, 2], [0, 1]])) == 0.25
