"""The dictionary is a default argument: a second search starts from the first one's maxima."""

import torch

FAILS = ["test_maxima_by_hand", "test_maxima_of_a_random_network"]


def channel_maxima(model, names, batches, maxima={}):  # noqa: B006 -- the mistake
    handles = []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].detach().abs().flatten(0, -2).amax(0).float()
            maxima[name] = torch.maximum(maxima[name], now) if name in maxima else now

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: maxima[name].clone() for name in names}
