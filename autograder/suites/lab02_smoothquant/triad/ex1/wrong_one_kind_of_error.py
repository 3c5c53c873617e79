"""Hooks are removed after a RuntimeError, and after no other error."""

import torch

FAILS = ["test_model_that_raises"]


def channel_maxima(model, names, batches):
    maxima, handles = {}, []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].detach().abs().flatten(0, -2).amax(0).float()
            maxima[name] = torch.maximum(maxima[name], now) if name in maxima else now

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))

    def remove():
        for handle in handles:
            handle.remove()

    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    except RuntimeError:
        remove()
        raise
    remove()
    return maxima
