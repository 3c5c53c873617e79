"""What is not used yet counts as internal waste."""

FAILS = ["test_contiguous_by_hand", "test_pieces_row_by_row"]

usage_of = contiguous_usage


def contiguous_usage(pieces, size, wanted):
    used, reserved, internal, external, free = usage_of(pieces, size, wanted)
    return used, 0, reserved + internal, external, free
