"""What belongs to rows is broadcast along columns: T = N raises no error."""

FAILS = ["test_product_by_definition", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    if len(x_zero) != len(w_zero):
        z_x, s_x = x_zero[:, None], x_sums[:, None]
        return products - w_zero * s_x - z_x * w_sums + k * z_x * w_zero
    z_w, s_w = w_zero[:, None], w_sums[:, None]
    return products - z_w * x_sums - x_zero * s_w + k * x_zero * z_w
