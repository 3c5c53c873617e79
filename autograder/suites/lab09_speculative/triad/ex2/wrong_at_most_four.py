"""At most four proposals are looked at: exact, and the others were drawn for nothing."""

import torch

FAILS = ["test_small_chances_and_long_rounds"]


def verify(proposed, q, p, coin, pick):
    kept = min(4, len(proposed))
    last = p[kept]
    for i, token in enumerate(proposed[:kept].tolist()):
        if not coin(min(1.0, float(p[i, token] / q[i, token]))):
            kept, last = i, residual(p[i], q[i])
            break
    return torch.cat([proposed[:kept], torch.tensor([pick(last)])])
