"""One wrong guess loses the whole round."""

FAILS = ["x"]


def verify_greedy(proposed, logits):
    own = logits.argmax(-1)
    return own if bool((own[:-1] == proposed).all()) else own[:1]
