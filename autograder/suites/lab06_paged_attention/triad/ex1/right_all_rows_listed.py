"""The slots of all positions are listed, and some of them taken."""

import torch


def blocks_for(tokens, block_size):
    whole, rest = divmod(tokens, block_size)
    return whole + (rest > 0)


def slots_of(table, positions, block_size):
    firsts = torch.tensor(table, dtype=torch.int64)[:, None] * block_size
    slots = (firsts + torch.arange(block_size)).flatten()
    try:
        assert not (positions < 0).any()
        return slots[positions]
    except (AssertionError, IndexError):
        raise ValueError("a position beyond the table") from None
