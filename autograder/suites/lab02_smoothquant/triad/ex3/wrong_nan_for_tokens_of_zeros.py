"""The scale of a token of which nothing is left is 0: NaN."""

import torch

FAILS = ["test_outliers_are_exact", "test_shapes_of_the_split"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax(dim=1, keepdim=True))  # noqa: F821
    rest = x.masked_fill(outlier, 0)
    x_scale = rest.float().abs().amax(dim=-1, keepdim=True) / 127
    x_codes = torch.round(rest.float() / x_scale).clamp(-127, 127)
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale.T)
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
