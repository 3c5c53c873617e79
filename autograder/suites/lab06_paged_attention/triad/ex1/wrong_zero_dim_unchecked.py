"""A single position, a tensor without a dimension, is not checked."""

FAILS = ["test_bad_positions_anywhere"]


def slots_of(table, positions, block_size):
    top = len(table) * block_size
    if positions.ndim and ((positions < 0) | (positions >= top)).any():
        raise ValueError("positions")
    blocks = torch.tensor([*table, 0], dtype=torch.int64)
    return blocks[(positions // block_size).clamp(max=len(table))] * block_size + (
        positions % block_size
    )
