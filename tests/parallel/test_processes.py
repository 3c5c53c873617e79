"""Real processes: the same results as together, no network, nothing left behind."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from efflib.parallel.processes import Processes
from efflib.parallel.sources import source_with_needs
from efflib.parallel.together import run_together

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FACTOR, DTYPE, NESTED = 3, torch.bfloat16, {"a": [1, (2.5, None)]}


class Base:
    def value(self):
        return FACTOR


class Derived(Base):
    pass


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


p = torch.nn.Linear(1, 1)  # as a notebook's variable: functions have one of this name of their own


def every_call(x: Tensor, comm) -> dict:
    r, p = comm.rank, comm.size
    found = {"sum": comm.all_reduce(x), "max": comm.all_reduce(x * r, "max")}
    found["half"] = comm.all_reduce(x.to(DTYPE))
    found["gathered"] = comm.all_gather(x[::2])
    found["scattered"] = comm.reduce_scatter([x * i for i in range(p)])
    found["swapped"] = comm.all_to_all([x[: i + 1] for i in range(p)])
    if r % 2 == 0 and r + 1 < p:
        comm.send(x[1:], r + 1)
    elif r % 2:
        found["received"] = comm.recv(x[1:], r - 1)
    found["own"] = (Derived().value(), even(4), NESTED["a"][0])
    return found


def one_fails(comm) -> None:
    if comm.rank == 1:
        raise ValueError("mine alone")
    comm.all_reduce(torch.ones(1))


def waits(comm) -> None:
    if comm.rank == 0:
        time.sleep(30)
    comm.all_reduce(torch.ones(1))


def same(a, b) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.fixture(scope="module")
def world():
    with Processes(4) as world:
        yield world


@pytest.fixture
def by_source(monkeypatch):
    """Functions of this file as if they were a notebook's."""
    for function in (every_call, one_fails, waits, even, odd, Base, Derived):
        monkeypatch.setattr(function, "__module__", "__main__")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_same_as_together(world, by_source, size):
    args = [(torch.arange(5.0) + r,) for r in range(size)]
    seen = world.run(every_call, args)
    right, calls, _ = run_together(every_call, args)
    assert same(seen.values, right)
    assert seen.calls[0]["all_reduce"] == (3, 50)
    assert sum(c.sent for c in calls[0]) == sum(n for _, n in seen.calls[0].values())


def test_a_fault_names_its_rank_and_the_next_run_works(world, by_source):
    with pytest.raises(RuntimeError, match="rank 1: ValueError: mine alone"):
        world.run(one_fails, [()] * 2)
    assert world.run(every_call, [(torch.ones(5),)]).values[0]["sum"].tolist() == [1] * 5


def test_who_waits_too_long_is_ended(world, by_source):
    with pytest.raises((TimeoutError, RuntimeError), match="rank"):
        world.run(waits, [()] * 2, limit=2)
    assert world.pids() == []


def test_a_stop_from_the_keyboard_ends_them_and_the_next_run_works(by_source, monkeypatch):
    with Processes(2) as world:
        pids = world.pids()
        with monkeypatch.context() as patched:
            patched.setattr("efflib.parallel.processes._One.hear", stop)
            with pytest.raises(KeyboardInterrupt):
                world.run(waits, [()] * 2)
        assert not any(map(alive, pids)) and not list(world._folder.glob("run*"))
        assert world.run(every_call, [(torch.ones(5),)]).values[0]["sum"].tolist() == [1] * 5
    with pytest.raises(ValueError, match="closed"):
        world.run(every_call, [(torch.ones(5),)])
    assert not world._folder.exists()


def stop(*args):
    raise KeyboardInterrupt


def test_what_cannot_travel_is_named(by_source):
    namespace = {"model": torch.nn.Linear(1, 1)}
    exec("def uses(comm):\n    return model\n", namespace)
    namespace["uses"].__module__ = "__main__"
    with pytest.raises(TypeError, match="source of uses"):
        source_with_needs(namespace["uses"])
    text = source_with_needs(every_call)
    scope = {}
    exec(text, scope)
    assert scope["even"](4) and scope["Derived"]().value() == 3


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.is_file() and "State:\tZ" in status.read_text())


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
def test_nothing_is_left_when_the_notebook_is_stopped(signal, tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text(
        textwrap.dedent(
            """
            import time
            from efflib.parallel.processes import Processes

            def waits(comm):
                time.sleep(60)

            world = Processes(2)
            print(*world.pids(), flush=True)
            world.run(waits, [(), ()])
            """
        )
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    pids = [int(p) for p in program.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    time.sleep(1)
    program.send_signal(getattr(__import__("signal"), signal))
    program.wait(20)
    for _ in range(100):
        if not any(map(alive, pids)):
            break
        time.sleep(0.1)
    assert not any(map(alive, pids))
    if signal == "SIGINT":
        assert not list(tmp_path.glob("ranks-*"))
