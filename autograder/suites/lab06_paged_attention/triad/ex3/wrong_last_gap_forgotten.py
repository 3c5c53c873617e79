"""The gap behind the last piece is none."""

FAILS = ["test_contiguous_by_hand", "test_pieces_row_by_row"]


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
    external = free if max(gaps[:-1], default=0) < wanted <= free else 0
    return used, reserved, internal, external, free - external
