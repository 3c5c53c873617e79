"""Every way that chance may answer, with its weight: against sums by hand."""

import tracemalloc

import pytest
import torch

from efflib.lab.chances import (
    Model,
    calls_of_loop,
    calls_of_round,
    chance_of,
    expect_distribution,
    recorded,
    stopped,
    table,
    unlike,
    ways,
)


def two_coins(coin, pick):
    return coin(0.25) and pick(torch.tensor([0.5, 0.0, 0.5]))


def test_every_way_comes_once_with_its_weight():
    assert sorted(ways(two_coins, 3, 2)) == [(0.125, 0), (0.125, 2), (0.75, False)]


def test_what_is_no_chance_is_named():
    with pytest.raises(AssertionError, match="coin was called with 1.5"):
        ways(lambda coin, pick: coin(1.5), 2, 1)
    with pytest.raises(AssertionError, match="coin was called with nan"):
        ways(lambda coin, pick: coin(torch.nan), 2, 1)
    with pytest.raises(AssertionError, match="a tensor of 2 numbers"):
        ways(lambda coin, pick: coin(torch.ones(2)), 2, 1)
    with pytest.raises(AssertionError, match="which is no distribution"):
        ways(lambda coin, pick: pick(torch.tensor([0.5, 0.6])), 2, 1)


def test_more_calls_than_a_run_can_use_end_it():
    for call in (lambda coin, pick: pick(torch.tensor([1.0])), lambda coin, pick: coin(1.0)):
        with pytest.raises(AssertionError, match="more than 7 times"):
            ways(lambda coin, pick, call=call: [call(coin, pick) for _ in range(8)], 1, 7)
    assert calls_of_round(2) == 5 and calls_of_loop(1, 4) == 1 and calls_of_loop(3, 1) == 9
    coin, asked = recorded(lambda chance: chance > 0.5, 2)
    assert coin(0.75) and not coin(torch.tensor(0.25)) and asked == [0.75, 0.25]
    with pytest.raises(AssertionError, match="more than 2 times"):
        coin(0.5)


def test_a_pick_from_another_vocabulary_costs_nothing():
    """The row comes from the student's code: for each of its tokens a script would be kept."""
    large = torch.full((2**20,), 2.0**-20)
    tracemalloc.start()
    with pytest.raises(AssertionError, match="1048576 probabilities; there are 3 tokens"):
        ways(lambda coin, pick: [pick(large) for _ in range(2)], 3, 5)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**20, f"{most} bytes"


def test_a_model_takes_no_more_than_the_text_has():
    model = Model([1, 0], table(torch.Generator().manual_seed(0), 2, 2), "target", 5)
    for start, tokens in ((0, [1] * 10**6), (0, [1] * 6)):
        with pytest.raises(AssertionError, match="was given tokens up to position"):
            model.read(start, tokens)
    assert model.cache == [] and model.calls == []
    with pytest.raises(AssertionError, match="the target was called 25 times"):
        for _ in range(26):
            model.read(0, [1])


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
    model = Model([1, 0], p, "target", 9)
    first = model.read(0, [1, 0, 1])
    assert torch.equal(first[1:], torch.stack([p[()], p[1,]]))
    assert torch.equal(model.read(2, [0]), p[0,][None])  # rolled back by one token
    assert model.calls == [(0, 3, False), (2, 1, False)]
    with pytest.raises(AssertionError, match="the target has read 3 tokens; a call began at 4"):
        model.read(4, [1])


def test_rows_that_are_unlike():
    rng = torch.Generator().manual_seed(0)
    p, q = table(rng, 2, 2), table(rng, 2, 2)
    unlike(p, q)
    for model in (p, q):
        rows = [model[text] for text in ((), (0,), (1,))]
        assert all(float(row.sum()) == 1 and row.min() > 0 for row in rows)
        assert len({tuple(row.tolist()) for row in rows}) == 3


def test_a_rule_that_withholds_what_was_drawn_is_a_selection():
    def verify(proposed, q, p, coin, pick):
        for i, token in enumerate(proposed.tolist()):
            if not coin(min(1.0, float(p[i, token] / q[i, token]))):
                rest = (p[i] - q[i]).clamp(min=0)
                return torch.cat([proposed[:i], torch.tensor([pick(rest / rest.sum())])])
        return torch.cat([proposed, torch.tensor([pick(p[-1])])])

    rng = torch.Generator().manual_seed(0)
    p, q = table(rng, 3, 3), table(rng, 3, 3)
    assert stopped(lambda row, token: (True, row[token] >= 0.5), p, q, 2, verify) < 1e-12
    assert stopped(lambda row, token: (row[token] >= 0.5, True), p, q, 2, verify) > 0.01
