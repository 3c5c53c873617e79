"""F.linear keeps the decoded W until the backward pass."""

FAILS = [
    "test_bfloat16_and_no_gradient",
    "test_nothing_large_is_kept",
    "test_two_layers_against_autograd",
]


def frozen_product(x, decode):
    return F.linear(x, decode().to(x.dtype))
