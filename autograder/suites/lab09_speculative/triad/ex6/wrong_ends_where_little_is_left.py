"""Where less than 1e-9 is left, no more children are judged."""

FAILS = ["test_the_coins_of_a_walk"]


def walk(tokens, parents, p, coin, pick):
    path, row = [0], p[0].clone()
    for node in range(1, len(parents)):
        if parents[node] != path[-1]:
            continue
        x = tokens[node]
        if coin(float(row[x])):
            path.append(node)
            row = p[node].clone()
        else:
            row[x] = 0
            if row.sum() < 1e-9:
                return path, pick(row / row.sum())
            row = row / row.sum()
    return path, pick(row)
