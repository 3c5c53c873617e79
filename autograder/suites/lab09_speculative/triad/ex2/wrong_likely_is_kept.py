"""A proposal with more than 0.99 is kept without a coin."""

import torch

FAILS = ["test_small_chances_and_long_rounds"]


def verify(proposed, q, p, coin, pick):
    kept, last = len(proposed), p[-1]
    for i, token in enumerate(proposed.tolist()):
        chance = min(1.0, float(p[i, token] / q[i, token]))
        if not (chance > 0.99 or coin(chance)):
            kept, last = i, residual(p[i], q[i])
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
