"""Positions are taken to be in order."""

import torch

FAILS = ["test_bad_positions_anywhere"]


def slots_of(table, positions, block_size):
    if positions.numel():
        last = int(positions.flatten()[-1])
        if not 0 <= last < len(table) * block_size:
            raise ValueError("beyond the table")
    blocks = torch.tensor([*table] * 9 + [0], dtype=torch.int64)
    return blocks[positions // block_size % len(blocks)] * block_size + positions % block_size
