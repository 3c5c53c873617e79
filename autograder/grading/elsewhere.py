"""Runs jobs in the processes of an executor, such as a Dask cluster's; each has its own server.

Such a process has threads, so it may not fork; its server is started when the first job comes.
"""

import atexit
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from functools import partial

from autograder.grading.pool import (
    Item,
    Outcome,
    Ready,
    Server,
    WorkerDied,
    ended,
    replaced,
)
from autograder.grading.server import at_once


def run_elsewhere(
    executor: Executor,
    job: Callable[[Item], bytes],
    items: Sequence[Item],
    limit: float,
    get_ready: Ready,
) -> Iterator[tuple[Item, Outcome]]:
    """As pool.run_jobs."""
    here = partial(run_here, job, limit=limit, get_ready=get_ready)
    futures = {executor.submit(here, item): item for item in items}
    try:
        for future in as_completed(futures):
            yield futures[future], future.exception() or future.result()
    finally:
        for future in futures:
            future.cancel()


# ---- in a process of the executor ---------------------------------------------------------------

kept: dict[bytes, Server] = {}  # what it does to get ready -> the server of this process
ONE_AT_A_TIME = threading.Lock()


def run_here(
    job: Callable[[Item], bytes], item: Item, limit: float, get_ready: Ready = at_once
) -> bytes:
    """The answer of a job in a child of this process's server. Raises what it raised, WorkerDied.

    Threads may call this at the same time.
    """
    for _ in range(2):
        server = borrowed(pickle.dumps(get_ready), get_ready)
        started = server.start(job, item, limit)
        try:
            while not ended({started.fd: started}):
                pass
        finally:
            with ONE_AT_A_TIME:
                server.running -= 1
        outcome = started.outcome()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None or started.late:
            break
    if outcome is None:
        raise WorkerDied("the process that graded it died, or took too long")
    return outcome


def borrowed(key: bytes, get_ready: Ready) -> Server:
    """The server of this process that gets ready in this way; idle ones of other labs end."""
    with ONE_AT_A_TIME:
        for other in [other for other in kept if other != key and not kept[other].running]:
            kept.pop(other).close()
        if key not in kept or not kept[key].alive():
            kept[key] = replaced(kept.pop(key, None), get_ready)
        kept[key].running += 1
        return kept[key]


@atexit.register
def close() -> None:
    for key in list(kept):
        kept.pop(key).close()
