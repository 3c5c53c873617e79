"""The first refusal ends the walk."""

import torch

FAILS = ["test_sure_walks", "test_the_coins_of_a_walk"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if coin(float(left[tokens[node]])):
            path.append(node)
            left = p[node]
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node]), 0)
            return path, pick(rest / rest.sum())
    return path, pick(left)
