"""A trace below zero by its size."""

FAILS = ["test_traces_below_zero", "test_units_by_hand"]


def unit_scores(w, gram, size):
    w, gram = w.double(), gram.double()
    values = []
    for u in range(w.shape[1] // size):
        c = slice(u * size, (u + 1) * size)
        values.append((w[:, c] @ gram[c, c] * w[:, c]).sum())
    return torch.stack(values).abs().sqrt().float()
