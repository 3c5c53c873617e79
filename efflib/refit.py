"""Weights that stay, fitted anew: least squares for a mask that is already chosen.

    min over V of |X W^T - X V^T|^2,   V 0 where the mask is

by conjugate gradients, all rows at once: each has a system of its own, of the weights it keeps.
A few steps are enough for the model's loss, and stopping early is the damping: what few tokens do
not determine moves last.  This is the plainest repair of a pruned layer.  Methods that choose and
repair in one pass through the columns are in `efflib.sparsity`.
"""

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole

STEPS = 20


def refit(w: Tensor, x: Tensor, kept: Tensor, steps: int = STEPS) -> Tensor:
    """w [N, K] with 0 where kept [N, K] is False and the rest fitted to x [..., K]; dtype of w.

    Computed in float32.  A weight whose channel is 0 in all tokens stays as it is.
    Raises ValueError for shapes that do not fit, and for fewer steps than 0.
    """
    expect_dims("[N, K]", w=w, kept=kept)
    expect_whole(0, steps=steps)
    if w.shape != kept.shape or x.shape[-1] != w.shape[1]:
        shapes = f"{tuple(w.shape)}, {tuple(kept.shape)} and {tuple(x.shape)}"
        raise ValueError(f"need w and kept [N, K] and x [..., K], got {shapes}")
    tokens = x.detach().reshape(-1, w.shape[1]).float()
    squares = tokens.T @ tokens  # [K, K]
    size = squares.diagonal().clamp(min=torch.finfo(torch.float32).tiny)
    old = w.detach().float()
    new = old * kept
    left = ((old - new) @ squares) * kept  # what the outputs still miss, minus half the gradient
    towards = scaled = left / size
    for _ in range(steps):
        met = (towards @ squares) * kept
        before = (left * scaled).sum(1, keepdim=True)
        far = _ratio(before, (towards * met).sum(1, keepdim=True))
        new, left = new + far * towards, left - far * met
        scaled = left / size
        towards = scaled + _ratio((left * scaled).sum(1, keepdim=True), before) * towards
    return new.to(w.dtype)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where a row is done."""
    return torch.where(b > 0, a / b, 0.0)
