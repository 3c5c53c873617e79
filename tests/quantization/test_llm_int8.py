"""The split keeps outliers exact and the rest on its own grid; the product is one of integers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.llm_int8 import (
    LLMInt8Linear,
    llm_int8,
    llm_int8_linear,
    outlier_columns,
    quantize_rows,
    vectorwise_codes,
)
from efflib.zoo.offset import with_offset

FLOAT32 = 2.0**-24


def draw(seed, tokens=6, k=20, n=7, outliers=2):
    """x [tokens, K] with `outliers` columns of 20 to 60 (an even column has small entries too)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, k, generator=generator).clamp(-5, 5)
    for j in range(outliers):
        x[:, j] = 20 + 40 * torch.rand(tokens, generator=generator)
        if j % 2 == 0:
            x[0, j] = 0.5
    return x, torch.randn(n, k, generator=generator)


def brute_force(x, w, threshold):
    """The formula entry by entry in float64: y [M, N], and a bound on its float32 rounding."""
    outlier = [any(abs(v) >= threshold for v in column) for column in x.T.tolist()]
    y = torch.zeros(x.shape[0], w.shape[0], dtype=torch.float64)
    bound = torch.zeros_like(y)
    codes, absmax = quantize_rows(w)
    for t, row in enumerate(x.tolist()):
        top = max((abs(v) for v in row if abs(v) < threshold), default=0.0)
        x_codes = vectorwise_codes(x[t : t + 1], torch.tensor([top]))[0]
        for i in range(w.shape[0]):
            for j, v in enumerate(row):
                w_hat = codes[i, j].item() * absmax[i].item() / 127
                part = (v if outlier[j] else x_codes[j].item() * top / 127) * w_hat
                y[t, i] += part
                bound[t, i] += abs(part)
    return y, bound * FLOAT32 * (x.shape[1] + 8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from([2.0, 6.0]))
def test_equal_to_the_formula_entry_by_entry(seed, outliers, threshold):
    x, w = draw(seed, outliers=outliers)
    y, bound = brute_force(x, w, threshold)
    assert ((llm_int8_linear(x, *quantize_rows(w), None, threshold) - y).abs() <= bound).all()


def test_columns_with_one_entry_at_the_threshold():
    x = torch.zeros(2, 3, 4)
    x[1, 2, 1], x[0, 0, 2], x[0, 1, 3] = -6.0, 5.999, 40.0
    assert outlier_columns(x).tolist() == [False, True, False, True]
    with pytest.raises(ValueError, match="threshold must be positive, got 0"):
        outlier_columns(x, 0)


def test_integers_are_exact_where_the_grid_allows():
    """Codes as values and an absmax of 127: nothing is rounded, with or without outliers."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-127, 128, (5, 16), generator=generator).float()
    w = torch.randint(-127, 128, (4, 16), generator=generator).float()
    x[:, 3], w[:, 0] = 127, 127
    for threshold in (1000.0, 128.0, 1.0):
        y = llm_int8_linear(x, *quantize_rows(w), None, threshold)
        torch.testing.assert_close(y, x @ w.T, rtol=1e-6, atol=0)


def test_the_split_protects_the_other_channels():
    x, w = draw(0, tokens=32, k=256, n=64, outliers=3)
    exact, parts = x @ w.T, quantize_rows(w)
    error = {t: (llm_int8_linear(x, *parts, None, t) - exact).norm() for t in (6.0, 1e9)}
    weights_only = (x @ (parts[0] * parts[1][:, None] / 127).T - exact).norm()
    # half a step of 60 / 127 on every channel against half a step of 5 / 127, beside the weights'
    assert error[6.0] < error[1e9] / 3
    assert error[6.0] < 1.5 * weights_only


def test_a_token_of_zeros_and_a_row_of_zeros():
    x, w = draw(1)
    x[2], w[3] = 0, 0
    y = llm_int8_linear(x, *quantize_rows(w))
    assert torch.isfinite(y).all() and not y[2].any() and not y[:, 3].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shapes_dtypes_bias_and_untouched_arguments(dtype):
    x, w = draw(2, tokens=6)
    x, bias = x.to(dtype).view(2, 3, -1), torch.linspace(-1, 1, 7)
    before = x.clone()
    linear = torch.nn.Linear(20, 7)
    with torch.no_grad():
        linear.weight.copy_(w)
        linear.bias.copy_(bias)
    layer = LLMInt8Linear(linear)
    y = layer(x)
    assert y.shape == (2, 3, 7) and y.dtype == dtype and torch.equal(x, before)
    flat = llm_int8_linear(x.float().transpose(0, 1).reshape(6, -1), *quantize_rows(w), bias)
    # the same sums of 20 products, in another order, rounded to dtype once
    size = x.float().abs().flatten(0, 1) @ w.abs().T + 1
    bound = size.view(2, 3, 7) * (20 + 8) * FLOAT32 + y.float().abs() * torch.finfo(dtype).eps
    assert ((y.float() - flat.view(3, 2, 7).transpose(0, 1)).abs() <= bound).all()
    assert layer.codes.element_size() == 1 and not list(layer.parameters())


def test_the_whole_model():
    torch.manual_seed(0)
    model = Llama(
        LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
        )
    ).eval()
    model = with_offset(model, 2, 60.0)
    ids = torch.randint(0, 50, (2, 10), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact = model(ids)
        split, whole = llm_int8(model)(ids), llm_int8(model, threshold=1e9)(ids)
    error = [((y - exact).norm() / exact.norm()).item() for y in (split, whole)]
    # seen: 2.5; the rest is the int8 weights of the outlier columns, times 60
    assert 0 < error[0] < error[1] / 1.5
    kinds = [type(m) for m in llm_int8(model).modules()]
    assert kinds.count(LLMInt8Linear) == 14 and kinds.count(torch.nn.Linear) == 1
    assert not any(isinstance(m, LLMInt8Linear) for m in model.modules())
