"""Limits are on what code computes: a busy machine fails nobody, and waiting ends too."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from autograder.sandbox import clock, limits
from autograder.sandbox.clock import Meter
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.session import SandboxDied, Session
from efflib.lab.student import StudentError

BURN = "x = 0\nwhile True: x += 1"


@pytest.fixture
def hands(monkeypatch):
    """A clock and a CPU meter that stand still until the test moves them."""
    made = SimpleNamespace(now=100.0, used=5.0)
    monkeypatch.setattr(clock.time, "monotonic", lambda: made.now)
    return made


def test_computing_counts_in_full_and_waiting_in_tenths(hands):
    meter = Meter(3.0, lambda: hands.used)
    assert meter.cost() == 0 and meter.left() > 0
    hands.now += 29
    assert meter.cost() == pytest.approx(2.9) and meter.left() > 0, "kept waiting, not late"
    hands.used += 2.95
    assert meter.cost() == pytest.approx(2.95) and meter.left() > 0
    hands.used += 0.1
    assert meter.cost() == pytest.approx(3.05) and meter.left() == 0
    hands.now, hands.used = 100.0, 5.0
    meter = Meter(3.0, lambda: hands.used)
    hands.now += 31
    assert meter.left() == 0, "who only waits is late in the end"


def test_the_meter_is_read_when_its_limit_can_have_been_reached(hands):
    reads = []
    meter = Meter(3.0, lambda: reads.append(hands.used) or hands.used)
    hands.now += 2.0 / clock.CORES
    assert 0 < meter.left() * clock.CORES <= 1.0 + 1e-9 and len(reads) == 1, "all cores together"
    hands.now, hands.used = 103.0, 7.5
    assert meter.left() == pytest.approx(max(0.5 / clock.CORES, clock.STEP_SECONDS))
    assert len(reads) == 2


def test_cpu_time_of_groups_of_both_versions(tmp_path):
    for name in ("v1", "v2", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "v1/cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "v2/memory.max").write_text("max\n")
    (tmp_path / "v2/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    other = str(tmp_path / "other")
    assert clock.group_seconds([other, str(tmp_path / "v1")]) == 1.5
    assert clock.group_seconds([str(tmp_path / "v2")]) == 2.5
    assert clock.group_seconds([other]) is None and clock.group_seconds([]) is None


def test_cpu_time_of_a_tree_counts_children_that_run_and_that_ended():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = f"import subprocess, sys; run = [sys.executable, '-c', {burn!r}]; subprocess.run(run); "
    code += "child = subprocess.Popen(run); child.wait(); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert clock.tree_seconds(process.pid) >= 0.6
        assert clock.tree_seconds(os.getpid()) >= 0.6
        process.stdin.close()
    assert clock.tree_seconds(2**30) == 0


# ---- in a real sandbox --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_call_that_is_kept_waiting_is_not_stopped(victim):
    assert victim.run("import time\ndef attack():\n time.sleep(3)\n return 1", seconds=2) == 1


@pytest.mark.slow
def test_a_call_that_only_waits_is_stopped_in_the_end(victim):
    cell = "import time\ndef attack():\n while True: time.sleep(0.01)"
    with pytest.raises(StudentError) as caught:
        victim.run(cell, seconds=0.1)
    assert caught.value.kind == "Timeout" and caught.value.message == "stopped after 1 s"
    assert not isinstance(caught.value, SandboxDied)


@pytest.mark.slow
def test_computing_in_other_processes_counts(victim, monkeypatch):
    monkeypatch.setattr(clock, "WALL_FACTOR", 1e6)  # only computing can end it
    monkeypatch.setattr("autograder.sandbox.conversation.WALL_FACTOR", 1e6)
    cell = f"import os\ndef attack():\n if os.fork() == 0:\n  exec({BURN!r})\n os.wait()"
    with pytest.raises(SandboxDied) as caught:
        victim.run(cell, seconds=0.2)
    assert caught.value.kind == "Timeout"


@pytest.mark.slow
def test_a_cell_costs_what_it_computes(victim):
    waits = victim.cell("import time\ntime.sleep(2)")
    assert waits.error is None and waits.seconds < 2
    burns = victim.cell(BURN, 0.5)
    # by CPU time, or, where others leave it less than a tenth of a CPU, by the time that passes
    assert burns.error in ("Timeout: stopped after 0.5 s", "Timeout: stopped after 5 s")
    assert burns.seconds >= 0.5


@pytest.mark.slow
def test_hashes_and_so_the_order_of_sets_are_the_same_in_every_sandbox(victim):
    cell = "def attack(): return [hash('efflib'), *{str(n) for n in range(9)}]"
    with Session(SandboxSpec(warm=False)) as other:
        other.run_cell(cell)
        assert other.call("attack") == victim.run(cell)


@pytest.mark.slow
def test_a_sandbox_has_its_own_share_of_the_cpus(kind):
    with Session(SandboxSpec(**kind)) as session:
        said = int(session.run_cell("import os\nprint(os.nice(0))", 60).stdout)
        folders = session._process._folders
    _, parents = limits.usable_parents() or (0, ())
    if any((parent / "cpu.shares").exists() for parent in parents):
        assert said == os.nice(0) and len(folders) == len(parents)
    else:
        assert said in (os.nice(0), os.nice(0) + limits.NICE)
