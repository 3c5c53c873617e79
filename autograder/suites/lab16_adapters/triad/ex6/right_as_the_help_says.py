"""The hints, word for word."""


def differ(a, b):
    means = abs(sum(a) / len(a) - sum(b) / len(b))
    spread = max(max(a) - min(a), max(b) - min(b))
    return means > spread


def fits(candidate, need):
    for key, limit in need.items():
        if isinstance(limit, bool):
            if limit and not candidate[key]:
                return False
            continue
        if candidate[key] > limit:
            return False
    return True


def choose(candidates, need):
    names = [name for name in candidates if fits(candidates[name], need)]
    if not names:
        return None

    def mean(name):
        losses = candidates[name]["losses"]
        return sum(losses) / len(losses)

    best = candidates[min(names, key=mean)]["losses"]
    alike = [name for name in names if not differ(candidates[name]["losses"], best)]
    return min(alike, key=lambda name: candidates[name]["trained"])


def situation(name):
    if name == "phone":
        return {"mergeable": True, "optimizer_bytes": 100 * 10**6}
    if name == "shop":
        return {"batchable": True, "trained": 20 * 10**9 // 500 // 2, "context": 0}
    return {"untouched": True, "batchable": True, "context": 32, "read_bytes": 4 * 10**6}
