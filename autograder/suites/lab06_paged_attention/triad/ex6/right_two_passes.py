"""First the largest score of all blocks, then the sums; masked where no token is."""

import torch


def paged_attention(q, k, v, table, length):
    (heads, d), (_, size, kv_heads, _) = q.shape, k.shape
    q = q.to(torch.float32).reshape(kv_heads, heads // kv_heads, d)
    parts = []
    for start in range(0, length, size):
        block = table[start // size]
        beyond = torch.arange(start, start + size) >= length
        keys = k[block].to(torch.float32).permute(1, 2, 0)  # [Hkv, d, size]
        scores = (q @ keys / d**0.5).masked_fill(beyond, -torch.inf)
        values = v[block].to(torch.float32).masked_fill(beyond[:, None, None], 0.0)
        parts.append((scores, values.transpose(0, 1)))
    m = torch.stack([scores.amax(-1) for scores, _ in parts]).amax(0)[..., None]
    weights = [((scores - m).exp(), values) for scores, values in parts]
    t = sum(p.sum(-1) for p, _ in weights)
    return (sum(p @ values for p, values in weights) / t[..., None]).reshape(heads, d)
