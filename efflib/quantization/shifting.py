"""Shifting: move the mean of every channel out of the activations and into biases.

A channel that is large because of its mean needs no wide grid once the mean c_j is gone:

    X W^T + b  =  (X - c) W^T + (b + W c)

What is left is the spread around the mean. -c is folded into the bias of the norm that makes X, so
nothing is computed at run time. Outlier Suppression+ shifts by the middle of the range, and then
scales (Wei et al. 2023, arXiv:2304.09145, section 4.1); here it is the mean. It repairs outliers of
a steady value, and cannot repair those that vary from token to token.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers, expect_keys
from efflib.models.groups import norm_groups
from efflib.models.offsets import add_offsets


def channel_means(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """mean X_j over the tokens of ids [B, T] of what every norm puts out: {norm: [K]}."""
    expect_dims("[B, T]", ids=ids)
    expect_integers(ids=ids)
    means: dict[str, Tensor] = {}
    hooks = []
    for group in norm_groups(model):

        def remember(module: nn.Module, args: tuple, output: Tensor, name=group.name) -> None:
            means[name] = output.detach().flatten(0, -2).mean(0)

        hooks.append(group.norm.register_forward_hook(remember))
    try:
        with torch.no_grad():
            model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return means


def shift(model: nn.Module, means: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the same function whose norms put out X - means. means: of `channel_means`."""
    expect_keys(means, means=[group.name for group in norm_groups(model)])
    return add_offsets(model, {name: -mean for name, mean in means.items()})
