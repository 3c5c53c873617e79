"""Every way that chance may answer, with its weight: against sums by hand."""

import pytest
import torch

from efflib.lab.chances import Model, chance_of, expect_distribution, table, ways


def two_coins(coin, pick):
    return coin(0.25) and pick(torch.tensor([0.5, 0.0, 0.5]))


def test_every_way_comes_once_with_its_weight():
    assert sorted(ways(two_coins)) == [(0.125, 0), (0.125, 2), (0.75, False)]


def test_what_is_no_chance_is_named():
    with pytest.raises(AssertionError, match="coin was called with 1.5"):
        ways(lambda coin, pick: coin(1.5))
    with pytest.raises(AssertionError, match="which is no distribution"):
        ways(lambda coin, pick: pick(torch.tensor([0.5, 0.6])))
    with pytest.raises(AssertionError, match="200 times"):
        ways(lambda coin, pick: [pick(torch.tensor([1.0])) for _ in range(300)])


def test_a_model_is_distributed_as_itself_and_not_as_another():
    rng = torch.Generator().manual_seed(0)
    p, q = table(rng, 3, 2), table(rng, 3, 2)
    words = [(a, b) for a in range(3) for b in range(3)]
    expect_distribution([(chance_of(p, w), w) for w in words], p, 3, 2, 1e-12, "p")
    expect_distribution([(chance_of(p, (a,)), (a,)) for a in range(3)], p, 3, 2, 1e-12, "short")
    with pytest.raises(AssertionError, match="q: the tokens .* come with probability"):
        expect_distribution([(chance_of(q, w), w) for w in words], p, 3, 2, 1e-12, "q")


def test_a_model_reads_on_from_its_cache():
    p = table(torch.Generator().manual_seed(0), 2, 2)
    model = Model([1, 0], p, "target")
    first = model.read(0, [1, 0, 1])
    assert torch.equal(first[1:], torch.stack([p[()], p[1,]]))
    assert torch.equal(model.read(2, [0]), p[0,][None])  # rolled back by one token
    assert model.calls == [(0, 3, False), (2, 1, False)]
    with pytest.raises(AssertionError, match="the target has read 3 tokens; a call began at 4"):
        model.read(4, [1])
