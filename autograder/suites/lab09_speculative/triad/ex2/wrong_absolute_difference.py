"""The absolute difference in place of what is missing."""

FAILS = [
    "test_residual",
    "test_a_round_loses_nothing",
    "test_never_and_always",
    "test_residuals",
    "test_rounds_of_all_drafts",
    "test_rounds_of_the_real_pair",
]


def residual(p, q):
    rest = (p - q).abs()
    return rest / rest.sum() if rest.sum() > 0 else p
