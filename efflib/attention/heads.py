"""Fewer key and value heads: MHA -> GQA -> MQA, and back by repeating them.

    query head h of H reads key head  floor(h Hkv / H):  H / Hkv neighbours share one
    W_g = mean of the W_h of a group                     mean-pooling, [d, D] each

MHA has Hkv = H, GQA (Ainslie et al. 2023, arXiv:2305.13245) a divisor of it, MQA (Shazeer 2019,
arXiv:1911.02150) one.  The cache shrinks by H / Hkv; FLOPs stay.

A pooled model is another function and a worse one.  Ainslie et al. train it on for 5 % of the
original steps ("uptraining"); starting from the mean is better than from one head of the group, and
that is better than starting at random (their section 3.3, figure 4).  Repeating is exact: pooling
what was repeated gives the weights back, and pooling equal heads changes nothing.

Where implementations differ: `repeat_kv` of transformers copies the heads before attention; here,
as in PyTorch's enable_gqa, they need not be copied.  Which heads share one is a choice that the
paper makes by their order; nothing says that neighbours are alike.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.models.config import LlamaConfig
from efflib.models.hub import Rows, describe

How = Literal["mean", "first"]


def repeat_kv(x: Tensor, times: int) -> Tensor:
    """Each head `times` times, side by side: [B, Hkv, S, d] -> [B, Hkv times, S, d].

    Head h of the result is head h // times of x.  Raises ValueError for times < 1.
    """
    expect_dims("[B, Hkv, S, d]", x=x)
    expect_whole(1, times=times)
    return x.repeat_interleave(times, dim=1)


def pool_heads(weight: Tensor, heads: int, groups: int, how: How = "mean") -> Tensor:
    """One head for each group of neighbours; weight [heads d, ...] -> [groups d, ...].

    how: "mean", in float32 at least, or "first" for the first head of each group.
    Raises ValueError unless groups divides heads and heads the rows of the weight.
    """
    expect_whole(1, heads=heads, groups=groups)
    if how not in ("mean", "first"):
        raise ValueError(f'how is "mean" or "first", got {how!r}')
    if heads % groups or weight.shape[0] % heads:
        raise ValueError(
            f"{groups} groups must divide {heads} heads, and these the {weight.shape[0]} rows"
        )
    by_head = weight.unflatten(0, (groups, heads // groups, -1))  # [groups, share, d, ...]
    if how == "first":
        return by_head[:, 0].flatten(0, 1).clone()
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head of weight [heads d, ...] `times` times, side by side: [heads times d, ...]."""
    expect_whole(1, heads=heads, times=times)
    if weight.shape[0] % heads:
        raise ValueError(f"{heads} heads must divide the {weight.shape[0]} rows of the weight")
    by_head = weight.unflatten(0, (heads, -1))  # [heads, d, ...]
    return by_head.repeat_interleave(times, dim=0).flatten(0, 1)


def with_kv_heads(model: nn.Module, kv_heads: int, how: How = "mean") -> nn.Module:
    """A copy of the model with so many key and value heads: pooled if fewer, repeated if more.

    Queries and the output projection are as they were.  More heads are the same function.
    model: a family of `hub.describe` whose config has `num_key_value_heads`.
    Raises ValueError unless kv_heads divides the number of query heads, and one of kv_heads and the
    present number of key heads divides the other.
    """
    decoder = describe(model)
    have, heads = decoder.key_heads, decoder.query_heads
    if not hasattr(model.config, "num_key_value_heads"):
        raise ValueError(
            f"{type(model).__name__}: a {decoder.model_type} has a key head for each query head, "
            "and its config no num_key_value_heads"
        )
    expect_whole(1, kv_heads=kv_heads)
    if heads % kv_heads or (have % kv_heads and kv_heads % have):
        raise ValueError(
            f"kv_heads={kv_heads} must divide the {heads} query heads, and divide "
            f"or be a multiple of the {have} key heads"
        )
    model = copy.deepcopy(model)

    def changed(rows: Tensor) -> Tensor:
        if kv_heads <= have:
            return pool_heads(rows, have, kv_heads, how)
        return repeat_heads(rows, have, kv_heads // have)

    if isinstance(model.config, LlamaConfig):
        model.config = replace(model.config, num_key_value_heads=kv_heads)
    else:
        model.config.num_key_value_heads = kv_heads
    for block in decoder.blocks:
        attention = model.get_submodule(block.attention)
        attention.config = model.config
        for name, count in (
            ("num_key_value_heads", kv_heads), ("num_key_value_groups", heads // kv_heads)
        ):  # fmt: skip
            if hasattr(attention, name):  # of transformers
                setattr(attention, name, count)
        for rows in (block.value, block.key):  # from behind, as both may be in one linear
            _replace_rows(model.get_submodule(rows.linear), rows, changed)
    return model


def _replace_rows(linear: nn.Linear, rows: Rows, change: Callable[[Tensor], Tensor]) -> None:
    """change() of these rows of the linear's weight and bias; there may be more or fewer then."""
    for name, old in list(linear.named_parameters()):
        before, now, after = old.detach().tensor_split((rows.start, rows.stop))
        new = torch.cat([before, change(now), after])
        setattr(linear, name, nn.Parameter(new, requires_grad=old.requires_grad))
    linear.out_features = len(linear.weight)
