"""A sum of its own, with the largest score of the first block."""

FAILS = ["test_large_scores"]


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    m, t, a = None, torch.zeros(heads), torch.zeros(heads, d)
    for i in range(blocks_for(length, size)):
        n = min(size, length - i * size)
        keys, values = (
            x[table[i], :n].float().repeat_interleave(group, 1).transpose(0, 1) for x in (k, v)
        )
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)
        m = scores.amax(-1, keepdim=True) if m is None else m
        p = torch.exp(scores - m)
        t, a = t + p.sum(-1), a + (p[:, :, None] * values).sum(1)
    return a / t[:, None]
