"""The mass that is left is kept beside the row, and divided by at the end."""

import torch


def depths(parents):
    def depth(node):
        return 0 if parents[node] < 0 else 1 + depth(parents[node])

    return [depth(node) for node in range(len(parents))]


def tree_mask(parents, past):
    n = len(parents)
    up = torch.zeros(n, n)
    for node in range(1, n):
        up[node, parents[node]] = 1
    seen = sum(torch.linalg.matrix_power(up, k) for k in range(n)) > 0
    return torch.cat([torch.ones(n, past, dtype=torch.bool), seen], dim=1)


def walk(tokens, parents, p, coin, pick):
    path, node = [], 0
    while node is not None:
        path.append(node)
        row, mass, following = p[node].clone(), 1.0, None
        for child in [i for i, parent in enumerate(parents) if parent == node]:
            x = tokens[child]
            if coin(min(1.0, float(row[x]) / mass)):
                following = child
                break
            mass -= float(row[x])
            row[x] = 0
        node = following
    return path, pick(row / row.sum())
