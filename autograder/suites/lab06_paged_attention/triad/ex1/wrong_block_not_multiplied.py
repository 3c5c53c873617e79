"""The row is added to the number of the block."""

import torch

FAILS = ["test_slots_by_hand", "test_slots_against_counted_rows"]


def slots_of(table, positions, block_size):
    if positions.numel() and not 0 <= positions.min() <= positions.max() < len(table) * block_size:
        raise ValueError("no such position")
    return torch.tensor(table, dtype=torch.int64)[positions // block_size] + positions % block_size
