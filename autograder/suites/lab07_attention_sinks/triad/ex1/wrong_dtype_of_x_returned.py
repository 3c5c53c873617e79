"""The map has the dtype of x."""

import math

import torch

from efflib.models.rotary import rotate

FAILS = ["test_map_against_brute_force", "test_maps_of_any_dtype_and_size"]


def attention_map(x, w_q, w_k, heads, theta):
    T, d = x.shape[0], w_q.shape[0] // heads
    q = (x.float() @ w_q.float().T).view(1, T, heads, d).transpose(1, 2)
    k = (x.float() @ w_k.float().T).view(1, T, -1, d).transpose(1, 2)
    q, k = (rotate(y, torch.arange(T), theta) for y in (q, k))
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    scores = (q @ k.transpose(-1, -2))[0] / math.sqrt(d)
    seen = torch.ones(T, T).tril() > 0
    return scores.masked_fill(~seen, -math.inf).softmax(-1).to(x.dtype)
