"""What the help and the hints say, taken as they stand."""

import torch
import torch.nn.functional as F


def stream_losses(step, ids):
    losses = []
    for t in range(ids.shape[1] - 1):
        logits = step(ids[:, t : t + 1])[:, -1].float()
        losses.append(F.cross_entropy(logits, ids[:, t + 1], reduction="none"))
    return torch.stack(losses, dim=1)


def compare(a, b):
    if a.ndim != 2 or a.shape != b.shape or a.shape[0] < 2:
        raise ValueError("two dimensions, equal shapes, n >= 2")
    per_text = (a - b).double().mean(1)
    error = per_text.std() / len(per_text) ** 0.5
    mean = per_text.mean()
    return mean.exp().item(), (mean - 2 * error).exp().item(), (mean + 2 * error).exp().item()
