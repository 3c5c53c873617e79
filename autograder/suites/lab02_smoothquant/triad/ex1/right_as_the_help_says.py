"""The help of the card, word for word."""

import torch


def channel_maxima(model, names, batches):
    maxima, handles = {}, []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].float().abs().flatten(0, -2).amax(0)
            maxima[name] = torch.maximum(now, maxima.get(name, now))

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return maxima


def outlier_channels(x_max, ratio):
    return torch.where((x_max >= ratio * torch.median(x_max)) & (x_max > 0))[0]
