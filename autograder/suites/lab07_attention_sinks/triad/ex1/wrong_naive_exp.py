"""e^s as it stands: no number for scores above 88."""

import math

import torch

from efflib.models.rotary import rotate

FAILS = ["test_maps_of_any_dtype_and_size"]


def attention_map(x, w_q, w_k, heads, theta):
    T, d = x.shape[0], w_q.shape[0] // heads
    x, w_q, w_k = x.float(), w_q.float(), w_k.float()
    q = (x @ w_q.T).view(1, T, heads, d).transpose(1, 2)
    k = (x @ w_k.T).view(1, T, -1, d).transpose(1, 2)
    q, k = (rotate(y, torch.arange(T), theta) for y in (q, k))
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    scores = (q @ k.transpose(-1, -2))[0] / math.sqrt(d)
    seen = torch.ones(T, T).tril() > 0
    e = scores.masked_fill(~seen, -math.inf).exp()
    return e / e.sum(-1, keepdim=True)
