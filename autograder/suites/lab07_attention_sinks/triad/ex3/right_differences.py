"""What a longer text adds beyond the window, taken off the dense reading."""

import torch


def recomputed(forward, ids, size):
    out = []
    for end in range(1, ids.numel() + 1):
        logits = forward(ids[:end][-size:].unsqueeze(0))
        out.append(logits.squeeze(0)[-1])
    return torch.stack(out, dim=0)


def cost(way, tokens, size):
    if way not in ("dense", "window", "recompute"):
        raise ValueError(f"{way!r}")

    def dense(n):
        return n * (n + 1) // 2

    beyond = max(0, tokens - size)  # tokens whose window is full and has moved
    seen = dense(tokens) - dense(beyond)
    if way != "recompute":
        return tokens, seen if way == "window" else dense(tokens)
    growing = min(tokens, size)
    total = sum((growing * (growing + 1) * (2 * growing + 1) // 6, dense(growing))) // 2
    return seen, total + beyond * dense(size)
