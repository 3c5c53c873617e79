"""Three values in a group are refused, and four are not."""

FAILS = ["test_limits_and_bits"]


def compress(w):
    if w.shape[1] % 8:
        raise ValueError(w.shape)
    groups = w.reshape(len(w), -1, 4)
    if ((groups != 0).sum(-1) == 3).any():
        raise ValueError("three values in a group")
    at = groups.abs().topk(2).indices.sort(-1).values
    values = groups.gather(-1, at).reshape(len(w), -1)
    places = (at.reshape(len(w), -1, 4) << torch.tensor([0, 2, 4, 6])).sum(-1)
    return values, places.to(torch.uint8)
