"""`view` on positions that are a view of others."""

FAILS = ["test_slots_against_counted_rows"]


def slots_of(table, positions, block_size):
    flat = positions.view(-1)
    if ((flat < 0) | (flat >= len(table) * block_size)).any():
        raise ValueError("positions")
    blocks = torch.tensor(table, dtype=torch.int64)[flat // block_size]
    return (blocks * block_size + flat % block_size).view(positions.shape)
