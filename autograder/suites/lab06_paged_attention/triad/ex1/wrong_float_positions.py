"""Positions divided as float32: the last row of a large block lies in the next one."""

FAILS = ["test_slots_against_counted_rows"]


def slots_of(table, positions, block_size):
    if ((positions < 0) | (positions >= len(table) * block_size)).any():
        raise ValueError("positions")
    entries = torch.floor(positions / block_size).long()
    return torch.tensor(table, dtype=torch.int64)[entries] * block_size + positions % block_size
