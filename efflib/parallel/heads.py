"""Attention with the heads in parts; with more devices than key heads, key heads are copied.

Rank r gets a share of the H query heads, neighbours, and the key and value heads which those read:
query head h reads key head h // (H / Hkv).  Where a group of query heads is cut, its key head is in
both ranks.  Up to Hkv devices the cache is divided by their number; from there on each device keeps
at least one key head, and more devices save nothing.

The fused matrix [q; k; v] is cut block by block: a slice of its rows would be query heads for the
first ranks and values for the last.  W_o is cut by columns, and is row parallel: one all-reduce.

Where implementations differ: vLLM wants H % p == 0 and p % Hkv == 0 or Hkv % p == 0; here H need
not be a multiple of p, and the first ranks have one head more.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.models.llama import causal_mask
from efflib.models.rotary import Turns, turn
from efflib.parallel.communicator import Communicator, share


def heads_of(rank: int, size: int, heads: int, kv_heads: int) -> tuple[list[int], list[int]]:
    """(query heads, key heads) of a rank, rising.

    Raises ValueError unless heads is a multiple of kv_heads.
    """
    if heads % kv_heads:
        raise ValueError(f"heads={heads} must be a multiple of kv_heads={kv_heads}")
    own = list(range(*share(heads, rank, size)))
    return own, sorted({h // (heads // kv_heads) for h in own})


def reads(own: list[int], kept: list[int], heads: int, kv_heads: int) -> list[int]:
    """For each query head of a rank, where among its key heads stands the one that it reads."""
    return [kept.index(h // (heads // kv_heads)) for h in own]


def _rows(heads: list[int], d: int) -> Tensor:
    """The rows of these heads in a matrix of all heads."""
    return (torch.tensor(heads, dtype=torch.int64)[:, None] * d + torch.arange(d)).flatten()


def qkv_part(qkv: Tensor, rank: int, size: int, heads: int, kv_heads: int) -> Tensor:
    """The rank's rows [(h + 2 hkv) d, D] of the fused matrix qkv [(H + 2 Hkv) d, D]."""
    own, kept = heads_of(rank, size, heads, kv_heads)
    d = len(qkv) // (heads + 2 * kv_heads)
    keys = [heads + k for k in kept]
    return qkv[_rows(own + keys + [k + kv_heads for k in keys], d)]


def out_part(out: Tensor, rank: int, size: int, heads: int) -> Tensor:
    """The columns of out [D, H d] for the rank's heads.  [D, h d]"""
    start, stop = share(heads, rank, size)
    d = out.shape[1] // heads
    return out[:, start * d : stop * d].clone()


def attend(q: Tensor, k: Tensor, v: Tensor, which: list[int]) -> Tensor:
    """Causal attention of q [B, h, T, d] to k, v [B, hkv, S, d]; head i reads which[i].

    Returns [B, T, h d].
    """
    k, v = k[:, which], v[:, which]
    mask = causal_mask(q.shape[2], k.shape[2], q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


def parallel_attention(
    x: Tensor, qkv: Tensor, out: Tensor, which: list[int], d: int, by: Turns, comm: Communicator
) -> Tensor:
    """Attention of x [B, T, D] with this rank's parts qkv and out; one all-reduce.  [B, T, D]"""
    h = out.shape[1] // d
    q, k, v = (
        part.unflatten(-1, (-1, d)).transpose(1, 2)  # [B, heads, T, d]
        for part in F.linear(x, qkv).split([h * d, *[(len(qkv) - h * d) // 2] * 2], -1)
    )
    return comm.all_reduce(F.linear(attend(turn(q, by), turn(k, by), v, which), out))


def cached_numbers(size: int, heads: int, kv_heads: int, d: int) -> tuple[int, int]:
    """Numbers that a token leaves in a layer's cache: (on the fullest device, on all together)."""
    kept = [2 * d * len(heads_of(r, size, heads, kv_heads)[1]) for r in range(size)]
    return max(kept), sum(kept)
