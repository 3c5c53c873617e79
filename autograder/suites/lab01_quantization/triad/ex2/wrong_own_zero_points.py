"""Each sum is multiplied by the zero point of its own side."""

FAILS = ["test_product_by_hand", "test_product_by_definition", "test_one_side_at_a_time"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    s_x, z_x = x_sums[:, None], x_zero[:, None]
    return products - z_x * s_x - w_zero * w_sums + k * z_x * w_zero
