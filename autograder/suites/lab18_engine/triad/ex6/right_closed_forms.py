# Tensors in float64; tokens of a pass by the geometric sum, with the limit at 1.


def seconds(machine, pieces, logits):
    table = torch.tensor([[c, n] for _, c, n in pieces], dtype=torch.float64).reshape(-1, 2)
    cached, new = table.unbind(1)
    reading = (machine["weights"] + machine["row"] * table.sum()) / machine["bandwidth"]
    met = (new * cached + new * (new + 1) / 2).sum()
    work = machine["token"] * new.sum() + machine["pair"] * met + machine["head"] * logits
    return float(machine["fixed"] + torch.maximum(reading, work / machine["peak"]))


def best_gamma(machine, requests, cached, acceptance, most):
    def rate(g):
        if acceptance == 1:
            made = g + 1
        else:
            made = (1 - acceptance ** (g + 1)) / (1 - acceptance)
        pieces = [(None, cached, g + 1)] * requests
        return requests * made / seconds(machine, pieces, requests * (g + 1))

    return max(range(most + 1), key=rate)
