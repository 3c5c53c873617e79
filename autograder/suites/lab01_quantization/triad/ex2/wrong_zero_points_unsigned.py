"""Zero points are cast to uint8: those below 0 wrap around."""

import torch

FAILS = ["test_codes_may_be_shifted", "test_signed_codes"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    z_x, z_w = x_zero.to(torch.uint8).int()[:, None], w_zero.to(torch.uint8).int()
    return products - z_w * x_sums[:, None] - z_x * w_sums + k * z_x * z_w
