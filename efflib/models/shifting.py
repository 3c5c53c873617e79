"""Shifting: move a constant c_j of every channel out of the activations and into biases.

A channel that lies to one side of 0 needs no wide grid once its mean, or its middle, is gone:

    X W^T + b  =  (X - c) W^T + (b + W c)

What is left is the spread around c. -c is folded into the bias of the norm that makes X, so nothing
is computed at run time. Outlier Suppression+ shifts by the middle of the range, (max + min) / 2,
which leaves the least magnitude, and then scales (Wei et al. 2023, arXiv:2304.09145, section 4.1,
equation 5). It repairs outliers of a steady value, and cannot repair those that vary from token to
token.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers, expect_keys
from efflib.models.groups import norm_groups
from efflib.models.offsets import add_offsets


def channel_means(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """mean X_j over the tokens of ids [B, T] of what every norm puts out: {norm: [K]}."""
    return _of_outputs(model, ids, lambda x: x.mean(0))


def channel_middles(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """(max X_j + min X_j) / 2 over the tokens of ids [B, T]: {norm: [K]}."""
    return _of_outputs(model, ids, lambda x: (x.amax(0) + x.amin(0)) / 2)


def _of_outputs(
    model: nn.Module, ids: Tensor, reduce: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """reduce(X [B T, K]) of what every norm puts out."""
    expect_dims("[B, T]", ids=ids)
    expect_integers(ids=ids)
    found: dict[str, Tensor] = {}
    hooks = []
    for group in norm_groups(model):

        def remember(module: nn.Module, args: tuple, output: Tensor, name=group.name) -> None:
            found[name] = reduce(output.detach().flatten(0, -2))

        hooks.append(group.norm.register_forward_hook(remember))
    try:
        with torch.no_grad():
            model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def shift(model: nn.Module, means: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the same function whose norms put out X - means [K].

    means: of `channel_means` or `channel_middles`.
    """
    expect_keys(means, means=[group.name for group in norm_groups(model)])
    return add_offsets(model, {name: -mean for name, mean in means.items()})
