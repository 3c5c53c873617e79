"""The table as a tensor, indexed by positions of any shape."""

import torch


def blocks_for(tokens, block_size):
    return -(-tokens // block_size)


def slots_of(table, positions, block_size):
    if positions.numel():
        if positions.min() < 0 or positions.max() >= len(table) * block_size:
            raise ValueError("position")
    t = torch.tensor(table, dtype=torch.int64)
    return t[positions // block_size] * block_size + positions % block_size
