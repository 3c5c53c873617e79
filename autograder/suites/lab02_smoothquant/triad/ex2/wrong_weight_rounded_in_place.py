"""Rounds the weight that came in, as the authors' fake quantization does."""

import torch

FAILS = ["test_outputs_are_integer_sums", "test_every_kind_against_integers"]


def w8a8_linear(x, w, bias, activations, x_max=None):
    with torch.no_grad():
        step = w.abs().amax().clamp(min=1e-30) / 127
        w.copy_(torch.round(w / step).clamp(-127, 127) * step)
    if activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static" or x_max is None:
        raise ValueError(f"activations={activations!r}")
    x_codes, x_scale = int8_codes(x, x_max)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax())  # noqa: F821
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale)
    return y if bias is None else y + bias.float()
