"""The weight is built up again: 0 times NaN is NaN."""

FAILS = ["test_inputs_that_are_not_read", "test_what_is_not_read"]


def multiply(values, places, x):
    at = (places[..., None].long() >> torch.tensor([0, 2, 4, 6])) & 3
    at = at.reshape(len(values), -1, 2)
    groups = torch.zeros(*at.shape[:2], 4).scatter(-1, at, values.float().reshape(at.shape))
    return x @ groups.flatten(1).T
