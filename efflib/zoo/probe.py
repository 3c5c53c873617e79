"""How much attention every head gives the begin token: the size of an attention sink."""

import torch
from torch import Tensor

from efflib.models.llama import Llama

FIRST_QUERY = 32  # earlier queries see too few keys for the share to mean anything


@torch.no_grad()
def begin_attention(model: Llama, ids: Tensor) -> Tensor:
    """Mean attention probability of key 0 over the queries from FIRST_QUERY on. [L, H]

    ids [B, T] with the begin token at position 0, T > FIRST_QUERY.
    """
    shares = []

    def recording(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, T, S]
        p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        shares.append(p[:, :, FIRST_QUERY:, 0].mean(dim=(0, 2)))
        return p @ v

    before = [layer.self_attn.attention for layer in model.model.layers]
    model.set_attention(recording)
    try:
        model(ids)
    finally:
        for layer, attention in zip(model.model.layers, before, strict=True):
            layer.self_attn.attention = attention
    return torch.stack(shares).cpu()
