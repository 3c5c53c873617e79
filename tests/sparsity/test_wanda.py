"""The score is the change of the output; the masks are those of llm-compressor's formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import apply_mask
from efflib.sparsity.wanda import input_norms, wanda_mask, wanda_scores

SEEDS = st.integers(0, 10**6)


def layer(seed, n=8, k=32, tokens=64):
    """(W [n, k], X [4, tokens / 4, k]) whose channels span a factor of 100 in size."""
    g = torch.Generator().manual_seed(seed)
    size = torch.logspace(-1, 1, k)[torch.randperm(k, generator=g)]
    return torch.randn(n, k, generator=g), torch.randn(4, tokens // 4, k, generator=g) * size


def separated(seed):
    """As `layer`, with scores of a row at least 5 % apart: no rounding decides about a mask."""
    w, x = layer(seed)
    order = torch.rand(w.shape, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return w.sign() * 1.05**order / x.double().flatten(0, 1).norm(dim=0).float(), x


def llmcompressor_wanda(w, x, share, prune_n=0, prune_m=0):
    """What `wanda_sparsify` of llm-compressor 0.14 computes, which counts ZEROS in n:m."""
    row_scalars = torch.zeros(w.shape[1])
    for i, text in enumerate(x):  # running mean over sequences of ||X_j||^2
        row_scalars = row_scalars * (i / (i + 1)) + text.norm(p=2, dim=0) ** 2 / (i + 1)
    metric = w.abs() * row_scalars.sqrt()
    if prune_n:
        groups = metric.reshape(w.shape[0], -1, prune_m)
        lowest = groups.topk(prune_n, dim=-1, largest=False).indices
        lowest = (lowest + torch.arange(0, w.shape[1], prune_m)[None, :, None]).flatten(1)
    else:
        lowest = metric.sort(dim=-1, stable=True).indices[:, : int(w.shape[1] * share)]
    return w.scatter(1, lowest, 0.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "pattern, zeros", [(0.5, (0, 0)), (0.7, (0, 0)), ((2, 4), (2, 4)), ((4, 8), (4, 8))]
)
@pytest.mark.parametrize("other", [(1, 4)])
def test_equal_to_llm_compressors_semantic(seed, pattern, zeros, other):
    w, x = separated(seed)
    share = pattern if isinstance(pattern, float) else 0.5
    ours = apply_mask(w, wanda_mask(w, input_norms(x), pattern))
    assert torch.equal(ours, llmcompressor_wanda(w, x, share, *zeros))
    # their 1:4 zeroes one of four, ours keeps one of four
    ours = apply_mask(w, wanda_mask(w, input_norms(x), other))
    assert torch.equal(ours, llmcompressor_wanda(w, x, share, 3, 4))


@given(SEEDS)
def test_a_score_is_the_change_of_the_output_without_the_weight(seed):
    w, x = layer(seed, n=3, k=6, tokens=16)
    w, x = w.double(), x.double()
    s = wanda_scores(w, input_norms(x))
    y = x @ w.T
    for i in range(3):
        for j in range(6):
            without = w.clone()
            without[i, j] = 0
            change = (x @ without.T - y).norm()
            assert abs(change - s[i, j]) <= 4 * torch.finfo(torch.float32).eps * s[i, j] + 1e-12


@given(SEEDS, st.sampled_from([0.5, (2, 4)]))
def test_norms_of_one_size_give_the_magnitude_mask_of_the_rows(seed, pattern):
    w, _ = layer(seed)
    norms = torch.full((32,), 4.0)  # a power of two: no rounding
    assert torch.equal(wanda_mask(w, norms, pattern), magnitude_mask(w, pattern, "row"))


@given(SEEDS)
def test_a_channel_moved_from_weights_to_inputs_leaves_the_mask(seed):
    """X diag(c) and W diag(c)^-1 are the same layer; only the score of Wanda knows it."""
    w, x = layer(seed)
    c = torch.tensor([2.0**e for e in range(-8, 8)] * 2)  # powers of two: exact
    norms = input_norms(x)
    assert torch.equal(wanda_mask(w / c, norms * c, 0.5), wanda_mask(w, norms, 0.5))
    assert not torch.equal(magnitude_mask(w / c, 0.5, "row"), magnitude_mask(w, 0.5, "row"))


def test_wanda_errs_less_than_magnitude_where_channels_differ():
    for seed in range(20):
        w, x = layer(seed)
        norms, exact = input_norms(x), x @ w.T
        error = {
            name: (x @ apply_mask(w, mask).T - exact).norm()
            for name, mask in {
                "wanda": wanda_mask(w, norms, 0.5),
                "magnitude": magnitude_mask(w, 0.5, "row"),
            }.items()
        }
        # orthogonal inputs would make the sum of squared scores the error; these nearly are
        assert error["wanda"] < 0.6 * error["magnitude"]


def test_a_dead_channel_is_pruned_first():
    w, x = layer(0)
    x[..., 3] = 0
    assert not wanda_mask(w, input_norms(x), 1 / 32)[:, 3].any()


def test_norms_do_not_depend_on_how_tokens_are_arranged():
    _, x = layer(1)
    assert torch.equal(input_norms(x), input_norms(x.flatten(0, 1)))
    assert input_norms(torch.full((2, 3), 3e30)).isfinite().all()  # squares overflow float32


def test_bad_input_is_named():
    w, x = layer(0)
    with pytest.raises(ValueError, match=r"w \(8, 32\), got \(8,\)"):
        wanda_scores(w, torch.ones(8))
    with pytest.raises(ValueError, match="finite and >= 0"):
        wanda_scores(w, -input_norms(x))
