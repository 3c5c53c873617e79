"""Sums below 0 are cut off at 0."""

FAILS = ["test_codes_may_be_shifted", "test_signed_codes"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    s_x, z_x = x_sums.clamp(min=0)[:, None], x_zero[:, None]
    s_w = w_sums.clamp(min=0)
    return products - w_zero * s_x - z_x * s_w + k * z_x * w_zero
