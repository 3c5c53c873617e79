"""The help and the last hint, word for word."""

import torch


def blocks_for(tokens, block_size):
    return (tokens + block_size - 1) // block_size


def slots_of(table, positions, block_size):
    if (positions < 0).any() or (positions > len(table) * block_size - 1).any():
        raise ValueError("positions must lie in the blocks of the table")
    blocks = torch.tensor(table, dtype=torch.long)
    return blocks[positions // block_size] * block_size + positions % block_size
