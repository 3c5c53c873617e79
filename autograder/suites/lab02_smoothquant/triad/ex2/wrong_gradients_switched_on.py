"""Gradients are switched off and on again, also where they were off."""

import torch

FAILS = ["test_every_kind_against_integers"]


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations == "token":
        x_max = x.abs().amax(-1, keepdim=True)
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static" or x_max is None:
        raise ValueError(activations)
    torch.set_grad_enabled(False)
    q_x, s_x = int8_codes(x, x_max)  # noqa: F821
    q_w, s_w = int8_codes(w, w.abs().amax())  # noqa: F821
    y = (q_x.float() @ q_w.float().T) * (s_x * s_w)
    torch.set_grad_enabled(True)
    return y if bias is None else y + bias.float()
