"""The codebook and its nearest levels, blocks over the flattened tensor, bytes, and the bits."""

import math
from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.nf4 import (
    BLOCK,
    SCALE_BLOCK,
    NF4Linear,
    Scales,
    dequantize_nf4,
    dequantize_scales,
    dynamic_codebook,
    nearest_code,
    nf4_bits,
    nf4_codebook,
    nf4_model,
    quantize_nf4,
    quantize_scales,
)

# the published table, Dettmers et al. 2023, appendix E
PUBLISHED = """-1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453
-0.28444138169288635 -0.18477343022823334 -0.09105003625154495 0.0
0.07958029955625534 0.16093020141124725
0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941
0.7229568362236023 1.0"""
SEEDS = st.integers(0, 10**6)


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.02


def test_the_codebook_is_the_published_one():
    assert nf4_codebook().tolist() == [float(v) for v in PUBLISHED.split()]


def test_the_levels_are_quantiles():
    """Level i above zero is the normal quantile of evenly spaced probabilities."""
    c, d = nf4_codebook().double(), NormalDist()
    for levels in (c[7:], -c[:8].flip(0)):  # from 0 outwards
        p = [d.cdf(v * d.inv_cdf(0.9677083)) for v in levels.tolist()]
        steps = [b - a for a, b in zip(p, p[1:], strict=False)]
        assert max(steps) - min(steps) < 1e-6


def brute_force(w, codebook):
    """(codes, absmax, values) with loops and float64 distances; ties to the lower code."""
    flat, levels = w.flatten().tolist(), codebook.double().tolist()
    codes, absmax = [], []
    for start in range(0, len(flat), BLOCK):
        block = torch.tensor(flat[start : start + BLOCK])
        a = block.abs().max()
        absmax.append(a.item())
        for v in (block / (a if a > 0 else 1.0)).double().tolist():
            codes.append(min(range(16), key=lambda i: (abs(levels[i] - v), i)))
    values = [codebook[c] * absmax[i // BLOCK] for i, c in enumerate(codes)]
    return codes, absmax, torch.stack(values).reshape(w.shape)


@pytest.mark.parametrize("shape", [(2, 96), (7, 9), (1,), (64,), (65,), (3, 5, 11)])
def test_codes_bytes_and_values_against_brute_force(shape):
    w = normal(3, *shape)
    before = w.clone()
    q = quantize_nf4(w, double=False)
    codes, absmax, values = brute_force(w, nf4_codebook())
    n = math.prod(shape)
    assert q.packed.shape == (math.ceil(n / 2),) and q.packed.dtype == torch.uint8
    unpacked = [c for byte in q.packed.tolist() for c in (byte // 16, byte % 16)]
    assert unpacked[:n] == codes
    assert q.scales.tolist() == absmax
    assert torch.equal(dequantize_nf4(q), values)
    assert torch.equal(w, before)


def test_blocks_run_over_the_flattened_tensor():
    w = torch.ones(2, 96)  # 3 blocks: the middle one holds the end of one row, the start of another
    w[1, 0] = 10.0
    assert quantize_nf4(w, double=False).scales.tolist() == [1, 10, 1]


def test_a_tie_takes_the_lower_code():
    codebook = torch.tensor([-1.0, 0.0, 1.0])
    assert nearest_code(torch.tensor([-2, -0.5, -0.49, 0.5, 0.51, 3]), codebook).tolist() == [
        0, 0, 1, 1, 2, 2,
    ]  # fmt: skip


@given(SEEDS, st.booleans())
def test_quantizing_again_changes_nothing(seed, double):
    w_hat = dequantize_nf4(quantize_nf4(normal(seed, 8, 32), double=False))
    assert torch.equal(dequantize_nf4(quantize_nf4(w_hat, double=False)), w_hat)


@given(SEEDS)
def test_the_error_is_at_most_half_a_gap(seed):
    w = normal(seed, 4, 64)
    half_gap = nf4_codebook().diff().max() / 2
    a = w.abs().amax(1, keepdim=True)
    error = (dequantize_nf4(quantize_nf4(w, double=False)) - w).abs()
    assert (error <= a * half_gap * (1 + 1e-6)).all()


def test_zeros_and_signs_stay():
    assert dequantize_nf4(quantize_nf4(torch.zeros(3, 50))).abs().max() == 0
    w = normal(0, 4, 64)
    back = dequantize_nf4(quantize_nf4(-w, double=False))
    assert (back * -w >= 0).all()
    assert torch.equal(back.abs().amax(1), w.abs().amax(1))  # +-1 are levels


def test_on_normal_weights_it_is_not_the_smallest_error():
    """Said in the module: quantiles use codes evenly; the affine grid has the smaller error."""
    w = normal(0, 512, 512)

    def error(w_hat):
        return ((w_hat - w).norm() / w.norm()).item()

    nf4 = error(dequantize_nf4(quantize_nf4(w, double=False)))
    twice = error(dequantize_nf4(quantize_nf4(w)))
    affine = error(dequantize_weight(quantize_weight(w, 4, BLOCK)))
    signed = error(dequantize_weight(quantize_weight(w, 4, BLOCK, symmetric=True)))
    assert 0.091 < nf4 < 0.093  # integral of the levels' error over a normal block: 0.092
    assert affine < nf4 < signed
    assert abs(twice - nf4) < 1e-3 * nf4  # double quantization is free


def test_the_dynamic_codebook():
    c = dynamic_codebook()
    assert len(c) == 256 == len(c.unique()) and torch.equal(c, c.sort().values)
    assert c[-1] == 1 and 0 in c.tolist()
    inner = c[(c != 0) & (c != 1)]
    assert torch.equal(inner, -inner.flip(0))
    counts = [((c > 10.0 ** (e - 7)) & (c < 10.0 ** (e - 6))).sum().item() for e in range(7)]
    assert counts == [1, 2, 4, 8, 16, 32, 64]


@given(SEEDS, st.sampled_from([1, 255, 256, 257, 600]))
def test_double_quantization_of_scales(seed, n):
    a = normal(seed, n).abs() + 0.03
    scales = quantize_scales(a)
    assert scales.codes.dtype == torch.uint8 and scales.codes.shape == (n,)
    assert scales.second.shape == (math.ceil(n / SCALE_BLOCK),)
    assert scales.mean == a.mean()
    for i in range(n):  # the nearest level, up to the rounding of the division
        second = scales.second[i // SCALE_BLOCK].item()
        x = (a[i] - a.mean()).item() / (second or 1.0)
        distance = (dynamic_codebook().double() - x).abs()
        assert distance[scales.codes[i].long()] <= distance.min() + 2.0**-22
    gap = dynamic_codebook().diff().max() / 2
    bound = gap * scales.second.max() * (1 + 1e-5) + 1e-8
    assert ((dequantize_scales(scales) - a).abs() <= bound).all()


def test_bits_a_weight():
    shape = (4096, 4096)
    n = 4096 * 4096
    assert nf4_bits(shape, double=False) / n == 4.5
    assert nf4_bits(shape) / n == 4 + 8 / 64 + 32 / (64 * 256) + 32 / n
    assert round(nf4_bits(shape) / n, 3) == 4.127


@pytest.mark.parametrize("shape", [(64, 100), (128, 128)])
def test_the_bits_are_those_of_what_is_stored(shape):
    for double in (False, True):
        q = quantize_nf4(normal(0, *shape), double)
        parts = [q.packed, *(q.scales if isinstance(q.scales, Scales) else [q.scales])]
        assert nf4_bits(shape, double) == 8 * sum(p.nbytes for p in parts)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_the_linear_is_frozen_and_passes_gradients(bias, double):
    torch.manual_seed(0)
    linear = nn.Linear(32, 24, bias=bias)
    frozen = NF4Linear(linear, double)
    w_hat = dequantize_nf4(quantize_nf4(linear.weight, double))
    x = torch.randn(5, 32, requires_grad=True)
    out = frozen(x)
    assert torch.equal(out, nn.functional.linear(x, w_hat, linear.bias))
    out.sum().backward()
    torch.testing.assert_close(x.grad, w_hat.sum(0).expand(5, 32))
    assert not list(frozen.parameters())
    stored = sum(b.nbytes for n, b in frozen.named_buffers() if n != "bias")
    assert 8 * stored == nf4_bits((24, 32), double)
    again = NF4Linear(nn.Linear(32, 24, bias=bias), double)
    again.load_state_dict(frozen.state_dict())
    assert torch.equal(again(x), out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_decodes_for_both_passes_and_keeps_no_float_weight_between_them(monkeypatch, dtype):
    torch.manual_seed(0)
    frozen, decoded, saved = NF4Linear(nn.Linear(64, 48, bias=False)), [], []
    plain, decode = frozen.weight_hat(), NF4Linear.weight_hat
    monkeypatch.setattr(NF4Linear, "weight_hat", lambda self: decoded.append(1) or decode(self))
    x = torch.randn(2, 5, 64, dtype=dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out = frozen(x)
    assert len(decoded) == 1 and not saved
    dy = torch.randn_like(out)
    out.backward(dy)
    assert len(decoded) == 2
    torch.testing.assert_close(x.grad, dy @ plain.to(dtype))
    frozen(x.detach())
    assert len(decoded) == 3


def test_a_whole_model_keeps_its_output_layer_and_the_original():
    model = nn.Sequential()
    model.add_module("a", nn.Linear(64, 64))
    model.add_module("lm_head", nn.Linear(64, 8))
    frozen = nf4_model(model)
    assert isinstance(frozen.a, NF4Linear) and isinstance(frozen.lm_head, nn.Linear)
    assert isinstance(model.a, nn.Linear)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_input_is_named(value):
    with pytest.raises(ValueError, match=r"finite values, at least one, got shape \(1, 2\)"):
        quantize_nf4(torch.tensor([[1.0, value]]))
    with pytest.raises(ValueError, match=r"got shape \(0, 4\)"):
        quantize_nf4(torch.zeros(0, 4))
