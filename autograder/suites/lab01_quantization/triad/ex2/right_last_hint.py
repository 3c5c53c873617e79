"""The hints, step by step."""


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    z_x, z_w = x_zero[:, None], w_zero[None, :]
    return products - z_w * x_sums[:, None] - z_x * w_sums[None, :] + k * z_x * z_w
