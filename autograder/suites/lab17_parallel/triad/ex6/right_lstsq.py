"""The fit by torch's least squares with columns of one size, and by grid where one is negative;
numbers come as numpy's."""

import numpy


def fit(sizes, seconds):
    n, t = sizes.double().numpy(), seconds.double().numpy()
    scale = max(n.max(), 1.0)
    rows = numpy.stack([1 / t, n / scale / t], 1)
    grow = numpy.sqrt((rows**2).sum(0))
    found = numpy.linalg.lstsq(rows / grow, numpy.ones(len(t)), rcond=None)[0] / grow
    if found.min() < 0:
        keep = []
        for column in (0, 1):
            other = numpy.zeros(2)
            other[column] = rows[:, column].sum() / (rows[:, column] ** 2).sum()
            keep.append(other)
        found = min(keep, key=lambda v: ((rows @ v - 1) ** 2).sum())
    return found[0], found[1] / scale


def all_reduce_seconds(n, size, alpha, beta):
    messages = 2 * (size - 1)
    return numpy.float64(messages * alpha + messages * beta * n / size)


def tensor_step(job, batch, size):
    seconds = 0.0
    for _ in range(2 * job["layers"]):
        seconds += all_reduce_seconds(batch * job["row"], size, job["alpha"], job["beta"])
    moved = (job["weights"] + batch * job["cache"]) / size
    return seconds + max(moved / job["bandwidth"], batch * job["flops"] / size / job["peak"])


def pipeline_step(job, batch, size, micro):
    if not (micro >= 1 and batch % micro == 0):
        raise ValueError(f"{batch} / {micro}")
    rows = batch // micro
    moved = (job["weights"] + rows * job["cache"]) / size
    turn = max(moved / job["bandwidth"], rows * job["flops"] / size / job["peak"])
    turn += (size > 1) * (job["alpha"] + job["beta"] * rows * job["row"])
    return turn * (micro if micro > size else size)


def better_plan(job, batch, size):
    found = {("tensor", 1): tensor_step(job, batch, size)}
    for micro in range(1, batch + 1):
        if batch % micro == 0:
            found["pipeline", micro] = pipeline_step(job, batch, size, micro)
    best = min(found, key=found.get)
    return best[0], best[1], found[best]
