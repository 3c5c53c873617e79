"""Slots in ascending order of the positions."""

import torch

FAILS = ["test_slots_by_hand"]


def slots_of(table, positions, block_size):
    if positions.numel() and not 0 <= positions.min() <= positions.max() < len(table) * block_size:
        raise ValueError("no such position")
    shape, positions = positions.shape, positions.flatten().sort().values
    blocks = torch.tensor(table, dtype=torch.int64)[positions // block_size]
    return (blocks * block_size + positions % block_size).reshape(shape)
