"""How much attention every head gives the begin token: the size of an attention sink."""

import torch
from torch import Tensor

from efflib.attention.maps import recorded
from efflib.checks import expect_dims
from efflib.models.llama import Llama

FIRST_QUERY = 32  # earlier queries see too few keys for the share to mean anything


def begin_attention(model: Llama, ids: Tensor, zero_sink: bool = False) -> Tensor:
    """Mean attention probability of key 0 over the queries from FIRST_QUERY on. [L, H]

    ids [B, T] with the begin token at position 0, T > FIRST_QUERY.  zero_sink: of a model whose
    softmax has an extra zero; the share is that of the zero, which has the begin token's part.
    """
    expect_dims("[B, T]", ids=ids)
    if ids.shape[1] <= FIRST_QUERY:
        raise ValueError(f"ids {tuple(ids.shape)} must have more than {FIRST_QUERY} tokens")
    shares = recorded(model, ids, lambda p: p[:, :, FIRST_QUERY:, 0].mean(dim=(0, 2)), zero_sink)
    return torch.stack(shares).cpu()
