"""NumPy, which has no bfloat16: the logits become float64 first."""

import numpy as np
import torch


def verify_greedy(proposed, logits):
    own = np.argmax(logits.double().numpy(), axis=-1)
    guesses = proposed.numpy()
    n = 0
    while n < len(guesses) and guesses[n] == own[n]:
        n += 1
    return torch.tensor(own[: n + 1], dtype=torch.int64)
