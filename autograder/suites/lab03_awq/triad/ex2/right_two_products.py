"""Two outputs and their difference, tokens as one dimension, in float64; multiplies by 1 / s."""

import torch


def scaled_round_trip(w, s, bits, group_size):
    positive = (s > 0) & (s < float("inf"))
    if tuple(s.shape) != (w.shape[1],) or not bool(positive.all()):
        raise ValueError(s)
    codes = quantize_groups(torch.einsum("nk,k->nk", w.float(), s), bits, group_size)  # noqa: F821
    return dequantize_groups(*codes) * (1 / s)  # noqa: F821 -- exercise 1


def output_error(x, w, w_hat):
    x = x.flatten(0, -2).double()
    off = x @ w_hat.double().T - x @ w.double().T
    return float((off * off).sum() / off.numel())
