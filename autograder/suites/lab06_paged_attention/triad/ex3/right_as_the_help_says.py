"""The help and the hints, word for word."""


def piece(policy, prompt, output, longest):
    match policy:
        case "maximum":
            return longest
        case "power2":
            return prompt + 2 ** (output - 1).bit_length()
        case "oracle":
            return prompt + output
    raise ValueError(f"no policy {policy}")


def contiguous_usage(pieces, size, wanted):
    used = reserved = internal = end = longest = total_gap = 0
    for start, stop, tokens, total in sorted(pieces) + [(size, size, 0, 0)]:
        used += tokens
        reserved += total - tokens
        internal += stop - start - total
        longest, total_gap, end = max(longest, start - end), total_gap + start - end, stop
    if longest < wanted and not total_gap < wanted:
        return used, reserved, internal, total_gap, 0
    return used, reserved, internal, 0, total_gap


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = own = 0
    for tokens, total in requests:
        rows = (tokens + block_size - 1) // block_size * block_size
        used, own = used + tokens, own + rows
        reserved += min(rows, total) - tokens
        internal += rows - min(rows, total)
    return used, reserved, internal, 0, blocks * block_size - own
