"""W8A8 with a real integer product, beside the simulated one of `smoothquant.W8A8Linear`.

    x ~ s_x q_x,   W ~ s_w q_w        x W^T ~ s_x s_w (q_x q_w^T),   the bracket in int32, exact

The simulation multiplies the rounded values in floating point. Both use the same codes, so they
differ by the rounding of float sums only, and what the simulation says about quality holds for the
kernel. A product of two codes is at most 127^2, so int32 holds sums over K <= 133 144 channels.
Source: Jacob et al. 2018 (arXiv:1712.05877), section 2.2; the order of scales as in the INT8 GEMMs
of Xiao et al. 2023 (arXiv:2211.10438), section 5.

Why scales of activations can differ by token and not by channel: s_x stands in front of the sum
over channels only if it does not depend on the channel.

Where implementations differ
- `torch._int_mm` is fast on CPUs with AVX512-VNNI or AMX and on GPUs; elsewhere it is a plain loop.
- With a single channel (K = 1, N > 1) `torch._int_mm` of torch 2.13 returns zeros on the CPU; here
  that product is written out.
- GPU kernels want sizes in multiples of 8 or 16; the CPU takes any.
- Kernels that accumulate in int16 (some CPUs without VNNI) saturate; int32 does not.
"""

import torch
from torch import Tensor, nn

from efflib.quantization.linear import affine_parameters, quantize
from efflib.quantization.smoothquant import BITS, Activations, W8A8Linear

MAX_CHANNELS = (2**31 - 1) // 127**2  # sums over more could leave int32


def int8_product(x: Tensor, w: Tensor) -> Tensor:
    """x w^T of codes, exact: x [M, K] int8, w [N, K] int8 -> [M, N] int32.

    Raises ValueError for other dtypes or shapes, or more than MAX_CHANNELS channels.
    """
    if x.dtype != torch.int8 or w.dtype != torch.int8:
        raise ValueError(f"codes must be int8, got {x.dtype} and {w.dtype}")
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1]:
        raise ValueError(f"need [M, K] and [N, K], got {tuple(x.shape)} and {tuple(w.shape)}")
    if x.shape[1] > MAX_CHANNELS:
        raise ValueError(f"{x.shape[1]} channels: sums of more than {MAX_CHANNELS} leave int32")
    if x.shape[1] == 1:
        return x.int() * w.int().t()
    return torch._int_mm(x.contiguous(), w.t())


class Int8Linear(W8A8Linear):
    """A `W8A8Linear` that holds int8 codes and multiplies them as integers.

    Its weight takes one byte an element, in memory too. Same arguments and errors.
    """

    def __init__(
        self, linear: nn.Linear, activations: Activations, x_max: Tensor | None = None
    ) -> None:
        super().__init__(linear, activations, x_max)
        w = linear.weight.detach()
        scale, zero = affine_parameters(-w.abs().amax(), w.abs().amax(), BITS, symmetric=True)
        self.weight = quantize(w, scale, zero, BITS, symmetric=True)  # [N, K] int8
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        x_max = self.largest(x)  # [] or [..., 1]
        scale, zero = affine_parameters(-x_max, x_max, BITS, symmetric=True)
        codes = quantize(x, scale, zero, BITS, symmetric=True)  # [..., K] int8
        total = int8_product(codes.flatten(0, -2), self.weight)  # [M, N] int32
        y = total.view(*x.shape[:-1], -1) * (scale * self.scale)
        return (y if self.bias is None else y + self.bias).to(x.dtype)
