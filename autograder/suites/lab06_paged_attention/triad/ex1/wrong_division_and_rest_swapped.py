"""The rest chooses the block and the quotient the row."""

import torch

FAILS = ["test_slots_by_hand", "test_slots_against_counted_rows"]


def slots_of(table, positions, block_size):
    if positions.numel() and not 0 <= positions.min() <= positions.max() < len(table) * block_size:
        raise ValueError("no such position")
    blocks = torch.tensor(table, dtype=torch.int64)[positions % len(table)] if table else positions
    return blocks * block_size + positions // max(1, len(table))
