"""efflib.quantization.llm_int8 against bitsandbytes (make test-oracles)."""

import bitsandbytes as bnb
import bitsandbytes.functional as F
import pytest
import torch

from efflib.quantization.llm_int8 import (
    LLMInt8Linear,
    outlier_columns,
    quantize_rows,
    vectorwise_codes,
)
from efflib.quantization.w8a8 import int8_product

pytestmark = pytest.mark.oracle

FLOAT32 = 2.0**-24
EXACT, THEIRS = 1 / 127**2, 6.200124e-05  # the factor, and the one of bitsandbytes' CPU kernel


def inputs(outliers, tokens=9, k=64, n=32):
    """x [tokens, K] of float16 values, w [N, K] float16 values, so that nobody rounds them."""
    generator = torch.Generator().manual_seed(outliers)
    x = torch.randn(tokens, k, generator=generator)
    x[:, 5 : 5 + outliers] *= 30
    return x.half(), (torch.randn(n, k, generator=generator) * 0.05).half()


@pytest.mark.parametrize("outliers", [0, 1, 4])
def test_codes_scales_columns_and_integer_sums_are_equal(outliers):
    x, w = inputs(outliers)
    codes, absmax = quantize_rows(w)
    their_codes, their_absmax, _ = F.int8_vectorwise_quant(w.clone())
    assert torch.equal(codes, their_codes) and torch.equal(absmax, their_absmax)
    x_codes, x_absmax, columns = F.int8_vectorwise_quant(x.clone(), threshold=6.0)
    outlier = outlier_columns(x)
    assert outlier.nonzero().flatten().tolist() == columns.flatten().tolist()
    ours = vectorwise_codes(x.masked_fill(outlier, 0), x_absmax)
    assert torch.equal(ours, x_codes)
    theirs = torch.ops.bitsandbytes.int8_linear_matmul(x_codes, their_codes)
    assert torch.equal(int8_product(ours, codes), theirs)


@pytest.mark.parametrize("outliers", [0, 1, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_in_eval_mode_is_equal_but_for_the_mistyped_constant(outliers, bias):
    x, w = inputs(outliers)
    theirs = bnb.nn.Linear8bitLt(64, 32, bias=bias, has_fp16_weights=False, threshold=6.0)
    theirs.weight = bnb.nn.Int8Params(w.clone(), requires_grad=False, has_fp16_weights=False)
    linear = torch.nn.Linear(64, 32, bias=bias)
    linear.weight = torch.nn.Parameter(w.float())
    if bias:
        theirs.bias = torch.nn.Parameter(linear.bias.detach().clone())
    theirs = theirs.to("cpu").eval()  # in training mode it rounds weights only
    with torch.no_grad():
        y, expected = LLMInt8Linear(linear)(x.float()), theirs(x.float())
    # |integer part| is at most this; its relative error is that of the constant
    codes, absmax = quantize_rows(w)
    w_hat = (codes * absmax[:, None] / 127).abs()
    size = x.float().abs() @ w_hat.T + 1
    allowed = size * ((THEIRS / EXACT - 1) + (64 + 8) * FLOAT32)
    assert ((y - expected).abs() <= allowed).all()
    plain = torch.nn.functional.linear(x.float(), linear.weight, linear.bias)
    assert (y - plain).norm() > 10 * (y - expected).norm()
