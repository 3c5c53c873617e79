"""Changes a state dict and loads it into a copy."""

import copy

import torch


def smooth(model, groups, maxima, alpha):
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for norm, readers in groups.items():
        weights = [state[f"{reader}.weight"] for reader in readers]
        s = smoothing_scales(maxima[readers[-1]], weights, alpha)  # noqa: F821 -- exercise 4
        for reader in readers:
            state[f"{reader}.weight"] = state[f"{reader}.weight"] @ torch.diag(s).to(
                weights[0].dtype
            )
        for name in ("weight", "bias"):
            if f"{norm}.{name}" in state:
                state[f"{norm}.{name}"] = state[f"{norm}.{name}"] / s
    smoothed = copy.deepcopy(model)
    smoothed.load_state_dict(state)
    return smoothed
