"""What a fork could leak from one student to the next."""

import os
import secrets

import pytest
from test_sandbox_lifecycle import eventually, named
from test_sandbox_secrets import HUNT, NOTHING, halves

from autograder.sandbox.session import SandboxDied, Session

pytestmark = pytest.mark.slow


def called(session: Session, *args):
    return session.call("attack", args, {}, 60)


PLANT = """
    import builtins, ctypes, mmap, os, random, socket, sys, torch, types
    needle = {needle!r}
    for folder in ("/w", "/tmp", "/dev/shm"):
        open(f"{{folder}}/{{needle}}", "w").write(needle * 100)
    os.environ["LEFT"] = needle
    kept = [needle * n for n in range(1, 300)], torch.tensor(list(needle.encode()) * 1000)
    os.memfd_create(needle)
    mapped = mmap.mmap(-1, 2**20); mapped.write(needle.encode() * 1000)
    sys.modules["left"] = types.ModuleType("left"); builtins.left = torch.left = needle
    libc = ctypes.CDLL(None)
    segment = libc.shmget(7777, 4096, 0o1666); libc.semget(7777, 1, 0o1666)
    names = [b"\\0" + needle.encode(), ("127.0.0.1", 7777)]
    listening = [socket.socket(f) for f in (socket.AF_UNIX, socket.AF_INET)]
    for each, name in zip(listening, names): each.bind(name); each.listen()
    random.seed(5); torch.manual_seed(5)
"""


@pytest.mark.parametrize("closed", [False, True], ids=["beside", "after"])
def test_nothing_of_one_student_is_found_by_the_next(sessions, closed):
    needle = secrets.token_hex(12)
    alice = sessions(PLANT.format(needle=needle))
    alice.run_cell(HUNT)
    found = called(alice, [halves(needle.encode())])
    assert found["memory"] and found["environ"] and found["files"] and found["shm"]
    if closed:
        alice.close()
    bob = sessions(HUNT)
    assert called(bob, [halves(needle.encode())]) == NOTHING
    bob.run_cell("""
import builtins, ctypes, socket, sys, torch
libc = ctypes.CDLL(None)
def attack():
    names = hasattr(builtins, "left"), hasattr(torch, "left"), "left" in sys.modules
    with socket.socket() as one: port = one.connect_ex(("127.0.0.1", 7777))
    sockets = open("/proc/net/unix").read().count("@"), len(open("/proc/net/tcp").readlines())
    return names, libc.shmget(7777, 4096, 0), libc.semget(7777, 1, 0), port, sockets
""")
    assert called(bob) == ((False,) * 3, -1, -1, 111, (0, 1))


STATE = """
    import os, random, signal, sys
    import numpy, torch
    def attack():
        status = open("/proc/self/status").read().splitlines()
        # not SigQ: it counts the signals of all processes of the user
        kept = ("SigPnd", "SigBlk", "SigIgn", "SigCgt", "ShdPnd", "Cap", "NoNew", "Seccomp:")
        kept += ("Uid", "Gid", "Groups", "NSpid", "NStgid")
        opened = sorted(os.listdir("/proc/self/fd"))
        where = [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in opened[:5]]
        return {
            "status": [line for line in status if line.startswith(kept)],
            "descriptors": (opened, where),
            "environment": dict(os.environ), "umask": os.umask(0o22), "cwd": os.getcwd(),
            "random": [random.random(), float(numpy.random.rand()), float(torch.rand(1))],
            "session": (os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0)),
            "processes": sorted(p for p in os.listdir("/proc") if p.isdigit()),
            "hostname": os.uname().nodename, "devices": sorted(os.listdir("/dev")),
            "terminals": sorted(os.listdir("/dev/pts")), "argv": sys.argv,
            "folders": [sorted(os.listdir(f)) for f in ("/", "/w", "/tmp", "/dev/shm", "/site")],
        }
"""


def test_a_warm_sandbox_finds_what_a_cold_one_finds(sessions):
    """Also the second of a zygote, after the first has changed all that it could."""
    cold = called(sessions(STATE, warm=False))
    alice = sessions(STATE)
    assert called(alice) == cold
    alice.run_cell("signal.signal(10, signal.SIG_IGN); signal.pthread_sigmask(0, [12])")
    alice.run_cell("os.umask(0); os.chdir('/tmp'); os.environ['X'] = '1'; os.openpty()")
    alice.run_cell("import threading; threading.Thread(target=input, daemon=True).start()")
    assert called(sessions(STATE)) == cold


def test_modules_of_one_student_are_not_loaded_for_the_next(sessions):
    cell = "import sys\ndef attack(): return sorted(sys.modules)"
    cold, first = called(sessions(cell, warm=False)), called(sessions(cell))
    assert set(cold) <= set(first)  # and what a zygote imports for all
    alice = sessions("import wave, curses, efflib.zoo, sqlite3\n" + cell)
    assert "wave" in called(alice)
    assert called(sessions(cell)) == first


def test_no_memory_is_shared_with_the_zygote(sessions):
    """What was mapped as shared before the fork would be one memory for all students."""
    cell = """
def attack():
    lines = [line.split(None, 5) for line in open("/proc/self/maps")]
    return len(lines), [line[-1] for line in lines if line[1][3] == "s" and line[1][1] == "w"]
"""
    mapped, shared = called(sessions(cell))
    assert mapped > 50 and shared == []


def test_secret_random_numbers_differ(sessions):
    cell = "import os, secrets, uuid\ndef attack(): return [os.urandom(8), secrets.token_hex(8), "
    cell += "str(uuid.uuid4()), id(os)]"
    one, other = called(sessions(cell)), called(sessions(cell))
    assert all(a != b for a, b in zip(one[:3], other[:3], strict=True))


def test_processes_of_one_student_cannot_be_seen_or_killed_by_the_next(sessions):
    name = f"eff-w{os.getpid()}"
    alice = sessions(f"""
        import ctypes, os, time
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
            time.sleep(3600)
        def attack(): return 5
    """)
    assert eventually(lambda: named(name))
    bob = sessions("""
        import os
        def attack():
            try: os.kill(-1, 9)
            except ProcessLookupError: pass
            comms = [open(f"/proc/{p}/comm").read() for p in os.listdir("/proc") if p.isdigit()]
            return len(comms)
    """)
    assert called(bob) == 2 and called(alice) == 5 and named(name)
    alice.close()
    assert not named(name) and called(bob) == 2


def test_process_1_tells_nothing(sessions):
    """It is a copy of the zygote."""
    bob = sessions("""
        import os
        def attack():
            said = []
            for name in ("mem", "environ", "maps", "syscall", "auxv", "fd/0", "exe", "cwd", "root"):
                try: open(f"/proc/1/{name}", "rb").read(1)
                except PermissionError: continue
                except OSError: pass
                said.append(name)
            return said
    """)
    assert called(bob) == []


def test_each_has_its_own_limits(sessions):
    alice, bob = (sessions("kept = 3", memory_mb=400, processes=20) for _ in range(2))
    bomb = "def attack():\n x = [bytearray(2**20)]\n while len(x) < 3000: x.append(x[0][:])"
    alice.run_cell(bomb)
    with pytest.raises((SandboxDied, MemoryError)):
        called(alice)
    bob.run_cell("x = bytearray(200 * 2**20)\ndef attack(): return kept")
    assert called(bob) == 3
    folders = alice._process._folders, bob._process._folders
    assert not set(folders[0]) & set(folders[1])
