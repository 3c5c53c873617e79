"""Every kernel against float64 on a device: on the CPU interpreted, on a GPU compiled.

A process can do only one of them. So where there is a GPU the last test runs this file once more,
in a process that compiles (tests/conftest.py asks for the interpreter on the CPU only).
"""

import os
import subprocess
import sys

import attention_reference as forward
import gradient_reference as backward
import pytest
import quantized_inputs as quantized
import torch
from decoding_reference import bounds as decoding_bounds
from decoding_reference import exact as decoding_exact
from decoding_reference import inputs as decoding_inputs
from paged_inputs import contiguous, paged
from rounding import U, allowed_rms, gradient_bounds, near, rms

from efflib.kernels.attention_backward import attention_backward
from efflib.kernels.backward_cost import Masks
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.nf4 import dequantize_nf4_triton
from efflib.kernels.paged_attention import paged_attention
from efflib.kernels.tma_attention import tma_attention
from efflib.kernels.w4a16 import w4a16_matmul
from efflib.kernels.w8a8 import w8a8_matmul
from efflib.kernels.windowed_attention import windowed_attention
from efflib.quantization.nf4 import dequantize_nf4, quantize_nf4

DEVICE = os.environ.get("EFFLIB_TEST_DEVICE", "cpu")
DTYPES = tuple(U)
LARGE = 1 if DEVICE == "cpu" else 10  # times longer texts, where that costs nothing


def on(*tensors):
    """The tensors on the device."""
    return tuple(t.to(DEVICE) for t in tensors)


def tma(q, k, v, causal):
    return tma_attention(q, k, v, causal, block_m=32, block_n=16)


def tma_specialized(q, k, v, causal):
    return tma_attention(q, k, v, causal, None, 64, 64, num_warps=4, warp_specialize=True)


def readable(q, k, v, causal):
    return flash_attention(q, k, v, causal, block_m=32, block_n=16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", [readable, tma, tma_specialized], ids=lambda f: f.__name__)
@pytest.mark.parametrize("T, S, causal", [(50, 37, None), (33, 70, "bottom_right")])
def test_attention_forward(kernel, dtype, T, S, causal):
    q, k, v = forward.inputs(LARGE * T, LARGE * S, 4, 2, 32, dtype)
    o, lse = forward.exact(q, k, v, causal)
    got, got_lse = (t.cpu() for t in kernel(*on(q, k, v), causal))
    o_bound, lse_bound = forward.bounds(q, k, v, causal)
    assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 9])
def test_attention_backward(dtype, window):
    masks = Masks("bottom_right", window, 2 if window else 0)
    T, S = LARGE * 33, LARGE * 40
    q, k, v, do = backward.inputs(T, S, 4, 2, 32, dtype)
    seen = backward.visible(T, S, masks)
    o, _, *right = backward.gradients(q, k, v, do, seen)
    torch_o, *others = backward.torch_gradients(q, k, v, do, seen)
    bounds = gradient_bounds(q, k, v, do, seen)
    q, k, v, do = on(q, k, v, do)
    if window is None:
        got_o, lse = flash_attention(q, k, v, "bottom_right")
    else:
        got_o, lse = windowed_attention(q, k, v, window, masks.sinks)
    got = attention_backward(q, k, v, got_o, lse, do, None, *masks[:1], None, *masks[1:])
    assert rms(got_o.cpu(), o) <= allowed_rms(torch_o, o, dtype)
    for mine, other, exact, bound in zip(got, others, right, bounds, strict=True):
        assert rms(mine.cpu(), exact) <= allowed_rms(other, exact, dtype)
        assert near(mine.cpu(), exact, bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("H, splits", [(4, None), (4, 3), (20, 2)])
def test_split_decoding(dtype, H, splits):
    q, k, v = decoding_inputs(LARGE * 100, H, 2, 32, dtype, B=2)
    o, lse = decoding_exact(q, k, v)
    got, got_lse = (t.cpu() for t in flash_decoding(*on(q, k, v), None, splits))
    o_bound, lse_bound = decoding_bounds(q, k, v)
    assert near(got, o, o_bound) and near(got_lse, lse, lse_bound)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_paged_decoding(dtype):
    q, k, v, table, lengths = paged([37, 1, LARGE * 100], 16, 4, 2, dtype=dtype)
    got, _ = paged_attention(*on(q, k, v, table, lengths), None, 2, 32)
    for b in range(3):
        one = q[b : b + 1], *contiguous(k, v, table, lengths, b)
        assert near(got[b : b + 1].cpu(), decoding_exact(*one)[0], decoding_bounds(*one)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("M", [1, 5, 66])
def test_w4a16(dtype, M):
    linear, x = quantized.layer(40, 256, 64), quantized.rows(M, 256, dtype)
    w = linear.decode()
    y = x.double() @ w.double().T
    got = w4a16_matmul(*on(x, linear.words, linear.scale, linear.zeros), quantized.size(linear))
    assert near(got.cpu(), y, quantized.error_bound(x, w, y))


def test_w8a8():
    x, w, s_x, s_w = (
        quantized.codes(130, 200),
        quantized.codes(140, 200, 1),
        quantized.steps(130),
        quantized.steps(140),
    )
    exact = (x.long() @ w.long().T).double() * s_x.double()[:, None] * s_w.double()
    got = w8a8_matmul(*on(x, w, s_x, s_w), torch.float32).cpu()
    assert ((got.double() - exact).abs() <= 3.01 * 2.0**-24 * exact.abs()).all()


@pytest.mark.parametrize("double", [False, True])
def test_nf4(double):
    q = quantize_nf4(quantized.weight((33, 70)), double)
    right = dequantize_nf4(q)
    scales = type(q.scales)(*on(*q.scales)) if double else q.scales.to(DEVICE)
    got = dequantize_nf4_triton(q._replace(packed=q.packed.to(DEVICE), scales=scales))
    assert quantized.same_bits(got.cpu(), right)


@pytest.mark.skipif(
    DEVICE != "cpu" or not torch.cuda.is_available(), reason="no GPU, or running on it"
)
def test_the_same_compiled_on_a_gpu():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["EFFLIB_TEST_DEVICE"] = "cuda"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
