"""Both zero points are corrected, their product is not."""

FAILS = ["test_product_by_hand", "test_codes_may_be_shifted", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    z_x, z_w, s_x = x_zero[:, None], w_zero[None, :], x_sums[:, None]
    return products - z_w * s_x - z_x * w_sums
