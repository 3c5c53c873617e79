"""The two largest in the order of their size."""

FAILS = ["test_every_pair_of_places", "test_storage_by_hand"]


def compress(w):
    if w.shape[1] % 8 or not fits(w, 2, 4):
        raise ValueError
    groups = w.reshape(w.shape[0], -1, 4)
    first = groups.abs().argsort(dim=-1, descending=True)[..., :2]
    at = first
    values = groups.gather(-1, at).flatten(1)
    quads = at.flatten(1).reshape(w.shape[0], -1, 4)
    places = (quads << torch.tensor([0, 2, 4, 6])).sum(-1)
    return values, places.to(torch.uint8)
