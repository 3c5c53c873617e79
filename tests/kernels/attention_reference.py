"""Attention by definition in float64."""

import math

import torch
import torch.nn.functional as F
from rounding import attention_bounds
from torch.nn.attention import SDPBackend, sdpa_kernel


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


def with_torch(q, k, v, seen=None):
    """The same by PyTorch in the dtype of the inputs, without the fused kernels of some CPUs."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def inputs(T, S, H=2, Hkv=2, d=16, dtype=torch.float32, B=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, T, d), (B, Hkv, S, d), (B, Hkv, S, d)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)


def bounds(q, k, v, causal, scale=None):
    """Largest errors of (o, lse)."""
    return attention_bounds(q, k, v, visible(q.shape[2], k.shape[2], causal), scale)
