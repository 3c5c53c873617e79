"""view on inputs that are not contiguous."""

FAILS = ["test_norms_of_any_arrangement"]


def input_norms(x):
    return x.double().view(-1, x.shape[-1]).square().sum(0).sqrt().float()
