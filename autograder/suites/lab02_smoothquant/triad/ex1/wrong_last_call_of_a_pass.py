"""Two calls in one pass: the second replaces the first; batches are merged."""

import torch

FAILS = ["test_no_hook_stays", "test_layer_that_runs_twice"]


def channel_maxima(model, names, batches):
    found_max, handles, current = {}, [], {}

    def make(name):
        def remember(module, args):
            top = args[0].detach().abs().flatten(0, -2).amax(0).float()
            current[name] = top

        return remember

    try:
        for name in names:
            handles.append(model.get_submodule(name).register_forward_pre_hook(make(name)))
        with torch.no_grad():
            for batch in batches:
                model(batch)
                for name, top in current.items():
                    found_max[name] = torch.maximum(found_max.get(name, top), top)
                current.clear()
    finally:
        for handle in handles:
            handle.remove()
    return found_max
