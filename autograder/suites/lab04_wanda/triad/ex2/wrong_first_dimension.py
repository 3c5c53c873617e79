"""Only the first dimension is summed."""

FAILS = ["test_a_score_is_the_change", "test_norms_of_any_arrangement"]


def input_norms(x):
    return x.double().square().sum(0).sqrt().reshape(-1, x.shape[-1])[0].float()
