"""Node 0 has depth 1."""

FAILS = ["x"]


def depths(parents):
    found = [1]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return found
