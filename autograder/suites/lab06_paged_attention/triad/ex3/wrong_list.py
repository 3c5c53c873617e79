"""A list in place of a tuple."""

FAILS = ["test_contiguous_by_hand", "test_pieces_row_by_row"]

usage_of = contiguous_usage


def contiguous_usage(pieces, size, wanted):
    return list(usage_of(pieces, size, wanted))
