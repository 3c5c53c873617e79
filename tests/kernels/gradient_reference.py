"""Gradients of attention by definition in float64."""

import math

import torch
from attention_reference import with_torch


def visible(T, S, masks):
    """[T, S], by definition: query i sees key j."""
    shift = {None: 0, "top_left": 0, "bottom_right": S - T}[masks.causal]
    window = T + S if masks.window is None else masks.window
    return torch.tensor(
        [
            [
                masks.causal is None
                or (j <= i + shift and (j > i + shift - window or j < masks.sinks))
                for j in range(S)
            ]
            for i in range(T)
        ]
    )


def inputs(T, S, H=2, Hkv=2, d=16, dtype=torch.float32, B=1, seed=0):
    """q, k, v and the gradient of o."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, T, d), (B, Hkv, S, d), (B, Hkv, S, d), (B, H, T, d)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)


def gradients(q, k, v, do, seen, dlse=None):
    """(o, lse, dq, dk, dv) in float64 by autograd through the definition.

    A query that sees nothing: o = 0, lse = -inf, and it gives no gradients.
    """
    some, group = seen.any(1), q.shape[1] // k.shape[1]
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    wide = [t.repeat_interleave(group, dim=1) for t in leaves[1:]]
    s = leaves[0][:, :, some] @ wide[0].mT / math.sqrt(q.shape[-1])
    s = s.masked_fill(~seen[some], -math.inf)
    part, sums = torch.softmax(s, -1) @ wide[1], torch.logsumexp(s, -1)
    loss = (part * do[:, :, some].double()).sum()
    if dlse is not None:
        loss = loss + (sums * dlse[:, :, some].double()).sum()
    o = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:3], -math.inf, dtype=torch.float64)
    o[:, :, some], lse[:, :, some] = part.detach(), sums.detach()
    return o, lse, *torch.autograd.grad(loss, leaves)


def torch_gradients(q, k, v, do, seen):
    """(o, dq, dk, dv) of torch in q's dtype, for the queries that see a key."""
    some = seen.any(1)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    part = with_torch(leaves[0][:, :, some], *leaves[1:], seen[some])
    o = torch.zeros_like(q)
    o[:, :, some] = part.detach()
    return o, *torch.autograd.grad(part, leaves, do[:, :, some])
