"""All rows side by side, by a view that only contiguous pages have."""

FAILS = ["test_equal_to_contiguous", "test_bfloat16_and_views"]


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    blocks, size, kv_heads, _ = k.shape
    k = k.view(-1, kv_heads * d).view(blocks, size, kv_heads, d)
    for i in range(blocks_for(length, size)):
        n = min(size, length - i * size)
        keys = k[table[i], :n].float().transpose(0, 1).repeat_interleave(group, 0)
        values = v[table[i], :n].float().transpose(0, 1).repeat_interleave(group, 0)
        scores = torch.einsum("hd,hnd->hn", q.float(), keys) / math.sqrt(d)
        state = absorb(state, scores, values)
    return state[2] / state[1][:, None]
