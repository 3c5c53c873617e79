"""What lab17_tables.py reckons with: measured numbers, networks, doubling, both cuts at once."""

import math

import efflib.parallel.plans as costs

# tokens per second of Llama-2-7B, one sequence, on A100-80GB: gpt-fast's README
GPT_FAST = {1: 104.9, 2: 168.8, 4: 254.0, 8: 328.4}
LLAMA = costs.Job(32, 13.2e9, 0.0, 13.2e9, 8192.0, 3.35e12, 989e12, 0.0, 0.0)
NETWORKS = {
    "NVLink 3 µs, 450 GB/s": (3e-6, 1 / 450e9),
    "PCIe 10 µs, 50 GB/s": (1e-5, 1 / 50e9),
    "Ethernet 50 µs, 3 GB/s": (5e-5, 1 / 3e9),
}


def doubled(job: costs.Job, batch: int, p: int) -> float:
    """A tensor step by recursive doubling: log2(p) turns, each with all of x."""
    one = math.log2(p) * (job.alpha + job.beta * batch * job.row)
    free = job._replace(alpha=0.0, beta=0.0)
    return costs.tensor_step(free, batch, p) + 2 * job.layers * one


def digits(x: float) -> str:
    """Three digits that count, or all of those before the point."""
    return f"{x:.3g}" if x < 1000 else f"{x:,.0f}"


def both_cuts(job: costs.Job, batch: int) -> float:
    """Two stages of two devices: each stage has half of the layers, cut in two."""
    half = [x / 2 for x in (job.layers, job.weights, job.cache, job.flops)]
    half, ways = costs.Job(*half, *job[4:]), []
    for micro in (m for m in (1, 2, 4) if batch % m == 0):
        turn = min(step(half, batch // micro, 2) for step in (costs.tensor_step, doubled))
        ways.append(max(2, micro) * (turn + job.alpha + job.beta * batch / micro * job.row))
    return min(ways)


def three_plans(batches: tuple[int, ...]) -> dict[str, list[str]]:
    """{model and network: ms of tensor / pipeline / both for each batch}, on four H100."""
    rows = {}
    large = LLAMA._replace(layers=80, weights=140e9, flops=140e9, row=16384.0)
    for label, model in (("7B", LLAMA), ("70B", large)):
        for name, (alpha, beta) in NETWORKS.items():
            job, cells = model._replace(alpha=alpha, beta=beta), []
            for b in batches:
                tensor = min(costs.tensor_step(job, b, 4), doubled(job, b, 4))
                micros = [m for m in (1, 2, 4, 8, 16) if b % m == 0]
                pipeline = min(costs.pipeline_step(job, b, 4, m) for m in micros)
                ways = (tensor, pipeline, both_cuts(job, b))
                cells.append(" / ".join(digits(1e3 * t) for t in ways))
            rows[f"{label}, {name.split()[0]}"] = cells
    return rows
