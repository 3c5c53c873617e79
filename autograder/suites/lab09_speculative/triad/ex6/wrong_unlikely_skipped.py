"""Children with less than 0.05 are not judged."""

import torch

FAILS = ["test_large_trees"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if left[tokens[node]] < 0.05:
            continue
        if coin(float(left[tokens[node]])):
            path.append(node)
            left = p[node]
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node]), 0)
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
