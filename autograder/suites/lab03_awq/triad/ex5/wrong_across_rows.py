"""Codes are packed eight by eight across the rows."""

import torch

FAILS = ["test_words_by_hand", "test_round_trip_of_codes", "test_ragged_lengths"]


def pack_int4(codes):
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(codes.max())
    shape = (*codes.shape[:-1], (codes.shape[-1] + 7) // 8)
    flat = codes.flatten().int()
    flat = torch.nn.functional.pad(flat, (0, 8 * shape.__len__() + 8 * 100))
    words = torch.zeros(len(flat) // 8, dtype=torch.int32)
    for i in range(8):
        words |= flat[: len(words) * 8][i::8] << (4 * i)
    return words[: torch.Size(shape).numel()].reshape(shape)
