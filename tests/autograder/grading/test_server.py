"""A server collects a suite once and forks for each submission: nothing of one meets the next."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from toylab import NAME, PUBLIC, answered, make_course, write

from autograder.grading import elsewhere, later, pool
from autograder.grading.batch import grade_many
from autograder.grading.elsewhere import run_here
from autograder.grading.pool import Server, run_jobs
from autograder.grading.ready import ready_to_grade
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab
from autograder.sandbox import limits
from efflib.lab import runner
from efflib.lab.student import LocalStudent

pytestmark = pytest.mark.slow
NEVER = 3600.0
PATIENT = 120.0  # seconds: only what is broken takes them
STUDENTS = ("ada", "bob", "cleo")
PLANTING = """
import functools, gc, os, random, sys, types
import numpy, pytest, torch
import efflib.lab
from efflib.lab import exercise

LEFT = []
def remember(found=[]):
    return found
@functools.cache
def counted():
    return []
@pytest.fixture(scope="session")
def kept():
    return []

def what_is_there(kept):
    return {
        "global": LEFT, "default": remember(), "cache": counted(), "fixture": kept,
        "attribute": hasattr(efflib.lab, "left"), "module": "left" in sys.modules,
        "environment": "LEFT" in os.environ, "path": "/left" in sys.path,
        "dtype": torch.get_default_dtype() != torch.float32, "grad": not torch.is_grad_enabled(),
        "folder": os.getcwd() == "/", "callback": remember in gc.callbacks,
        "limit": sys.getrecursionlimit() == 1234, "file": os.path.exists("/proc/self/fd/77"),
        "numbers": numpy.geterr()["over"] == "ignore",
    }

def plant(kept):
    for part in (LEFT, remember(), counted(), kept):
        part.append(1)
    efflib.lab.left = sys.modules["left"] = types.ModuleType("left")
    os.environ["LEFT"] = "1"
    sys.path.append("/left")
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    os.chdir("/")
    gc.callbacks.append(lambda *_: None)
    gc.callbacks.append(remember)
    sys.setrecursionlimit(1234)
    os.dup2(0, 77)
    numpy.seterr(over="ignore")

@exercise("ex1", points=20, invariant="nothing is left", cause="a state that is shared")
def test_what_is_left(student, rng, kept):
    drawn = random.random(), numpy.random.rand(), torch.rand(()).item()
    found = [name for name, there in what_is_there(kept).items() if there]
    plant(kept)
    assert all(what_is_there(kept).values())
    assert False, f"found {found} and drew {drawn}"
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    path = root / "labs" / NAME / "test_public.py"
    path.write_text(PLANTING + PUBLIC[PUBLIC.index('@exercise("ex2"') :])
    for student in STUDENTS:
        write(root / f"in/{student}.ipynb", answered())
    return root


@pytest.fixture(scope="module")
def lab(course):
    return load_lab(NAME, course)


def test_nothing_of_one_submission_is_left_for_the_next(course, lab):
    results = list(grade_many(lab, discover(course / "in", lab), jobs=1, seed=7))
    told = {result.exercises[0].tests[0].message for result in results}
    assert [result.score for result in results] == [70] * 3
    assert len(told) == 1 and told.pop().startswith("found [] and drew (")


def test_without_a_process_of_its_own_the_next_finds_everything(lab):
    """What the test above looks for is there to be found."""
    files, told = [lab.test_files["public"]], []
    student = LocalStudent({"clip": lambda *_: [1.0, 2.0, -2.0]})

    def twice():
        [plugin] = runner._waiting.values()
        for _ in range(2):
            told.append(plugin.run(student, 0)[0].observed)
            plugin._results.clear()

    pid = os.fork()
    if pid == 0:  # it spoils the process in which it runs
        try:
            runner.collected(files, twice)
            # all but the fixture, which pytest ends with the run
            well = told[0].startswith("found [] and") and told[1].count("'") == 2 * 14
            os._exit(0 if well else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_is_collected_is_used_once(lab):
    files = [lab.test_files["hidden"]]
    student = LocalStudent({"scale": lambda x, f: [v * f for v in x]})
    sessions = []

    def work():
        sessions.append(dict(runner._waiting))
        first = runner.run_tests(files, student, 0)
        assert not runner._waiting
        sessions.append([(r.test, r.outcome) for r in first])

    runner.collected(files, work)
    again = [(r.test, r.outcome) for r in runner.run_tests(files, student, 0)]
    assert sessions[0] and sessions[1] == again


# ---- the processes ------------------------------------------------------------------------------


def job(item: str) -> bytes:
    """What the children of these tests do."""
    if item == "threads":
        return str(len(os.listdir(f"/proc/{os.getppid()}/task"))).encode()
    if item == "descriptors":
        return repr([opened("self"), opened(os.getppid())]).encode()
    if item.startswith("kills its server"):
        flag = Path(item.split(": ")[1])
        if not flag.exists():
            flag.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            threading.Event().wait()
    if item.startswith("tells"):
        Path(item.split(": ")[1]).touch()
    return item.encode()


def opened(pid) -> list[str]:
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(fd).split(":")[0])
        except OSError:  # of this very listing
            continue
    return sorted(found)


def test_a_server_has_one_thread_when_it_forks(lab):
    get_ready = partial(ready_to_grade, lab, False)
    for _, outcome in run_jobs(job, ["threads"] * 3, 2, NEVER, get_ready):
        assert outcome == b"1"


def test_descriptors_do_not_gather(lab):
    told = [outcome for _, outcome in run_jobs(job, ["descriptors"] * 6, 1, NEVER)]
    assert len(told) == 6 and len(set(told)) == 1, told


def test_a_server_that_is_killed_is_replaced(tmp_path):
    items = [f"kills its server: {tmp_path / 'flag'}", "a", "b"]
    assert sorted(run_jobs(job, items, 2, NEVER)) == sorted((i, i.encode()) for i in items)


def test_threads_of_a_process_share_its_server():
    with ThreadPoolExecutor(3) as threads:
        here = partial(run_here, job, limit=NEVER)
        assert list(threads.map(here, "abcdef")) == [name.encode() for name in "abcdef"]
    [server] = elsewhere.kept.values()
    assert server.alive() and server.running == 0
    elsewhere.close()
    assert not server.alive() and not elsewhere.kept


def test_a_child_that_is_killed_leaves_no_group(tmp_path, monkeypatch):
    root = make_course(tmp_path)
    write(root / "in/ada.ipynb", answered())
    hidden = root / f"autograder/suites/{NAME}/test_hidden.py"
    kills = "    import os\n    os.kill(os.getpid(), 9)\n    x = torch.rand("
    hidden.write_text(hidden.read_text().replace("    x = torch.rand(", kills))
    lab, pids, popen = load_lab(NAME, root), [], pool.subprocess.Popen

    def started(*args, **options):
        process = popen(*args, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(pool.subprocess, "Popen", started)
    [result] = grade_many(lab, discover(root / "in", lab), jobs=1)
    assert result.status == "fault" and "died" in result.reason
    _, parents = limits.usable_parents() or (0, ())
    assert pids and not [
        group for pid in pids for parent in parents for group in parent.glob(f"*-{pid}-*")
    ]


def test_the_next_job_runs_while_an_answer_is_looked_at(tmp_path):
    answers = run_jobs(job, ["first", f"tells: {tmp_path / 'second'}"], 1, NEVER)
    assert next(answers) == ("first", b"first")
    until_there(tmp_path / "second")  # else it waits until its answer is asked for
    assert len(list(answers)) == 1


def until_there(path: Path) -> None:
    until = time.monotonic() + PATIENT
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name}"
        time.sleep(0.01)


def with_an_end(folder: str) -> bytes:
    """A job after which something is left to do, when "go" is there."""
    later.do(lambda: (until_there(Path(folder, "go")), Path(folder, "done").touch()))
    return b"answer"


def test_an_answer_does_not_wait_for_the_end_of_a_sandbox(tmp_path):
    answers = run_jobs(with_an_end, [str(tmp_path)], 1, NEVER)
    assert next(answers) == (str(tmp_path), b"answer")
    (tmp_path / "go").touch()
    until_there(tmp_path / "done")
    assert not list(answers)


def test_alone_nothing_waits():
    done = []
    later.do(lambda: done.append(1))
    assert done == [1]


def test_who_never_asks_ends_the_server(monkeypatch):
    started, popen = [], pool.subprocess.Popen
    monkeypatch.setattr(
        pool.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )
    answers = run_jobs(job, ["never asked for"], 1, NEVER)
    assert [process.poll() for process in started] == [None]
    del answers
    assert None not in [process.returncode for process in started]


def test_who_asks_no_more_ends_the_server_and_its_children():
    server = Server()
    started = server.start(job, "kills its server: /", NEVER)  # the folder is there: no kill
    hanging = server.start(hang, "", NEVER)
    while not started.read():
        pass
    assert started.outcome() == b"kills its server: /"
    server.close()
    while not hanging.read():
        pass
    assert hanging.outcome() is None and not server.alive()


def hang(item: str) -> bytes:
    threading.Event().wait()


def test_a_fault_of_a_job_is_raised_where_it_was_asked_for():
    [(_, outcome)] = run_jobs(int, ["x"], 2, NEVER)
    assert isinstance(outcome, ValueError)
    with pytest.raises(ValueError, match="invalid literal"):
        run_here(int, "x", NEVER)
    elsewhere.close()
