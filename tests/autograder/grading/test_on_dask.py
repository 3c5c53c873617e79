"""Dask's futures as those of concurrent.futures, also when workers die at bad moments."""

import os
import time
from concurrent.futures import CancelledError, wait

import pytest

from autograder.grading.on_dask import OnDask

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options, processes=False) as cluster:
        with distributed.Client(cluster) as client:
            yield client


def test_answers_and_exceptions_come_back(client):
    executor = OnDask(client)
    assert list(executor.map(abs, [-1, 2, -3])) == [1, 2, 3]
    assert executor.submit(int, "11", base=2).result() == 3
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(int, "x").result()


def test_the_same_call_runs_each_time(client):
    """A job's answer depends on the machine too: none may be taken from an earlier run."""
    first, second = [OnDask(client).submit(time.perf_counter).result() for _ in range(2)]
    assert first != second


def test_an_answer_whose_worker_dies_while_it_comes(client, monkeypatch):
    """The scheduler says so after the answer was gathered, and before anyone has looked at it."""
    gather = distributed.Client._gather

    async def then_lost(self, futures, *args, **kwargs):
        answer = await gather(self, futures, *args, **kwargs)
        for future in futures:
            future._state.lose()
        return answer

    monkeypatch.setattr(distributed.Client, "_gather", then_lost)
    with pytest.raises(ValueError, match="too many values"):  # what this executor is there for
        client.get_executor(pure=False).submit(bytes, 9).result(30)
    assert OnDask(client).submit(bytes, 9).result(30) == bytes(9)


def test_what_is_cancelled_never_runs(client, tmp_path):
    executor = OnDask(client)
    running = executor.submit(time.sleep, 0.5)
    waiting = [executor.submit(os.mkdir, tmp_path / str(number)) for number in range(3)]
    assert all(future.cancel() for future in waiting)
    with pytest.raises(CancelledError):
        waiting[0].result()
    assert not wait([running], 30).not_done
    assert executor.submit(abs, -1).result(30) == 1 and not list(tmp_path.iterdir())
