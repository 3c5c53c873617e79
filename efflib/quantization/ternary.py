"""Ternary weights: BitNet b1.58's linear layer, trained through its rounding.

    s = mean |W|        c = clamp(round(W / s), -1, 1)        W_hat = s c           weights
    u = 127 / max |x|   x_hat = clamp(round(x u), -128, 127) / u                 inputs, per token
    y = x_hat W_hat^T + b

Three values are log2(3) = 1.58 bits.  Both roundings pass the gradient straight through, as if
they were not there: dL/dW is dL/dW_hat and dL/dx is dL/dx_hat, also where a code is clipped, and
neither s nor u gets any.  Training keeps W in float; what is shipped is c and s.
Source: Ma et al. 2024 (arXiv:2402.17764), section 2; Microsoft's training tips (2024).

mean |W| is not the scale of least squared error.  With the k largest |w| kept, S_k their sum, the
best scale is S_k / k and the error |W|^2 - S_k^2 / k, so the best codes of all are found by sorting
(`least_error`; Li and Liu 2016, arXiv:1605.04711, solve it for the normal distribution).

Where implementations differ
- Microsoft's code keeps 1 / s and multiplies; the values differ by a rounding.
- One scale for the whole matrix here and in the paper.  A fused q, k, v has one mean where three
  matrices have three.  "channel" takes one per row.
- BitLinear of the training tips has an RMSNorm of its own before the rounding.  Here a model's
  norms stay where they are.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite, expect_integers, expect_whole
from efflib.quantization.linear import Granularity, group_count
from efflib.quantization.size import FLOAT_BITS, SKIP, quantizable_linears

EPS = 1e-5  # the paper's floor of mean |W| and of max |x|
TRITS = 5  # in a byte: 3^5 = 243 <= 256
POWERS = (1, 3, 9, 27, 81)


def absmean_scale(w: Tensor, granularity: Granularity = "tensor") -> Tensor:
    """mean |w| of each group of w [N, K], at least EPS. [R, n_groups] float32"""
    expect_finite(w=w)
    rows, length = group_shape(w, granularity)
    return w.float().abs().reshape(rows, length).mean(-1, keepdim=True).clamp(min=EPS)


def group_shape(w: Tensor, granularity: Granularity) -> tuple[int, int]:
    """(scales, weights of each): "tensor" or "channel".  Raises ValueError for anything else."""
    expect_dims("[N, K]", w=w)
    if granularity not in ("tensor", "channel"):
        raise ValueError(f'granularity is "tensor" or "channel", got {granularity!r}')
    return (1, w.numel()) if granularity == "tensor" else (w.shape[0], w.shape[1])


def ternary_codes(w: Tensor, scale: Tensor) -> Tensor:
    """clamp(round(w / scale), -1, 1) of w [N, K], scale [1, 1] or [N, 1]. int8"""
    return (w.float() / scale).round().clamp(-1, 1).to(torch.int8)


def least_error(w: Tensor, granularity: Granularity = "tensor") -> tuple[Tensor, Tensor]:
    """(codes [N, K] int8, scale [R, 1] float32) of the least sum (w - s c)^2 in each group.

    The k largest |w| get their sign, for the k that makes S_k^2 / k largest.  Computed in float64.
    A group of zeros has codes 0 and scale EPS.
    """
    expect_finite(w=w)
    groups = w.double().reshape(group_shape(w, granularity))  # [R, M]
    ordered, order = groups.abs().sort(-1, descending=True)
    sums = ordered.cumsum(-1)  # S_1 .. S_M
    counts = torch.arange(1, groups.shape[1] + 1, device=w.device)
    k = (sums.square() / counts).argmax(-1, keepdim=True)  # [R, 1], one less than the count
    kept = torch.zeros_like(groups).scatter(-1, order, (counts - 1 <= k).double())
    codes = (kept * groups.sign()).to(torch.int8).reshape(w.shape)
    scale = sums.gather(-1, k) / (k + 1)
    return codes, scale.float().clamp(min=EPS)


def fake_ternary(w: Tensor, granularity: Granularity = "tensor") -> Tensor:
    """s c of w [N, K] in its dtype, with the straight-through gradient."""
    with torch.no_grad():
        scale = absmean_scale(w, granularity)
        w_hat = (ternary_codes(w, scale) * scale).to(w.dtype)
    return w_hat + (w - w.detach())  # the difference is 0, its derivative 1


def fake_tokens(x: Tensor) -> Tensor:
    """x [..., K] on a grid of 8 bits for each token, in its dtype; straight-through gradient."""
    with torch.no_grad():
        u = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=EPS)  # [..., 1]
        x_hat = ((x.float() * u).round().clamp(-128, 127) / u).to(x.dtype)
    return x_hat + (x - x.detach())


class BitLinear(nn.Linear):
    """An nn.Linear that multiplies rounded inputs by ternary weights, and trains the float ones."""

    granularity: Granularity = "tensor"

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        return F.linear(fake_tokens(x), fake_ternary(self.weight, self.granularity), self.bias)


def bit_linear(linear: nn.Linear, granularity: Granularity = "tensor") -> BitLinear:
    """A BitLinear with the same Parameters as the linear, so that an optimizer knows them."""
    group_shape(linear.weight, granularity)
    made = BitLinear(linear.in_features, linear.out_features, device="meta")
    made.weight, made.bias = linear.weight, linear.bias
    made.granularity = granularity
    return made.train(linear.training)


def use_bit_linears(
    model: nn.Module, granularity: Granularity = "tensor", skip: tuple[str, ...] = SKIP
) -> None:
    """Put a BitLinear in place of every linear of the model but those of skip; names stay."""
    for name, linear in quantizable_linears(model, skip).items():
        model.set_submodule(name, bit_linear(linear, granularity))


def with_bit_linears(
    model: nn.Module, granularity: Granularity = "tensor", skip: tuple[str, ...] = SKIP
) -> nn.Module:
    """A copy of the model with BitLinears.  Without training it is post-training ternary."""
    model = copy.deepcopy(model)
    use_bit_linears(model, granularity, skip)
    return model


def pack_trits(codes: Tensor) -> Tensor:
    """Codes [..., M] of -1, 0, 1 -> bytes [..., ceil(M / 5)] uint8, sum_i (c_i + 1) 3^i.

    The last byte is filled with codes 0.  Raises ValueError for other codes.
    """
    expect_integers(codes=codes)
    if codes.ndim == 0 or (codes.numel() and not -1 <= int(codes.min()) <= int(codes.max()) <= 1):
        raise ValueError(f"need codes [..., M] of -1, 0 and 1, got {tuple(codes.shape)}")
    digits = F.pad(codes.to(torch.int32), (0, -codes.shape[-1] % TRITS)) + 1
    powers = torch.tensor(POWERS, dtype=torch.int32, device=codes.device)
    return (digits.unflatten(-1, (-1, TRITS)) * powers).sum(-1).to(torch.uint8)


def unpack_trits(words: Tensor, length: int) -> Tensor:
    """Bytes [..., ceil(length / 5)] uint8 -> codes [..., length] int8: undoes `pack_trits`.

    Raises ValueError for another number of bytes, and for bytes above 242, which are no codes.
    """
    expect_whole(length=length)
    fits = words.dtype == torch.uint8 and words.ndim and words.shape[-1] == -(-length // TRITS)
    if not fits or (words.numel() and int(words.max()) > 242):
        raise ValueError(
            f"{length} codes take {-(-length // TRITS)} bytes of 0 to 242, "
            f"got {words.dtype} {tuple(words.shape)}"
        )
    powers = torch.tensor(POWERS, dtype=torch.int32, device=words.device)
    digits = words.to(torch.int32)[..., None] // powers % 3  # [..., bytes, 5]
    return (digits - 1).flatten(-2)[..., :length].to(torch.int8)


def product_by_additions(x: Tensor, codes: Tensor) -> Tensor:
    """x [..., K] times codes [N, K] of -1, 0, 1, by sums and differences alone. [..., N]

    y_n = (sum of x where c_n = 1) - (sum of x where c_n = -1): what has the code 0 is not read, so
    not even an infinite x counts there.  A readable loop over the N outputs, no fast one.
    """
    expect_integers(codes=codes)
    expect_dims("[N, K]", codes=codes)
    if x.ndim == 0 or x.shape[-1] != codes.shape[1]:
        raise ValueError(f"x {tuple(x.shape)} must end in K of codes {tuple(codes.shape)}")
    rows = [x[..., c == 1].sum(-1) - x[..., c == -1].sum(-1) for c in codes]
    return torch.stack(rows, dim=-1)


def ternary_bits(
    model: nn.Module, granularity: Granularity = "tensor", skip: tuple[str, ...] = SKIP
) -> int:
    """Total bits of a model whose linears are packed, five trits in a byte; the rest in FLOAT_BITS.

    A row begins a new byte; a scale has FLOAT_BITS.
    """
    total = {id(p): p.numel() * FLOAT_BITS for p in model.parameters()}
    for linear in quantizable_linears(model, skip).values():
        n, k = linear.weight.shape
        scales = group_count((n, k), granularity)
        total[id(linear.weight)] = 8 * n * math.ceil(k / TRITS) + scales * FLOAT_BITS
    return sum(total.values())
