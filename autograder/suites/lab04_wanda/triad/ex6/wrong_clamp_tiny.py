"""A floor of 1e-12 under the traces: tiny units score 1e-6."""

FAILS = ["test_scores_against_outputs"]


def unit_scores(w, gram, size):
    product = (w.double().T @ w.double()) * gram.double()
    k = len(product)
    blocks = product.reshape(k // size, size, k // size, size).sum((1, 3))
    return blocks.diagonal().clamp(min=1e-12).sqrt().float()
