"""Blocks for the whole answer are counted at once."""

FAILS = ["test_paged_by_hand", "test_blocks_row_by_row"]


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = own = 0
    for tokens, total in requests:
        rows = -(-total // block_size) * block_size
        used += tokens
        later = min(rows, total) - tokens
        reserved += later
        internal += rows - tokens - later
        own += rows
    return used, reserved, internal, 0, blocks * block_size - own
