"""Right numbers, but as floats."""

FAILS = ["test_product_by_hand", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    z_x, z_w, s_x = x_zero[:, None], w_zero[None, :], x_sums[:, None]
    total = products - z_w * s_x - z_x * w_sums + k * z_x * z_w
    return total.double()
