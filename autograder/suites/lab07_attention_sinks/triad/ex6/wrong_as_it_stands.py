"""The formula as it stands overflows."""

FAILS = [
    "test_large_scores_and_empty_rows",
    "test_softmax_of_every_shape",
    "test_empty_rows_and_no_bias",
]


def sink_softmax(scores, bias):
    e = scores.exp()
    return e / (bias.exp()[:, None, None] + e.sum(-1, keepdim=True))
