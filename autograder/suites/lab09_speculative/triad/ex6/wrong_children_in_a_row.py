"""The search for children ends where their numbers are interrupted."""

FAILS = ["test_walks_on_random_trees", "test_large_trees"]


def walk(tokens, parents, p, coin, pick):
    path = [0]
    while True:
        left = p[path[-1]].clone()
        node = next((i for i, parent in enumerate(parents) if parent == path[-1]), None)
        while node is not None and node < len(parents) and parents[node] == path[-1]:
            if coin(float(left[tokens[node]])):
                break
            left[tokens[node]] = 0
            left = left / left.sum()
            node += 1
        else:
            return path, pick(left)
        path.append(node)
