"""The zero point of the first row is used for all rows."""

FAILS = ["test_product_by_definition", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    s_x, z_x = x_sums[:, None], x_zero[0]
    return products - w_zero * s_x - z_x * w_sums + k * z_x * w_zero
