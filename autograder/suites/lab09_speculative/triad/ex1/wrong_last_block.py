"""The vocabulary is searched in blocks, and of equal blocks the last counts."""

import torch

FAILS = ["test_sizes_and_magnitudes"]


def best_of(row):
    best, top = 0, row[0]
    for start in range(0, len(row), 1024):
        block = row[start : start + 1024]
        if block.max() >= top:
            best, top = start + int(block.argmax()), block.max()
    return best


def verify_greedy(proposed, logits):
    out = []
    for i, row in enumerate(logits):
        out.append(best_of(row))
        if i == len(proposed) or int(proposed[i]) != out[-1]:
            return torch.tensor(out)
