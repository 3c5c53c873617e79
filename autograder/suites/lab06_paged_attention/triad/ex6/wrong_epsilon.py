"""A small number added to t, "against a division by zero"."""

FAILS = ["test_large_scores"]


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(blocks_for(length, size)):
        n = min(size, length - i * size)
        keys, values = (
            x[table[i], :n].float().repeat_interleave(group, 1).transpose(0, 1) for x in (k, v)
        )
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)
        state = absorb(state, scores, values)
    return state[2] / (state[1][:, None] + 2e-6)
