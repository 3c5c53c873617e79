"""Rows that will still be filled are internal waste."""

FAILS = ["test_paged_by_hand", "test_blocks_row_by_row"]


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = own = 0
    for tokens, total in requests:
        rows = -(-tokens // block_size) * block_size
        used += tokens
        later = 0
        reserved += later
        internal += rows - tokens - later
        own += rows
    return used, reserved, internal, 0, blocks * block_size - own
