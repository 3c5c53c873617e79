"""The highest two bits are read first."""

FAILS = ["test_inputs_that_are_not_read", "test_products", "test_products_of_any_storage"]


def multiply(values, places, x):
    at = (places[..., None].int() >> torch.tensor([6, 4, 2, 0])) & 3
    group = torch.arange(values.shape[1]) // 2
    inputs = 4 * group + at.flatten(1)
    rows = x.float().reshape(-1, x.shape[-1])
    y = torch.stack([(row[inputs] * values.float()).sum(1) for row in rows])
    return y.reshape(*x.shape[:-1], len(values))
