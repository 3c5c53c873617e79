"""A request has at least one block, also while it has no token."""

FAILS = ["test_paged_by_hand"]


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = taken = 0
    for tokens, total in requests:
        rows = max(1, blocks_for(tokens, block_size)) * block_size
        later = min(rows, total) - tokens
        used, reserved, taken = used + tokens, reserved + later, taken + rows
        internal += rows - tokens - later
    return used, reserved, internal, 0, blocks * block_size - taken
