"""SparseGPT against optimal brain surgeon with explicit inverses, and llm-compressor's formula."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.hessian import damped, gram, inverse_factor
from efflib.models.llama import Llama, LlamaConfig
from efflib.sequential import block_linears, change_sequentially
from efflib.sparsity.masks import apply_mask, sparsity
from efflib.sparsity.sparsegpt import prune_sparsegpt, sparsegpt
from efflib.sparsity.wanda import prune_wanda, wanda_mask

SEEDS = st.integers(0, 10**6)
PATTERNS = [0.5, 0.7, (2, 4), (4, 8), (1, 4)]


def layer(seed, n=6, k=32, tokens=200):
    """(W [n, k], X [tokens, k]) with channels of unlike size that go together, float64."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.eye(k) + 0.3 * torch.randn(k, k, generator=g) / k**0.5
    size = torch.logspace(-1, 1, k)[torch.randperm(k, generator=g)]
    x = torch.randn(tokens, k, generator=g) @ mix * size
    return torch.randn(n, k, generator=g).double(), x.double()


def surgeon(w, h, mask, damping=0.01):
    """Optimal brain surgeon, weight by weight from the left, an inverse for each row and step."""
    h, w = damped(h, damping), w.clone()
    for i in range(len(w)):
        for j in range(w.shape[1]):
            if not mask[i, j]:
                inverse = torch.linalg.inv(h[j:, j:])
                w[i, j:] -= w[i, j].clone() / inverse[0, 0] * inverse[0]
    return w


def llmcompressor(w, h, share, prune_n=0, prune_m=0, block=128, damping=0.01, extra=0):
    """What `sparsify_weight` of llm-compressor 0.14 computes (it counts ZEROS in n:m).

    extra=1 is its threshold, <= the int(s n)-th score; extra=0 zeroes one less.
    """
    k, w = w.shape[1], w.clone()
    h = h + damping * h.diagonal().mean() * torch.eye(k, dtype=h.dtype)
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    d = u.diagonal()
    for i in range(0, k, block):
        j = min(i + block, k)
        errors = torch.zeros_like(w[:, i:j])
        gone = torch.zeros(errors.shape, dtype=torch.bool)
        if not prune_n:
            s = w[:, i:j] ** 2 / d[i:j] ** 2
            gone = s.flatten().argsort().argsort().reshape(s.shape) < int(s.numel() * share) + extra
        for c in range(i, j):
            if prune_n and (c - i) % prune_m == 0:
                s = w[:, c : c + prune_m] ** 2 / d[c : c + prune_m] ** 2
                gone.scatter_(1, (c - i) + s.topk(prune_n, 1, largest=False)[1], True)
            q = w[:, c].masked_fill(gone[:, c - i], 0.0)
            e = (w[:, c] - q) / d[c]
            w[:, c:j] -= e[:, None] * u[c, c:j]
            w[:, c], errors[:, c - i] = q, e
        w[:, j:] -= errors @ u[i:j, j:]
    return w


@given(SEEDS)
def test_the_factor_holds_every_inverse_that_is_needed(seed):
    _, x = layer(seed, k=8)
    h, u = damped(gram(x)), inverse_factor(gram(x))
    assert torch.equal(u, u.triu())
    for j in range(8):
        row = torch.linalg.inv(h[j:, j:])[0]
        torch.testing.assert_close(u[j, j] * u[j, j:], row, rtol=1e-9, atol=1e-12)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(PATTERNS), st.sampled_from([8, 16, 128]))
def test_updates_are_those_of_optimal_brain_surgeon(seed, pattern, block):
    w, x = layer(seed)
    h = gram(x)
    pruned = sparsegpt(w, h, pattern, block)
    torch.testing.assert_close(pruned, surgeon(w, h, pruned != 0), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "pattern, zeros", [(0.5, ()), (0.7, ()), ((2, 4), (2, 4)), ((4, 8), (4, 8))]
)
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("seed", range(3))
def test_equal_to_llm_compressors_semantic(seed, block, pattern, zeros):
    w, x = layer(seed)
    share = pattern if isinstance(pattern, float) else 0.5
    theirs = llmcompressor(w, gram(x), share, *zeros, block=block)
    torch.testing.assert_close(sparsegpt(w, gram(x), pattern, block), theirs, rtol=0, atol=1e-12)
    if not zeros:  # their own threshold zeroes one more in every block
        more = llmcompressor(w, gram(x), share, block=block, extra=1)
        assert (more == 0).sum() - (theirs == 0).sum() == 32 // block


@given(SEEDS, st.sampled_from(PATTERNS))
def test_zeros_are_as_many_as_asked_and_exact(seed, pattern):
    w, x = layer(seed)
    pruned = sparsegpt(w, gram(x), pattern, block=16)
    if isinstance(pattern, float):
        assert (pruned == 0).sum() == 2 * int(6 * 16 * pattern)
    else:
        assert ((pruned.reshape(-1, pattern[1]) != 0).sum(1) == pattern[0]).all()


@given(SEEDS)
def test_inputs_that_do_not_go_together_leave_wandas_choice_and_no_update(seed):
    """H diagonal: nothing can be repaired, and S is W^2 H_jj, Wanda's score squared."""
    w, x = layer(seed)
    h = torch.diag(gram(x).diagonal())
    pruned = sparsegpt(w, h, (2, 4), damping=0.0)
    norms = gram(x).diagonal().sqrt().float()
    torch.testing.assert_close(pruned, apply_mask(w, wanda_mask(w, norms, (2, 4))))


def test_repair_leaves_less_error_than_the_mask_alone():
    for seed in range(20):
        w, x = layer(seed)
        pruned = sparsegpt(w, gram(x), 0.5)
        repaired = (x @ (pruned - w).T).norm()
        assert repaired < (x @ (apply_mask(w, pruned != 0) - w).T).norm()


def test_a_dead_channel_goes_first_and_changes_no_other_weight():
    w, x = layer(0)
    x[:, 3] = 0
    pruned = sparsegpt(w, gram(x), 1 / 32, block=32)
    kept = [j for j in range(32) if j != 3]
    assert (pruned[:, 3] == 0).all() and torch.equal(pruned[:, kept], w[:, kept])


def test_dtype_and_arguments_stay():
    w, x = layer(0)
    h = gram(x)
    before = w.clone(), h.clone()
    assert sparsegpt(w.bfloat16(), h, 0.5).dtype == torch.bfloat16
    sparsegpt(w, h, 0.5)
    assert torch.equal(w, before[0]) and torch.equal(h, before[1])


def model():
    torch.manual_seed(0)
    sizes = (50, 32, 48, 3, 4, 2, 8)
    return Llama(LlamaConfig(*sizes)).eval()


def test_a_whole_model_and_no_more_than_its_blocks():
    ids = torch.randint(0, 50, (4, 24), generator=torch.Generator().manual_seed(1))
    dense = model()
    pruned = prune_sparsegpt(dense, ids, 0.5)
    inside = {f"{n}.weight" for linears in block_linears(dense) for n in linears}
    for name, value in pruned.state_dict().items():
        if name in inside:
            assert sparsity(value) == 0.5
        else:
            assert torch.equal(value, dense.state_dict()[name])
    with torch.no_grad():
        exact = dense(ids)
        errors = {p: (p(ids) - exact).norm() for p in (pruned, prune_wanda(dense, ids, 0.5))}
    assert errors[pruned] < min(v for k, v in errors.items() if k is not pruned)


def test_statistics_of_the_model_as_it_was_or_as_it_becomes():
    ids = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(1))

    def seen(sequential):
        sums = []

        def change(w, total):
            sums.append(total)
            return 0.5 * w

        change_sequentially(model(), ids, lambda x: x.double().square().sum(0), change, sequential)
        return sums

    changed, unchanged = seen(True), seen(False)
    dense = []

    def remember(w, total):
        dense.append(total)
        return w

    change_sequentially(model(), ids, lambda x: x.double().square().sum(0), remember)
    assert all(torch.equal(a, b) for a, b in zip(unchanged, dense, strict=True))
    assert torch.equal(changed[0], dense[0]) and not torch.allclose(changed[-1], dense[-1])


def test_bad_input_is_named():
    w, x = layer(0)
    h = gram(x)
    with pytest.raises(ValueError, match=r"h \[K, K\] of w \(6, 32\), got \(8, 8\)"):
        sparsegpt(w, h[:8, :8], 0.5)
    with pytest.raises(ValueError, match="block=6 and K=32 must be multiples of 4"):
        sparsegpt(w, h, (2, 4), block=6)
    with pytest.raises(ValueError, match="damping=-1"):
        sparsegpt(w, h, 0.5, damping=-1)
    with pytest.raises(ValueError, match="not positive definite"):
        sparsegpt(w, gram(x[:3]) - 1e-3 * torch.eye(32), 0.5, damping=0.0)
    with pytest.raises(ValueError, match="h .* must be finite"):
        sparsegpt(w, h * float("nan"), 0.5)
    with pytest.raises(ValueError, match=r"\[K, K\], got \(2, 3\)"):
        damped(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"x must be a non-empty"):
        gram(torch.zeros(0, 3))
