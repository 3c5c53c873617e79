"""Requests fill blocks one behind the other."""

FAILS = ["test_paged_by_hand", "test_blocks_row_by_row"]


def paged_usage(requests, block_size, blocks):
    used = sum(tokens for tokens, _ in requests)
    own = -(-used // block_size) * block_size
    reserved = min(own - used, sum(total for _, total in requests) - used)
    return used, reserved, own - used - reserved, 0, blocks * block_size - own
