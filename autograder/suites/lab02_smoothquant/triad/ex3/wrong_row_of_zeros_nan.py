"""Codes of W of its own: a row of zeros is 0 / 0."""

import torch

FAILS = ["test_shapes_of_the_split"]


def codes_of_rows(w):
    """Codes and scales of the rows of w, by a division of its own."""
    scale = w.float().abs().amax(dim=1, keepdim=True) / 127
    return torch.round(w.float() / scale), scale


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821 -- the canonical one
    w_codes, w_scale = codes_of_rows(w)
    rest = x.masked_fill(outlier, 0)
    x_codes, x_scale = int8_codes(rest, rest.abs().amax(dim=-1, keepdim=True))  # noqa: F821
    y = (x_codes.float() @ w_codes.T) * (x_scale * w_scale.T)
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
