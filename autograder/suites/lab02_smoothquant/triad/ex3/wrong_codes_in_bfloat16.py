"""Tokens in bfloat16 are divided by their steps in bfloat16."""

import torch

FAILS = ["test_shapes_of_the_split"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    kind = x.dtype
    x, w = x.float(), w.float()
    rest = x.masked_fill(outlier, 0)
    x_max, w_max = rest.abs().amax(-1, keepdim=True), w.abs().amax(1, keepdim=True)
    s_x = (torch.where(x_max == 0, 127.0, x_max) / 127).to(kind)
    q_x, s_x = torch.round(rest.to(kind) / s_x), s_x.float()
    q_w, s_w = int8_codes(w, w_max)  # noqa: F821
    y = (q_x.float() @ q_w.float().T) * (s_x * s_w.T) + x[..., outlier] @ w[:, outlier].T
    return y if bias is None else y + bias.float()
