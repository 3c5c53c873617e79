"""What help and hints say, word for word."""

import math


def perplexity(losses, base=math.e):
    if base <= 1:
        raise ValueError("base")
    total, tokens = 0.0, 0
    for text in losses:
        total += text.double().sum().item()
        tokens += len(text)
    if tokens == 0:
        raise ValueError("no token")
    return base ** (total / tokens)


def bits_per_byte(losses, text_bytes, base=math.e):
    if base <= 1 or text_bytes < 1:
        raise ValueError("base or bytes")
    total = 0.0
    for text in losses:
        total += text.double().sum().item()
    return total * math.log2(base) / text_bytes


def strided_windows(tokens, window, stride):
    if tokens < 0 or stride < 1 or stride >= window:
        raise ValueError("strides")
    passes, following = [], 1
    while following < tokens:
        end = following + stride if passes else window
        end = min(end, tokens)
        passes.append((max(end - window, 0), end, following))
        following = end
    return passes
