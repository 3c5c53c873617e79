"""Attention that PyTorch can differentiate, trace and compile: the kernels as torch.library ops.

    efflib::attention(q, k, v, ...) -> (o, lse)
    efflib::attention_backward(q, k, v, o, lse, do, dlse, ...) -> (dq, dk, dv)

A custom op is a box to PyTorch: the fake version says which shapes come out, register_autograd
says which op computes the gradients, and torch.compile then leaves the box alone instead of
breaking the graph.  The backward pass is an op of its own, so that it too can be traced.
Saved for backward: q, k, v, o and lse, that is T (2 d + 1) + 2 S d numbers a head, not T S.
Source: PyTorch, "Custom Python operators" (torch.library.custom_op).
"""

# no `from __future__ import annotations`: the schema of an op is read from its annotations
import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.kernels.attention_backward import attention_backward
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.windowed_attention import check_window, windowed_attention


@torch.library.custom_op("efflib::attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None,
    scale: float | None,
    window: int | None,
    sinks: int,
    block_m: int,
    block_n: int,
) -> tuple[Tensor, Tensor]:
    check_window(causal, window, sinks)
    if window is None:
        return flash_attention(q, k, v, causal, scale, block_m, block_n)
    return windowed_attention(q, k, v, window, sinks, causal, scale, block_m, block_n)


@_attention.register_fake
def _(q, k, v, causal, scale, window, sinks, block_m, block_n):
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("efflib::attention_backward", mutates_args=())
def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    dlse: Tensor,
    causal: str | None,
    scale: float | None,
    window: int | None,
    sinks: int,
) -> tuple[Tensor, Tensor, Tensor]:
    d = q.shape[3]
    scale = d**-0.5 if scale is None else scale
    if more := (1 << (d - 1).bit_length()) - d:  # dimensions that are 0 get the gradient 0
        q, k, v, o, do = (F.pad(t, (0, more)) for t in (q, k, v, o, do))
    gradients = attention_backward(q, k, v, o, lse, do, dlse, causal, scale, window, sinks)
    return tuple(g[..., :d].contiguous() for g in gradients)


@_backward.register_fake
def _(q, k, v, o, lse, do, dlse, causal, scale, window, sinks):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx, inputs, output) -> None:
    q, k, v, *ctx.options = inputs  # causal, scale, window, sinks, block_m, block_n
    ctx.save_for_backward(q, k, v, *output)


def _gradients(ctx, do: Tensor, dlse: Tensor):
    dq, dk, dv = _backward(*ctx.saved_tensors, do, dlse, *ctx.options[:4])
    return dq, dk, dv, *[None] * len(ctx.options)


_attention.register_autograd(_gradients, setup_context=_save)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str | None = None,
    scale: float | None = None,
    window: int | None = None,
    sinks: int = 0,
    block_m: int = 64,
    block_n: int = 64,
) -> tuple[Tensor, Tensor]:
    """(o [B, H, T, d] in q's dtype, lse [B, H, T] float32), both differentiable, once.

    q: [B, H, T, d]; k, v: [B, Hkv, S, d]; options as for `flash_attention`, with a window as for
    `windowed_attention`; blocks are those of the forward pass.  On a GPU or in the interpreter.
    Raises ValueError for what does not fit, RuntimeError for CPU tensors without the interpreter.
    """
    return _attention(q, k, v, causal, scale, window, sinks, block_m, block_n)
