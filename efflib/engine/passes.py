"""Pieces of prompts and answers of many requests through the model, in one pass.

    embedding, norms, projections, MLP     all new tokens side by side, [1, T, D]: one product each
    attention                              each request over its own blocks
    lm_head                                only where a token is to be chosen

The model is not changed: a pass gives it a cache that writes into blocks, and an attention that
reads them.  Requests with few new tokens attend together, as a batch padded to the longest table,
where tables are of like length; a piece of a prompt attends alone.  A kernel would read the blocks
where they lie (`efflib.kernels.paged_attention`); here they are copied side by side first.

Logits of a batch differ from those of a request alone by rounding: a product over more rows, or a
softmax over padding, sums in another order.
Source: Yu et al. 2022, "Orca", section 3.2 (selective batching).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.engine.blocks import BlockCache
from efflib.models.llama import AttentionFn, Llama

TOGETHER = 16  # at most so many new tokens: a decode row with its proposals
SPREAD = 2  # tables of a group are at most so many times as long as its shortest


class Piece(NamedTuple):
    """New tokens of a request, behind `start` that are cached; room for them has been made."""

    name: int
    start: int
    ids: list[int]
    wanted: int  # logits of so many of its last tokens

    @property
    def stop(self) -> int:
        return self.start + len(self.ids)


class Group(NamedTuple):
    """Pieces that attend together."""

    at: Tensor  # [B n] which of the T tokens; a shorter piece repeats its last
    blocks: Tensor  # [B, m] their tables, filled up with any block
    mask: Tensor  # [B, 1, n, m block]
    real: Tensor | None  # [B n] which of `at` are no repeats; None: all


def grouped(pieces: Sequence[Piece], cache: BlockCache) -> list[Group]:
    """The groups of a pass; pieces lie one behind the other in it."""
    offsets, here = [], 0
    for piece in pieces:
        offsets.append(here)
        here += len(piece.ids)
    few = [i for i, piece in enumerate(pieces) if len(piece.ids) <= TOGETHER]
    few.sort(key=lambda i: pieces[i].stop)
    lists: list[list[int]] = []
    for i in few:
        if not lists or pieces[i].stop > SPREAD * max(pieces[lists[-1][0]].stop, cache.block):
            lists.append([])
        lists[-1].append(i)
    lists += [[i] for i, piece in enumerate(pieces) if len(piece.ids) > TOGETHER]
    return [_group([pieces[i] for i in one], [offsets[i] for i in one], cache) for one in lists]


def _group(pieces: Sequence[Piece], offsets: Sequence[int], cache: BlockCache) -> Group:
    n = max(len(piece.ids) for piece in pieces)
    m = max(-(-piece.stop // cache.block) for piece in pieces)
    lengths = torch.tensor([[len(piece.ids)] for piece in pieces])  # [B, 1]
    steps = torch.arange(n).expand(len(pieces), n)
    steps, real = torch.minimum(steps, lengths - 1), steps < lengths  # [B, n]
    starts = torch.tensor([[piece.start] for piece in pieces])  # [B, 1]
    seen = (starts + steps)[:, None, :, None]  # the last position that each query may see
    mask = torch.arange(m * cache.block) <= seen
    tables = [cache.tables[piece.name][:m] for piece in pieces]
    blocks = torch.tensor([table + [0] * (m - len(table)) for table in tables])
    at = (torch.tensor(offsets)[:, None] + steps).flatten()
    return Group(at, blocks, mask, None if real.all() else real.flatten())


class Paged:
    """What the model takes for its cache during one pass."""

    length = 0  # positions are given

    def __init__(self, cache: BlockCache, pieces: Sequence[Piece]) -> None:
        slots = [s for piece in pieces for s in cache.slots(piece.name, piece.start, piece.stop)]
        self.cache, self.slots = cache, torch.tensor(slots)
        self.groups = grouped(pieces, cache)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [1, Hkv, T, d] go into their blocks; attention reads them from there."""
        self.cache.write(layer, self.slots, k[0].transpose(0, 1), v[0].transpose(0, 1))
        return k, v

    def attend(
        self, layer: int, dense: AttentionFn, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
    ) -> Tensor:
        """Each request over its own blocks: q [1, H, T, d] -> [1, H, T, d]."""
        out = torch.empty_like(q)
        for group in self.groups:
            keys, values = self.cache.read(layer, group.blocks)
            rows = q[0, :, group.at].unflatten(1, (len(group.blocks), -1)).transpose(0, 1)
            found = dense(rows, keys, values, group.mask)  # [B, H, n, d]
            flat = found.transpose(0, 1).flatten(1, 2)  # [H, B n, d]
            if group.real is None:
                out[0, :, group.at] = flat
            else:
                out[0, :, group.at[group.real]] = flat[:, group.real]
        return out


@contextmanager
def reading(model: Llama, paged: Paged) -> Iterator[None]:
    """Inside, every layer attends to the blocks; afterwards as before."""
    owners = [layer.self_attn for layer in model.model.layers]
    before = [own.attention for own in owners]
    try:
        for i, own in enumerate(owners):
            own.attention = partial(paged.attend, i, before[i])
        yield
    finally:
        for own, dense in zip(owners, before, strict=True):
            own.attention = dense


@torch.inference_mode()
def mixed_pass(model: Llama, cache: BlockCache, pieces: Sequence[Piece]) -> Tensor:
    """Logits [W, V], piece after piece, behind the `wanted` last tokens of each."""
    paged = Paged(cache, pieces)
    ids = torch.tensor([[token for piece in pieces for token in piece.ids]])  # [1, T]
    positions = torch.cat([torch.arange(piece.start, piece.stop) for piece in pieces])  # [T]
    ends = torch.tensor([len(piece.ids) for piece in pieces]).cumsum(0).tolist()
    wanted = [
        i for end, piece in zip(ends, pieces, strict=True) for i in range(end - piece.wanted, end)
    ]
    own_mask = torch.ones(1, 1, dtype=torch.bool)  # not read: groups have masks of their own
    with reading(model, paged):
        hidden = model.hidden(ids, cache=paged, positions=positions, mask=own_mask)[0]  # [T, D]
    return model.lm_head(hidden[torch.tensor(wanted, dtype=torch.int64)])
