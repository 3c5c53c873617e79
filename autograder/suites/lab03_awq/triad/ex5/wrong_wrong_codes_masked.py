"""& 15 hides codes that are none."""

import torch

FAILS = ["test_round_trip_of_codes", "test_codes_out_of_range"]


def pack_int4(codes):
    codes = torch.nn.functional.pad(codes.int(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32)
    for i in range(8):
        words |= (codes[..., i] & 15) << (4 * i)
    return words
