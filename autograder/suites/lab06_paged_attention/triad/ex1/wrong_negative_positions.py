"""-1 is the last position to Python."""

import torch

FAILS = ["test_positions_that_are_none", "test_bad_positions_anywhere"]


def slots_of(table, positions, block_size):
    if (positions >= len(table) * block_size).any():
        raise ValueError("beyond the table")
    blocks = torch.tensor(table, dtype=torch.int64)[positions // block_size]
    return blocks * block_size + positions % block_size
