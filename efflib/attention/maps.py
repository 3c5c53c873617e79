"""Attention maps of a model, and how much of them one token takes: the size of a sink.

    p[t, j]  = softmax_j(q_t k_j / sqrt(d)),  j <= t           a map: rows sum to 1
    share(j) = mean of p[t, j] over queries t >= first          a sink score: 1 if all look at j

Early queries see few keys, so a share over all of them would be high for the first token in any
model: `first` leaves them out.  Beside a share stands 1 / t, what a head gives that spreads its
attention evenly.

The maps are recorded while the model runs, in place of its attention function; nothing else of it
changes, and the function is put back.  With `zero_sink` the softmax is that of
`efflib.attention.zero_sink`, and column 0 is the zero.
Source: Xiao et al. 2023 (arXiv:2309.17453), section 3.1 and figure 2.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.models.llama import Llama


def probabilities(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)); q [B, H, T, d], k [B, Hkv, S, d], mask bool. [B, H, T, S]"""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)


@torch.no_grad()
def recorded(
    model: Llama, ids: Tensor, take: Callable[[Tensor], Tensor], zero_sink: bool = False
) -> list[Tensor]:
    """take(p) of every layer's probabilities p [B, H, T, T], in order.

    zero_sink: the model's softmax has an extra zero; p [B, H, T, 1 + T], the zero in column 0.
    """
    expect_dims("[B, T]", ids=ids)
    taken = []

    def recording(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if zero_sink:
            k, v = (F.pad(x, (0, 0, 1, 0)) for x in (k, v))  # a key and value of zeros in front
            mask = F.pad(mask, (1, 0), value=True)
        p = probabilities(q, k, mask)
        taken.append(take(p))
        return p @ v.repeat_interleave(q.shape[1] // k.shape[1], dim=1)

    before = [layer.self_attn.attention for layer in model.model.layers]
    model.set_attention(recording)
    try:
        model(ids)
    finally:
        for layer, attention in zip(model.model.layers, before, strict=True):
            layer.self_attn.attention = attention
    return taken


def attention_maps(model: Llama, ids: Tensor, zero_sink: bool = False) -> Tensor:
    """The maps of every layer and head, the mean over the rows of ids [B, T]. [L, H, T, T]

    zero_sink: as in `recorded`; [L, H, T, 1 + T].
    """
    return torch.stack(recorded(model, ids, lambda p: p.mean(0), zero_sink))


def sink_scores(maps: Tensor, token: int = 0, first: int = 32) -> Tensor:
    """The share of `token` in maps [..., T, S]: its mean over the queries from `first` on. [...]

    Raises ValueError for a token or a first query that the maps do not have.
    """
    expect_dims("[..., T, S]", maps=maps)
    expect_whole(token=token, first=first)
    if token >= maps.shape[-1] or first >= maps.shape[-2]:
        raise ValueError(f"token={token} and first={first} do not lie in maps {tuple(maps.shape)}")
    return maps[..., first:, token].mean(-1)


def begin_share(model: Llama, ids: Tensor, zero_sink: bool = False) -> Tensor:
    """The attention that every query of ids [n, T] gives to token 0, of a model of one head. [n, T]

    zero_sink: to the extra zero of the softmax, where the model has one.
    """
    return recorded(model, ids, lambda p: p[:, 0, :, 0], zero_sink)[0]
