"""The corrections are kept, and found again by shape: other zero points get them."""

FAILS = ["test_product_of_each_call", "test_one_side_at_a_time"]


_kept = {}


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    key = products.shape
    if key not in _kept:
        z_x = x_zero[:, None]
        _kept[key] = k * z_x * w_zero - w_zero * x_sums[:, None] - z_x * w_sums
    return products + _kept[key]
