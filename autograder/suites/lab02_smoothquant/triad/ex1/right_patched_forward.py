"""Replaces forward on the instance and puts it back: no hooks at all."""

import torch


def channel_maxima(model, names, batches):
    maxima, layers = {}, {name: model.get_submodule(name) for name in names}

    def wrap(name, forward):
        def measured(x):
            top = x.detach().float().abs()
            while top.ndim > 1:
                top = top.amax(0)
            maxima[name] = top if name not in maxima else torch.maximum(top, maxima[name])
            return forward(x)

        return measured

    for name, layer in layers.items():
        layer.forward = wrap(name, layer.forward)
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for layer in layers.values():
            del layer.forward
    return maxima


def outlier_channels(x_max, ratio):
    order = torch.arange(len(x_max))
    return order[(x_max / ratio >= x_max.median()) & (x_max != 0)]
