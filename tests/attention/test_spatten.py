"""SpAtten: who is gone stays gone, and what the high bits may hide is bounded."""

import math

import pytest
import torch

from efflib.attention import spatten
from efflib.attention.maps import probabilities
from efflib.models.llama import causal_mask


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_who_is_gone_stays_gone_and_scores_only_grow():
    score, alive = torch.zeros(2, 12), torch.ones(2, 12, dtype=torch.bool)
    for layer, keep in enumerate((9, 9, 10, 4, 1)):
        p = draw(2, 3, 12, 12, seed=layer).softmax(-1) * alive[:, None, None]
        after, there = spatten.cascade_tokens(p, score, alive, keep)
        assert (there <= alive).all() and (after >= score).all()
        assert (there.sum(-1) == torch.minimum(alive.sum(-1), torch.tensor(keep))).all()
        assert torch.equal(after[~alive], score[~alive])
        score, alive = after, there


def test_a_cascade_that_prunes_nothing_is_attention():
    q, k, v = (draw(1, 4, 10, 8, seed=s).float() for s in range(3))
    mask = causal_mask(10, 10)
    made = spatten.Cascade(6, [6, 6], heads=[4, 4])
    for _ in range(2):
        right = probabilities(q, k, mask) @ v
        torch.testing.assert_close(made(q, k, v, mask), right)


def test_pruned_tokens_are_seen_by_nobody_in_later_layers():
    q, k, v = (draw(1, 2, 10, 8, seed=s).float() for s in range(3))
    mask = causal_mask(10, 10)
    made = spatten.Cascade(6, [3, 3])
    made(q, k, v, mask)
    gone = (~made.alive[0]).nonzero().flatten()
    first = made(q, k, v, mask)
    history = made.history[-1]
    k2, v2 = k.clone(), v.clone()
    k2[:, :, gone], v2[:, :, gone] = 9.0, 9.0
    again = spatten.Cascade(6, [3, 3])
    again(q, k, v, mask)
    second = again(q, k2, v2, mask)
    assert torch.equal(history, again.history[-1]) and len(gone) == 3
    torch.testing.assert_close(first[:, :, 6:], second[:, :, 6:])


def test_values_as_they_are():
    p, v = draw(2, 4, 3, 9).softmax(-1), draw(2, 2, 9, 5, seed=1)
    torch.testing.assert_close(spatten.pruned_values(p, v, 9), p @ v.repeat_interleave(2, 1))
    top = p.topk(2, -1)
    right = torch.zeros(2, 4, 3, 5, dtype=torch.float64)
    for i in range(2):
        wide = v.repeat_interleave(2, 1)
        rows = top.indices[..., i, None].expand(-1, -1, -1, 5)
        right += top.values[..., i, None] * wide.gather(2, rows)
    torch.testing.assert_close(spatten.pruned_values(p, v, 2), right)


def test_pieces_are_the_code():
    k = draw(1, 2, 7, 8)
    for bits, low in ((8, 4), (8, 0), (12, 4), (2, 1)):
        pieces = spatten.split_bits(k, bits, low)
        code = pieces.high * 2**low + pieces.rest
        assert (0 <= pieces.rest).all() and (pieces.rest < 2**low).all()
        assert ((code * pieces.scale - k).abs() <= pieces.scale / 2 + 1e-12).all()


def test_rough_scores_are_within_their_error():
    q, k = draw(1, 4, 5, 8), draw(1, 2, 7, 8, seed=1)
    pieces = spatten.split_bits(k, 8, 4)
    scores, error = spatten.rough_scores(q, pieces)
    whole = (pieces.high * 16 + pieces.rest) * pieces.scale
    exact = q @ whole.repeat_interleave(2, 1).transpose(-1, -2) / 8**0.5
    assert ((scores - exact).abs() <= error + 1e-12).all()


@pytest.mark.parametrize("error", [0.0, 1e-8, 0.1, 1.0, 4.0, 1e4])
def test_no_set_gains_more_and_some_set_gains_as_much(error):
    for top in (1.0, 0.99, 0.7, 0.4, 0.01):
        bound = spatten.worst_shift(*(torch.tensor(x, dtype=torch.float64) for x in (top, error)))
        a = (1 - top) * torch.linspace(0, 1, 50001, dtype=torch.float64)[1:]
        gained = a / (a + (1 - a) * math.exp(-2 * error)) - a if top < 1 else torch.zeros(1)
        assert gained.max() <= bound + 1e-12
        if error < 100:
            torch.testing.assert_close(gained.max().double(), bound, atol=1e-5, rtol=1e-5)


def test_progressive_is_within_the_tolerance():
    q, k = 3 * draw(2, 4, 6, 8), draw(2, 2, 6, 8, seed=1)
    mask = causal_mask(6, 6)
    pieces = spatten.split_bits(k, 8, 4)
    exact = probabilities(q, (pieces.high * 16 + pieces.rest) * pieces.scale, mask)
    for tolerance in (0.0, 0.05, 0.2, 1.0):
        p, fetched = spatten.progressive(q, k, mask, 8, 4, tolerance)
        shift = (p - exact).clamp(min=0).sum(-1)
        assert (shift <= tolerance + 1e-9).all()
        assert (shift[fetched] <= 1e-9).all()
    assert fetched.sum() == 0
