# By the sums of the help; rates in a list, the first of the largest.


def seconds(machine, pieces, logits):
    rows = new = pairs = 0
    for _, cached, n in pieces:
        rows += cached + n
        new += n
        pairs += n * cached + n * (n + 1) // 2
    t_read = (machine["weights"] + machine["row"] * rows) / machine["bandwidth"]
    t_work = machine["token"] * new + machine["pair"] * pairs + machine["head"] * logits
    t_work /= machine["peak"]
    return machine["fixed"] + (t_read if t_read > t_work else t_work)


def best_gamma(machine, requests, cached, acceptance, most):
    rates, made, chance = [], 0.0, 1.0
    for g in range(most + 1):
        made += chance
        chance *= acceptance
        step = [(name, cached, g + 1) for name in range(requests)]
        rates.append(requests * made / seconds(machine, step, requests * (g + 1)))
    return rates.index(max(rates))
