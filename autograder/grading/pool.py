"""Runs one job per submission in worker processes, and survives what jobs do to them.

A worker that dies takes its whole concurrent.futures pool along.  So only as many jobs as there are
workers are in flight; after a crash each of those runs again, alone: who crashes alone is guilty,
the others get their grade, and the rest goes on in a fresh pool.
"""

import ctypes
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Outcome = bytes | Exception
POLL_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 10.0


class WorkerDied(Exception):
    """The process that ran this job ended without an answer."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    job: Callable[[Item], bytes], items: Iterable[Item], jobs: int, limit: float
) -> Iterator[tuple[Item, Outcome]]:
    """Yields (item, answer or exception) as they come. limit: seconds until a job is given up."""
    waiting = deque(items)
    while waiting:
        crashed = yield from run_pool(job, waiting, jobs, limit)
        for item in crashed:
            again = yield from run_pool(job, deque([item]), 1, limit)
            if again:
                yield item, WorkerDied("the process that graded it died")


def run_pool(
    job: Callable[[Item], bytes], waiting: deque[Item], jobs: int, limit: float
) -> Generator[tuple[Item, Outcome], None, list[Item]]:
    """Works on `waiting` until it is empty or a worker dies; returns what was in flight then."""
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=start_worker,
        initargs=(os.getpid(),),
    )
    running: dict[Future, tuple[Item, float]] = {}
    idle = False
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                future = pool.submit(guarded, job, waiting[0])
                running[future] = (waiting.popleft(), time.monotonic() + limit)
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise error
                item, _ = running.pop(future)
                yield item, error or future.result()
            if not done and any(process.exitcode is not None for process in workers(pool)):
                raise BrokenProcessPool("a worker is gone, perhaps in the middle of its answer")
            overdue = [f for f, (_, end) in running.items() if time.monotonic() > end]
            for future in overdue:
                item, _ = running.pop(future)
                yield item, WorkerDied(f"grading it took longer than {limit:g} s")
            if overdue:
                break
        else:
            idle = True
    except BrokenProcessPool:  # if nothing was in flight, the first in the queue stands for it
        return [item for item, _ in running.values()] or [waiting.popleft()]
    finally:
        stop(pool, idle)
    return [item for item, _ in running.values()]


def stop(pool: ProcessPoolExecutor, idle: bool) -> None:
    """Ends the workers, also those in the middle of a job, and waits for them."""
    processes, answers = workers(pool), pool._result_queue
    pool.shutdown(wait=idle, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
    if not idle and answers is not None:
        answers._writer.close()  # ends the pool's thread, which may wait for the rest of an answer


def workers(pool: ProcessPoolExecutor) -> list:
    return list((pool._processes or {}).values())


# ---- in the worker ------------------------------------------------------------------------------

state = {"busy": False, "ended": False}


def start_worker(coordinator: int) -> None:
    """One torch thread a worker; Ctrl-C is the coordinator's, which then ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_worker)
    die_with(coordinator)
    import torch

    torch.set_num_threads(1)


def die_with(coordinator: int) -> None:
    """The kernel sends SIGTERM when the coordinator ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != coordinator:  # it ended before the kernel knew of the wish
        end_worker()


def guarded(job: Callable[[Item], bytes], item: Item) -> bytes:
    state["busy"] = True
    try:
        return job(item)
    finally:
        state["busy"] = False
        if state["ended"]:
            os._exit(1)


def end_worker(*_: object) -> None:
    """A job ends as by Ctrl-C: through its `finally`, so that its sandbox and limits go too."""
    if not state["busy"]:
        os._exit(1)
    state["ended"] = True
    raise KeyboardInterrupt
