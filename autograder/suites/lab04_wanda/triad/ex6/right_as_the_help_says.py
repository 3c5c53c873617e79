"""The help and the hints, line by line."""


def unit_scores(w, gram, size):
    scores = torch.zeros(w.shape[1] // size)
    for u in range(len(scores)):
        columns = slice(u * size, (u + 1) * size)
        w_u, g_u = w[:, columns].float(), gram[columns, columns].float()
        scores[u] = (w_u @ g_u * w_u).sum().clamp(min=0).sqrt()
    return scores


def best_units(scores, n):
    return scores.topk(n).indices.sort().values


def remove_units(writers, reader, keep, size):
    places = (keep[:, None] * size + torch.arange(size)).flatten()
    return [w[places] for w in writers], reader[:, places]
