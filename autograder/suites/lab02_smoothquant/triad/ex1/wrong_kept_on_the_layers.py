"""Maxima are kept on the layers: a second search starts from those of the first."""

import torch

FAILS = ["test_side_effects"]


def channel_maxima(model, names, batches):
    maxima, handles = {}, []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].detach().abs().flatten(0, -2).amax(0).float()
            before = getattr(module, "x_max", now)
            maxima[name] = module.x_max = torch.maximum(before, now)

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return maxima
