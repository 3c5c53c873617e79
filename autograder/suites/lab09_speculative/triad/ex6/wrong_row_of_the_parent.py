"""After a kept child the row of its parent goes on."""

import torch

FAILS = ["test_a_walk_loses_nothing", "test_sure_walks", "test_walks_on_random_trees"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if coin(float(left[tokens[node]])):
            path.append(node)
            left = p[parents[node]]
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node]), 0)
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
