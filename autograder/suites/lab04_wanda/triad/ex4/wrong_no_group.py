"""Every place is one of the first four inputs."""

FAILS = ["test_inputs_that_are_not_read", "test_products", "test_products_of_any_storage"]


def multiply(values, places, x):
    at = (places[..., None].int() >> torch.tensor([0, 2, 4, 6])) & 3
    group = torch.arange(values.shape[1]) // 2
    inputs = 0 * group + at.flatten(1)
    rows = x.float().reshape(-1, x.shape[-1])
    y = torch.stack([(row[inputs] * values.float()).sum(1) for row in rows])
    return y.reshape(*x.shape[:-1], len(values))
