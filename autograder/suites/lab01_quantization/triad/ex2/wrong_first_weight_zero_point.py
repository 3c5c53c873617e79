"""The zero point of the first output is used for all."""

FAILS = ["test_product_by_definition", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    s_x, z_x, z_w = x_sums[:, None], x_zero[:, None], w_zero[0]
    return products - z_w * s_x - z_x * w_sums + k * z_x * z_w
