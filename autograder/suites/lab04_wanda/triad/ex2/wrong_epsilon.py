"""Something under the root, against a gradient that nobody takes."""

FAILS = ["test_norms_of_any_arrangement"]


def input_norms(x):
    return (x.double().flatten(0, -2).square().sum(0) + 1e-12).sqrt().float()
