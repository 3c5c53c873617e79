"""SmoothQuant: move the difficulty of quantizing from activations into weights.

A few channels of the activations X are much larger than the rest, so one scale for all wastes the
codes of the others. Weights are even. For any s > 0 per channel the product stays the same:

    X W^T = (X diag(s)^-1) (W diag(s))^T           s_j = max|X_j|^alpha / max|W_:j|^(1 - alpha)

alpha is the migration strength: 0 evens out the weights, 1 the activations. The division of X is
folded into the norm before it (gain and bias), so it costs nothing. Then weights and activations
are rounded to 8 bits (W8A8).
Source: Xiao et al. 2023 (arXiv:2211.10438), sections 4.1 and 4.2; O1 to O3: table 2.

Where implementations differ
- Floors. Here, as in the authors' code, max|X|, max|W| and s are at least 1e-5; torchao adds
  2^-23 inside the powers instead.
- Only linears that follow a norm are smoothed (q, k, v together; gate and up together): elsewhere
  there is no norm to fold into.
- alpha. 0.5 suits OPT; the authors use 0.6 to 0.9 for Llama, Mistral and Falcon.
- The authors' fake quantization changes its input in place, and their W8A8 linear the float
  weight. Here nothing that is passed in changes.
"""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite, expect_integers, expect_keys
from efflib.models.gains import move_factor
from efflib.models.groups import NormGroup, norm_groups
from efflib.quantization.linear import affine_parameters, dequantize, quantize
from efflib.quantization.size import SKIP, quantizable_linears

FLOOR = 1e-5  # of channel maxima and of smoothing scales, as in the authors' code
BITS = 8
Activations = Literal["token", "tensor", "static"]  # O1, O2, O3


def channel_maxima(model: nn.Module, batches: Tensor) -> dict[str, Tensor]:
    """max|X_j| of the input of every linear but lm_head: {name: [K]}.

    batches: token ids [B, T], run one sample at a time.
    """
    expect_dims("[B, T]", batches=batches)
    expect_integers(batches=batches)
    maxima: dict[str, Tensor] = {}
    hooks = []
    for name, linear in quantizable_linears(model, skip=SKIP).items():

        def remember(module: nn.Module, args: tuple, name: str = name) -> None:
            now = args[0].detach().abs().flatten(0, -2).amax(0)  # [K]
            maxima[name] = torch.maximum(maxima[name], now) if name in maxima else now

        hooks.append(linear.register_forward_pre_hook(remember))
    try:
        with torch.no_grad():
            for ids in batches.split(1):
                model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return maxima


def smoothing_scales(x_max: Tensor, weights: list[Tensor], alpha: float) -> Tensor:
    """s_j = max|X_j|^alpha / max|W_:j|^(1 - alpha), over all linears that share the input.

    x_max [K]; weights [N_i, K] of the linears; 0 <= alpha <= 1. Returns s [K] > 0.
    Raises ValueError for another alpha, weights that do not read K channels, or values that are
    not finite.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, got {alpha}")
    if not weights:
        raise ValueError("no weights: need at least one [N, K]")
    expect_dims("[K]", x_max=x_max)
    expect_finite(x_max=x_max)
    if (x_max < 0).any():
        raise ValueError("x_max must be maxima of |X|, got one below 0")
    for w in weights:
        if w.shape[1:] != x_max.shape:
            raise ValueError(f"weight {tuple(w.shape)} does not read {x_max.shape[0]} channels")
        expect_finite(w=w)
    w_max = torch.cat([w.detach() for w in weights]).abs().amax(0).clamp(min=FLOOR)  # [K]
    return (x_max.clamp(min=FLOOR) ** alpha / w_max ** (1 - alpha)).clamp(min=FLOOR)


def smooth(model: nn.Module, maxima: dict[str, Tensor], alpha: float) -> nn.Module:
    """A copy of the model with the same function and smoother activations.

    maxima: of `channel_maxima`. Every norm's gain and bias are divided by s, and the weights of
    all linears that read it multiplied. Raises ValueError as `smoothing_scales` and `norm_groups`.
    """
    model = copy.deepcopy(model)
    for group in norm_groups(model):
        x_max = _maximum(group, maxima)
        move_factor(
            group, smoothing_scales(x_max, [m.weight for m in group.linears.values()], alpha)
        )
    return model


def _maximum(group: NormGroup, maxima: dict[str, Tensor]) -> Tensor:
    """max|X_j| of what the norm puts out. [K]

    Its readers have one input, so one maximum is that of all; experts see different tokens of it,
    and one that saw none has no maximum.
    """
    if not group.routers:
        expect_keys(maxima, maxima=group.linears)
        return maxima[next(iter(group.linears))]
    seen = [maxima[name] for name in group.linears if name in maxima]
    if not seen:
        raise ValueError(f"maxima: no reader of {group.name} has one")
    return torch.stack(seen).amax(0)


def fake_quantize_rows(x: Tensor, x_max: Tensor) -> Tensor:
    """x through a symmetric 8-bit grid that ends at +-x_max (broadcastable to x)."""
    scale, zero = affine_parameters(-x_max, x_max, BITS, symmetric=True)
    return dequantize(quantize(x, scale, zero, BITS, True), scale, zero)


class W8A8Linear(nn.Module):
    """A linear with weights and inputs rounded to 8 bits, computed in floating point.

    activations: "token" has a scale for every token (O1), "tensor" one for the whole input (O2),
    "static" one from calibration (O3, needs x_max). The weight has one scale.
    """

    def __init__(
        self, linear: nn.Linear, activations: Activations, x_max: Tensor | None = None
    ) -> None:
        super().__init__()
        if activations == "static" and x_max is None:
            raise ValueError("static activations need x_max from calibration")
        if activations not in ("token", "tensor", "static"):
            raise ValueError(f'activations is "token", "tensor" or "static", got {activations!r}')
        w = linear.weight.detach()
        self.activations = activations
        self.register_buffer("weight", fake_quantize_rows(w, w.abs().amax()).to(w.dtype))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self.register_buffer("x_max", None if x_max is None else x_max.amax())

    def largest(self, x: Tensor) -> Tensor:
        """max|x| of what shares a scale: [..., 1] for "token", else []."""
        if self.activations == "token":
            return x.abs().amax(-1, keepdim=True)
        return x.abs().amax() if self.activations == "tensor" else self.x_max

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        x_hat = fake_quantize_rows(x, self.largest(x)).to(x.dtype)
        return nn.functional.linear(x_hat, self.weight, self.bias)


def w8a8(
    model: nn.Module,
    activations: Activations,
    maxima: dict[str, Tensor] | None = None,
    kind: type[W8A8Linear] = W8A8Linear,
) -> nn.Module:
    """A copy of the model with every linear but lm_head as a `W8A8Linear`.

    maxima: of `channel_maxima` on the model that is given, for "static" activations.
    kind: `w8a8.Int8Linear` computes with integers.
    """
    model = copy.deepcopy(model)
    linears = quantizable_linears(model, skip=SKIP)
    if maxima is not None:
        expect_keys(maxima, maxima=linears)
    for name, linear in linears.items():
        x_max = None if maxima is None else maxima[name]
        model.set_submodule(name, kind(linear, activations, x_max))
    return model
