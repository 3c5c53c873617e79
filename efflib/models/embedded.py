"""The model on vectors in place of ids: what soft prompts need.

x = model.model.embed_tokens(ids)          # [B, T, D]
logits_of_vectors(model, x)                # as model(ids), equal bit by bit
"""

import torch
from torch import Tensor

from efflib.checks import expect_dims
from efflib.models.cache import Cache
from efflib.models.llama import Llama
from efflib.models.rotary import turns


def logits_of_vectors(
    model: Llama,
    x: Tensor,
    cache: Cache | None = None,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Logits [B, T, V] of what stands in the place of embeddings, x [B, T, D].

    positions [T] or [B, T], mask [T, S] or [B, 1, T, S] bool and cache: as of `Llama.hidden`.
    """
    expect_dims("[B, T, D]", x=x)
    if positions is None:
        start = 0 if cache is None else cache.length
        positions = torch.arange(start, start + x.shape[1], device=x.device)
    c = model.config
    by = turns(positions, c.head_dim, c.rope_theta, x.dtype, c.rope_scaling)
    for layer in model.model.layers:
        x = layer(x, by, mask, cache)
    return model.lm_head(model.model.norm(x))
