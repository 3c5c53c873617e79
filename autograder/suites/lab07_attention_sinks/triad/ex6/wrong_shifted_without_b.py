"""Shifted by the largest score; e^(b - max) overflows."""

FAILS = ["test_large_scores_and_empty_rows", "test_empty_rows_and_no_bias"]


def sink_softmax(scores, bias):
    top = scores.amax(-1, keepdim=True)
    e = (scores - top).exp()
    return e / ((bias[:, None, None] - top).exp() + e.sum(-1, keepdim=True))
