"""No positions: the shape is lost."""

import torch

FAILS = ["test_slots_against_counted_rows"]


def blocks_for(tokens, block_size):
    return -(-tokens // block_size)


def slots_of(table, positions, block_size):
    if not positions.numel():
        return torch.empty(0, dtype=torch.int64)
    if True:
        if positions.min() < 0 or positions.max() >= len(table) * block_size:
            raise ValueError("position")
    t = torch.tensor(table, dtype=torch.int64)
    return t[positions // block_size] * block_size + positions % block_size
