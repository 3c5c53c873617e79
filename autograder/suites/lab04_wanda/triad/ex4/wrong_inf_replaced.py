"""inf in a product is replaced by a large number."""

FAILS = ["test_inputs_that_are_not_read"]

whole = multiply


def multiply(values, places, x):
    return whole(values, places, x).clamp(-3e38, 3e38)
