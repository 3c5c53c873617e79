"""Weights and inputs of linears in few bits, simulated: WnAm.

    y = R_m(x) R_n(W)^T                      W in n bits, a grid per group; x in m, one per token
    y = R_m(x Q) R_n(W Q)^T                  both in the basis of an orthogonal Q

Inputs have a symmetric grid per token, max |x| / (2^(m-1) - 1), found when the token is there.  One
large channel stretches it for all others: at 6 bits the step is a 31st of the largest value.
With Q, x is turned when the model runs, before it is rounded: an online rotation.  A Hadamard
matrix needs n log2 n additions for it instead of the n^2 products that are computed here.
"""

import copy
from collections.abc import Mapping

from torch import Tensor, nn

from efflib.checks import expect_keys
from efflib.quantization.linear import (
    Granularity,
    affine_parameters,
    code_range,
    dequantize,
    fake_quantize_weight,
    quantize,
)
from efflib.quantization.rotation import expect_orthogonal
from efflib.quantization.size import SKIP, quantizable_linears


def round_tokens(x: Tensor, bits: int) -> Tensor:
    """x [..., K] with a symmetric grid of `bits` bits for each token, in the dtype of x."""
    largest = x.abs().amax(-1, keepdim=True)  # [..., 1]
    scale, zero = affine_parameters(-largest, largest, bits, symmetric=True)
    return dequantize(quantize(x, scale, zero, bits, True), scale, zero).to(x.dtype)


class LowBitLinear(nn.Module):
    """A linear whose weight and inputs are rounded, computed in floating point.

    weight_bits or input_bits None: not rounded.  q [K, K] orthogonal: both in its basis.
    """

    def __init__(
        self,
        linear: nn.Linear,
        weight_bits: int | None,
        input_bits: int | None,
        granularity: Granularity,
        q: Tensor | None = None,
    ) -> None:
        super().__init__()
        w = linear.weight.detach()
        if input_bits is not None:
            code_range(input_bits, symmetric=True)  # refused now, not at the first token
        if q is not None:
            expect_orthogonal(w.shape[1], q=q)
            w = (w.double() @ q.double()).to(w.dtype)
            q = q.to(w)
        if weight_bits is not None:
            w = fake_quantize_weight(w, weight_bits, granularity).to(w.dtype)
        self.input_bits = input_bits
        self.register_buffer("weight", w.clone())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self.register_buffer("q", q)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        x = x if self.q is None else x @ self.q
        x = x if self.input_bits is None else round_tokens(x, self.input_bits)
        return nn.functional.linear(x, self.weight, self.bias)


def with_low_bits(
    model: nn.Module,
    weight_bits: int | None,
    input_bits: int | None,
    granularity: Granularity = "channel",
    rotations: Mapping[str, Tensor] | None = None,
    skip: tuple[str, ...] = SKIP,
) -> nn.Module:
    """A copy of the model with every linear but those of skip as a `LowBitLinear`.

    rotations: {full name of a linear: its q [K, K]}.  Raises ValueError for a name that is none.
    """
    model = copy.deepcopy(model)
    linears = quantizable_linears(model, skip)
    rotations = rotations or {}
    expect_keys(linears, rotations=rotations)
    for name, linear in linears.items():
        made = LowBitLinear(linear, weight_bits, input_bits, granularity, rotations.get(name))
        model.set_submodule(name, made)
    return model
