"""A bias of -inf is seen only where all heads have it, and replaced by 0 else."""

import math

import torch

FAILS = ["test_empty_rows_and_no_bias"]


def sink_softmax(scores, bias):
    if not bias.isinf().all():
        bias = bias.nan_to_num(neginf=0.0)
    b = bias[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]


def sink_attention(q, k, v, mask, bias):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return sink_softmax(scores.masked_fill(~mask, -math.inf), bias) @ v
