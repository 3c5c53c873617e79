"""What is small beside its terms is taken for a rounding error."""

FAILS = ["test_traces_below_zero"]


def unit_scores(w, gram, size):
    w, gram, found = w.double(), gram.double(), []
    for u in range(0, w.shape[1], size):
        part, block = w[:, u : u + size], gram[u : u + size, u : u + size]
        terms = part.T @ part * block
        found.append(terms.sum() * (terms.sum() > 1e-6 * terms.abs().sum()))
    return torch.stack(found).sqrt().float()
