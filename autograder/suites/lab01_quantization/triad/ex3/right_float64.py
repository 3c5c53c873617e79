"""Its own formulas, in float64, group by group, written into a new tensor."""

import torch


def quantize_weight(w, bits, granularity, symmetric):
    if granularity not in ("tensor", "channel"):
        if not isinstance(granularity, int) or granularity <= 0:
            raise ValueError("no such granularity")
    top = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    x = w.double().reshape(1, -1) if granularity == "tensor" else w.double()
    size = granularity if isinstance(granularity, int) else x.shape[1]
    out = torch.empty_like(x)
    for start in range(0, x.shape[1], size):
        part = x[:, start : start + size]
        low, high = part.amin(1).clamp(max=0)[:, None], part.amax(1).clamp(min=0)[:, None]
        scale = torch.maximum(-low, high) / top if symmetric else (high - low) / top
        scale = torch.where(scale == 0, 1.0, scale)
        shift = torch.zeros_like(low) if symmetric else (-low / scale).round()
        steps = (part / scale).round().clamp((-top if symmetric else 0) - shift, top - shift)
        out[:, start : start + size] = steps * scale
    return out.reshape(w.shape).float()
