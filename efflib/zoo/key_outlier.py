"""Large key channels put into a model, as those of large models, without changing its function.

In every head the slowest pair of rotary channels of k_proj is multiplied by a factor and that of
q_proj divided by it.  q k^T stays the same: rotation keeps a pair together, and a factor that is a
power of two is exact.
"""

import copy

import torch
from torch import Tensor, nn

from efflib.models.cache import KVCache
from efflib.models.llama import Llama

FACTOR = 16.0


def with_key_outlier(model: Llama, factor: float) -> Llama:
    """A copy of the model with the same function and one rotary pair of all keys times factor.

    The pair (d/2 - 1, d - 1) turns slowest: its channels keep their sign for the longest.
    Under grouped-query attention each query head is divided as its key head is multiplied.
    """
    model = copy.deepcopy(model)
    d = model.config.head_dim
    scale = torch.ones(d)
    scale[[d // 2 - 1, d - 1]] = factor
    with torch.no_grad():
        for layer in model.model.layers:
            attention = layer.self_attn
            for linear, s in ((attention.k_proj, scale), (attention.q_proj, 1 / scale)):
                rows = s.repeat(linear.out_features // d).to(linear.weight)  # one for each head
                linear.weight.mul_(rows[:, None])
                if linear.bias is not None:
                    linear.bias.mul_(rows)
    return model


@torch.no_grad()
def channel_spread(model: nn.Module, ids: Tensor) -> float:
    """Largest |k| of a channel over that of the median channel, the worst head of all layers."""
    cache = KVCache()
    model(ids, cache=cache)
    largest = torch.stack(cache.keys).abs().amax(dim=(1, 3))  # [layers, Hkv, d]
    return (largest.amax(-1) / largest.median(-1).values).max().item()
