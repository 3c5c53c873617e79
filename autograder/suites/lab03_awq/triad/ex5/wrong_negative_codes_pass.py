"""Only codes above 15 are refused."""

FAILS = ["test_round_trip_of_codes", "test_codes_out_of_range"]

plain_pack = pack_int4  # noqa: F821 -- the canonical one


def pack_int4(codes):
    if (codes > 15).any():
        raise ValueError("codes must be in 0..15")
    return plain_pack(codes & 15)
