"""A loop over units."""


def unit_scores(w, gram, size):
    values = []
    for start in range(0, w.shape[1], size):
        part, block = w[:, start : start + size].double(), gram[start : start + size].double()
        values.append((part @ block[:, start : start + size] @ part.T).trace().clamp(min=0).sqrt())
    return torch.stack(values).float()


def best_units(scores, n):
    order = scores.argsort(descending=True)[:n]
    return order.sort().values


def remove_units(writers, reader, keep, size):
    kept = [slice(u * size, (u + 1) * size) for u in keep.tolist()]
    columns = torch.cat([reader[:, part] for part in kept], dim=1)
    return [torch.cat([w[part] for part in kept]) for w in writers], columns
