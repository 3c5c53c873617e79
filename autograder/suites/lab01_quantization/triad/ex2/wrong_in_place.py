"""The corrections are written into the products that came in."""

FAILS = ["test_product_by_hand", "test_product_of_every_shape"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    products -= w_zero * x_sums[:, None]
    products -= x_zero[:, None] * w_sums
    products += k * x_zero[:, None] * w_zero
    return products
