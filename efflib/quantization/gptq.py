"""GPTQ: round a column, and let the columns that are not rounded yet make good the error.

    for the columns j in order:
        q_j   = the nearest value of column j's grids
        e     = (W_:j - q_j) / U_jj                         [N]
        W_:j: = W_:j: - e U_j,j:                            column j becomes q_j, later ones change

with U of `efflib.hessian`, H^-1 = U^T U.  The sum of all e^2 is the error of the output, which
follows from the damped H:  sum e^2 = tr (W - V) H (W - V)^T.  If H is diagonal, so is U: nothing
changes, and what comes out is rounding to nearest.  All that GPTQ gains is correlation.
Source: Frantar et al. 2022 (arXiv:2210.17323), section 3 and algorithm 1; act-order and static
groups are of their code.

Lazy blocks: within a block columns are updated at once, those behind it when the block is done.
The numbers are the same, in fewer and larger products.

Grids of groups can be found at three moments:
- "static": from the float weights, before anything changes.  Column j belongs to group j // G
  whatever the order, so nothing more has to be stored.
- "fresh": when the group's first column is reached, from the weights as they have become.
- "lazy": at the same moment, from the weights as they stood when the current block began.  The
  authors' code does this, and the result depends on `block`.

A channel that was always 0 gets weights of 0, before any grid is found.

act_order takes the columns with the largest H_jj first, while most others can still make good.
With "fresh" the columns of a group then stand anywhere in the row, and who reads the codes needs
g_idx [K], the group of each column.  A row of int32, shared by all N rows: 32 / N bits a weight.

Where implementations differ
- llm-compressor's act-order "weight" is "static" here; its symmetric grid is wider, see `linear`.
- The authors compute in float32, here columns and errors are float64, and grids float32.
- `true_sequential` (k, v, q; then o; then gate, up; then down, each with what is before it
  rounded): here a block's linears are measured together, see `sequential`.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite, expect_whole
from efflib.hessian import DAMPING, gram, inverse_factor
from efflib.quantization.linear import (
    Granularity,
    code_range,
    dequantize,
    group_layout,
    quantize_weight,
)
from efflib.quantization.size import quantizable_linears, weight_bits
from efflib.repair import BLOCK
from efflib.sequential import block_linears, change_sequentially

Grids = Literal["static", "fresh", "lazy"]
INDEX_BITS = 32  # of an entry of g_idx, as GPTQ's checkpoints store it


class GPTQWeight(NamedTuple):
    """A weight W [N, K] as codes, in the order of the layer's own columns."""

    codes: Tensor  # [N, K] int8 (symmetric) or uint8
    scale: Tensor  # [N, groups] float32
    zero: Tensor  # [N, groups] int32
    g_idx: Tensor  # [K] int64: the group of each column
    bits: int
    granularity: Granularity
    symmetric: bool
    stored_index: bool  # whether g_idx is not just j // G, and has to be stored


def output_error(w: Tensor, w_hat: Tensor, h: Tensor) -> float:
    """|X W^T - X W_hat^T|^2 = tr (W - W_hat) H (W - W_hat)^T; w, w_hat [N, K], h [K, K]."""
    expect_dims("[N, K]", w=w, w_hat=w_hat)
    if w.shape != w_hat.shape or h.shape != (w.shape[1],) * 2:
        shapes = f"{tuple(w.shape)}, {tuple(w_hat.shape)} and {tuple(h.shape)}"
        raise ValueError(f"need w and w_hat [N, K] of one shape and h [K, K], got {shapes}")
    error = w.detach().double() - w_hat.detach().double()
    return ((error @ h.double()) * error).sum().item()


def gptq(
    w: Tensor,
    h: Tensor,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    *,
    act_order: bool = False,
    grids: Grids = "fresh",
    block: int = BLOCK,
    damping: float = DAMPING,
) -> GPTQWeight:
    """w [N, K] rounded for inputs with H = X^T X [K, K]; the arguments stay as they are.

    granularity: "channel" or the group size G (a last group may be shorter); block: columns
    between two updates of all that is behind them.
    Raises ValueError as `hessian.inverse_factor` and `linear.quantize_weight`, if h does not fit w,
    or for granularity "tensor" or other grids.
    """
    _expect(w, h, granularity, grids, block)
    n, k = w.shape
    size = group_layout((n, k), granularity)[2]
    order = as_stored = torch.arange(k, device=w.device)
    if act_order:
        order = torch.argsort(h.diagonal(), descending=True, stable=True)
    u = inverse_factor(h[order][:, order], damping)
    live = w.detach().double().masked_fill(h.diagonal() == 0, 0.0)
    before = quantize_weight(live, bits, granularity, symmetric)
    group_of = order // size if grids == "static" else as_stored // size
    scale, zero = before.scale.T.clone(), before.zero.T.float()  # [groups, N]
    found = _Grids(scale, zero, group_of.tolist(), 0 if grids == "static" else size, symmetric)
    codes = _round_columns(live[:, order].T.contiguous(), u, found, bits, grids == "lazy", block)
    back = order.argsort()
    g_idx = group_of[back]
    stored = not torch.equal(g_idx, as_stored // size)
    codes = codes[back].T.to(before.codes.dtype, memory_format=torch.contiguous_format)
    parts = (codes, scale.T.contiguous(), zero.T.int().contiguous(), g_idx)
    return GPTQWeight(*parts, bits, granularity, symmetric, stored)


class _Grids(NamedTuple):
    """Grids of groups of columns, in the order in which columns are rounded."""

    scale: Tensor  # [groups, N], written to when a group's turn comes
    zero: Tensor  # [groups, N] float
    group_of: list[int]  # of each column
    size: int  # columns between two turns; 0: all grids are known before
    symmetric: bool


def _round_columns(
    rest: Tensor, u: Tensor, grids: _Grids, bits: int, lazy: bool, block: int
) -> Tensor:
    """Codes [K, N] float of the columns rest [K, N], which change: see above."""
    codes = torch.empty(rest.shape, device=rest.device)
    ends = code_range(bits, grids.symmetric)
    for start in range(0, len(rest), block):
        stop = min(start + block, len(rest))
        now, errors = rest[start:stop].clone(), torch.zeros_like(rest[start:stop])
        for i, j in enumerate(range(start, stop)):
            g = grids.group_of[j]
            scale, zero = grids.scale[g], grids.zero[g]  # [N], views
            if grids.size and j % grids.size == 0:
                group = rest[j : j + grids.size]  # as it was when the block began
                if not lazy:
                    group = _up_to_date(rest[: j + grids.size], now, errors, u, j, start)
                found = quantize_weight(group.T, bits, "channel", grids.symmetric)
                scale.copy_(found.scale[:, 0])
                zero.copy_(found.zero[:, 0])
            # `linear.quantize` and `dequantize`, without their checks of every column
            codes[j] = (torch.round(now[i].float() * (1.0 / scale)) + zero).clamp(*ends)
            errors[i] = (now[i] - (codes[j] - zero) * scale) / u[j, j]
            now[i:].addr_(u[j, j:stop], errors[i], alpha=-1)
        rest[stop:] -= u[start:stop, stop:].T @ errors
    return codes


def _up_to_date(rest: Tensor, now: Tensor, errors: Tensor, u: Tensor, j: int, start: int) -> Tensor:
    """Columns j and on of rest with all updates: those of this block, `now`, have them already."""
    stop = start + len(now)
    behind = rest[stop:] - u[start:stop, stop : len(rest)].T @ errors
    return torch.cat([now[j - start : len(rest) - start], behind])


def _expect(w: Tensor, h: Tensor, granularity: Granularity, grids: Grids, block: int) -> None:
    expect_dims("[N, K]", w=w)
    expect_finite(w=w)
    expect_whole(1, block=block)
    if h.shape != (w.shape[1],) * 2:
        raise ValueError(f"need h [K, K] of w {tuple(w.shape)}, got {tuple(h.shape)}")
    if granularity == "tensor":
        raise ValueError('granularity="tensor": GPTQ needs a grid per row, "channel" or G >= 1')
    if grids not in ("static", "fresh", "lazy"):
        raise ValueError(f'grids is "static", "fresh" or "lazy", got {grids!r}')


def dequantize_gptq(q: GPTQWeight) -> Tensor:
    """The weight [N, K], float32, that the codes stand for."""
    return dequantize(q.codes, q.scale[:, q.g_idx], q.zero[:, q.g_idx])


def gptq_bits(q: GPTQWeight, index_bits: int = INDEX_BITS) -> int:
    """Total bits of the weight: codes, scales, zero points, and g_idx where it has to be stored."""
    shape = (q.codes.shape[0], q.codes.shape[1])
    index = index_bits * shape[1] if q.stored_index else 0
    return weight_bits(shape, q.bits, q.granularity, q.symmetric) + index


def gptq_model(
    model: nn.Module,
    ids: Tensor,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    *,
    sequential: bool = True,
    **options,
) -> tuple[nn.Module, int]:
    """(copy of the model with rounded linears in its blocks, total bits of these linears).

    ids [n, T]: calibration texts.  Each block meets what the rounded ones before it produce, unless
    sequential is False.  options: act_order, grids, block and damping of `gptq`.  As in
    `quantize_model`, weights keep their dtype and take the values that the codes stand for.
    Raises ValueError as `gptq` and `change_sequentially`.
    """
    changed, weights = gptq_weights(
        model, ids, bits, granularity, symmetric, sequential=sequential, **options
    )
    return changed, sum(gptq_bits(q) for q in weights.values())


def gptq_weights(
    model: nn.Module,
    ids: Tensor,
    bits: int,
    granularity: Granularity,
    symmetric: bool = False,
    *,
    sequential: bool = True,
    **options,
) -> tuple[nn.Module, dict[str, GPTQWeight]]:
    """As `gptq_model`, with the codes of each linear instead of their bits."""
    names = iter([name for linears in block_linears(model) for name in linears])
    weights = {}

    def rounded(w: Tensor, h: Tensor) -> Tensor:
        weights[next(names)] = q = gptq(w, h, bits, granularity, symmetric, **options)
        return dequantize_gptq(q).to(w)

    return change_sequentially(model, ids, gram, rounded, sequential), weights


def bits_a_weight(model: nn.Module, total: int) -> float:
    """total bits of all linears but the output layer, divided by the number of their weights."""
    return total / sum(m.weight.numel() for m in quantizable_linears(model).values())
