""".view() on what may not lie in one piece."""

FAILS = ["test_any_pieces"]


def online_update(m: Tensor, total: Tensor, acc: Tensor, s: Tensor, v: Tensor):
    """(m [T], total [T], acc [T, d]) after the keys of s [T, n] and v [n, d]."""
    m_new = torch.maximum(m, s.amax(-1))
    safe = m_new.masked_fill(m_new == -torch.inf, 0.0)  # -inf - (-inf) would be NaN
    p = (s.view(-1) - safe.repeat_interleave(s.shape[1])).exp().view(s.shape)
    correction = (m - safe).exp()
    return m_new, total * correction + p.sum(-1), acc * correction[:, None] + p @ v
