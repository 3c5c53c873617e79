"""The life of a zygote: one for what is withheld, replaced when killed, ended with its process."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from test_sandbox_lifecycle import GRADER, eventually, groups, named

from autograder.sandbox import launch, warm
from autograder.sandbox.diagnose import diagnose
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.session import SandboxDied, Session

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def only_where_possible(can_be_warm):
    if can_be_warm:
        pytest.skip(can_be_warm)


def zygote(spec=None) -> warm.Zygote:
    return warm.zygote_of(spec or SandboxSpec())


def get_ready(spare: warm.Child) -> None:
    """What a server does whenever something can be read."""
    while spare.unready() >= 0:
        with warm.select_on(spare.unready()) as poll:
            poll.poll()
        spare.step(time.monotonic())


def test_the_next_sandbox_is_made_while_one_is_in_use(sessions):
    sessions("x = 1")
    spare = zygote().spare
    assert sessions("y = x if 'x' in globals() else 2")._process is spare
    spare = zygote().spare
    other = sessions("z = 3", memory_mb=500)  # other limits: the spare one is of no use
    assert other._process is not spare and zygote().spare.spec.memory_mb == 500
    assert not any(Path(folder).exists() for folder in spare._folders)


def test_what_a_lab_preloads_is_there_before_a_student_is(sessions):
    loaded = "import sys; print('torch.utils.flop_counter' in sys.modules)"
    session = sessions(loaded, preload=("torch.utils.flop_counter",))
    assert session.run_cell(loaded, 60).stdout == "True\n"
    assert sessions(loaded).run_cell(loaded, 60).stdout == "False\n"


def test_kernels_are_interpreted_though_triton_was_imported_before(sessions):
    early = ("torch._dynamo",)  # imports triton, which then settles what it makes of a kernel
    cell = "from efflib.meter import interpreter; print('there')"
    ran = sessions(preload=early).run_cell(cell, 60)
    assert ran.stdout == "there\n"


def test_a_spare_that_was_killed_costs_nothing(sessions):
    sessions("x = 1")
    spare = zygote().spare
    get_ready(spare)
    os.kill(spare._pid, signal.SIGKILL)
    assert eventually(lambda: ended(spare._pid))
    assert sessions("x = 2").run_cell("print(x)", 60).stdout == "2\n"


def test_a_killed_zygote_is_replaced(sessions):
    alice = sessions("x = 1")
    first = zygote()
    get_ready(first.spare)
    first._process._popen.kill()
    with pytest.raises(SandboxDied) as caught:
        alice.run_cell("import time\ntime.sleep(60)", 90)
    assert caught.value.kind == "Killed"
    assert eventually(lambda: not first.alive())
    assert sessions("x = 1") and zygote() is not first and not warm.reason


def killed_when(monkeypatch, count: int, who: str) -> list[str]:
    """The first `count` children meet the end of their zygote, or their own, at the word "here"."""
    left, original = [who] * count, warm.Child._admit

    def admit(child):
        if left:
            left.pop()
            pid = child._pid if who == "child" else child._zygote._process._popen.pid
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda: ended(child._pid))
        return original(child)

    monkeypatch.setattr(warm.Child, "_admit", admit)
    return left


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("who", ["zygote", "child"])
@pytest.mark.parametrize("count, is_warm", [(1, True), (2, False)])
def test_killed_before_the_first_sandbox_is_not_taken_for_impossible(
    monkeypatch, who, count, is_warm
):
    warm.close()
    left = killed_when(monkeypatch, count, who)
    with Session(SandboxSpec()) as session:
        assert session.run_cell("x = 1", 60).error is None
        assert isinstance(session._process, warm.Child) is is_warm, "the third one is cold"
    assert not left and not warm.reason
    with Session(SandboxSpec()) as session:
        assert session.run_cell("x = 1", 60).error is None
        assert isinstance(session._process, warm.Child)


def test_where_every_zygote_is_killed_sandboxes_are_cold(monkeypatch):
    warm.close()
    monkeypatch.setattr(warm, "reason", {})
    left = killed_when(monkeypatch, warm.SILENT_ENDS, "zygote")
    for _ in range(2):
        with Session(SandboxSpec()) as session:
            assert session.run_cell("x = 1", 60).error is None
            assert not isinstance(session._process, warm.Child)
    assert not left and warm.reason == {"reason": "3 zygotes ended without a word"}
    warm.silent_ends.clear()


def test_each_set_of_withheld_modules_has_its_zygote(sessions):
    withheld = ("efflib.quantization",)
    sessions(), sessions(withhold=withheld)
    assert zygote() is zygote() is not zygote(SandboxSpec(withheld))
    with pytest.raises(AssertionError, match="not available in grading"):
        sessions("import efflib.quantization as q; q.x", withhold=withheld)


def test_a_killed_process_takes_zygote_and_sandboxes_along():
    name = f"eff-z{os.getpid()}"
    command = [sys.executable, "-c", textwrap.dedent(GRADER % (True, name))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as grader:
        pid = int(grader.stdout.readline())
        assert named(name)
        grader.send_signal(signal.SIGKILL)
    assert eventually(lambda: not named(name) and not groups(pid))


@pytest.fixture
def untried(monkeypatch):
    warm.close()  # hidden from the `close` below, they would lose the group of their spare
    monkeypatch.setattr(warm, "zygotes", {})
    monkeypatch.setattr(warm, "reason", {})
    yield
    warm.close()


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("WARM", launch.COLD, "Operation not permitted"),
        ("WARM", ("--nonsense",), "nonsense"),
        ("optional_flags", lambda: (), "older than 0.8"),
    ],
)
def test_where_no_zygote_works_sandboxes_are_cold(monkeypatch, untried, name, value, said):
    monkeypatch.setattr(launch, name, value)
    for _ in range(2):
        with Session(SandboxSpec()) as session:
            assert session.run_cell("x = 1", 60).error is None
            assert not isinstance(session._process, warm.Child)
    assert said in warm.reason["reason"]
    [row] = [row for row in diagnose() if row[0] == "warm sandboxes"]
    assert row[1] and said in row[2]


def test_diagnose_says_that_they_are_warm(untried):
    assert diagnose()[-1] == ("warm sandboxes", True, "forked off one that has torch imported")
