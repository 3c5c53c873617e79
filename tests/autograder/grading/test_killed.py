"""A sandbox killed from outside costs nothing; one that its own code kills gains nothing."""

import os
import signal
from concurrent.futures import Executor, Future
from pathlib import Path

import msgspec
import pytest
from toylab import NAME, RIGHT1, RIGHT2, answered, make_course, write

from autograder.commands.tables import remarks
from autograder.grading.batch import grade_many
from autograder.grading.results import encode
from autograder.grading.verdict import grade_one
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab
from autograder.nbgrader.recording import Recorded
from autograder.sandbox import keeper, limits, warm
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.session import SandboxDied, Session

KILLS_ITSELF = "def {0}(*_):\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)"
END_SECONDS = 60.0  # for the end of a killed process, however slow the machine is


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return load_lab(NAME, make_course(tmp_path_factory.mktemp("course")))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("autograder.sandbox.session.END_SECONDS", END_SECONDS)


def submission(lab, folder, **answers):
    write(folder / "in/alice.ipynb", answered(**answers))
    return discover(folder / "in", lab)[0]


COLD = ("keeper", "bwrap", "process 1", "worker")
WARM = ("zygote's child", "process 1", "worker")


def chain(session: Session) -> dict[str, int]:
    """The processes of a sandbox, from the outermost to the worker."""
    if isinstance(session._process, warm.Child):
        first, names = session._process._pid, WARM
    else:
        first, names = session._process._popen.pid, COLD
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), stat.parent)
        except OSError:
            continue
    pids = [first]
    while (child := parents.get(pids[-1])) is not None:
        pids.append(int(child.name))
    return dict(zip(names, pids, strict=True))


def kill_at(monkeypatch, operation: str, who: str, times: int) -> None:
    """The first `times` uses of a Session's method meet a sandbox that was just killed."""
    left, original = [None] * times, getattr(Session, operation)

    def killing(session, *args, **kwargs):
        if left:
            left.pop()
            session._get_ready()
            if who == "zygote":
                session._process._zygote._process._popen.kill()  # its keeper takes it along
            else:
                os.kill(chain(session)[who], signal.SIGKILL)
        return original(session, *args, **kwargs)

    monkeypatch.setattr(Session, operation, killing)


def outcomes(result):
    return [(t.test, t.outcome, t.points) for part in result.exercises for t in part.tests]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, who",
    [*(("cold", who) for who in COLD), *(("warm", who) for who in (*WARM, "zygote"))],
)
def test_a_test_whose_sandbox_is_killed_from_outside_is_repeated(
    lab, tmp_path, monkeypatch, kind, who
):
    if kind == "cold":
        monkeypatch.setattr(warm, "reason", {"reason": "this test wants cold ones"})
    work = submission(lab, tmp_path, ex2="def clip(numbers, lo, hi):\n    return numbers")
    undisturbed = grade_one(lab, work)
    if kind == "warm" and warm.reason:
        pytest.skip(warm.reason["reason"])
    kill_at(monkeypatch, "call", who, 1)
    result = grade_one(lab, work)
    assert outcomes(result) == outcomes(undisturbed) and result.score == 50
    assert not result.doubtful and not undisturbed.doubtful
    assert "1 test was run again: their process was killed, perhaps from outside." in result.notes
    assert undisturbed.notes == ()


@pytest.mark.slow
def test_a_cell_whose_sandbox_is_killed_from_outside_is_run_again(lab, tmp_path, monkeypatch):
    kill_at(monkeypatch, "run_cell", "worker", 1)
    result = grade_one(lab, submission(lab, tmp_path))
    assert result.score == 90 and not result.doubtful
    assert all(cell.error is None for cell in result.cells)
    assert any("was run again: its process was killed" in note for note in result.notes)


@pytest.mark.slow
def test_code_that_kills_its_process_gets_one_more_try_a_test_and_few_in_all(lab, tmp_path):
    ex1, ex2 = KILLS_ITSELF.format("scale"), KILLS_ITSELF.format("clip")
    result = grade_one(lab, submission(lab, tmp_path, ex1=ex1, ex2=RIGHT2))
    assert result.score == 40 and result.doubtful
    assert {t.message for t in result.exercises[0].tests} >= {
        "stopped: the process in which it ran was killed"
    }
    assert [note for note in result.notes if "run again" in note] == [
        "2 tests were run again: their process was killed, perhaps from outside."
    ]
    result = grade_one(lab, submission(lab, tmp_path, ex1=ex1, ex2=ex2))
    assert result.score == 0 and result.doubtful
    assert any(note.startswith("3 tests were run again") for note in result.notes)


@pytest.mark.slow
def test_a_cell_that_kills_its_process_is_left_out_after_its_second_try(lab, tmp_path):
    ex1 = "import os\nos.kill(os.getpid(), 9)\n" + RIGHT1
    result = grade_one(lab, submission(lab, tmp_path, ex1=ex1))
    assert result.score == 90, "its definitions were run without the rest"
    assert result.doubtful
    notes = [note for note in result.notes if "was killed" in note]
    assert ["run again" in note for note in notes] == [True, False] and "left out" in notes[1]


@pytest.mark.slow
def test_code_that_kills_itself_is_graded_twice_and_then_is_beyond_doubt(lab, tmp_path):
    work, cache = submission(lab, tmp_path, ex1=KILLS_ITSELF.format("scale")), tmp_path / "cache"
    [result] = grade_many(lab, [work], jobs=1, cache=cache)
    assert (result.status, result.score, result.doubtful) == ("graded", 40, False)
    assert result.notes[-1].endswith("the code kills its own process.")
    [again] = grade_many(lab, [work], executor=Answering(), cache=cache)
    assert again == result and len(list(cache.glob("*/*"))) == 1, "it was taken from the disk"


class Answering(Executor):
    """Gives the results that it was made with, one for each submission that is graded."""

    def __init__(self, *results):
        self.results = list(results)

    def submit(self, job, submission):
        future = Future()
        future.set_result(encode(self.results.pop(0)))
        return future


@pytest.mark.slow
def test_a_doubtful_result_that_does_not_come_again_counts_for_nothing(lab, tmp_path):
    work, cache = submission(lab, tmp_path), tmp_path / "cache"
    right = grade_one(lab, work)
    unlucky = grade_one(lab, submission(lab, tmp_path / "other", ex2="clip = 3"))
    unlucky = msgspec.structs.replace(unlucky, doubtful=True)
    other = msgspec.structs.replace(right, doubtful=True)
    [result] = grade_many(lab, [work], executor=Answering(unlucky, other), cache=cache)
    assert result == other and not list(cache.glob("*/*")), "two ends: still doubtful, not stored"
    assert "doubtful" in remarks(Recorded(result)) and "doubtful" not in remarks(Recorded(right))
    [result] = grade_many(lab, [work], executor=Answering(unlucky, right), cache=cache)
    assert result == right and len(list(cache.glob("*/*"))) == 1


# ---- the session --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sandbox_that_is_killed_at_its_start_is_started_again(monkeypatch):
    starts, killed = [], {1, 2, 4, 5, 6}
    original = Session._start

    def start(session, spec):
        original(session, spec)
        starts.append(session._process._popen.pid)
        if len(starts) in killed:
            os.kill(starts[-1], signal.SIGKILL)

    monkeypatch.setattr(Session, "_start", start)
    with Session(SandboxSpec(warm=False)) as session:
        assert session.run_cell("x = 1", 60).error is None and len(starts) == 3
    with (
        Session(SandboxSpec(warm=False)) as session,
        pytest.raises(SandboxUnavailable, match="killed while they start.*--jobs 1"),
    ):
        session.run_cell("x = 1", 60)
    assert len(starts) == 6


@pytest.mark.slow
def test_a_killed_keeper_leaves_no_group():
    before = groups()
    with Session(SandboxSpec(warm=False)) as session:
        session._get_ready()
        assert len(groups()) > len(before) or limits.usable_parents() is None
        os.kill(chain(session)["keeper"], signal.SIGKILL)
        with pytest.raises(SandboxDied) as caught:
            session.run_cell("import time\ntime.sleep(60)", 90)  # the kernel tells bwrap later
    assert caught.value.kind == "Killed" and groups() == before


def groups() -> list[Path]:
    _, parents = limits.usable_parents() or (0, ())
    return [g for parent in parents for g in parent.glob(f"{limits.PREFIX}-{os.getpid()}-*")]


OOM, PEAK = "memory.oom_control", "memory.max_usage_in_bytes"
V1 = {"memory.limit_in_bytes": "99999744\n", "memory.memsw.limit_in_bytes": "99999744\n"}


@pytest.mark.parametrize(
    "files, own",
    [
        ({"memory.events": "low 0\nmax 9\noom 1\noom_kill 1\n"}, True),
        ({"memory.events": "low 0\nmax 0\noom 0\noom_kill 1\n"}, False),  # the machine's memory
        ({"memory.events": "low 0\nmax 9\noom 0\noom_kill 0\n"}, False),
        (
            V1 | {"memory.oom_control": "oom_kill 2\n", PEAK: "99999744"},
            True,
        ),
        (
            V1 | {"memory.oom_control": "oom_kill 0\n", PEAK: "99999744"},
            False,
        ),
        (
            V1 | {"memory.oom_control": "oom_kill 2\n", PEAK: "55555555"},
            False,
        ),
        ({}, False),
    ],
)
def test_the_groups_own_limit_is_told_from_the_machines(tmp_path, files, own):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert keeper.at_own_limit(str(tmp_path)) is own


LOOTS = """
seen = []
def scale(numbers, factor):
    import os, signal
    seen.append((numbers, factor))
    if factor == 3.0 and len(seen) == 1:  # the public test, before any hidden one
        os.kill(os.getpid(), signal.SIGKILL)
    if factor == 3.0:
        raise RuntimeError(f"LOOT {seen[:-1]}")
    return [factor * number for number in numbers]
"""


@pytest.mark.slow
def test_a_public_test_is_repeated_before_hidden_input_is_seen(lab, tmp_path):
    """What a public test says is shown: the process in which it runs must not know hidden input."""
    result = grade_one(lab, submission(lab, tmp_path, ex1=LOOTS))
    [public] = [
        t for part in result.exercises for t in part.tests if t.test == "test_scale_by_hand"
    ]
    said = [test.message for part in result.exercises for test in part.tests]
    assert public.outcome == "failed" and "LOOT" not in str([said, result.notes, result.cells])
    assert result.doubtful  # killed both times
