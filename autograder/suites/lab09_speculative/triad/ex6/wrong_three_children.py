"""No more than three children of a node are judged."""

import torch

FAILS = ["test_large_trees"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    judged = 0
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if judged == 3:
            continue
        judged += 1
        if coin(float(left[tokens[node]])):
            path.append(node)
            left = p[node]
            judged = 0
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node]), 0)
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
