"""Of several rows of positions only the last one is checked."""

FAILS = ["test_bad_positions_anywhere"]


def slots_of(table, positions, block_size):
    top, rows = len(table) * block_size, positions
    while rows.ndim > 1:
        rows = rows[-1]
    if ((rows < 0) | (rows >= top)).any():
        raise ValueError("positions")
    blocks = torch.tensor([*table, 0], dtype=torch.int64)
    return blocks[(positions // block_size).clamp(max=len(table))] * block_size + (
        positions % block_size
    )
