"""The window is one too short."""

import torch

FAILS = ["test_windows_are_read_anew", "test_windows_of_every_size"]


def recomputed(forward, ids, size):
    rows = []
    for t in range(len(ids)):
        window = ids[min(t, max(0, t + 2 - size)) : t + 1]
        rows.append(forward(window[None])[0, -1])
    return torch.stack(rows)
