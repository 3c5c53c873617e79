"""Zero points below 4 are taken for 0."""

import torch

FAILS = ["test_product_by_hand", "test_product_of_every_shape", "test_signed_codes"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    z_x, z_w = (torch.where(z < 4, 0, z) for z in (x_zero, w_zero))
    z_x = z_x[:, None]
    return products - z_w * x_sums[:, None] - z_x * w_sums + k * z_x * z_w
