"""Attention by definition in float64, and how far from it a kernel may be."""

import math

import torch

U = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}  # unit roundoff


def visible(T, S, causal):
    """[T, S], by definition: query i sees key j."""
    shift = {None: S, "top_left": 0, "bottom_right": S - T}[causal]
    return torch.tensor([[j <= i + shift for j in range(S)] for i in range(T)])


def exact(q, k, v, causal, scale=None):
    """(o, lse) in float64; o = 0 and lse = -inf for a query that sees nothing."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    s = s.masked_fill(~visible(q.shape[2], k.shape[2], causal), -math.inf)
    return torch.softmax(s, -1).nan_to_num(0.0) @ v, torch.logsumexp(s, -1)


def inputs(T, S, H=2, Hkv=2, d=16, dtype=torch.float32, B=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, T, d), (B, Hkv, S, d), (B, Hkv, S, d)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)


def error_bound(q, k, v):
    """Largest possible |o - exact o|, from the roundings on the way.

    16 bits: the weights p are rounded (u sum p |v| / sum p <= u max|v|) and o is (u max|v|).
    float32 sums of d products of a score and of S terms, and exp2: each at most its length (and a
    few for exp2) times 2^-24; an error e of a score changes p by a factor 1 + e, and o by 2 e.
    """
    largest = v.abs().max().item()
    products = q.abs().amax(2).double().sum(-1).max() * k.abs().max()  # >= sum_d |q_d k_d|
    score = (q.shape[3] + 4) * 2.0**-24 * products / math.sqrt(q.shape[3])
    sums = 2 * (k.shape[2] + 8) * 2.0**-24
    rounded = 2 * U[q.dtype] if q.dtype != torch.float32 else U[q.dtype]
    return float((rounded + 2 * score + sums) * largest)
