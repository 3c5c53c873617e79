"""Keys and values in another 16-bit dtype are rounded to that of q."""

import torch
from torch import Tensor

FAILS = ["test_attention_against_float64"]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over the slots of mask [B, T, S]. [B, H, T, d], dtype of q"""
    if k.dtype.itemsize == q.dtype.itemsize:
        k, v = k.to(q.dtype), v.to(q.dtype)
    times = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(times, dim=1) for x in (k, v))
    scores = q.float() @ k.mT / q.shape[-1] ** 0.5  # [B, H, T, S]
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    weights = scores.softmax(-1).nan_to_num()  # a row of -inf gives NaN
    return (weights @ v).to(q.dtype)
