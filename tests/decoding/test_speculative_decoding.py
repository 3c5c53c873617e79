"""Speculative decoding loses nothing: the rule by enumeration, the loop by greedy identity and
by chi-square, the counts by drafts whose agreement is known."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ids_of, tiny

from efflib.decoding.sampling import Sampling, filtered_probabilities, generate
from efflib.decoding.speculative import (
    acceptance_probability,
    expected_tokens,
    residual,
    speculative_generate,
    verify_greedy,
    verify_sampled,
)

pytestmark = pytest.mark.slow


def distributions(generator, *shape):
    logits = 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)
    drop = torch.rand(*shape, generator=generator) < 0.3  # zeros, as top-k and top-p make
    drop[..., 0] = False
    return logits.masked_fill(drop, float("-inf")).softmax(-1)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_one_round_has_exactly_the_targets_distribution(seed, g):
    """Sum over every proposal and every point of rejection; p and q depend on the prefix."""
    v, generator = 3, torch.Generator().manual_seed(seed)
    prefixes = [x for n in range(g + 1) for x in itertools.product(range(v), repeat=n)]
    p = {x: distributions(generator, v) for x in prefixes}
    q = {x: distributions(generator, v) for x in prefixes}
    emitted = dict.fromkeys(
        (x for n in range(1, g + 2) for x in itertools.product(range(v), repeat=n)), 0.0
    )
    for x in itertools.product(range(v), repeat=g):
        reach = 1.0  # x[:i] proposed and accepted, and the rest of x proposed
        for i in range(g):
            reach *= q[x[:i]][x[i]].item()
        for i in range(g):
            before = x[:i]
            a = acceptance_probability(p[before], q[before])[x[i]].item()
            for y in range(v):
                emitted[(*before, y)] += reach * (1 - a) * residual(p[before], q[before])[y].item()
            reach *= a
        for y in range(v):
            emitted[(*x, y)] += reach * p[x][y].item()

    def chain(tokens, start):
        value = 1.0
        for i in range(start, len(tokens)):
            value *= p[tokens[:i]][tokens[i]].item()
        return value

    for whole in itertools.product(range(v), repeat=g + 1):  # later rounds go on with p
        actual = sum(emitted[whole[:n]] * chain(whole, n) for n in range(1, g + 2))
        assert actual == pytest.approx(chain(whole, 0), abs=1e-14)


def test_verification_draws_what_the_enumeration_sums_over():
    """The first two tokens of verify_sampled, 20000 rounds, chi-square over the 16 pairs."""
    v, n, generator = 4, 20_000, torch.Generator().manual_seed(0)
    p, q = distributions(generator, 3, v), distributions(generator, 2, v)
    counts = torch.zeros(v, v)
    for _ in range(n):
        proposed = torch.multinomial(q, 1, generator=generator)[:, 0]
        new = verify_sampled(proposed, q, p, generator)
        if len(new) == 1:  # rejected at once: the next round would draw from p[1]
            new = torch.cat([new, torch.multinomial(p[1], 1, generator=generator)])
        counts[new[0], new[1]] += 1
    expected = n * p[0][:, None] * p[1]
    assert counts[expected == 0].sum() == 0
    expected, counts = expected[expected > 0], counts[expected > 0]
    assert ((counts - expected) ** 2 / expected).sum().item() < len(expected) + 6 * (
        2 * len(expected)
    ) ** 0.5  # mean and six standard deviations of chi-square


@settings(deadline=None)
@given(st.integers(0, 2**31))
def test_residual_is_a_distribution_also_where_p_equals_q(seed):
    generator = torch.Generator().manual_seed(seed)
    p, q = distributions(generator, 5, 7), distributions(generator, 5, 7)
    rest = residual(p, q)
    torch.testing.assert_close(rest.sum(-1), torch.ones(5, dtype=torch.float64))
    assert (rest[p <= q] == 0).all()
    assert torch.equal(residual(p, p), p)
    assert torch.equal(acceptance_probability(p, p), torch.ones_like(p))


def test_rejected_where_the_target_says_never():
    p = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    q = torch.tensor([[1.0, 0.0]])
    for seed in range(50):
        new = verify_sampled(torch.tensor([0]), q, p, torch.Generator().manual_seed(seed))
        assert new.tolist() == [1]


def test_equal_distributions_accept_everything():
    p = distributions(torch.Generator().manual_seed(1), 4, 6)
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        proposed = torch.multinomial(p[:3], 1, generator=generator)[:, 0]
        new = verify_sampled(proposed, p[:3], p, generator)
        assert len(new) == 4 and torch.equal(new[:3], proposed)


def test_greedy_verification_by_hand():
    logits = torch.eye(6)[[3, 1, 4, 2]]  # the target says 3, 1, 4 and then 2
    assert verify_greedy(torch.tensor([3, 1, 4]), logits).tolist() == [3, 1, 4, 2]
    assert verify_greedy(torch.tensor([3, 0, 4]), logits).tolist() == [3, 1]
    assert verify_greedy(torch.tensor([0, 1, 4]), logits).tolist() == [3]
    assert verify_greedy(torch.tensor([], dtype=torch.long), logits[:1]).tolist() == [3]


@settings(deadline=None, max_examples=12)
@given(
    st.integers(0, 2**31), st.sampled_from(["other", "noisy", "same"]), st.integers(1, 7),
    st.integers(0, 25), st.integers(1, 9),
)  # fmt: skip
def test_greedy_output_is_that_of_plain_greedy(seed, kind, gamma, n, length):
    target, draft = tiny(0).double(), tiny({"other": 1}.get(kind, 0)).double()
    if kind == "noisy":  # agrees sometimes, so that caches are rolled back by every amount
        noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
        draft.lm_head.weight.data += 0.15 * noise
    prompt = ids_of(seed, 1, length)
    out = speculative_generate(target, draft, prompt, n, gamma)
    assert torch.equal(out.ids, generate(target, prompt, n))
    assert out.passes + out.accepted == n and out.accepted <= out.proposed
    if kind == "same":
        assert out.accepted == out.proposed and out.passes == -(-n // (gamma + 1))
        assert n < 2 or out.acceptance == 1


def test_a_noisy_draft_is_accepted_in_part():
    """The premise of the test above: all numbers of accepted proposals occur."""
    target, draft = tiny(0).double(), tiny(0).double()
    noise = torch.randn(61, 32, generator=torch.Generator().manual_seed(2))
    draft.lm_head.weight.data += 0.15 * noise
    shares = [
        speculative_generate(target, draft, ids_of(s, 1, 5), 25, 4).acceptance for s in range(8)
    ]
    assert 0.1 < sum(shares) / 8 < 0.9


@pytest.mark.parametrize("sampling", [Sampling(1.5), Sampling(1.0, top_k=3), Sampling(1.2, 4, 0.8)])
def test_sampled_output_is_distributed_as_the_target(sampling):
    """Three tokens over a vocabulary of 5: chi-square over the 125 sequences, 1500 runs."""
    target, draft = tiny(6, 1, 16, vocab=5), tiny(7, 1, 16, vocab=5)
    prompt, n = ids_of(8, 1, 3, vocab=5), 1500
    generator, counts, total = torch.Generator().manual_seed(9), torch.zeros(5, 5, 5), 0
    for _ in range(n):
        out = speculative_generate(target, draft, prompt, 3, 2, sampling, generator)
        counts[tuple(out.ids[0, 3:].tolist())] += 1
        total += out.accepted
    assert 0.1 * n < total < 1.9 * n  # acceptance and rejection both happen
    everything = torch.cartesian_prod(*3 * [torch.arange(5)])
    with torch.no_grad():
        logits = target(torch.cat([prompt.expand(125, 3), everything], dim=1))[:, 2:5]
    chances = filtered_probabilities(logits, sampling).gather(2, everything[..., None]).prod(1)
    expected = n * chances[:, 0]
    counts = counts.flatten()
    assert counts[expected == 0].sum() == 0
    rare = (expected > 0) & (expected < 5)  # cells for which chi-square would not hold: joined
    cells = torch.cat([expected[expected >= 5], expected[rare].sum()[None]])
    seen = torch.cat([counts[expected >= 5], counts[rare].sum()[None]])
    cells, seen = cells[cells > 0], seen[cells > 0]
    assert ((seen - cells) ** 2 / cells).sum() < len(cells) + 6 * (2 * len(cells)) ** 0.5


@given(st.floats(0, 0.999), st.integers(0, 12))
def test_expected_tokens_is_the_closed_form(a, g):
    assert expected_tokens(a, g) == pytest.approx((1 - a ** (g + 1)) / (1 - a))


def test_expected_tokens_at_the_ends():
    assert expected_tokens(1.0, 4) == 5 and expected_tokens(0.0, 4) == 1
    with pytest.raises(ValueError, match="1.2"):
        expected_tokens(1.2, 4)


def test_errors_name_the_bad_value():
    with pytest.raises(ValueError, match=r"must be \[1, T\], got \(2, 3\)"):
        speculative_generate(tiny(0), tiny(0), ids_of(0, 2, 3), 5, 4)
    with pytest.raises(ValueError, match="2 proposals"):
        verify_sampled(torch.zeros(2, dtype=torch.long), torch.ones(2, 3), torch.ones(2, 3))
