"""However a grading is ended, what is graded is kept and nothing of it goes on running."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toylab import NAME, RIGHT1, answered, make_course, write

from autograder.sandbox import limits

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
# A background job of a shell ignores SIGINT.
SCRIPT = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(HERE)!r})
from autograder.cli import main
if __name__ == "__main__":
    root = sys.argv[1]
    main(["grade", "{NAME}", f"{{root}}/in", "--jobs", "1", "--course", root, *sys.argv[2:]])
"""
HANGS = """
def clip(numbers, lo, hi):
    import ctypes
    ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
    while True: pass
"""
SIGNALS = {"ctrl-c": signal.SIGINT, "terminated": signal.SIGTERM, "killed": signal.SIGKILL}


@pytest.mark.parametrize("options", [[], ["--unsafe-no-sandbox"]], ids=["sandbox", "unsafe"])
@pytest.mark.parametrize("how", SIGNALS)
def test_what_is_graded_is_kept_and_nothing_is_left(tmp_path, how, options):
    root, name = make_course(tmp_path / "course"), f"eff-{how[:4]}{os.getpid()}"
    write(root / "in/a.ipynb", answered())
    write(root / "in/b.ipynb", answered(ex1=RIGHT1, ex2=HANGS.format(name=name)))
    manifest = root / f"autograder/suites/{NAME}/manifest.toml"
    manifest.write_text(manifest.read_text().replace("call_seconds = 3", "call_seconds = 3000"))
    coordinator = started(tmp_path, root, options)
    wait_until(lambda: named(name) or coordinator.poll() is not None)
    assert coordinator.poll() is None, coordinator.communicate()
    workers = in_session(coordinator.pid)
    if how == "ctrl-c":  # a terminal sends it to all of them
        os.killpg(coordinator.pid, SIGNALS[how])
    else:
        coordinator.send_signal(SIGNALS[how])
    said = coordinator.communicate()[1]
    assert coordinator.returncode == (-9 if how == "killed" else 130)
    assert how == "killed" or "the same command goes on from there" in said
    assert stored(root) == [("a", 90)]
    # keepers and the tracker of multiprocessing end on their own once the others have gone
    wait_until(lambda: not left(name, coordinator.pid, workers))
    assert left(name, coordinator.pid, workers) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def started(folder: Path, root: Path, options: list[str]) -> subprocess.Popen:
    (folder / "tmp").mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(root), *options],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
    )


def stored(root: Path) -> list[tuple[str, float]]:
    files = (root / "build/results" / NAME).glob("*/*.json")
    return [(path.parent.name, json.loads(path.read_bytes())["score"]) for path in files]


def wait_until(condition) -> None:
    """Until it holds, or so long that it never will, however busy the machine is."""
    end = time.monotonic() + 1800
    while not condition() and time.monotonic() < end:
        time.sleep(0.3)


def processes():
    """(pid, name, command line, session) of everything that runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            command = (folder / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if fields.split()[0] != "Z":
            yield int(folder.name), name, command, int(fields.split()[3])


def named(name: str) -> bool:
    return any(process[1] == name for process in processes())


def in_session(leader: int) -> list[int]:
    return [pid for pid, _, _, session in processes() if session == leader]


def left(name: str, coordinator: int, workers: list[int]) -> list:
    """Processes of a grading, its sandboxes and their keepers, and the groups of its sandboxes."""
    found = []
    for pid, own, command, session in processes():
        kept = any("keeper.py" in part for part in command) and set(map(str, workers)) & {*command}
        if own == name or session == coordinator or kept:
            found.append((pid, own, command))
    _, parents = limits.usable_parents() or (0, ())
    groups = (g for parent in parents for g in parent.glob(f"{limits.PREFIX}-*-*"))
    return found + [group for group in groups if int(group.name.split("-")[2]) in workers]
