# Rows by torch's own arithmetic; torch's attention for each piece.


def slots(pieces, tables, block):
    found = []
    for name, cached, n in pieces:
        p = torch.arange(cached, cached + n)
        found.append(torch.tensor(tables[name])[p // block] * block + p % block)
    return torch.cat(found)


def attend(q, k_pages, v_pages, pieces, tables):
    sizes = [n for _, _, n in pieces]
    results = []
    for part, (name, cached, n) in zip(q.split(sizes), pieces, strict=True):
        blocks = torch.tensor(tables[name])
        k, v = (x.index_select(0, blocks).flatten(0, 1)[: cached + n] for x in (k_pages, v_pages))
        mask = torch.ones(n, cached + n, dtype=torch.bool).tril(cached)
        out = F.scaled_dot_product_attention(
            part.transpose(0, 1),
            k.transpose(0, 1),
            v.transpose(0, 1),
            attn_mask=mask,
            enable_gqa=True,
        )
        results.append(out.transpose(0, 1))
    return torch.cat(results)
