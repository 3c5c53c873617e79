"""Slots are kept by the address of the positions, which may be written again."""

import torch

FAILS = ["test_slots_against_counted_rows"]


def blocks_for(tokens, block_size):
    return -(-tokens // block_size)


_KEPT = {}


def slots_of(table, positions, block_size):
    if positions.numel():
        if positions.min() < 0 or positions.max() >= len(table) * block_size:
            raise ValueError("position")
    t = torch.tensor(table, dtype=torch.int64)
    key = positions.data_ptr(), positions.shape, block_size, tuple(table)
    if key in _KEPT:
        return _KEPT[key]
    _KEPT[key] = t[positions // block_size] * block_size + positions % block_size
    return _KEPT[key]
