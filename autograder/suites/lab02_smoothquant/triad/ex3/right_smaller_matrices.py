"""Cuts both matrices into two parts by index."""

import torch


def outlier_columns(x, threshold):
    return x.reshape(-1, x.shape[-1]).abs().max(dim=0).values >= threshold


def llm_int8_linear(x, w, bias, threshold):
    rows = x.reshape(-1, x.shape[-1]).float()
    w = w.float()
    where = outlier_columns(x, threshold)
    inside, outside = where.nonzero()[:, 0], (~where).nonzero()[:, 0]
    s_w = w.abs().max(dim=1).values / 127
    s_w = torch.where(s_w == 0, 1.0, s_w)
    y = rows[:, inside] @ w[:, inside].T
    if len(outside):
        rest = rows[:, outside]
        s_x = rest.abs().max(dim=1).values / 127
        s_x = torch.where(s_x == 0, 1.0, s_x)
        q_x, q_w = torch.round(rest / s_x[:, None]), torch.round(w[:, outside] / s_w[:, None])
        y = y + (q_x.double() @ q_w.double().T).float() * s_x[:, None] * s_w[None]
    y = y if bias is None else y + bias.float()
    return y.reshape(*x.shape[:-1], -1)
