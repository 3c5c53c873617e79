"""In float32, which keeps 24 bits."""

import torch

FAILS = ["test_large_sums_are_exact", "test_exact_up_to_the_last_bit"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    x_sums, x_zero = x_sums.float()[:, None], x_zero.float()[:, None]
    total = products.float() - x_sums * w_zero - x_zero * w_sums + k * x_zero * w_zero
    return total.round().to(torch.int32)
