"""Four real processes, as a notebook has them: quick on two cores, stopped, without a network."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

ROOT = Path(__file__).parents[2]
FOUR = """
import os, signal, sys, time
import torch
from efflib.parallel.processes import Processes

def total(x, comm):
    return comm.all_reduce(x), comm.all_gather(x)

def waits(comm):
    if comm.rank:
        comm.all_reduce(torch.ones(1))
    time.sleep(60)

def works(world, size):
    ran = world.run(total, [(torch.ones(3) * rank,) for rank in range(size)])
    for summed, everybody in ran.values:
        assert summed.tolist() == [sum(range(size))] * 3
        assert [x.tolist() for x in everybody] == [[rank] * 3 for rank in range(size)]

"""


def program(tmp_path: Path, body: str, before: tuple[str, ...] = (), **more) -> subprocess.Popen:
    """A program of its own, as a notebook's kernel is: with its own process group."""
    script = tmp_path / "notebook.py"
    script.write_text(FOUR + textwrap.dedent(body))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        [*before, sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
        **more,
    )


def finished(one: subprocess.Popen, tmp_path: Path) -> str:
    """What it wrote; nothing of it is left."""
    out, error = one.communicate(timeout=240)
    assert one.returncode == 0, error
    pids = [int(word) for word in out.split() if word.isdigit()]
    assert pids and not any(map(alive, pids)), f"{pids} are left"
    assert not list(tmp_path.glob("ranks-*"))
    return out


def alive(pid: int) -> bool:
    """Whether it runs a second later still: what was killed may take a moment."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.01)
    return True


# ---- time ------------------------------------------------------------------------------------


def worked(cores: list[int]) -> float:
    """Seconds that these cores have worked for anybody."""
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    busy = 0
    for name, *ticks in lines:
        if name in {f"cpu{core}" for core in cores}:
            busy += sum(map(int, ticks[:8])) - int(ticks[3]) - int(ticks[4])  # idle, iowait
    return busy / os.sysconf("SC_CLK_TCK")


def test_four_start_run_and_end_within_20_seconds_on_two_cores(tmp_path):
    """As on cores of our own: what the two worked for other programs meanwhile is taken off."""
    body = """
    from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
    with Processes(4) as world:
        print(*world.pids())
        works(world, 4)
    own = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    print("used", sum(u.ru_utime + u.ru_stime for u in own))
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    begin, before = time.perf_counter(), worked(cores)
    one = program(tmp_path, body, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    out = finished(one, tmp_path)
    wall, busy = time.perf_counter() - begin, worked(cores) - before
    used = float(out.split()[-1])
    alone = wall - max(0.0, busy - used) / len(cores)
    print(f"{wall:.1f} s, {used:.1f} s of work, {alone:.1f} s on cores of our own")
    assert alone < 20 and used < 20 * len(cores), (wall, used, alone)


# ---- stops -----------------------------------------------------------------------------------


def test_a_stop_that_reaches_all_ends_the_run_and_the_next_one_works(tmp_path):
    """A kernel is stopped by a signal to its process group, and so are programs by Ctrl-C."""
    body = """
    world = Processes(4)
    print(*world.pids(), flush=True)
    try:
        world.run(waits, [()] * 4)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    assert world.pids() == []
    works(world, 4)
    print(*world.pids(), flush=True)
    world.close()
    """
    one = program(tmp_path, body)
    pids = [int(word) for word in one.stdout.readline().split()]
    time.sleep(1)
    os.killpg(one.pid, signal.SIGINT)
    assert one.stdout.readline() == "stopped\n", one.communicate()
    assert len(pids) == 4 and not any(map(alive, pids))
    finished(one, tmp_path)


def test_a_stop_of_another_cell_leaves_them_as_they_are(tmp_path):
    body = """
    world = Processes(2)
    first = world.pids()
    try:
        os.killpg(0, signal.SIGINT)  # a cell without ranks
        time.sleep(10)
    except KeyboardInterrupt:
        time.sleep(1)
    works(world, 2)
    assert world.pids() == first
    print(*first)
    world.close()
    """
    finished(program(tmp_path, body), tmp_path)


def test_a_stop_while_they_start_leaves_none(tmp_path):
    body = """
    from efflib.parallel.processes import _One
    hear, kept = _One.hear, []
    def stopped(one, rank, limit):
        kept.append(one.process.pid)
        os.killpg(0, signal.SIGINT)
        time.sleep(10)
    _One.hear = stopped
    try:
        Processes(2)
    except KeyboardInterrupt as stop:  # a notebook keeps it, and what it refers to
        fault = stop
    _One.hear = hear
    print(*kept, flush=True)
    with Processes(2) as world:
        works(world, 2)
        print(*world.pids())
    """
    finished(program(tmp_path, body), tmp_path)


# ---- no network ------------------------------------------------------------------------------

ALONE = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # a new namespace's lo is down
    flags = struct.unpack("16xH", fcntl.ioctl(s, 0x8913, struct.pack("16sH", b"lo", 0)))[0]
    fcntl.ioctl(s, 0x8914, struct.pack("16sH", b"lo", flags | 1))
assert [name for _, name in socket.if_nameindex()] == ["lo"]
with Processes(4) as world:
    works(world, 4)
    print(*world.pids())
"""
NAMESPACE = ("unshare", "--net", "--map-root-user")


def test_they_meet_where_there_is_no_network(tmp_path):
    """In a namespace whose only interface is the loopback."""
    try:
        able = subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        able = False
    if not able:
        pytest.skip("no namespaces for this user")
    finished(program(tmp_path, ALONE, NAMESPACE), tmp_path)


def test_nothing_but_this_machine_can_reach_them(tmp_path):
    """Their sockets while they meet: each has a loopback address, and its other side if any."""
    body = """
    def loopback(end):  # 127.x.x.x, the lowest byte first
        return end.split(":")[0][-2:] == "7F"

    def sockets(comm):
        comm.all_reduce(torch.ones(1))
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{fd}")]
        own = {name[8:-1] for name in names if name.startswith("socket:[")}
        rows = []
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            with open(f"/proc/self/net/{kind}") as file:
                rows += [line.split() for line in file][1:]
        ends = [row[1:3] for row in rows if row[9] in own]
        comm.all_reduce(torch.ones(1))
        # where the host's name stands for another address, this alone keeps gloo here
        assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
        return ends

    with Processes(4) as world:
        print(*world.pids())
        for ends in world.run(sockets, [()] * 4).values:
            assert len(ends) >= 3, ends  # one for each of the others
            for here, there in ends:
                assert loopback(here) and (loopback(there) or there == "00000000:0000"), ends
    """
    finished(program(tmp_path, body), tmp_path)
