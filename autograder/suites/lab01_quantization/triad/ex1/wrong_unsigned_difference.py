"""codes - zero in uint8: 3 - 5 is 254."""

FAILS = ["test_codes_by_hand", "test_error_is_half_a_step", "test_all_codes_survive"]


def dequantize(codes, scale, zero):
    return (codes - zero.to(codes.dtype)).float() * scale
