"""Sums built up over the requests; parts of a piece by their places."""


def contiguous_usage(pieces, size, wanted):
    used = sum(p[2] for p in pieces)
    reserved = sum(p[3] - p[2] for p in pieces)
    internal = sum(p[1] - p[0] - p[3] for p in pieces)
    gaps, end = [], 0
    for start, stop, *_ in sorted(pieces):
        gaps.append(start - end)
        end = stop
    gaps.append(size - end)
    free = sum(gaps)
    external = free if max(gaps) < wanted <= free else 0
    return used, reserved, internal, external, free - external


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = own = 0
    for tokens, total in requests:
        rows = -(-tokens // block_size) * block_size
        used += tokens
        later = min(rows, total) - tokens
        reserved += later
        internal += rows - tokens - later
        own += rows
    return used, reserved, internal, 0, blocks * block_size - own
