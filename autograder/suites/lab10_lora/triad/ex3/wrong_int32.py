"""Numbers are added in int32, which wraps."""

FAILS = ["test_whole_models"]


def trained_numbers(shapes, r):
    if not shapes:
        return 0
    sizes = torch.tensor(shapes, dtype=torch.int32)
    return int((sizes * r).sum(dtype=torch.int32))
