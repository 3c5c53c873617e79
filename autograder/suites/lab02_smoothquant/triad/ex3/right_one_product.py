"""One float product: outlier columns as they are, the others rounded."""

import torch


def outlier_columns(x, threshold):
    mask = ~(x.abs() < threshold)
    while mask.ndim > 1:
        mask = mask.any(0)
    return mask


def _grid(v):
    top = v.abs().amax(-1, keepdim=True)
    step = torch.where(top > 0, top, 127.0) / 127
    return torch.round(v / step) * step


def llm_int8_linear(x, w, bias, threshold):
    x, w = x.float(), w.float()
    keep = outlier_columns(x, threshold)
    x_mixed = torch.where(keep, x, _grid(torch.where(keep, 0.0, x)))
    w_mixed = torch.where(keep, w, _grid(w))
    return torch.nn.functional.linear(x_mixed, w_mixed, None if bias is None else bias.float())
