"""Norms of the texts are added; squares add, norms do not."""

FAILS = ["test_a_score_is_the_change", "test_norms_of_any_arrangement"]


def input_norms(x):
    texts = x.double().reshape(-1, *x.shape[-2:])
    return texts.square().sum(1).sqrt().sum(0).float()
