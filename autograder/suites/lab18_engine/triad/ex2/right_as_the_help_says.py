# The keys of a piece gathered by slots; ordinary attention with a mask, head by head.


def slots(pieces, tables, block):
    out = []
    for name, cached, n in pieces:
        for p in range(cached, cached + n):
            out.append(tables[name][p // block] * block + p % block)
    return torch.tensor(out)


def attend(q, k_pages, v_pages, pieces, tables):
    block, heads, out, start = k_pages.shape[1], q.shape[1], torch.empty_like(q), 0
    for name, cached, n in pieces:
        rows = slots([(name, 0, cached + n)], tables, block)
        keys, values = k_pages.flatten(0, 1)[rows], v_pages.flatten(0, 1)[rows]
        seen = torch.arange(cached + n)[None] <= torch.arange(cached, cached + n)[:, None]
        for h in range(heads):
            g = h * keys.shape[1] // heads
            scores = q[start : start + n, h] @ keys[:, g].T / q.shape[2] ** 0.5
            scores = torch.where(seen, scores, torch.tensor(float("-inf"), dtype=q.dtype))
            out[start : start + n, h] = torch.softmax(scores, dim=1) @ values[:, g]
        start += n
    return out
