"""NumPy's sums; a product of factors; windows by recursion on what is left."""

import math

import numpy as np


def _all(losses, base):
    if base <= 1.0:
        raise ValueError(f"base {base}")
    parts = [x.double().numpy() for x in losses]
    return np.concatenate(parts) if parts else np.zeros(0)


def perplexity(losses, base=math.e):
    every = _all(losses, base)
    if every.size == 0:
        raise ValueError("no token")
    return float(np.power(float(base), every.sum() / every.size))


def bits_per_byte(losses, text_bytes, base=math.e):
    every = _all(losses, base)
    if text_bytes <= 0:
        raise ValueError(f"{text_bytes} bytes")
    return float(every.sum() / np.log(2) * np.log(base)) / text_bytes


def strided_windows(tokens, window, stride):
    if not (tokens >= 0 and window > stride > 0):
        raise ValueError("strided_windows")
    done, passes = min(tokens, window), []
    if done >= 2:
        passes.append((0, done, 1))
    while done < tokens:
        new = min(stride, tokens - done)
        passes.append((done + new - window, done + new, done))
        done += new
    return passes
