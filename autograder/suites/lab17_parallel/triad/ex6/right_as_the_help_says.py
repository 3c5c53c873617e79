"""The help and the last hint, line by line."""


def fit(sizes, seconds):
    t = seconds.double()
    rows = torch.stack([1 / t, sizes.double() / t], 1)

    def off(pair):
        return ((rows[:, 0] * pair[0] + rows[:, 1] * pair[1] - 1) ** 2).sum().item()

    # two equations: (x x) alpha + (x y) beta = x 1, (x y) alpha + (y y) beta = y 1
    x, y = rows[:, 0], rows[:, 1]
    det = (x * x).sum() * (y * y).sum() - (x * y).sum() ** 2
    alpha = (x.sum() * (y * y).sum() - y.sum() * (x * y).sum()) / det
    beta = (y.sum() * (x * x).sum() - x.sum() * (x * y).sum()) / det
    if alpha >= 0 and beta >= 0:
        return alpha.item(), beta.item()
    alone = [((x.sum() / (x * x).sum()).item(), 0.0), (0.0, (y.sum() / (y * y).sum()).item())]
    return min(alone, key=off)


def all_reduce_seconds(n, size, alpha, beta):
    return 2 * (size - 1) * (alpha + beta * (n / size))


def part(job, rows, size):
    read = (job["weights"] + rows * job["cache"]) / size / job["bandwidth"]
    return max(read, rows * job["flops"] / size / job["peak"])


def tensor_step(job, batch, size):
    one = all_reduce_seconds(batch * job["row"], size, job["alpha"], job["beta"])
    return part(job, batch, size) + 2 * job["layers"] * one


def pipeline_step(job, batch, size, micro):
    if micro < 1:
        raise ValueError("at least one micro-batch")
    if batch % micro != 0:
        raise ValueError("micro must divide the batch")
    t = part(job, batch // micro, size)
    if size > 1:
        t += job["alpha"] + job["beta"] * (batch // micro) * job["row"]
    return max(size, micro) * t


def better_plan(job, batch, size):
    plans = [("tensor", 1, tensor_step(job, batch, size))]
    for micro in range(1, batch + 1):
        if batch % micro == 0:
            plans.append(("pipeline", micro, pipeline_step(job, batch, size, micro)))
    return min(plans, key=lambda plan: plan[2])
