"""The help of the card, word for word."""

import torch


def int8_codes(x, x_max):
    s = x_max.float() / 127
    s[s == 0] = 1
    return torch.clamp(torch.round(x.float() / s), -127, 127).to(torch.int8), s


def w8a8_linear(x, w, bias, activations, x_max=None):
    if activations not in ("token", "tensor", "static"):
        raise ValueError(activations)
    if activations == "static" and x_max is None:
        raise ValueError("static needs x_max")
    if activations == "token":
        x_max = x.abs().amax(-1, keepdim=True)
    if activations == "tensor":
        x_max = x.abs().max()
    q_x, s_x = int8_codes(x, x_max)
    q_w, s_w = int8_codes(w, w.abs().max())
    y = q_x.float() @ q_w.float().T * (s_x * s_w)
    return y if bias is None else y + bias
