"""Each child is a proposal of exercise 5, each refusal a residual of exercise 2."""

import torch


def depths(parents):
    mask = tree_mask(parents, 0)
    return (mask.sum(1) - 1).tolist()


def tree_mask(parents, past):
    rows = []
    for node, parent in enumerate(parents):
        row = list(rows[parent]) if parent >= 0 else [True] * past + [False] * len(parents)
        row[past + node] = True
        rows.append(row)
    return torch.tensor(rows)


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for child in range(1, len(parents)):
        if parents[child] == path[-1]:
            q = certain(torch.tensor([tokens[child]]), p.shape[1])[0].to(p.dtype)
            if coin(left[tokens[child]]):
                path, left = [*path, child], p[child]
            else:
                left = residual(left, q)
    return path, pick(left)
