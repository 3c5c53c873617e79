"""How much attention every head gives the begin token: the size of an attention sink."""

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_dims
from efflib.models.llama import Llama

FIRST_QUERY = 32  # earlier queries see too few keys for the share to mean anything


@torch.no_grad()
def begin_attention(model: Llama, ids: Tensor, zero_sink: bool = False) -> Tensor:
    """Mean attention probability of key 0 over the queries from FIRST_QUERY on. [L, H]

    ids [B, T] with the begin token at position 0, T > FIRST_QUERY.  zero_sink: of a model whose
    softmax has an extra zero; the share is that of the zero, which has the begin token's part.
    """
    expect_dims("[B, T]", ids=ids)
    if ids.shape[1] <= FIRST_QUERY:
        raise ValueError(f"ids {tuple(ids.shape)} must have more than {FIRST_QUERY} tokens")
    shares = []

    def recording(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, T, S]
        scores = scores.masked_fill(~mask, float("-inf"))
        if zero_sink:
            scores, v = F.pad(scores, (1, 0)), F.pad(v, (0, 0, 1, 0))
        p = scores.softmax(-1)
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
