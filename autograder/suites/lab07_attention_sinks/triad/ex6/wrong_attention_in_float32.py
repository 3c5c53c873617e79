"""sink_attention computes in float32, whatever comes."""

import math

import torch

FAILS = ["test_attention_at_its_limits"]


def sink_softmax(scores, bias):
    b = bias[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]


def sink_attention(q, k, v, mask, bias):
    kind, q, k, v, bias = q.dtype, q.float(), k.float(), v.float(), bias.float()
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (sink_softmax(scores.masked_fill(~mask, -math.inf), bias) @ v).to(kind)
