"""What is missing goes through a softmax."""

FAILS = [
    "test_residual",
    "test_a_round_loses_nothing",
    "test_never_and_always",
    "test_residuals",
    "test_rounds_of_all_drafts",
]


def residual(p, q):
    return (p - q).clamp(min=0).softmax(-1) if (p > q).any() else p
