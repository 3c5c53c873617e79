"""The range is checked after a cast to uint8, where 256 is 0."""

import torch

FAILS = ["test_round_trip_of_codes", "test_codes_out_of_range"]


right = pack_int4  # noqa: F821


def pack_int4(codes):
    return right(codes.to(torch.uint8))
