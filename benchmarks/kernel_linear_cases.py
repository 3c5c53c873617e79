"""The cases of `benchmarks/kernels.py` with weights: W4A16, W8A8, NF4."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from kernel_inputs import Case, random, relative
from torch import Tensor, nn

from efflib.kernels.nf4 import dequantize_nf4_triton
from efflib.kernels.w4a16 import w4a16_matmul
from efflib.kernels.w8a8 import w8a8_matmul
from efflib.quantization.linear import quantize_weight
from efflib.quantization.nf4 import dequantize_nf4, quantize_nf4
from efflib.quantization.packing import W4A16Linear

GROUP = 128
# round to nearest in 4 bits: an error of step / sqrt(12), where 15 steps span the range of a group
# of 128 normal weights, about 2 * 2.6 standard deviations: 0.10 of one.  NF4 in blocks of 64: 0.10
FOUR_BIT_LIMIT = 0.15
# 8 bits for both: steps of 2 max / 254 with max about 4 standard deviations: 0.009 each
INT8_LIMIT = 0.02


def linear_inputs(M: int, N: int, K: int, dtype, device) -> dict:
    x = random(0, M, K, dtype=dtype, device=device)
    return {"x": x, "w": random(1, N, K, dtype=dtype, device=device)}


def product_error(inputs: dict, y: Tensor) -> float:
    """Against the product with the weights before rounding, float64, of some rows and columns."""
    x, w = inputs["x"][-64:].double(), inputs["w"][-1024:].double()
    return relative(y[-64:, -1024:], x @ w.T)


def cublas(inputs: dict, dtype) -> Callable:
    x, w = inputs["x"].to(dtype), inputs["w"].to(dtype)
    return lambda: F.linear(x, w)


def efflib_w4a16(inputs: dict) -> Callable:
    x, w = inputs["x"], inputs["w"]
    packed = W4A16Linear(quantize_weight(w.float(), 4, GROUP))
    return lambda: w4a16_matmul(x, packed.words, packed.scale, packed.zeros, GROUP)


def torchao_int4(inputs: dict) -> Callable:
    from torchao.quantization import Int4WeightOnlyConfig, quantize_

    x, w = inputs["x"].bfloat16(), inputs["w"].bfloat16()
    linear = nn.Linear(w.shape[1], w.shape[0], bias=False, device=w.device, dtype=w.dtype)
    linear.weight = nn.Parameter(w, requires_grad=False)
    model = nn.Sequential(linear)
    quantize_(model, Int4WeightOnlyConfig(group_size=GROUP))
    return torch.no_grad()(lambda: model(x))


def torch_int4(inputs: dict) -> Callable:
    """The kernel inside torch that gpt-fast uses: codes in tiles, bf16 scales and offsets."""
    x, w = inputs["x"].bfloat16(), inputs["w"]
    qw = quantize_weight(w.float(), 4, GROUP)
    codes = qw.codes.view(w.shape).int()
    tiles = torch._convert_weight_to_int4pack((codes[:, ::2] << 4 | codes[:, 1::2]).byte(), 8)
    scale = qw.scale.view(w.shape[0], -1)
    offset = (8 - qw.zero.view(scale.shape)) * scale  # its codes are centred at 8
    both = torch.stack([scale, offset], -1).transpose(0, 1).contiguous().bfloat16()
    return lambda: torch._weight_int4pack_mm(x, tiles, GROUP, both)


def bitsandbytes_nf4(inputs: dict) -> Callable:
    import bitsandbytes
    from bitsandbytes.functional import quantize_4bit

    x, w = inputs["x"], inputs["w"]
    codes, state = quantize_4bit(w, blocksize=64, quant_type="nf4")
    return lambda: bitsandbytes.matmul_4bit(x, codes.t(), quant_state=state)


def w4a16(M: int, N: int = 8192, K: int = 8192, device: str = "cuda") -> Case:
    return Case(
        f"w4a16-{M}",
        f"4-bit weights [{N}, {K}] in groups of {GROUP}, {M} rows (GB/s of 4-bit weights)",
        partial(linear_inputs, M, N, K, torch.float16, device),
        {
            "efflib w4a16": efflib_w4a16,
            "cuBLAS fp16": partial(cublas, dtype=torch.float16),
            "cuBLAS bf16": partial(cublas, dtype=torch.bfloat16),
            "torch int4 (tinygemm), bf16": torch_int4,
            "torchao int4, bf16": torchao_int4,
            "bitsandbytes NF4": bitsandbytes_nf4,
        },
        product_error,
        FOUR_BIT_LIMIT,
        2 * M * N * K,
        N * K * (4 + 24 / GROUP) / 8,
    )


def per_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """(codes int8, scale [rows] float32), symmetric."""
    scale = x.float().abs().amax(1) / 127
    return (x.float() / scale[:, None]).round().to(torch.int8), scale


def efflib_w8a8(inputs: dict) -> Callable:
    (x, x_scale), (w, w_scale) = per_row(inputs["x"]), per_row(inputs["w"])
    return lambda: w8a8_matmul(x, w, x_scale, w_scale, torch.bfloat16)


def torch_int8(inputs: dict) -> Callable:
    """cuBLASLt's int8 product through torch, scaled by PyTorch's own operations."""
    (x, x_scale), (w, w_scale) = per_row(inputs["x"]), per_row(inputs["w"])
    return lambda: (torch._int_mm(x, w.t()) * x_scale[:, None] * w_scale).bfloat16()


def w8a8(M: int, N: int = 8192, K: int = 8192, device: str = "cuda") -> Case:
    return Case(
        f"w8a8-{M}",
        f"8-bit weights [{N}, {K}] and activations, {M} rows, quantized before",
        partial(linear_inputs, M, N, K, torch.bfloat16, device),
        {
            "efflib w8a8": efflib_w8a8,
            "cuBLAS bf16": partial(cublas, dtype=torch.bfloat16),
            "torch._int_mm, scaled": torch_int8,
        },
        product_error,
        INT8_LIMIT,
        2 * M * N * K,
        N * K + M * K + 2 * M * N,
    )


def weight_error(inputs: dict, w: Tensor) -> float:
    return relative(w[-1024:], inputs["w"][-1024:])


def efflib_nf4(inputs: dict, triton: bool) -> Callable:
    q = quantize_nf4(inputs["w"])
    if triton:
        return lambda: dequantize_nf4_triton(q, torch.bfloat16)
    return lambda: dequantize_nf4(q).bfloat16()


def bitsandbytes_decode(inputs: dict) -> Callable:
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    codes, state = quantize_4bit(
        inputs["w"], blocksize=64, quant_type="nf4", compress_statistics=True
    )
    return lambda: dequantize_4bit(codes, state)


def nf4(N: int = 8192, K: int = 8192, device: str = "cuda") -> Case:
    return Case(
        "nf4",
        f"NF4, doubly quantized, [{N}, {K}] decoded to bf16",
        lambda: {"w": random(1, N, K, device=device)},
        {
            "efflib Triton": partial(efflib_nf4, triton=True),
            "efflib PyTorch": partial(efflib_nf4, triton=False),
            "bitsandbytes": bitsandbytes_decode,
        },
        weight_error,
        FOUR_BIT_LIMIT,
        N * K,
        N * K * (0.5 + 1 / 64 + 2),
    )


def linear_cases() -> list[Case]:
    return [*(w4a16(M) for M in (1, 16)), *(w8a8(M) for M in (16, 4096)), nf4()]
