"""Pruning a whole model: masks for the linears of its blocks, with or without calibration texts.

With texts it goes block by block, each scored on what the pruned ones before it produce; how, and
why, stands in `efflib.sequential`.  The zeros are simulated: neither memory nor time is saved until
a format and a kernel use them (`nm`), or what is pruned is really taken out (`structured`).
Source: Sun et al. 2024 (arXiv:2306.11695), section 3; Frantar and Alistarh 2023 (arXiv:2301.00774).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib.sequential import block_linears, change_sequentially
from efflib.sparsity.masks import apply_mask

Rule = Callable[[Tensor, Tensor], Tensor]  # (w [N, K], norms [K]) -> mask [N, K]


@torch.no_grad()
def prune_blocks(model: nn.Module, rule: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model with mask rule(w) applied to every linear of its blocks; no data."""
    pruned = copy.deepcopy(model)
    for linears in block_linears(pruned):
        for linear in linears.values():
            linear.weight.copy_(apply_mask(linear.weight, rule(linear.weight)))
    return pruned


def prune_sequentially(
    model: nn.Module, ids: Tensor, rule: Rule, sequential: bool = True
) -> nn.Module:
    """A copy of the model, pruned block by block with mask = rule(w, norms of its input).

    The norms are ||X_j||_2 over all texts, [K] float32.  Other arguments and errors are those of
    `sequential.change_sequentially`.
    """

    def masked(w: Tensor, squares: Tensor) -> Tensor:
        mask = rule(w.clone(), squares.sqrt().float())  # a copy: a rule cannot change the model
        return apply_mask(w, mask)

    return change_sequentially(model, ids, _squares, masked, sequential)


def _squares(x: Tensor) -> Tensor:
    """The sum of squares of every channel of x [T, K], float64: [K]"""
    return x.double().square().sum(0)
