"""A silent channel counts as 1e-3 and not as nothing."""

FAILS = ["test_a_score_is_the_change", "test_norms_of_any_arrangement"]


norms_of_x = input_norms


def input_norms(x):
    return norms_of_x(x).clamp(min=1e-3)
