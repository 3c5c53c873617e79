"""Logits are written into float32."""

import torch

FAILS = ["test_windows_of_every_size"]


def recomputed(forward, ids, size):
    rows = [forward(ids[max(0, t + 1 - size) : t + 1][None])[0, -1] for t in range(len(ids))]
    out = torch.zeros(len(rows), len(rows[0]))
    for t, row in enumerate(rows):
        out[t] = row
    return out
