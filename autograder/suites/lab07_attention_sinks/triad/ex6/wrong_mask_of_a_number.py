"""A masked score is -1e4, which other scores may reach."""

import math

import torch

FAILS = ["test_large_scores_and_empty_rows", "test_empty_rows_and_no_bias"]


def sink_softmax(scores, bias):
    column = bias.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat([scores, column], -1).softmax(-1)[..., :-1]


def sink_attention(q, k, v, mask, bias):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return sink_softmax(scores.masked_fill(~mask, -1e4), bias) @ v
