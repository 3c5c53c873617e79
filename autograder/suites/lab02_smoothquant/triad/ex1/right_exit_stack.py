"""Handles on an ExitStack, maxima kept per layer by a small class, outliers by a list."""

import contextlib

import torch


class Seen:
    def __init__(self):
        self.x_max = None

    def __call__(self, module, args):
        now = args[0].detach().float().abs().reshape(-1, args[0].shape[-1]).max(dim=0).values
        self.x_max = now if self.x_max is None else now.maximum(self.x_max)


def channel_maxima(model, names, batches):
    seen = {name: Seen() for name in names}
    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, hook in seen.items():
            handle = model.get_submodule(name).register_forward_pre_hook(hook)
            stack.callback(handle.remove)
        for batch in batches:
            model(batch)
    return {name: hook.x_max for name, hook in seen.items()}


def outlier_channels(x_max, ratio):
    limit = ratio * x_max.median().item()
    found = [j for j, top in enumerate(x_max.tolist()) if top > 0 and top >= limit]
    return torch.tensor(found, dtype=torch.int64)
