"""The weights are taken for symmetric: their zero point is forgotten."""

FAILS = ["test_product_by_hand", "test_one_side_at_a_time"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    return products - x_zero[:, None] * w_sums
