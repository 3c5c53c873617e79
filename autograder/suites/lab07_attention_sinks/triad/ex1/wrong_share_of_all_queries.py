"""first is ignored."""

FAILS = ["test_share_by_hand", "test_shares_of_every_token"]


def share(p, token, first):
    if not (0 <= token < p.shape[2] and 0 <= first < p.shape[1]):
        raise ValueError("no such column or query")
    return p[:, :, token].mean(-1)
