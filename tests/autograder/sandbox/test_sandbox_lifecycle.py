"""Beginning and end of a sandbox: nothing is left behind, and without a sandbox nothing runs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest
from victims import BUDGET

from autograder.sandbox import launch, limits, remote, warm
from autograder.sandbox.diagnose import diagnose
from autograder.sandbox.launch import SandboxSpec, SandboxUnavailable
from autograder.sandbox.session import Session

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
GRADER = """
    import os, sys
    from autograder.sandbox.session import *
    session = Session(SandboxSpec(warm=%s))
    session.run_cell("import ctypes; ctypes.CDLL(None).prctl(15, b'%s', 0, 0, 0)", 60)
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def python(code: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **options)


def groups(pid: int) -> list[Path]:
    usable = limits.usable_parents()
    parents = usable[1] if usable else ()
    return [g for parent in parents for g in parent.glob(f"{limits.PREFIX}-{pid}-*")]


def named(name: str) -> bool:
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == name:
                return True
        except OSError:
            continue
    return False


def eventually(condition) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_nothing_is_left_when_the_grader_is_killed(warm):
    name = f"eff-{warm:d}{os.getpid()}"
    grader = python(GRADER % (warm, name))
    pid = int(grader.stdout.readline())
    assert named(name)
    assert groups(pid) or limits.usable_parents() is None
    grader.kill()
    # before anybody waits for it: a process that has ended stays in /proc until then
    assert eventually(lambda: not named(name) and not groups(pid))
    grader.wait(30)


def test_a_session_outlives_its_thread_and_close_removes_everything(kind):
    warm.close()
    before, made = groups(os.getpid()), []
    thread = threading.Thread(target=lambda: made.append(Session(SandboxSpec(**kind))))
    thread.start()
    thread.join()
    with made[0] as opened:
        opened.run_cell("import ctypes; ctypes.CDLL(None).prctl(15, b'eff-close', 0, 0, 0)", 60)
        assert named("eff-close")
    assert not named("eff-close")
    warm.close()
    assert groups(os.getpid()) == before


def test_close_before_it_is_ready(kind):
    warm.close()
    Session(SandboxSpec(**kind)).close()
    before, fds = groups(os.getpid()), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Session(SandboxSpec(**kind)).close()
    assert groups(os.getpid()) == before and len(os.listdir("/proc/self/fd")) == fds


def test_leftover_groups_of_dead_graders_go(tmp_path):
    """At once where a process id tells that they are dead, in other containers after a while."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    elsewhere = f"{limits.PREFIX.partition('.')[0]}.1"
    gone = tmp_path / f"{limits.PREFIX}-{dead.pid}-{os.getpid()}-0"
    own = tmp_path / f"{limits.PREFIX}-{os.getpid()}-{dead.pid}-0"
    old, new = (tmp_path / f"{elsewhere}-{dead.pid}-{dead.pid}-{number}" for number in range(2))
    for folder in (gone, own, old, new):
        folder.mkdir()
    for folder in (own, old):
        os.utime(folder, (0, 0))
    limits.remove_leftovers((tmp_path,))
    assert set(tmp_path.iterdir()) == {own, new}


# ---- no sandbox, no grading ----------------------------------------------------------------------


def fake_bwrap(folder: Path, script: str) -> str:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "said, remedy",
    [
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns"),
        ("bwrap: No permissions to create new namespace", "seccomp=unconfined"),
        ("bwrap: Can't find source path /x", "Can't find source path /x"),
    ],
)
def test_a_bwrap_that_fails_is_explained(monkeypatch, tmp_path, said, remedy):
    fake = fake_bwrap(tmp_path, f'echo "{said}" >&2; exit 1')
    monkeypatch.setattr(launch, "bwrap", lambda: fake)
    monkeypatch.setattr(warm, "reason", {})
    spec = SandboxSpec(withhold=("efflib.zoo.train",))  # no zygote has been started for it
    with Session(spec) as opened, pytest.raises(SandboxUnavailable, match="did not") as e:
        opened.run_cell("x = 1")
    assert said in str(e.value) and remedy in str(e.value)


def test_a_missing_bwrap_is_explained(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    launch.bwrap.cache_clear()
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        Session(SandboxSpec(withhold=("efflib.zoo.train",)))
    assert ("bubblewrap", False) in [row[:2] for row in diagnose()]
    launch.bwrap.cache_clear()


def test_too_little_memory_for_torch_is_explained():
    if limits.usable_parents() is None:
        spec, said = SandboxSpec(memory_mb=-(10**9), warm=False), "did not start"
    else:
        spec, said = SandboxSpec(memory_mb=20, warm=False), "memory_mb=20 is too little"
    with Session(spec) as opened, pytest.raises(SandboxUnavailable, match=said):
        opened.run_cell("x = 1")


def test_a_sandbox_that_cannot_be_started_again_is_remembered(monkeypatch):
    student = remote.RemoteStudent(SandboxSpec(unsafe=True), [], BUDGET)
    student.close()
    refusal = SandboxUnavailable("no room")

    def refuse(spec):
        raise refusal

    monkeypatch.setattr(warm, "start", refuse)
    with pytest.raises(SandboxUnavailable):
        student.anything()
    assert student.unavailable is refusal


def test_diagnose_names_what_works():
    rows = diagnose()
    assert [row[0] for row in rows] == [
        "bubblewrap", "limits", "packages", "sandbox", "warm sandboxes",
    ]  # fmt: skip
    assert all(row[1] for row in rows), rows


# ---- an ordinary user ----------------------------------------------------------------------------

ORDINARY = """
    import json, os, sys
    from autograder.sandbox import limits
    from autograder.sandbox.session import *
    out = {"cgroup": limits.usable_parents() is not None, "user": os.getuid()}
    with Session(SandboxSpec(memory_mb=500, processes=40, warm=sys.argv[2] == "warm")) as session:
        session.run_cell(sys.argv[1], 60)
        for name in ("forks", "memory"):
            try: out[name] = session.call(name, (), {}, 60)
            except StudentError as fault: out[name] = fault.kind
    from autograder.sandbox import warm
    out["why"] = warm.reason.get("reason", "")
    out["warm"] = isinstance(session._process, warm.Child)
    print(json.dumps(out))
"""
CELL = """
import os, time
def forks():
    made = 0
    for _ in range(150):
        try:
            if os.fork() == 0:
                time.sleep(20); os._exit(0)
        except OSError: break
        made += 1
    return made
def memory():  # the last byte too: nothing is left for describing the error
    x, size = [], 2**20
    while size > 8:
        try: x.append(bytearray(size))
        except MemoryError: size //= 2
    raise MemoryError
"""
# Root may hide its home from others: the interpreter below it is mounted where they can reach it.
AS_NOBODY = """
set -e
folder=$1 home=$(dirname "$(dirname "$2")"); shift 2
mkdir "$folder/keep"; mount --bind "$home" "$folder/keep"
mount -t tmpfs -o mode=755 none /root; mkdir -p "$home"; mount --move "$folder/keep" "$home"
chmod -R a+rwX "$folder/course"
export XDG_CACHE_HOME="$folder/course" HOME="$folder/course"
cd "$folder/course"
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


@pytest.mark.parametrize("temperature", ["cold", "warm"])
def test_an_ordinary_user_gets_limits_too(temperature):
    """Where the tests run as root: user nobody with a copy of the course, without a cgroup."""
    command = [sys.executable, "-c", textwrap.dedent(ORDINARY), CELL, temperature]
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() == 0:
            os.chmod(folder, 0o755)
            for package in ("autograder", "efflib"):
                ignore = shutil.ignore_patterns("checkpoints", "__pycache__", "suites")
                shutil.copytree(ROOT / package, f"{folder}/course/{package}", ignore=ignore)
            base = os.path.realpath(sys.executable)
            command = ["unshare", "--mount", "sh", "-c", AS_NOBODY, "sh", folder, base, *command]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["warm"] is (temperature == "warm"), out["why"]
    assert 10 <= out["forks"] <= 40
    assert out["memory"] in ("MemoryError", "MemoryLimit")
    if os.geteuid() == 0:
        assert out["cgroup"] is False and out["user"] == 65534
