"""What help and hints say, word for word."""


def timings(request):
    arrival, times = request["arrival"], request["times"]
    result = {"ttft": None, "tpot": None, "latency": None}
    if not times:
        return result
    if times[0] <= arrival:
        raise ValueError("the first token")
    for i in range(1, len(times)):
        if times[i] < times[i - 1]:
            raise ValueError("times")
    result["ttft"] = times[0] - arrival
    if len(times) > 1:
        result["tpot"] = (times[-1] - times[0]) / (len(times) - 1)
    if request["finished"]:
        result["latency"] = times[-1] - arrival
    return result


def percentile(values, q):
    if len(values) == 0 or q < 0 or q > 100:
        raise ValueError("percentile")
    values = sorted(values)
    place = q / 100 * (len(values) - 1)
    left = int(place)
    if left == len(values) - 1:
        return values[left]
    share = place - left
    return values[left] * (1 - share) + values[left + 1] * share


def _mean(values):
    return sum(values) / len(values) if values else None


def summarize(log, ttft_limit, tpot_limit):
    ttfts, tpots, gaps, tokens, good = [], [], [], [], 0
    for request in log:
        own, times = timings(request), request["times"]
        tokens += times
        for i in range(1, len(times)):
            gaps.append(times[i] - times[i - 1])
        if own["ttft"] is not None:
            ttfts.append(own["ttft"])
        if own["tpot"] is not None:
            tpots.append(own["tpot"])
        if request["finished"] and own["ttft"] <= ttft_limit:
            if own["tpot"] is None or own["tpot"] <= tpot_limit:
                good += 1
    result = {"ttft": _mean(ttfts), "tpot": _mean(tpots), "itl": _mean(gaps), "itl_p99": None}
    if gaps:
        result["itl_p99"] = percentile(gaps, 99)
    result["throughput"] = result["goodput"] = 0.0
    if tokens:
        took = max(tokens) - min(request["arrival"] for request in log)
        result["throughput"], result["goodput"] = len(tokens) / took, good / took
    return result
