"""Which plan: tensor or pipeline parallel, by what a message costs.

    message of n bytes      alpha + beta n                     seconds
    ring all-reduce         2 (p - 1) (alpha + beta n / p)

A step of decoding makes the next token of B sequences, with weights W and a cache C a sequence.

    tensor      max((W + B C) / (p bandwidth), B flops / (p peak)) + 2 L all-reduces of B rows
    pipeline    the batch in m micro-batches; a stage takes, with one message,
                t = max((W + B/m C) / (p bandwidth), B/m flops / (p peak)) + alpha + beta B/m row
                and a sequence's next token cannot begin before its last one has left the last
                stage:  max(p, m) t

Tensor parallel reads all memories at once, so one sequence is faster, and pays 2 L meetings.  A
pipeline with m = p reads every weight p times a step, unless computing decides; then it loses
nothing and sends a layer's width p - 1 times in place of 2 L all-reduces.

Left out: the embedding's and the head's messages, work that is not divided (norms, sampling), and
sending while computing.
Sources: Hockney 1994 (alpha-beta); Pope et al. 2022 (arXiv:2211.05102), section 3.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Job(NamedTuple):
    """A model on a kind of device, and the network between them."""

    layers: int
    weights: float  # bytes
    cache: float  # bytes that a step reads for each sequence
    flops: float  # of a step for each sequence
    row: float  # bytes of a token between two layers
    bandwidth: float  # bytes a second of a device's memory
    peak: float  # FLOPs a second
    alpha: float  # seconds
    beta: float  # seconds a byte


def fit(sizes: Tensor, seconds: Tensor) -> tuple[float, float]:
    """(alpha, beta) not below 0 with the least sum of ((alpha + beta n - t) / t)^2.

    sizes [M] bytes, at least two different ones; seconds [M] above 0.
    """
    t = seconds.double()
    a = torch.stack([1 / t, sizes.double() / t], 1)  # [M, 2], to be 1
    gram, target = a.T @ a, a.sum(0)
    size = gram.diagonal().sqrt()  # bytes and ones are of very unlike size
    both = torch.linalg.solve(gram / size / size[:, None], target / size) / size
    if (both >= 0).all():
        return both[0].item(), both[1].item()
    alone = target / gram.diagonal()
    ways = [torch.stack([alone[0], 0 * alone[0]]), torch.stack([0 * alone[1], alone[1]])]
    best = min(ways, key=lambda w: (a @ w - 1).square().sum().item())
    return best[0].item(), best[1].item()


def all_reduce_seconds(n: float, p: int, alpha: float, beta: float) -> float:
    """Of a ring all-reduce of n bytes."""
    return 2 * (p - 1) * (alpha + beta * n / p)


def _part(job: Job, batch: float, p: int) -> float:
    """Reading and computing of 1 / p of the model for a batch."""
    reading = (job.weights + batch * job.cache) / job.bandwidth
    return max(reading, batch * job.flops / job.peak) / p


def tensor_step(job: Job, batch: int, p: int) -> float:
    """Seconds for one more token of each of `batch` sequences."""
    meeting = all_reduce_seconds(batch * job.row, p, job.alpha, job.beta)
    return _part(job, batch, p) + 2 * job.layers * meeting


def pipeline_step(job: Job, batch: int, p: int, micro: int) -> float:
    """The same with p stages and `micro` micro-batches.

    Raises ValueError unless batch is a multiple of micro.
    """
    if micro < 1 or batch % micro:
        raise ValueError(f"batch={batch} must be a multiple of micro={micro}")
    rows = batch // micro
    message = job.alpha + job.beta * rows * job.row if p > 1 else 0.0
    return max(p, micro) * (_part(job, rows, p) + message)


def better_plan(job: Job, batch: int, p: int) -> tuple[str, int, float]:
    """("tensor", 1, seconds) or ("pipeline", micro-batches, seconds): the fastest step.

    Of equally fast ones tensor, then the fewest micro-batches.
    """
    plans = [(tensor_step(job, batch, p), 0)]
    for micro in range(1, batch + 1):
        if batch % micro == 0:
            plans.append((pipeline_step(job, batch, p, micro), micro))
    seconds, micro = min(plans)
    return ("pipeline", micro, seconds) if micro else ("tensor", 1, seconds)
