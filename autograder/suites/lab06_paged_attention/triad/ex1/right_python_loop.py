"""divmod for one position after the other."""

import math

import torch


def blocks_for(tokens, block_size):
    return math.ceil(tokens / block_size)


def slots_of(table, positions, block_size):
    slots = []
    for p in positions.flatten().tolist():
        entry, row = divmod(p, block_size)
        if p < 0 or entry >= len(table):
            raise ValueError(f"position {p}")
        slots.append(table[entry] * block_size + row)
    return torch.tensor(slots, dtype=torch.int64).reshape(positions.shape)
