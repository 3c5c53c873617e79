"""view() of keys that stand in memory token by token."""

import math

import torch

FAILS = ["test_attention_at_its_limits"]


def sink_softmax(scores, bias):
    b = bias[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]


def sink_attention(q, k, v, mask, bias):
    n = q.shape[1] // k.shape[1]
    k, v = (
        x.view(-1, *x.shape[2:]).repeat_interleave(n, 0).view(len(q), -1, *x.shape[2:])
        for x in (k, v)
    )
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return sink_softmax(scores.masked_fill(~mask, -math.inf), bias) @ v
