"""Every row gets a label, and labels are counted."""


def piece(policy, prompt, output, longest):
    power = 1
    while power < output:
        power *= 2
    sizes = {"maximum": longest, "power2": prompt + power, "oracle": prompt + output}
    if policy not in sizes:
        raise ValueError(policy)
    return sizes[policy]


def contiguous_usage(pieces, size, wanted):
    rows = ["."] * size
    for start, stop, tokens, total in pieces:
        rows[start:stop] = "u" * tokens + "r" * (total - tokens) + "i" * (stop - start - total)
    text = "".join(rows)
    free = text.count(".")
    external = free if free >= wanted and "." * wanted not in text else 0
    return text.count("u"), text.count("r"), text.count("i"), external, free - external


def paged_usage(requests, block_size, blocks):
    text = ""
    for tokens, total in requests:
        text += "u" * tokens
        row = tokens
        while row % block_size:
            text += "r" if row < total else "i"
            row += 1
    free = blocks * block_size - len(text)
    return text.count("u"), text.count("r"), text.count("i"), 0, free
