"""A class goes on, whatever one submission does to the grader; nothing is graded twice."""

import os
import signal
import stat
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from toylab import NAME, STUB2, answered, make_course, write

from autograder.errors import StorageError
from autograder.grading import elsewhere, verdict
from autograder.grading.batch import (
    cache_dir,
    grade_many,
    load,
    previous_results,
    store,
    stored_at,
)
from autograder.grading.on_dask import OnDask
from autograder.grading.pool import WorkerDied, run_jobs
from autograder.grading.results import encode
from autograder.grading.server import ANSWER, KIND
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab
from autograder.sandbox.limits import SandboxUnavailable

HERE = Path(__file__).parent
NEVER = 3600.0


def job(item: str) -> bytes:
    """What the workers of these tests do."""
    if item == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "dies in its answer":
        fds = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
        [answers] = [fd for fd in fds if is_pipe(fd)]
        os.write(answers, KIND.pack(ANSWER, 10_000) + b"an answer of ...")
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "raises":
        raise ValueError("an error of the grader's")
    if item == "hangs":
        threading.Event().wait()
    return item.encode()


def is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:  # of the listing
        return False


def outcomes(items, jobs=2, limit=NEVER):
    done = list(run_jobs(job, items, jobs, limit))
    assert sorted(item for item, _ in done) == sorted(items), "one outcome for each item"
    return dict(done)


@pytest.mark.slow
def test_a_worker_that_dies_costs_only_its_own_item():
    items = ["a", "dies", "b", "c", "raises", "d", "e"]
    done = outcomes(items)
    assert isinstance(done.pop("dies"), WorkerDied)
    assert isinstance(done.pop("raises"), ValueError)
    assert done == {item: item.encode() for item in "abcde"}


@pytest.mark.slow
def test_a_worker_that_dies_in_the_middle_of_its_answer_is_noticed():
    done = outcomes(["a", "dies in its answer", "b", "c"], limit=60)
    assert str(done.pop("dies in its answer")) == "the process that graded it died"
    assert done == {item: item.encode() for item in "abc"}


@pytest.mark.slow
def test_a_job_that_hangs_is_given_up():
    assert "longer than 0.5 s" in str(outcomes(["hangs"], limit=0.5)["hangs"])


# ---- grading ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    write(root / "in/alice.ipynb", answered())
    write(root / "in/bob.ipynb", answered(ex2=STUB2))
    write(root / "in/carol.ipynb", b"")
    return root


@pytest.fixture(scope="module")
def lab(course):
    return load_lab(NAME, course)


@pytest.fixture(scope="module")
def first(course, lab):
    return graded(course, lab)


def graded(course, lab, **options):
    rows = discover(course / "in", lab)
    results = list(grade_many(lab, rows, cache=cache_dir(course, lab), **options))
    assert len(results) == len(rows)
    return {result.student: result for result in results}


@pytest.mark.slow
def test_a_second_run_grades_nothing(course, lab, first, monkeypatch):
    assert {name: r.score for name, r in first.items()} == {"alice": 90, "bob": 50, "carol": 0}
    stored = [path.name for path in cache_dir(course, lab).glob("*/*")]
    assert len(stored) == 2, "rejected submissions are not stored"
    monkeypatch.setattr(elsewhere, "run_here", fails(AssertionError("graded in vain")))
    assert graded(course, lab, executor=ThreadPoolExecutor(1)) == first


@pytest.mark.slow
def test_a_changed_submission_a_damaged_file_and_a_regrade_are_graded_again(course, lab, first):
    class Counting(ThreadPoolExecutor):
        seen = []

        def submit(self, job, submission):
            self.seen.append(submission.student)
            future = Future()
            future.set_result(encode(first[submission.student]))
            return future

    [alice] = cache_dir(course, lab).glob("alice/*.json")
    kept = alice.read_bytes()
    alice.write_bytes(kept[:100])
    assert graded(course, lab, executor=Counting(1)) == first
    assert Counting.seen == ["alice"] and alice.read_bytes() == kept
    graded(course, lab, executor=Counting(1), regrade=True)
    graded(course, lab, executor=Counting(1), seed=7)
    graded(course, lab, executor=Counting(1), unsafe=True)
    assert Counting.seen[1:] == ["alice", "bob"] * 3


def test_what_decides_a_result_decides_where_it_is_stored(course, lab):
    alice, bob, _ = discover(course / "in", lab)
    places = {
        stored_at(Path("c"), *arguments)
        for arguments in [
            (lab, alice, None, False),
            (lab, bob, None, False),
            (lab, alice, 1, False),
            (lab, alice, None, True),
        ]
    }
    assert len(places) == 4
    assert stored_at(None, lab, alice, None, False) is None


def made(first, **changes):
    return msgspec.structs.replace(first["alice"], **changes)


def test_the_newest_result_is_what_the_next_is_compared_with(course, lab, first, tmp_path):
    rows = discover(course / "in", lab)
    assert previous_results(tmp_path, rows) == {}
    for number in range(9):
        path = stored_at(tmp_path, lab, rows[0], number, False)
        store(path, made(first, score=float(number), seed=number))
        os.utime(path, ns=(number, number))  # a clock is coarser than this loop
    assert previous_results(tmp_path, rows)["alice"].score == 8
    assert sorted(load(path).seed for path in tmp_path.glob("alice/*")) == [4, 5, 6, 7, 8]
    [again] = grade_many(lab, rows[:1], cache=tmp_path, seed=6)
    assert again.seed == 6 and previous_results(tmp_path, rows)["alice"].seed == 6


def test_half_a_file_of_a_killed_run_goes_and_that_of_a_running_one_stays(
    course, lab, first, tmp_path
):
    path = stored_at(tmp_path, lab, discover(course / "in", lab)[0], None, False)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, os.getppid()):
        write(path.with_suffix(f".{pid}.part"), b"{")
    store(path, first["alice"])
    assert set(path.parent.iterdir()) == {path, path.with_suffix(f".{os.getppid()}.part")}


def test_a_disk_that_fails_ends_grading_and_names_the_file(course, lab, first, tmp_path):
    path = stored_at(tmp_path, lab, discover(course / "in", lab)[0], None, False)
    path.parent.parent.joinpath("alice").touch()
    with pytest.raises(StorageError, match=f"{path.parent}.*a file stands where a folder belongs"):
        store(path, first["alice"])


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(elsewhere, "run_here", lambda job, item, limit, get_ready: job(item))


def fails(error):
    def grade(*_, **__):
        raise error

    return grade


def test_a_fault_of_the_grader_is_that_students_row_and_is_not_stored(
    course, lab, monkeypatch, in_this_process
):
    monkeypatch.setattr(verdict, "grade_one", fails(KeyError("x")))
    results = graded(course, lab, executor=ThreadPoolExecutor(1), seed=99)
    assert {r.status for r in results.values()} == {"fault", "rejected"}
    assert results["alice"].reason == "grader fault: KeyError: 'x'"
    rows = discover(course / "in", lab)
    assert not stored_at(cache_dir(course, lab), lab, rows[0], 99, False).exists()


def test_without_a_sandbox_nothing_is_graded(course, lab, monkeypatch, in_this_process):
    monkeypatch.setattr(
        "autograder.grading.verdict.grade_one", fails(SandboxUnavailable("install bubblewrap"))
    )
    with pytest.raises(SandboxUnavailable, match="install bubblewrap"):
        graded(course, lab, executor=ThreadPoolExecutor(1), seed=98)


@pytest.mark.slow
def test_a_dask_cluster_is_an_executor_like_any_other(course, lab, first):
    distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        results = graded(course, lab, executor=OnDask(client), regrade=True)
    same = [{n: (r.score, r.seed) for n, r in rows.items()} for rows in (results, first)]
    assert same[0] == same[1]


@pytest.mark.slow
def test_one_that_takes_long_is_graded_behind_the_others_and_loses_nothing(
    tmp_path, monkeypatch, in_this_process
):
    course = make_course(tmp_path)
    lab = load_lab(NAME, course)
    for name in ("alice", "bob"):
        write(course / f"in/{name}.ipynb", answered())
    rows = discover(course / "in", lab)
    given, real, share = [], verdict.grade_one, 800.0

    def slow_for_alice(lab, submission, *, seconds, **kwargs):
        given.append(seconds)
        cut = submission.student == "alice" and seconds == share
        return real(lab, submission, seconds=0.0 if cut else verdict.SUBMISSION_SECONDS, **kwargs)

    monkeypatch.setattr(verdict, "SHARE_SECONDS", share)
    monkeypatch.setattr(verdict, "grade_one", slow_for_alice)
    with ThreadPoolExecutor(1) as executor:
        found = list(grade_many(lab, rows, executor=executor))
        assert [(r.student, r.score, r.doubtful) for r in found] == [
            ("bob", 90.0, False),
            ("alice", 90.0, False),
        ]
        assert given == [share, share, verdict.SUBMISSION_SECONDS]
        [alone] = grade_many(lab, rows[:1], executor=executor)
    assert given[-1] == verdict.SUBMISSION_SECONDS, "nobody waits for it"
    cut_off = real(lab, rows[0], seconds=0.0)
    assert cut_off.doubtful and cut_off.cut_off and cut_off.score == 0
    assert not cut_off.cells, "cells draw on the share as well"
