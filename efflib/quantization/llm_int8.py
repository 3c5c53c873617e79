"""LLM.int8(): multiply the few outlier channels in floating point and all others as integers.

    O = { j : |X_tj| >= 6 for some token t }                     the outlier columns
    X W^T ~ X_O W_O^T + s_x s_w^T * (Q_x Q_w^T)                  Q over the columns outside O

Vector-wise scales: s_x = absmax / 127 of every token (row of X), s_w of every output channel (row
of W); both stand in front of the sum over channels, so the bracket is an integer product. Without
the split one channel of 60 sets the scale of its whole token, and values below 0.24 become 0.
About 0.1 % of the channels are outliers in large models, so nearly all of the work stays int8.
Source: Dettmers et al. 2022 (arXiv:2208.07339), sections 3.1 and 3.2; threshold: section 3.2.

Where implementations differ
- W_O. The paper keeps the original 16-bit columns. bitsandbytes, and this module, store only int8
  weights and multiply X_O by dequantized ones: half the memory, and an error of half a step.
- The scale of a token. bitsandbytes (and this module) leave out only the outlier *entries* when
  they take the absmax, and then whole columns; leaving out the columns from the start, as the
  paper's formula does, gives a finer grid where an outlier column has ordinary entries as well.
- Empty rows. 127 / 0 is infinite in bitsandbytes' default kernel; here absmax is at least EPS.
- The constant. bitsandbytes' CPU kernel multiplies by 6.200124e-05 where 1 / 127^2 is
  6.2000124e-05, so its integer part is too large by 1.8e-5 of itself.
- Training. `Linear8bitLt` splits only in eval mode; in training mode on CPU it rounds weights only.
"""

import copy

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite
from efflib.quantization.linear import EPS
from efflib.quantization.size import SKIP, quantizable_linears
from efflib.quantization.w8a8 import int8_product

THRESHOLD = 6.0
QMAX = 127


def _expect_threshold(threshold: float) -> None:
    if not threshold > 0:
        raise ValueError(f"threshold must be positive, got {threshold}")


def outlier_columns(x: Tensor, threshold: float = THRESHOLD) -> Tensor:
    """Which channels hold |x| >= threshold in any token. x [..., K] -> [K] bool.

    Raises ValueError for a threshold that is not positive (0 would make every channel an outlier).
    """
    _expect_threshold(threshold)
    expect_dims("[..., K]", x=x)
    return (x.abs() >= threshold).reshape(-1, x.shape[-1]).any(0)


def vectorwise_codes(x: Tensor, absmax: Tensor) -> Tensor:
    """round(127 x / absmax), int8, of rows x [M, K] with absmax [M].

    127 / absmax first, then times x: in this order the codes are those of bitsandbytes.
    """
    absmax = absmax.float().clamp(min=EPS).unsqueeze(-1)  # [M, 1]
    return torch.round(x.float() * (QMAX / absmax)).clamp(-QMAX, QMAX).to(torch.int8)


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """(codes [N, K] int8, absmax [N] float32) of w [N, K]; w ~ codes * absmax / 127."""
    expect_dims("[N, K]", w=w)
    expect_finite(w=w)
    absmax = w.abs().amax(1).float()  # [N]
    return vectorwise_codes(w, absmax), absmax


def llm_int8_linear(
    x: Tensor,
    codes: Tensor,
    absmax: Tensor,
    bias: Tensor | None = None,
    threshold: float = THRESHOLD,
) -> Tensor:
    """x W^T + bias, outlier columns of x in floating point and the rest as int8.

    x [..., K] of any float dtype; codes [N, K] int8 and absmax [N] of `quantize_rows`; bias [N].
    Returns [..., N] in the dtype of x. Raises ValueError as `outlier_columns` and `int8_product`.
    """
    expect_dims("[..., K]", x=x)
    rows = x.reshape(-1, x.shape[-1]).float()  # [M, K]
    outlier = outlier_columns(rows, threshold)  # [K] bool
    x_absmax = rows.masked_fill(rows.abs() >= threshold, 0).abs().amax(1)  # [M]
    x_codes = vectorwise_codes(rows.masked_fill(outlier, 0), x_absmax)  # [M, K]
    scales = (x_absmax / QMAX)[:, None] * (absmax / QMAX)  # [M, N]
    y = int8_product(x_codes, codes) * scales
    w_outlier = codes[:, outlier].float() * (absmax / QMAX)[:, None]  # [N, |O|]
    y = y + rows[:, outlier] @ w_outlier.T
    if bias is not None:
        y = y + bias.float()
    return y.view(*x.shape[:-1], -1).to(x.dtype)


class LLMInt8Linear(nn.Module):
    """A linear with int8 weights (one byte an element) that computes as `llm_int8_linear`."""

    def __init__(self, linear: nn.Linear, threshold: float = THRESHOLD) -> None:
        super().__init__()
        _expect_threshold(threshold)
        self.threshold = threshold
        codes, absmax = quantize_rows(linear.weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("absmax", absmax)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        return llm_int8_linear(x, self.codes, self.absmax, self.bias, self.threshold)


def llm_int8(
    model: nn.Module, threshold: float = THRESHOLD, skip: tuple[str, ...] = SKIP
) -> nn.Module:
    """A copy of the model with every linear but those of `skip` as an `LLMInt8Linear`.

    No calibration: outlier columns are found anew in every input.
    """
    model = copy.deepcopy(model)
    for name, linear in quantizable_linears(model, skip).items():
        model.set_submodule(name, LLMInt8Linear(linear, threshold))
    return model
