"""Spaces around a policy are dropped."""

FAILS = ["test_powers_of_two"]


def piece(policy, prompt, output, longest):
    policy = policy and policy.strip()
    if policy == "maximum":
        return longest
    if policy == "power2":
        return prompt + (1 << (output - 1).bit_length())
    if policy == "oracle":
        return prompt + output
    raise ValueError(policy)


def contiguous_usage(pieces, size, wanted):
    used = reserved = internal = 0
    end, gaps = 0, []
    for start, stop, tokens, total in sorted(pieces):
        used += tokens
        reserved += total - tokens
        internal += stop - start - total
        gaps.append(start - end)
        end = stop
    gaps.append(size - end)
    nobody = sum(gaps)
    external = nobody if max(gaps) < wanted <= nobody else 0
    return used, reserved, internal, external, nobody - external


def paged_usage(requests, block_size, blocks):
    used = reserved = internal = own_all = 0
    for tokens, total in requests:
        own = blocks_for(tokens, block_size) * block_size
        used += tokens
        reserved += min(own, total) - tokens
        internal += own - min(own, total)
        own_all += own
    return used, reserved, internal, 0, blocks * block_size - own_all
