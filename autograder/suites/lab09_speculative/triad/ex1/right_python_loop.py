"""One proposal after the other."""

import torch


def verify_greedy(proposed, logits):
    tokens = []
    for i in range(len(logits)):
        tokens.append(int(logits[i].argmax()))
        if i == len(proposed) or tokens[-1] != int(proposed[i]):
            break
    return torch.tensor(tokens, dtype=torch.int64)
