"""The reader loses rows where it is square, columns else."""

FAILS = ["test_removed_is_zeroed", "test_any_order_of_units"]


def unit_scores(w: Tensor, gram: Tensor, size: int) -> Tensor:
    w, gram = w.double(), gram.double()
    units = w.shape[1] // size
    out = torch.zeros(units)
    for u in range(units):
        s = slice(u * size, (u + 1) * size)
        out[u] = ((w[:, s] @ gram[s, s]) * w[:, s]).sum().clamp(min=0).sqrt()
    return out


def best_units(scores: Tensor, n: int) -> Tensor:
    return scores.argsort(descending=True)[:n].sort().values


def remove_units(
    writers: list[Tensor], reader: Tensor, keep: Tensor, size: int
) -> tuple[list[Tensor], Tensor]:
    columns = (keep[:, None] * size + torch.arange(size)).flatten()
    return [w[columns] for w in writers], reader[columns] if reader.shape[0] == reader.shape[
        1
    ] else reader[:, columns]
