"""The product is one of integers, added up in int32 by einsum on int64."""

import torch


def int8_codes(x, x_max):
    scale = x_max.double() / 127
    scale = torch.where(scale == 0, 1.0, scale)
    codes = torch.round(x.double() / scale)
    codes = torch.maximum(torch.minimum(codes, torch.tensor(127.0)), torch.tensor(-127.0))
    return codes.to(torch.int8), scale.float()


def w8a8_linear(x, w, bias, activations, x_max=None):
    match activations:
        case "token":
            top = x.abs().max(dim=-1, keepdim=True).values
        case "tensor":
            top = x.abs().max()
        case "static" if x_max is not None:
            top = x_max
        case _:
            raise ValueError("activations")
    (q_x, s_x), (q_w, s_w) = int8_codes(x, top), int8_codes(w, w.abs().max())
    y = torch.einsum("...k,nk->...n", q_x.long(), q_w.long()).float() * s_x * s_w
    return y + bias.float() if bias is not None else y
