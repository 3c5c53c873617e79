"""Decode attention by definition in float64."""

import math

import attention_reference
import torch
from rounding import attention_bounds


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
    return attention_reference.with_torch(q[:, :, None], k, v).squeeze(2)


def bounds(q, k, v, scale=None):
    """Largest errors of (o [B, H, d], lse [B, H]): those of attention with one query."""
    seen = torch.ones(1, k.shape[2], dtype=torch.bool)
    return tuple(t.squeeze(2) for t in attention_bounds(q[:, :, None], k, v, seen, scale))
