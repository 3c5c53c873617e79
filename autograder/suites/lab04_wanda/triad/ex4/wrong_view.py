"""view on inputs that are not contiguous."""

FAILS = ["test_products_of_any_storage"]


def multiply(values, places, x):
    at = (places[..., None].int() >> torch.tensor([0, 2, 4, 6])) & 3
    inputs = 4 * (torch.arange(values.shape[1]) // 2) + at.flatten(1)
    rows = x.view(-1, x.shape[-1])
    y = torch.stack([(row[inputs] * values.float()).sum(1) for row in rows])
    return y.reshape(*x.shape[:-1], len(values))
