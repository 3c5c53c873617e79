"""Attack cells that leave the sandbox intact: each defines `attack`, and what it must return.

COURSE in a cell stands for the course's folder on the host.
row: in the list of attacks that the course was designed against; 0 for one that came later.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    row: int
    name: str
    cell: str
    returns: object


WALK = """
import os
def walk(top="/", skip=("/proc", "/sys")):
    for folder, folders, files in os.walk(top):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in skip]
        for name in folders + files:
            yield os.path.join(folder, name)
"""

ATTACKS = [
    Attack(
        1,
        "names of tests, suites, solutions, gradebook anywhere in the file system",
        WALK
        + """
WORDS = ("test_hidden.", "test_public.", "manifest.toml", "exercises.toml", "gradebook",
         "autograder", "solutions", "suites", ".ipynb", "nbgrader", "keeper")
def attack():
    return [path for path in walk() if any(word in path for word in WORDS)]
""",
        [],
    ),
    Attack(
        1,
        "paths of the course in /proc of any process",
        """
import os
def attack():
    seen, processes = [], [p for p in os.listdir("/proc") if p.isdigit()]
    for pid in processes:
        for name in ("cwd", "root", "exe"):
            try: seen.append(os.readlink(f"/proc/{pid}/{name}"))
            except OSError: pass
        for name in ("environ", "cmdline"):
            try: seen.append(open(f"/proc/{pid}/{name}", errors="replace").read())
            except OSError: pass
        try: seen += [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
        except OSError: pass
    assert len(seen) > 5
    return len(processes), [s for s in seen if "autograder" in s or COURSE in s or "suites" in s]
""",
        (2, []),
    ),
    Attack(
        1,
        "the roots of other processes",
        """
import os
def attack():
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: found |= set(os.listdir(f"/proc/{pid}/root"))
        except OSError: pass
    return sorted(found - set(os.listdir("/")))
""",
        [],
    ),
    Attack(
        2,
        "IPython's history",
        """
def attack():
    shell = get_ipython()
    return repr(getattr(shell, "history_manager", None)).count("test_"), "history" in vars(shell)
""",
        (0, False),
    ),
    Attack(
        3,
        "locals of the callers",
        """
import sys
def attack():
    frame, names = sys._getframe(1), set()
    while frame:
        names |= {frame.f_code.co_filename}
        frame = frame.f_back
    return sorted(names)
""",
        ["/site/efflib/lab/calls.py", "/site/efflib/lab/unchanged.py", "/worker.py"],
    ),
    Attack(
        5,
        "importing solutions, suites or the grader",
        """
import importlib
def attack():
    found = []
    for name in ("solutions", "autograder", "autograder.suites", "labs", "tests", "nbgrader",
                 "_pytest", "pytest", "hypothesis"):
        try: importlib.import_module(name); found.append(name)
        except ImportError: pass
    return found
""",
        [],
    ),
    Attack(
        8,
        "environment variables and home",
        """
import os, pathlib
def attack():
    return sorted(os.environ), str(pathlib.Path.home()), os.getcwd(), os.listdir("/w")
""",
        (
            ["EFFLIB_SANDBOX", "HOME", "LANG", "OMP_NUM_THREADS", "PWD", "PYTHONHASHSEED"]
            + ["TRITON_INTERPRET", "USER"],
            "/w",
            "/w",
            [],
        ),
    ),
    Attack(
        9,
        "network beyond the machine",
        """
import socket
def attack():
    said = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try: socket.socket(socket.AF_INET, kind).connect(("1.1.1.1", 53)); said.append("connected")
        except OSError as fault: said.append(fault.strerror)
    try: socket.getaddrinfo("example.org", 80); said.append("resolved")
    except socket.gaierror: pass
    return said
""",
        ["Network is unreachable"] * 2,
    ),
    Attack(
        9,
        "raw, packet, netlink and virtual machine sockets",
        """
import socket
def attack():
    said = []
    for family, kind, protocol in ((2, 3, 1), (17, 3, 0), (16, 3, 0), (40, 1, 0), (38, 5, 0)):
        try: socket.socket(family, kind, protocol); said.append(family)
        except OSError as fault: said.append(fault.strerror)
    return said
""",
        ["Operation not permitted"] * 5,
    ),
    Attack(
        16,
        "writing anywhere but /w, /tmp and /dev/shm",
        WALK
        + """
def attack():
    written = []
    places = filter(os.path.isdir, walk(skip=("/proc", "/sys", "/site/torch")))
    for folder in sorted({"/", *places}):
        try: open(os.path.join(folder, "x"), "w").close(); os.unlink(os.path.join(folder, "x"))
        except OSError: continue
        written.append(folder)
    return written
""",
        ["/dev/shm", "/tmp", "/w"],
    ),
    Attack(
        16,
        "writing to the kernel's files",
        WALK
        + """
def attack():
    opened = []
    for path in list(walk("/proc", ())):
        if path.count("/") > 2 and path.split("/")[2].isdigit() and "/task/" in path: continue
        try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        if not path.startswith("/proc/") or "/fd/" not in path: opened.append(path)
    return opened
""",
        [],
    ),
    Attack(
        17,
        "the gradebook",
        """
import sqlite3
def attack():
    said = []
    for path in ("../../../gradebook.db", "/gradebook.db"):
        try: sqlite3.connect(path).execute("create table grade (x)"); said.append("written")
        except sqlite3.OperationalError: pass
    return said
""",
        [],
    ),
    Attack(
        0,
        "capabilities, namespaces and limits",
        """
import ctypes, os, resource
def attack():
    status = dict(l.split(":\\t", 1) for l in open("/proc/self/status").read().splitlines())
    libc, said = ctypes.CDLL(None, use_errno=True), []
    for flag in (0x10000000, 0x00020000, 0x40000000):
        said.append(libc.unshare(flag))
    clone, sigchld = (56 if os.uname().machine == "x86_64" else 220), 17
    said.append(libc.syscall(clone, 0x10000000 | sigchld, 0, 0, 0, 0))
    said.append(libc.syscall(435, ctypes.byref(ctypes.c_uint64(0x10000000)), 64))
    said.append(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
    said.append(libc.ptrace(16, 1, 0, 0))
    said.append(libc.syscall(250 if os.uname().machine == "x86_64" else 219, 0, -3, 0))
    try: resource.setrlimit(resource.RLIMIT_NOFILE, (10**5, 10**5)); said.append("raised")
    except (ValueError, OSError): pass
    return status["CapEff"], status["NoNewPrivs"], status["Seccomp"], os.getuid(), said
""",
        ("0000000000000000", "1", "2", 1000, [-1] * 8),
    ),
    Attack(
        0,
        "talk over files that all sandboxes share",
        """
import ctypes, fcntl, os, torch
def attack():
    said, libc = [], ctypes.CDLL(None, use_errno=True)
    file = os.open(torch.__file__, os.O_RDONLY)
    for call, *how in ((fcntl.flock, fcntl.LOCK_SH), (fcntl.lockf, fcntl.LOCK_SH),
                       (fcntl.fcntl, fcntl.F_SETLEASE, fcntl.F_RDLCK),
                       (fcntl.fcntl, fcntl.F_NOTIFY, 1)):
        try: call(file, *how); said.append(how)
        except OSError: pass
    made = libc.inotify_init1(0), libc.inotify_init(), libc.fanotify_init(0, 0)
    said += [number for number in made if number >= 0]
    fcntl.fcntl(file, fcntl.F_GETFD)
    return said
""",
        [],
    ),
    Attack(
        35,
        "other users' processes",
        """
import os
def attack():
    killed = []
    for pid in range(2, 3000):
        try: os.kill(pid, 0)
        except ProcessLookupError: continue
        except PermissionError: pass
        killed.append(pid)
    return set(killed) - {os.getpid()} == set()
""",
        True,
    ),
]
