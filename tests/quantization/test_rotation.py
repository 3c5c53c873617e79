"""Hadamard matrices, incoherence, and a Llama that keeps its function when it is turned."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib import zoo
from efflib.hessian import gram
from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.gptq import dequantize_gptq, gptq, output_error
from efflib.quantization.rotation import (
    expect_orthogonal,
    hadamard,
    hessian_incoherence,
    in_turned_basis,
    incoherence,
    paley,
    peaks,
    random_hadamard,
    random_orthogonal,
    rotate,
)

SEEDS = st.integers(0, 10**6)
ORDERS = [1, 2, 4, 8, 64, 12, 24, 192, 20, 40, 320]
U32 = torch.finfo(torch.float32).eps / 2


@pytest.mark.parametrize("n", ORDERS)
def test_orthogonal_and_all_entries_alike(n):
    for h in (hadamard(n), random_hadamard(n, 3)):
        assert h.dtype == torch.float64 and h.shape == (n, n)
        torch.testing.assert_close(h.abs(), torch.full((n, n), n**-0.5).double())
        # the products of +-1 add up exactly; dividing by sqrt(n) twice is within 4 u
        assert (h.T @ h - torch.eye(n)).abs().max() <= n * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("q", [3, 7, 11, 19, 23])
def test_paleys_rows_are_orthogonal_exactly(q):
    h = paley(q)
    assert torch.equal(h @ h.T, (q + 1) * torch.eye(q + 1).double())
    assert torch.equal(h.abs(), torch.ones_like(h))


@pytest.mark.parametrize("n", [3, 5, 6, 10, 28, 36, 60, 240, 0, -4, 2.0])
def test_other_orders_are_refused(n):
    with pytest.raises(ValueError, match="order|n="):
        hadamard(n)


@pytest.mark.parametrize("make", [random_hadamard, random_orthogonal])
def test_seeds_decide_and_the_global_generator_does_not_move(make):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = make(16, 0), make(16, 0), make(16, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a, b) and not torch.equal(a, c)
    expect_orthogonal(16, a=a, c=c)


@given(SEEDS, st.sampled_from([8, 12, 64]))
def test_a_spike_is_spread_evenly_and_lengths_stay(seed, n):
    g = torch.Generator().manual_seed(seed)
    q = random_hadamard(n, seed)
    spike = torch.zeros(n, dtype=torch.float64)
    spike[torch.randint(n, (1,), generator=g)] = 7.0
    assert peaks(spike).item() == pytest.approx(math.sqrt(n))
    assert peaks(spike @ q).item() == pytest.approx(1.0)
    x = torch.randn(5, n, generator=g).double()
    torch.testing.assert_close((x @ q).norm(dim=1), x.norm(dim=1))


def test_what_random_signs_are_for():
    """Without them a constant x falls on the first basis vector: as bad as a spike."""
    x = torch.ones(64).double()
    assert peaks(x @ hadamard(64)).item() == pytest.approx(8.0)
    assert max(peaks(x @ random_hadamard(64, seed)).item() for seed in range(20)) < 5


def test_incoherence_by_hand_and_its_bounds():
    assert incoherence(torch.tensor([[1.0, -1.0], [1.0, 1.0]])) == 1.0
    assert incoherence(torch.tensor([[0.0, 3.0], [0.0, 0.0]])) == 2.0
    assert incoherence(torch.tensor([[3.0, 4.0]])) == pytest.approx(4 / math.sqrt(12.5))
    assert incoherence(torch.full((3, 3), 1e-300, dtype=torch.float64)) == pytest.approx(1.0)
    assert hessian_incoherence(torch.diag(torch.arange(1.0, 10))) == pytest.approx(3.0)
    torch.testing.assert_close(
        peaks(torch.tensor([[3.0, 4.0], [0, 0]])), torch.tensor([4 / 12.5**0.5, 0]).double()
    )
    for bad in (torch.zeros(2), torch.ones(0), torch.tensor([1.0, float("nan")])):
        with pytest.raises(ValueError):
            incoherence(bad)


@given(SEEDS)
@settings(max_examples=20)
def test_turning_both_sides_makes_any_weight_incoherent(seed):
    """mu <= 2 ln(4 N K / d), QuIP's bound with two Hadamard matrices; d: it fails once in 1e9."""
    w = torch.zeros(16, 32).double()
    g = torch.Generator().manual_seed(seed)
    w[torch.randint(16, (1,), generator=g), torch.randint(32, (1,), generator=g)] = 1.0
    w += 0.01 * torch.randn(16, 32, generator=g)
    turned = random_hadamard(16, seed) @ w @ random_hadamard(32, seed + 1).T
    assert turned.norm().item() == pytest.approx(w.norm().item())
    assert incoherence(turned) <= 2 * math.log(4 * 16 * 32 / 1e-9)
    assert incoherence(turned) < 0.5 * incoherence(w)


def llama(tied=False, bias=False, kv_heads=2):
    torch.manual_seed(0)
    config = LlamaConfig(
        50,
        48,
        64,
        2,
        4,
        kv_heads,
        8,
        tie_word_embeddings=tied,
        attention_bias=bias,
        mlp_bias=bias,
    )
    model = Llama(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(torch.rand_like(p) + 0.5)
            elif bias and name.endswith("bias"):
                p.copy_(torch.randn_like(p))
    return model


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_function_stays_in_float64_to_its_rounding(tied, bias, kv_heads):
    model = llama(tied, bias, kv_heads).double()
    ids = torch.randint(0, 50, (3, 11), generator=torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        want = model(ids)
        for heads in (None, random_hadamard(8, 1)):
            turned = rotate(model, random_hadamard(48, 0), heads)
            # each of the 13 products sums at most 64 terms, in another order
            assert (turned(ids) - want).abs().max() <= 1e-12 * want.abs().max()
            stream = turned.model.embed_tokens(ids)
            plain = model.model.embed_tokens(ids) @ random_hadamard(48, 0)
            torch.testing.assert_close(stream, plain)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert turned.lm_head.weight is not turned.model.embed_tokens.weight


def test_values_are_turned_within_heads_only_if_asked():
    model = llama(kv_heads=4)
    q, heads = random_hadamard(48, 0), random_orthogonal(8, 1)
    plain, turned = rotate(model, q), rotate(model, q, heads)
    for a, b in zip(plain.model.layers, turned.model.layers, strict=True):
        assert torch.equal(a.self_attn.q_proj.weight, b.self_attn.q_proj.weight)
        value = a.self_attn.v_proj.weight.view(4, 8, 48).double()
        torch.testing.assert_close(
            (heads.T @ value).flatten(0, 1).float(), b.self_attn.v_proj.weight
        )


def test_the_shipped_model_keeps_its_function_and_its_cache():
    model = zoo.load("target")
    turned = rotate(model, random_hadamard(192, 0), random_hadamard(32, 1))
    ids = torch.randint(0, 2048, (2, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        a, b = model(ids), turned(ids)
    # float32: the deepest path is about 40 products of up to 512 terms
    assert (a - b).abs().max() <= 40 * 512**0.5 * U32 * a.abs().max() * 4
    more = sum(p.numel() for p in turned.parameters()) - sum(p.numel() for p in model.parameters())
    assert more == 2048 * 192  # the head is tied no more


def test_rounding_in_a_turned_basis_is_better_where_each_row_has_a_large_weight():
    """QuIP with the rounding of GPTQ, 3 bits, a grid per row of 128.

    As it is, the step is about (10 + 3) / 7 = 1.9. Turned, entries have the deviation
    sqrt(1 + 100 / 128) = 1.3 and a range of about 6 of these: a step of
    1.1, and (1.1 / 1.9)^2 = 0.4.
    """
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        w, x = torch.randn(16, 128, generator=g), torch.randn(300, 128, generator=g)
        w[torch.arange(16), torch.randint(128, (16,), generator=g)] = 10.0
        h = gram(x)

        def rounded(w, h):
            return dequantize_gptq(gptq(w, h, 3, "channel"))

        u, v = random_hadamard(16, seed), random_hadamard(128, seed + 1)
        turned = in_turned_basis(w, h, rounded, u, v)
        assert turned.dtype == w.dtype
        assert output_error(w, turned, h) < 0.7 * output_error(w, rounded(w, h), h)
    exact = in_turned_basis(w, h, lambda w, h: w, u, v)
    assert (exact - w).abs().max() <= 8 * U32 * w.norm()


def test_what_cannot_be_turned_is_named():
    model, q = llama(), random_hadamard(48, 0)
    with pytest.raises(ValueError, match=r"q must be \[48, 48\], got \(12, 12\)"):
        rotate(model, hadamard(12))
    with pytest.raises(ValueError, match="q is not orthogonal"):
        rotate(model, 2 * q)
    with pytest.raises(ValueError, match=r"heads must be \[8, 8\]"):
        rotate(model, q, hadamard(4))
    with pytest.raises(ValueError, match="Linear has no norm of a known layout"):
        rotate(torch.nn.Linear(48, 48), q)
    model.model.layers[1].input_layernorm.bias = torch.nn.Parameter(torch.zeros(48))
    with pytest.raises(ValueError, match="layers.1.input_layernorm must be an RMSNorm without bia"):
        rotate(model, q)
