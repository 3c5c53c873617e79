"""NF4: a 4-bit codebook whose levels are quantiles of the normal distribution.

    codebook: c_i from ppf(linspace(OFFSET, 1/2)), 7 negative, 0, 8 positive, scaled to [-1, 1]
    block of 64:  a = max|w|,  code_i = nearest level to w_i / a,  w_hat_i = c[code_i] a
    double quantization: the a of 256 blocks, minus the mean of all, through an 8-bit codebook

Weights are about normal, so each level is used about equally often; that makes the codes carry
much information, not the squared error small: on normal weights an asymmetric 4-bit grid errs a
little less.  Bits a weight: 4 + 32 / 64 = 4.5, and 4 + 8 / 64 + 32 / (64 * 256) = 4.127 with double
quantization (and one mean a tensor).
Source: Dettmers et al. 2023 (QLoRA, arXiv:2305.14314), section 3; for the 8-bit codebook Dettmers
et al. 2022 (arXiv:2110.02861), section 2.

Where implementations differ
- Levels.  Here they are computed and come out as bitsandbytes' 16 float32 numbers, bit by bit: the
  probabilities have to be rounded to float32, their quantiles taken in float64.  torchao's table
  is rounded to 4 decimals, which changes a byte in about 5000.
- Blocks run over the flattened tensor, not over rows, as in bitsandbytes.
- A value at the middle of two levels takes the lower code.  In bitsandbytes too, on the CPU.
- Bytes: the even element is the HIGH half, as in bitsandbytes; GPTQ and AWQ start at the low bits.
- Double quantization.  The 8-bit codebook is neither linear nor FP8: levels get denser towards 0
  by powers of ten ("dynamic").  torchao's is linear, a different scheme.  bitsandbytes' CPU code
  looks it up in 65536 bins, so that about one code in 1000, near a middle, is the neighbour's.
"""

import copy
import math
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite
from efflib.codebooks import dynamic_codebook
from efflib.quantization.size import SKIP, quantizable_linears

OFFSET = 0.9677083  # of the outermost levels: 1 - (1/30 + 1/32) / 2, half a step of 15 and of 16
BLOCK, SCALE_BLOCK = 64, 256  # weights that share an a; a's that share a second scale
SCALE_BITS = 32  # of an a, of a second scale, of the mean


@cache
def nf4_codebook() -> Tensor:
    """The 16 levels in rising order, -1 to 1; level 7 is exactly 0. [16] float32"""
    # float32 probabilities, float64 quantiles: what bitsandbytes' table was made with
    above = torch.special.ndtri(torch.linspace(OFFSET, 0.5, 9)[:-1].double())  # 8 positive
    below = -torch.special.ndtri(torch.linspace(OFFSET, 0.5, 8)[:-1].double())  # 7 negative
    levels = torch.cat([below, torch.zeros(1, dtype=torch.double), above.flip(0)]).float()
    return levels / levels.max()


def nearest_code(x: Tensor, codebook: Tensor) -> Tensor:
    """The index of the level nearest to each x, the lower one at a tie. int64, x's shape

    codebook: rising. x outside of it takes the end.
    """
    if x.isnan().any():
        raise ValueError(f"x {tuple(x.shape)} holds NaN, and no level is nearest to it")
    middles = (codebook[1:] + codebook[:-1]) / 2
    return torch.bucketize(x, middles)  # the number of middles < x


class Scales(NamedTuple):
    """The a's of the blocks in 8 bits: dynamic_codebook[codes] * second + mean."""

    codes: Tensor  # [blocks] uint8
    second: Tensor  # [ceil(blocks / SCALE_BLOCK)] float32
    mean: Tensor  # [] float32


class NF4Weight(NamedTuple):
    """A tensor in NF4."""

    packed: Tensor  # [ceil(n / 2)] uint8: two codes a byte, the even element in the high half
    scales: Tensor | Scales  # [ceil(n / BLOCK)] float32, or doubly quantized
    shape: tuple[int, ...]


def _blocks(x: Tensor, size: int) -> Tensor:
    """x [n] -> [ceil(n / size), size], filled with zeros, which move no maximum of |x|."""
    return F.pad(x, (0, -len(x) % size)).reshape(-1, size)


def _scaled(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(blocks divided by their largest |x|, those [blocks]); a block of zeros is divided by 1."""
    largest = blocks.abs().amax(1)
    return blocks / torch.where(largest > 0, largest, 1.0)[:, None], largest


def quantize_scales(a: Tensor) -> Scales:
    """Double quantization of a [blocks] float32."""
    expect_dims("[blocks]", a=a)
    expect_finite(a=a)
    mean = a.mean()
    scaled, second = _scaled(_blocks(a - mean, SCALE_BLOCK))
    codes = nearest_code(scaled, dynamic_codebook().to(a.device))
    return Scales(codes.flatten()[: len(a)].to(torch.uint8), second, mean)


def dequantize_scales(scales: Scales) -> Tensor:
    """The a's [blocks] float32 that the codes stand for."""
    levels = dynamic_codebook().to(scales.codes.device)[scales.codes.long()]
    a = _blocks(levels, SCALE_BLOCK) * scales.second[:, None]
    return a.flatten()[: len(levels)] + scales.mean


def quantize_nf4(w: Tensor, double: bool = True) -> NF4Weight:
    """w of any shape in NF4, its scales in 8 bits if `double`, else in float32.

    Raises ValueError if w is empty, or holds NaN or infinity.
    """
    if w.numel() == 0 or not w.isfinite().all():
        raise ValueError(f"need finite values, at least one, got shape {tuple(w.shape)}")
    scaled, a = _scaled(_blocks(w.detach().float().flatten(), BLOCK))
    codes = nearest_code(scaled, nf4_codebook().to(w.device)).to(torch.uint8)
    pairs = codes.flatten()[: w.numel() + w.numel() % 2].reshape(-1, 2)
    packed = pairs[:, 0] << 4 | pairs[:, 1]
    return NF4Weight(packed, quantize_scales(a) if double else a, tuple(w.shape))


def dequantize_nf4(q: NF4Weight) -> Tensor:
    """The tensor, float32, that the codes stand for."""
    n = math.prod(q.shape)
    codes = torch.stack([q.packed >> 4, q.packed & 0xF], dim=1).flatten()[:n].long()
    a = dequantize_scales(q.scales) if isinstance(q.scales, Scales) else q.scales
    values = _blocks(nf4_codebook().to(codes.device)[codes], BLOCK) * a[:, None]
    return values.flatten()[:n].reshape(q.shape)


def nf4_bits(shape: tuple[int, ...], double: bool = True) -> int:
    """Total bits of a tensor in NF4: codes, scales, and with `double` theirs and the mean."""
    n = math.prod(shape)
    if n < 1:
        raise ValueError(f"shape {tuple(shape)} holds no weight")
    blocks = math.ceil(n / BLOCK)
    if not double:
        return 4 * n + SCALE_BITS * blocks
    return 4 * n + 8 * blocks + SCALE_BITS * (math.ceil(blocks / SCALE_BLOCK) + 1)


class _FrozenProduct(torch.autograd.Function):
    """y = x W_hat^T + b and dx = dy W_hat, with W_hat decoded for each of the two.

    F.linear would keep W_hat, and autograd hold it from the forward to the backward pass: the
    float weights of all layers at once.  Nothing but the layer, with its codes, is kept here.
    """

    @staticmethod
    def forward(ctx, x: Tensor, layer: "NF4Linear") -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.weight_hat().to(x.dtype), layer.bias)

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None]:
        return dy @ ctx.layer.weight_hat().to(dy.dtype), None


class NF4Linear(nn.Module):
    """A frozen linear that stores codes; y = x W_hat^T + b, the gradient goes to x only.

    W_hat is made anew in every forward pass and again in every backward pass, as in bitsandbytes,
    so that no float copy stays.
    """

    def __init__(self, linear: nn.Linear, double: bool = True) -> None:
        super().__init__()
        self.out_features, self.in_features = linear.weight.shape
        q = quantize_nf4(linear.weight, double)
        self.double = double
        self.register_buffer("packed", q.packed)
        for name, value in zip(Scales._fields, q.scales if double else (q.scales,), strict=False):
            self.register_buffer(f"scale_{name}", value)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def weight_hat(self) -> Tensor:
        """[N, K] float32."""
        if self.double:
            scales = Scales(self.scale_codes, self.scale_second, self.scale_mean)
        else:
            scales = self.scale_codes
        return dequantize_nf4(NF4Weight(self.packed, scales, (self.out_features, self.in_features)))

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N] in x's dtype."""
        return _FrozenProduct.apply(x, self)


def nf4_model(model: nn.Module, double: bool = True, skip: tuple[str, ...] = SKIP) -> nn.Module:
    """A copy of the model with every linear of `quantizable_linears` as an `NF4Linear`."""
    model = copy.deepcopy(model)
    for name, linear in quantizable_linears(model, skip).items():
        model.set_submodule(name, NF4Linear(linear, double))
    return model
