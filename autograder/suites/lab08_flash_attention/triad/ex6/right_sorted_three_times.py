"""Sorts by the last rule first; float32 for the bytes."""


def choose_blocks(T, S, d, most):
    sizes = (16, 32, 64, 128, 256, 512)
    pairs = [(m, n) for m in sizes for n in sizes]
    pairs = [(m, n) for m, n in pairs if m * d + m * d + n * d + n * d + m * n <= most]
    if len(pairs) == 0:
        raise ValueError("even blocks of 16 are too large")
    pairs.sort(key=lambda pair: pair[0])
    pairs.sort(key=lambda pair: pair[1], reverse=True)
    pairs.sort(key=lambda pair: attention_bytes(T, S, d, pair[0], 4))
    return pairs[0]
