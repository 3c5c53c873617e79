"""The pages of a sequence side by side, absorbed at once."""

import torch


def absorb(state, scores, values):
    m, t, a = state
    both = torch.cat([m[:, None], scores], dim=1)
    larger = both.max(dim=1, keepdim=True).values
    p = (both - larger).exp()
    new = torch.einsum("hn,hnd->hd", p[:, 1:], values)
    return larger[:, 0], t * p[:, 0] + p[:, 1:].sum(1), a * p[:, :1] + new


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    used = torch.tensor(table[: -(-length // k.shape[1])])
    keys, values = (x[used].flatten(0, 1)[:length].float() for x in (k, v))  # [n, Hkv, d]
    grouped = q.float().unflatten(0, (k.shape[2], -1))  # [Hkv, group, d]
    scores = torch.einsum("kgd,nkd->kgn", grouped, keys).flatten(0, 1) * d**-0.5
    values = values.repeat_interleave(heads // k.shape[2], dim=1).transpose(0, 1)
    first = torch.full((heads,), float("-inf")), torch.zeros(heads), torch.zeros(heads, d)
    _, t, a = absorb(first, scores, values)
    return a / t.unsqueeze(1)
