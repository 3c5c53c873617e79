"""What the help and the hints say, taken as they stand."""

import math

import torch


def sink_softmax(scores, bias):
    B, H, T, _ = scores.shape
    row = torch.cat([scores, bias[None, :, None, None].expand(B, H, T, 1)], dim=-1)
    return row.softmax(-1)[..., :-1]


def sink_attention(q, k, v, mask, bias):
    H, d = q.shape[1], q.shape[3]
    k, v = k.repeat_interleave(H // k.shape[1], 1), v.repeat_interleave(H // v.shape[1], 1)
    scores = (q @ k.mT / d**0.5).masked_fill(~mask, -math.inf)
    return sink_softmax(scores, bias) @ v
