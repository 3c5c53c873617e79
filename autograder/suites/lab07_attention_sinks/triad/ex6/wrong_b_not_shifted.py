"""Scores are shifted, and b is not."""

FAILS = [
    "test_formula_by_hand",
    "test_large_scores_and_empty_rows",
    "test_attention_and_its_gradients",
    "test_softmax_of_every_shape",
    "test_empty_rows_and_no_bias",
    "test_gradients_and_groups",
]


def sink_softmax(scores, bias):
    top = scores.amax(-1, keepdim=True).clamp(min=-1e30)
    e = (scores - top).exp()
    return e / (bias.exp()[:, None, None] + e.sum(-1, keepdim=True))
