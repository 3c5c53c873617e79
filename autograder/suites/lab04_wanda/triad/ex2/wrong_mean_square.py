"""A mean over tokens in place of a sum."""

FAILS = [
    "test_a_score_is_the_change",
    "test_many_tokens_of_bfloat16",
    "test_norms_of_any_arrangement",
    "test_scores_against_layers",
    "test_scores_by_hand",
]


def input_norms(x):
    return x.double().flatten(0, -2).square().mean(0).sqrt().float()
