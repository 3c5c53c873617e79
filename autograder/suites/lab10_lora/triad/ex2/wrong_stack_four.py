"""No more than four updates."""

FAILS = ["test_sums_of_updates"]


def stack(updates):
    updates = updates[:4]
    a = torch.cat([a for a, _, _ in updates])
    b = torch.cat([scale * b for _, b, scale in updates], dim=1)
    return a, b
