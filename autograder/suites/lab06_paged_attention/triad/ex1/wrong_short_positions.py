"""Positions in 16 bits."""

FAILS = ["test_slots_against_counted_rows"]
slots_before = slots_of


def slots_of(table, positions, block_size):
    if positions.numel() and not 0 <= positions.min() <= positions.max() < len(table) * block_size:
        raise ValueError("positions")
    return slots_before(table, positions.short().long(), block_size)
