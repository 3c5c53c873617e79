"""One key after another, row by row."""


def online_update(m, total, acc, s, v):
    m, total, acc = m.clone(), total.clone(), acc.clone()
    for j in range(s.shape[1]):
        for i in range(s.shape[0]):
            if s[i, j] == -torch.inf:
                continue
            larger = max(m[i], s[i, j])
            old, new = (m[i] - larger).exp(), (s[i, j] - larger).exp()
            total[i], acc[i] = old * total[i] + new, old * acc[i] + new * v[j]
            m[i] = larger
    return m, total, acc


def finish(m, total, acc):
    o = torch.zeros_like(acc)
    o[total > 0] = acc[total > 0] / total[total > 0][:, None]
    return o, torch.where(total > 0, m + total.clamp(min=1e-30).log(), -torch.inf)


def merge(o_a, lse_a, o_b, lse_b):
    larger = torch.maximum(lse_a, lse_b)
    base = larger.clamp(min=-1e30)
    a, b = (lse_a - base).exp(), (lse_b - base).exp()
    total = (a + b).clamp(min=1e-30)
    return (a[:, None] * o_a + b[:, None] * o_b) / total[:, None], larger + (a + b).log()
