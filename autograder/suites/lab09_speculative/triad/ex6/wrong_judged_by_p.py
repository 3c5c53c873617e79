"""Every child is judged by p as it was."""

import torch

FAILS = ["test_walks_on_random_trees", "test_the_coins_of_a_walk"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        if coin(float(p[path[-1], tokens[node]])):
            path.append(node)
            left = p[node]
        else:
            rest = left.index_fill(0, torch.tensor(tokens[node]), 0)
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
