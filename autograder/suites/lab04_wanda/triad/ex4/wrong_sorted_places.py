"""Places are sorted within a group, their values are not."""

FAILS = ["test_products", "test_products_of_any_storage"]


def multiply(values, places, x):
    at = (places[..., None].int() >> torch.tensor([0, 2, 4, 6])) & 3
    group = torch.arange(values.shape[1]) // 2
    inputs = 4 * group + at.reshape(len(values), -1, 2).sort(-1).values.flatten(1)
    rows = x.float().reshape(-1, x.shape[-1])
    y = torch.stack([(row[inputs] * values.float()).sum(1) for row in rows])
    return y.reshape(*x.shape[:-1], len(values))
