"""Every mode is noted, the model runs in eval mode, and every mode is put back."""

import torch


def channel_maxima(model, names, batches):
    maxima, handles = {}, []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].detach().abs().reshape(-1, args[0].shape[-1]).amax(0).float()
            maxima[name] = torch.maximum(maxima[name], now) if name in maxima else now

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes.items():
            module.training = training
    return maxima
