"""For each place how long the match is; the longest one, and of these the last."""

import torch


def lookup(text, gamma, longest):
    best, place = 0, None
    for end in range(1, len(text)):
        n = 0
        while n < min(longest, end) and text[end - 1 - n] == text[-1 - n]:
            n += 1
        if n and n >= best:
            best, place = n, end
    return [] if place is None else text[place : place + gamma]


def certain(proposed, vocab):
    return torch.eye(vocab)[proposed]
