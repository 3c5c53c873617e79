"""Loops, bombs and floods end with the student's sandbox and not with the grader's machine."""

import os
import time

import pytest

from autograder.sandbox import limits
from autograder.sandbox.session import SandboxDied
from efflib.lab.student import StudentError

pytestmark = pytest.mark.slow
ALIVE = "def attack(): return 'alive'"


def test_an_endless_loop_is_stopped_and_the_sandbox_goes_on(victim):
    victim.cell("kept = 'kept'")
    with pytest.raises(StudentError) as caught:
        victim.run("def attack():\n while True: pass", seconds=0.3)
    assert caught.value.kind == "Timeout" and caught.value.message == "stopped after 0.3 s"
    assert not isinstance(caught.value, SandboxDied)
    assert victim.run("def attack(): return kept") == "kept"


def test_an_endless_cell_is_reported_and_keeps_what_it_had_defined(victim):
    report = victim.cell("def attack(): return 5\nprint('begins')\nwhile True: pass", seconds=0.3)
    assert report.error == "Timeout: stopped after 0.3 s" and report.stdout == "begins\n"
    assert victim.attack() == 5


def test_a_loop_that_cannot_be_interrupted_is_killed(victim, monkeypatch):
    monkeypatch.setattr("autograder.sandbox.conversation.GRACE_SECONDS", 0.5)
    loop = "import signal\ndef attack():\n signal.pthread_sigmask(0, range(1, 32))"
    loop += "\n while True: pass"
    with pytest.raises(SandboxDied) as caught:
        victim.run(loop, seconds=0.5)
    assert caught.value.kind == "Timeout" and caught.value.reason == "stopped after 0.5 s"
    assert victim.run(ALIVE) == "alive"


def test_memory_is_limited_and_the_next_call_works(small):
    bomb = "def attack():\n x = [bytearray(2**20)]\n while len(x) < 3000: x.append(x[0][:])"
    with pytest.raises(StudentError) as caught:
        small.run(bomb)
    limited_by_cgroup = limits.usable_parents() is not None
    assert caught.value.kind == ("MemoryLimit" if limited_by_cgroup else "MemoryError")
    assert small.run(ALIVE) == "alive"


def test_memory_of_all_processes_counts_together(small):
    bomb = """
import os, time
def attack():
    for child in range(8):
        if os.fork() == 0:
            x = bytearray(200 * 2**20)
            for place in range(0, len(x), 4096): x[place] = 1
            time.sleep(2)
            os._exit(0)
    statuses = [os.wait()[1] for child in range(8)]
    return sum(status != 0 for status in statuses)
"""
    try:
        assert small.run(bomb) >= 5  # of 8 x 200 MB, 640 MB fit
    except SandboxDied as fault:
        assert fault.kind == "MemoryLimit"
    assert small.run(ALIVE) == "alive"


def test_processes_are_limited(small):
    cell = """
import os, signal, time
def attack(wanted):
    children = []
    try:
        while len(children) < wanted:
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(60)
                os._exit(0)
    except OSError: pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.wait()
    return len(children)
"""
    assert 10 <= small.run(cell, 200) <= 40


def test_threads_are_limited(small):
    cell = """
import threading
def attack():
    stop, made = threading.Event(), 0
    for _ in range(200):
        try: threading.Thread(target=stop.wait, daemon=True).start()
        except RuntimeError: break
        made += 1
    stop.set()
    return made
"""
    assert 10 <= small.run(cell) <= 40


DAEMON = """
import os, time
def attack():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            name = b"efflib-daemon-test"
            __import__("ctypes").CDLL(None).prctl(15, name, 0, 0, 0)
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(0.2)
    processes = filter(str.isdigit, os.listdir("/proc"))
    return [open(f"/proc/{process}/comm").read().strip() for process in processes]
"""


def running(name: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                found += [pid] if comm.read().strip() == name[:15] else []
        except OSError:
            pass
    return found


def test_a_daemon_dies_with_the_sandbox(victim):
    assert "efflib-daemon-t" in victim.run(DAEMON)
    assert running("efflib-daemon-test")
    victim._session.close()
    end = time.monotonic() + 10
    while running("efflib-daemon-test") and time.monotonic() < end:
        time.sleep(0.05)
    assert not running("efflib-daemon-test")
    with pytest.raises(SandboxDied):
        victim.run(ALIVE)


def test_a_process_that_ends_itself_costs_only_its_call(victim):
    with pytest.raises(SandboxDied) as caught:
        victim.run("import os\ndef attack(): os.abort()")
    assert caught.value.kind == "Exit"
    assert victim.run(ALIVE) == "alive"


def test_a_fork_that_returns_does_not_answer_twice(victim):
    assert victim.run("import os\ndef attack():\n os.fork()\n return 7") == 7
    assert victim.run(ALIVE) == "alive"


def test_disks_are_small(victim):
    cell = """
import os
def attack():
    written = {}
    for folder in ("/w", "/tmp", "/dev/shm"):
        written[folder], block = 0, b"x" * 2**20
        try:
            for number in range(600):
                with open(f"{folder}/{number}", "wb", buffering=0) as file:
                    written[folder] += file.write(block)
        except OSError as fault:
            assert fault.errno == 28, fault
        for name in os.listdir(folder): os.unlink(f"{folder}/{name}")
    return [size // 2**20 for size in written.values()]
"""
    assert victim.run(cell) == [256, 256, 128]


def test_open_files_and_file_sizes_are_limited(victim):
    cell = """
import os, resource
def attack():
    files = []
    try:
        while len(files) < 2000: files.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as fault: said = fault.errno
    for file in files: os.close(file)
    return said, resource.getrlimit(resource.RLIMIT_CORE)
"""
    assert victim.run(cell) == (24, (1, 1))


@pytest.mark.parametrize(
    "spoil",
    [
        "import builtins\nfor name in ('len', 'print', 'isinstance', 'type', 'sorted'):"
        "\n builtins.__dict__[name] = None",
        "import builtins\nbuiltins.__dict__.clear()",
        "import sys\nsys.stdout = sys.stderr = None\nprint = None",
        "import sys\nsys.modules.clear()",
        "import gc\nfor x in gc.get_objects():\n if type(x) is dict and 'codec' in x: x.clear()",
        "import signal\nsignal.signal = signal.setitimer = None",
        "import threading\ndef spin():\n while True: pass\n"
        "for _ in range(3): threading.Thread(target=spin, daemon=True).start()",
        "import os\nos.write = os.readv = lambda *a: 1 / 0",
        "import os\nos.closerange(3, 300)",
    ],
)
def test_a_spoilt_interpreter_answers_or_dies(fragile, spoil):
    """Whatever a cell does to the process: a value, or an error and a new sandbox."""
    try:
        fragile.cell("def attack(): return 8\n" + spoil, 5)
        assert fragile.limited_to(5).attack() == 8
    except SandboxDied:
        assert fragile.attack() == 8
    except StudentError:
        pass
