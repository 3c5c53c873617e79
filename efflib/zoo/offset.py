"""Outlier channels like those of large models, put into a small one without changing its function.

In models above about 6.7 B parameters a few channels of every norm's output are some 100 times as
large as the rest, with a steady sign and value in all tokens and layers, while the weights stay
ordinary (Dettmers et al. 2022, arXiv:2208.07339, section 4; Xiao et al. 2023, arXiv:2211.10438,
section 3). Small models have none. This transform adds a constant c to a few channels of every
norm's output, and takes what the next linears make of it off their biases:

    norm(x) + c,      W (norm(x) + c) + (b - W c)  =  W norm(x) + b

so the function is the same in exact arithmetic, and activations are hard to quantize. It is an
emulation, and labs say so. (Scaling the norm's gain up and the weights down does not serve: then
the weights are extraordinary too, and smoothing with alpha = 0 just undoes it.)
"""

import math

import torch
from torch import Tensor, nn

from efflib.models.groups import norm_groups
from efflib.models.offsets import add_offsets


def outlier_offset(width: int, channels: int, offset: float, seed: int = 0) -> Tensor:
    """c [width]: +-offset in `channels` random channels, 0 elsewhere.

    Raises ValueError unless 0 <= channels <= width.
    """
    if not math.isfinite(offset):
        raise ValueError(f"offset must be finite, got {offset}")
    if not 0 <= channels <= width:
        raise ValueError(f"channels must be from 0 to the width {width}, got {channels}")
    generator = torch.Generator().manual_seed(seed)
    where = torch.randperm(width, generator=generator)[:channels]
    sign = 2.0 * torch.randint(0, 2, (channels,), generator=generator) - 1
    c = torch.zeros(width)
    c[where] = offset * sign
    return c


def with_offset(model: nn.Module, channels: int, offset: float, seed: int = 0) -> nn.Module:
    """A copy of the model with the same function and `channels` outlier channels of size `offset`.

    The same channels in all layers, as in real models. Every norm must have a `bias` (None or a
    parameter), as ours and LayerNorm have; linears get a bias where they have none. The function
    differs by rounding: terms of size |W c| cancel.
    Raises ValueError for a norm without a bias, and as `outlier_offset` and `norm_groups`.
    """
    offsets = {
        group.name: outlier_offset(group.norm.weight.shape[0], channels, offset, seed)
        for group in norm_groups(model)
    }
    return add_offsets(model, offsets)
