"""b is added to every score."""

FAILS = [
    "test_formula_by_hand",
    "test_large_scores_and_empty_rows",
    "test_attention_and_its_gradients",
    "test_softmax_of_every_shape",
    "test_empty_rows_and_no_bias",
    "test_gradients_and_groups",
]


def sink_softmax(scores, bias):
    return (scores + bias[:, None, None]).softmax(-1)
