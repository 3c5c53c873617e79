"""One direction is the other one on the transposed states; parameters spread over values."""

import torch


def _per_token(x, bits, group_size):
    b, h, s, d = x.shape
    low, scale = torch.empty(2, b, h, s, d // group_size, dtype=torch.float16)
    codes = torch.zeros(b, h, s, d, dtype=torch.uint8)
    for g in range(d // group_size):
        part = x[..., g * group_size : (g + 1) * group_size].to(torch.float32)
        least, most = part.min(-1).values, part.max(-1).values
        low[..., g] = least
        scale[..., g] = (most - least) / (2**bits - 1)
        step = scale[..., g, None].float()
        q = torch.round((part - low[..., g, None].float()) / step)
        q = torch.where(step > 0, q, torch.zeros_like(q)).clamp(0, 2**bits - 1)
        codes[..., g * group_size : (g + 1) * group_size] = q.to(torch.uint8)
    return codes, scale, low


def quantize(x, bits, group_size, direction):
    if direction == "channel":
        if group_size < 1 or x.shape[2] % group_size:
            raise ValueError("group_size")
        return tuple(t.mT.contiguous() for t in _per_token(x.mT, bits, group_size))
    if direction != "token" or group_size < 1 or x.shape[3] % group_size:
        raise ValueError("direction or group_size")
    return _per_token(x, bits, group_size)


def dequantize(codes, scale, low, direction):
    dim = 2 if direction == "channel" else 3
    g = codes.shape[dim] // scale.shape[dim]
    step, least = (t.float().repeat_interleave(g, dim=dim) for t in (scale, low))
    return step * codes.float() + least
