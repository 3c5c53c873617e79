"""A child is kept half as often, and what is left is what then is missing: exact, and slower."""

FAILS = ["test_walks_on_random_trees", "test_large_trees"]


def walk(tokens, parents, p, coin, pick):
    path, left = [0], p[0]
    for node in range(1, len(tokens)):
        if parents[node] != path[-1]:
            continue
        chance = float(left[tokens[node]])
        keep = chance if chance > 0.999 else 0.5 * chance
        if coin(keep):
            path.append(node)
            left = p[node]
        else:
            rest = left.clone()
            rest[tokens[node]] -= keep
            left = rest / rest.sum() if rest.sum() > 0 else left
    return path, pick(left)
