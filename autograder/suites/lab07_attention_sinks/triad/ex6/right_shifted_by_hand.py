"""Exponentials by hand, shifted by the largest of all."""

import math

import torch


def sink_softmax(scores, bias):
    b = bias.view(1, -1, 1, 1).to(scores.dtype)
    top = torch.maximum(scores.amax(-1, keepdim=True), b).detach()
    e = torch.exp(scores - top)
    return e / (torch.exp(b - top) + e.sum(-1, keepdim=True))


def sink_attention(q, k, v, mask, bias):
    group = q.shape[1] // k.shape[1]
    q = q.unflatten(1, (-1, group))
    scores = torch.einsum("bgntd,bgsd->bgnts", q, k).flatten(1, 2) * q.shape[-1] ** -0.5
    scores = torch.where(mask, scores, torch.tensor(-math.inf))
    p = sink_softmax(scores, bias).unflatten(1, (-1, group))
    return torch.einsum("bgnts,bgsd->bgntd", p, v).flatten(1, 2)
