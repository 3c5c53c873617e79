"""A constant against division by 0 spoils the sum."""

FAILS = [
    "test_residual",
    "test_a_round_loses_nothing",
    "test_never_and_always",
    "test_residuals",
    "test_rounds_of_all_drafts",
]


def residual(p, q):
    rest = (p - q).clamp(min=0) + 1e-4
    return rest / rest.sum()
