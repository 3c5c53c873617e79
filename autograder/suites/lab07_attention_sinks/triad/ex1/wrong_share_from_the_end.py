"""Negative numbers count from the end."""

FAILS = ["test_share_by_hand", "test_shares_of_every_token"]


def share(p, token, first):
    if not (token < p.shape[2] and first < p.shape[1]):
        raise ValueError("no such column or query")
    return p[:, first:, token].mean(-1)
