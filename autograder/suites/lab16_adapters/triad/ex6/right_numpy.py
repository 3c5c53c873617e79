"""Means and spreads by numpy, a need with False where nothing is asked, a sort in place of min."""

import numpy as np

COLUMNS = ("mergeable", "batchable", "untouched")


def differ(a, b):
    a, b = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)
    return bool(np.abs(a.mean() - b.mean()) > max(np.ptp(a), np.ptp(b)))


def fits(candidate, need):
    bools = all(candidate[k] for k, v in need.items() if v is True)
    numbers = all(candidate[k] <= v for k, v in need.items() if v is not True and v is not False)
    return bool(bools and numbers)


def choose(candidates, need):
    fit = [(name, c) for name, c in candidates.items() if fits(c, need)]
    fit.sort(key=lambda pair: np.mean(pair[1]["losses"]))
    alike = {name for name, c in fit if not differ(c["losses"], fit[0][1]["losses"])}
    order = sorted(alike, key=lambda n: (candidates[n]["trained"], list(candidates).index(n)))
    return order[0] if order else None


def situation(name):
    need = dict.fromkeys(COLUMNS, False)
    if name == "phone":
        need |= {"mergeable": True, "optimizer_bytes": 100_000_000}
    elif name == "shop":
        need |= {"batchable": True, "trained": 20_000_000, "context": 0}
    elif name == "engine":
        need |= {"untouched": True, "batchable": True, "context": 32, "read_bytes": 4_000_000}
    return need
