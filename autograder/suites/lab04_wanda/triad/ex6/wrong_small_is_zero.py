"""Traces below 1e-10 count as 0."""

FAILS = ["test_scores_against_outputs"]


def unit_scores(w, gram, size):
    product = (w.double().T @ w.double()) * gram.double()
    k = len(product)
    trace = product.reshape(k // size, size, k // size, size).sum((1, 3)).diagonal()
    return torch.where(trace > 1e-10, trace, 0.0).sqrt().float()
