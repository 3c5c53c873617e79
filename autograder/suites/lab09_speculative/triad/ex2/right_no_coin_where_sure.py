"""No coin where the chance is 0 or 1."""

import torch


def verify(proposed, q, p, coin, pick):
    out = []
    for i, x in enumerate(proposed.tolist()):
        chance = (p[i, x] / q[i, x]).item()
        if chance >= 1 or (chance > 0 and coin(chance)):
            out.append(x)
            continue
        return torch.tensor([*out, pick(residual(p[i], q[i]))])  # noqa: F821 -- given in the notebook
    return torch.tensor([*out, pick(p[-1])])
