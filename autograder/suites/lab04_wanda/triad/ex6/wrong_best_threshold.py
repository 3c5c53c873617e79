"""best_units takes all that reach the n-th score: of equal ones too many."""

FAILS = ["test_best_units", "test_units_in_order"]


def unit_scores(w: Tensor, gram: Tensor, size: int) -> Tensor:
    w, gram = w.double(), gram.double()
    units = w.shape[1] // size
    out = torch.zeros(units)
    for u in range(units):
        s = slice(u * size, (u + 1) * size)
        out[u] = ((w[:, s] @ gram[s, s]) * w[:, s]).sum().clamp(min=0).sqrt()
    return out


def best_units(scores: Tensor, n: int) -> Tensor:
    return (scores >= scores.sort(descending=True).values[n - 1]).nonzero().flatten()


def remove_units(
    writers: list[Tensor], reader: Tensor, keep: Tensor, size: int
) -> tuple[list[Tensor], Tensor]:
    columns = (keep[:, None] * size + torch.arange(size)).flatten()
    return [w[columns] for w in writers], reader[:, columns]
