"""What is left is divided by its sum after every refusal."""

import torch


def depths(parents):
    found = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def tree_mask(parents, past):
    mask = torch.zeros(len(parents), past + len(parents), dtype=torch.bool)
    mask[:, :past] = True
    for node in range(len(parents)):
        at = node
        while at >= 0:
            mask[node, past + at] = True
            at = parents[at]
    return mask


def walk(tokens, parents, p, coin, pick):
    path = [0]
    while True:
        left, kept = p[path[-1]].clone(), None
        for node, parent in enumerate(parents):
            if parent == path[-1]:
                if coin(left[tokens[node]]):
                    kept = node
                    break
                left[tokens[node]] = 0
                left /= left.sum()
        if kept is None:
            return path, pick(left)
        path.append(kept)
