"""m stays what it was."""

import torch

FAILS = ["test_online_softmax", "test_absorb_in_any_cuts"]


def absorb(state, scores, values):
    m, t, a = state
    larger = torch.maximum(m, scores.amax(-1))
    p, keep = torch.exp(scores - larger[:, None]), torch.exp(m - larger)
    return (
        torch.where(m.isinf(), larger, m),
        t * keep + p.sum(-1),
        a * keep[:, None] + (p[:, :, None] * values).sum(1),
    )
