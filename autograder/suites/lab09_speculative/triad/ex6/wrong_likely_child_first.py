"""Children are judged by falling probability, not in the order of their numbers."""

from torch import Tensor

FAILS = ["test_sure_walks", "test_the_coins_of_a_walk"]


def walk(tokens: list[int], parents: list[int], p: Tensor, coin, pick) -> tuple[list[int], int]:
    path = [0]
    while True:
        left = p[path[-1]].clone()
        for k in sorted(range(1, len(tokens)), key=lambda k: -float(p[path[-1], tokens[k]])):
            if parents[k] != path[-1]:
                continue
            if coin(float(left[tokens[k]])):
                path.append(k)
                break
            left[tokens[k]] = 0
            left = left / left.sum()
        else:
            return path, pick(left)
