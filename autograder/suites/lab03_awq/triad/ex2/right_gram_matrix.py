"""The error by the Gram matrix of the inputs: mean of d G d^T."""

import torch


def scaled_round_trip(w, s, bits, group_size):
    valid = s.dim() == 1 and len(s) == w.shape[1]
    if not valid or bool((~torch.isfinite(s) | (s <= 0)).any()):
        raise ValueError("scales must be positive, finite, one per input")
    parts = quantize_groups(torch.einsum("nk,k->nk", w.float(), s), bits, group_size)  # noqa: F821
    return torch.div(dequantize_groups(*parts), s)  # noqa: F821 -- exercise 1


def output_error(x, w, w_hat):
    x = x.double().reshape(-1, x.shape[-1])
    d = w_hat.double() - w.double()
    gram = x.T @ x / len(x)
    return ((d @ gram) * d).sum().item() / len(d)
