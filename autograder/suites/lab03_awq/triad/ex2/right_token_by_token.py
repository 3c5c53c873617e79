"""A running mean over the tokens, then one product."""

import torch


def corrected_bias(x, w, w_hat, bias):
    mean = torch.zeros(w.shape[1])
    for i, token in enumerate(x.reshape(-1, x.shape[-1]).float(), start=1):
        mean = mean + (token - mean) / i
    correction = (w.float() - w_hat.float()).mv(mean)
    return correction if bias is None else correction + bias
