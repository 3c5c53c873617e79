"""What help and hints say, word for word."""


def online_update(m, total, acc, s, v):
    m_new = torch.maximum(m, s.max(dim=1).values)
    base = torch.where(m_new == -torch.inf, torch.zeros_like(m_new), m_new)
    old, new = torch.exp(m - base), torch.exp(s - base[:, None])
    return m_new, old * total + new.sum(1), old[:, None] * acc + new @ v


def finish(m, total, acc):
    divisor = torch.where(total == 0, torch.ones_like(total), total)
    return acc / divisor[:, None], m + torch.log(total)


def merge(o_a, lse_a, o_b, lse_b):
    larger = torch.maximum(lse_a, lse_b)
    base = torch.where(larger == -torch.inf, torch.zeros_like(larger), larger)
    a, b = torch.exp(lse_a - base)[:, None], torch.exp(lse_b - base)[:, None]
    both = torch.where(a + b == 0, torch.ones_like(a), a + b)
    return a / both * o_a + b / both * o_b, torch.logaddexp(lse_a, lse_b)
