# Sums from the left: how many of the line fit is a search; numbers are numpy's.
import numpy as np


def prefill_first(running, waiting, free, budget, most, block):
    sizes = np.array([t for _, t in waiting[: max(most - len(running), 0)]], dtype=np.int64)
    fits = (sizes.cumsum() <= budget) & (np.ceil(sizes / block).cumsum() <= free)
    count = int(fits.argmin()) if not fits.all() else len(fits)
    if count:
        return [(waiting[i][0], sizes[i]) for i in range(count)]
    plan = []
    for entry in running:
        new = entry[2] % block == 0
        if budget > 0 and free >= new:
            plan += [(entry[0], np.int64(1))]
            budget -= 1
            free -= new
    return plan
