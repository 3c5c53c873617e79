"""All losses in one tensor; the power by exp; passes from a range of ends."""

import math

import torch


def perplexity(losses, base=math.e):
    every = torch.cat([torch.zeros(0, dtype=torch.float64), *[x.to(torch.float64) for x in losses]])
    if not base > 1 or not every.numel():
        raise ValueError(base)
    return torch.exp(every.mean() * math.log(base)).item()


def bits_per_byte(losses, text_bytes, base=math.e):
    if not base > 1 or not text_bytes >= 1:
        raise ValueError((base, text_bytes))
    nats = math.fsum(float(x.double().sum()) for x in losses) * math.log(base)
    return nats / math.log(2) / text_bytes


def strided_windows(tokens, window, stride):
    if tokens < 0 or stride not in range(1, window):
        raise ValueError((tokens, window, stride))
    if tokens < 2:
        return []
    ends = [*range(window, tokens, stride), tokens]
    firsts = [1, *ends]
    return [(e - min(e, window), e, f) for e, f in zip(ends, firsts, strict=False)]
