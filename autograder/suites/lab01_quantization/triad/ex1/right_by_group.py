"""One group at a time in Python floats, written from the table of codes."""

import torch


def affine_parameters(lo, hi, bits, symmetric):
    if bits not in (range(2, 9) if symmetric else range(1, 9)):
        raise ValueError(f"bits={bits}")
    scales, zeros = [], []
    for low, high in zip(lo.flatten().tolist(), hi.flatten().tolist(), strict=True):
        if symmetric:
            scale = max(-low, high, -high, low) / (2 ** (bits - 1) - 1)
            zero = 0
        else:
            low, high = min(low, 0.0), max(high, 0.0)
            scale = (high - low) / (2**bits - 1)
            zero = round(-low / scale) if scale else 0
        scales.append(scale or 1e-3)
        zeros.append(zero)
    scale = torch.tensor(scales, dtype=torch.float32).reshape(lo.shape)
    return scale, torch.tensor(zeros, dtype=torch.int32).reshape(lo.shape)
