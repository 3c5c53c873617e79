"""In int16: every sum beyond 32 767 wraps around."""

import torch

FAILS = ["test_product_by_definition", "test_exact_up_to_the_last_bit"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    parts = (products, x_sums[:, None], w_sums, x_zero[:, None], w_zero)
    p, s_x, s_w, z_x, z_w = (part.to(torch.int16) for part in parts)
    return (p - s_x * z_w - z_x * s_w + k * z_x * z_w).to(torch.int32)
