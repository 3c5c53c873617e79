"""Scores times log2(e) and exp2, as kernels have it; m and lse stay natural."""

LOG2_E = 1.4426950408889634


def _power(s, m):
    """exp(s - m), 0 where both are -inf. s, m: shapes that broadcast."""
    return torch.exp2(LOG2_E * s - LOG2_E * m.clamp(min=-1e30))


def online_update(m, total, acc, s, v):
    new = torch.maximum(m, s.amax(dim=-1))
    p, factor = _power(s, new[:, None]), _power(m, new)
    return new, factor * total + p.sum(-1), factor[:, None] * acc + p @ v


def finish(m, total, acc):
    some = total.where(total > 0, 1.0)
    return acc / some[:, None], m + some.log2() / LOG2_E


def merge(o_a, lse_a, o_b, lse_b):
    largest = torch.maximum(lse_a, lse_b)
    a, b = _power(lse_a, largest), _power(lse_b, largest)
    share = a / (a + b).where(a + b > 0, 1.0)
    o = share[:, None] * o_a + (1 - share)[:, None] * o_b
    return o, torch.logaddexp2(LOG2_E * lse_a, LOG2_E * lse_b) / LOG2_E
