"""Computes in float64, and rounds what it returns."""


def online_update(m, total, acc, s, v):
    m_new = torch.maximum(m, s.amax(-1))
    base = m_new.double().nan_to_num(neginf=0.0)
    old, p = (m.double() - base).exp(), (s.double() - base[:, None]).exp()
    sums = total.double() * old + p.sum(-1)
    return m_new, sums.float(), (acc.double() * old[:, None] + p @ v.double()).float()


def merge(o_a, lse_a, o_b, lse_b):
    both = torch.stack([lse_a, lse_b]).double()
    weights = both.softmax(0).nan_to_num(0.0)
    o = weights[0, :, None] * o_a + weights[1, :, None] * o_b
    return o.float(), both.logsumexp(0).float()
