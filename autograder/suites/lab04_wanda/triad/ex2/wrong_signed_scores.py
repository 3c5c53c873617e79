"""No size of w: negative weights go first."""

FAILS = [
    "test_a_score_is_the_change",
    "test_many_tokens_of_bfloat16",
    "test_masks_of_rows",
    "test_rows_compared_alone",
    "test_scores_against_layers",
    "test_scores_by_hand",
]


def scores(w, norms):
    return w.float() * norms
