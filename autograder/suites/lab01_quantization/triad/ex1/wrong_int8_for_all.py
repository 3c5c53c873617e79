"""int8 for both kinds: codes 128..255 come out negative."""

import torch

FAILS = ["test_codes_by_hand", "test_clipping"]


def quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    return (torch.round(x.float() / scale) + zero).clamp(qmin, qmax).long().to(torch.int8)
