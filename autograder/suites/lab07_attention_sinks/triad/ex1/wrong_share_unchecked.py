"""What is not there is an IndexError, or NaN."""

FAILS = ["test_share_by_hand", "test_shares_of_every_token"]


def share(p, token, first):
    return p[:, first:, token].mean(-1)
