"""One logsumexp over scores and bias."""

import math

import torch


def sink_softmax(scores, bias):
    b = bias.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    total = torch.cat([scores, b], dim=-1).logsumexp(-1, keepdim=True)
    return (scores - total).exp()


def sink_attention(q, k, v, mask, bias):
    B, H, _, d = q.shape
    heads = torch.arange(H) // (H // k.shape[1])
    k, v = k[:, heads], v[:, heads]
    hidden = torch.zeros(mask.shape).masked_fill(mask.logical_not(), -math.inf)
    return sink_softmax(q @ k.transpose(2, 3) / math.sqrt(d) + hidden, bias).matmul(v)
