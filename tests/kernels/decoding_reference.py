"""Decode attention by definition in float64, and how far from it a kernel may be."""

import math

import torch
import torch.nn.functional as F

U = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}  # unit roundoff


def inputs(S, H=2, Hkv=2, d=16, dtype=torch.float32, B=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, d), (B, Hkv, S, d), (B, Hkv, S, d)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)


def exact(q, k, v, scale=None):
    """(o [B, H, d], lse [B, H]) in float64."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    s = (q[:, :, None] @ k.mT).squeeze(2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    return (torch.softmax(s, -1)[:, :, None] @ v).squeeze(2), torch.logsumexp(s, -1)


def with_torch(q, k, v):
    """The same by PyTorch's own attention, in the dtype of the inputs."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    return F.scaled_dot_product_attention(q[:, :, None], k, v).squeeze(2)


def error_bound(q, k, v):
    """Largest possible |o - exact o|, from the roundings on the way.

    16 bits: the weights p are rounded (u sum p |v| / sum p <= u max|v|) and o is (u max|v|).
    float32 sums of d products of a score and of S terms, exp2 and the weights of parts: each at
    most its length (and a few for exponentials) times 2^-24; an error e of a score changes p by a
    factor 1 + e, and o by 2 e.
    """
    largest = v.abs().max().item()
    products = q.abs().amax((0, 1)).double().sum() * k.abs().max()  # >= sum_d |q_d k_d|
    score = (q.shape[2] + 4) * 2.0**-24 * products / math.sqrt(q.shape[2])
    sums = 2 * (k.shape[2] + 16) * 2.0**-24
    rounded = 2 * U[q.dtype] if q.dtype != torch.float32 else U[q.dtype]
    return float((rounded + 2 * score + sums) * largest)


def rms(x, o):
    return (x.double() - o).pow(2).mean().sqrt()
