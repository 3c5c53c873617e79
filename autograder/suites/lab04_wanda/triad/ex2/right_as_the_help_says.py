"""The help and the last hint, line by line."""


def input_norms(x):
    return x.float().flatten(0, -2).square().sum(0).sqrt()


def scores(w, norms):
    return w.float().abs() * norms


def wanda_mask(w, norms, sparsity):
    return keep_share(scores(w, norms), sparsity, "row")
