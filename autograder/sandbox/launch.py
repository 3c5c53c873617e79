"""Builds and starts one sandbox: bubblewrap around worker.py, or, marked unsafe, worker.py alone.

Inside there is no network, no other process, no shell, no file of the course; only /w, /tmp and
/dev/shm can be written, and they are small. If the sandbox cannot be started, nothing is graded:
SandboxUnavailable says what to do.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache

from autograder.sandbox import image, limits, seccomp
from autograder.sandbox.limits import SandboxUnavailable
from autograder.sandbox.process import Process

WRITABLE_MB = {"/w": 256, "/tmp": 256, "/dev/shm": 128}
ENVIRONMENT = {
    "EFFLIB_SANDBOX": "1",
    "HOME": "/w",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TRITON_INTERPRET": "1",  # read when triton is imported, as torch._dynamo does (efflib.meter)
    "USER": "student",
}
STUDENT_USER = "AUTOGRADER_STUDENT_USER"
PRELOAD = (
    "torch.fx.experimental.symbolic_shapes",  # else the first y.backward(gradient) does it
    "efflib.lab.lab",  # this and what follows: the first cell of a lab, and lab.predict
    "efflib.lab.dependencies",
    "efflib.lab.setup_card",
    "efflib.lab.predict",
)
PYTHON_OPTIONS = ("-s", "-P", "-B")  # as isolated as -I, but for the environment above
# A zygote may make namespaces, for its children.  They mount a /proc of their own, which the kernel
# allows where one is seen whole: here the host's, which the zygote does not use.
COLD = ("--cap-drop", "ALL", "--proc", "/proc", "--remount-ro", "/proc", "--remount-ro", "/")
WARM = ("--cap-add", "ALL", "--ro-bind", "/proc", "/proc", "--remount-ro", "/")
NAMESPACES = ("user", "ipc", "pid", "net", "uts", "cgroup")

INSTALL = "install bubblewrap: sudo apt install bubblewrap (or dnf/pacman install bubblewrap)"
NO_NAMESPACES = (
    "this system does not let bubblewrap make user namespaces. Ubuntu 23.10 and later: "
    "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for "
    "/usr/bin/bwrap with `userns,` (package apparmor-profiles). Debian with an old kernel: "
    "sudo sysctl kernel.unprivileged_userns_clone=1. Docker: docker run "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined"
)


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox withholds and allows. unsafe: no sandbox at all, only for trusted code."""

    withhold: tuple[str, ...] = ()
    memory_mb: int = 4096
    processes: int = 64
    unsafe: bool = False
    warm: bool = True  # forked off a zygote, where that is possible (warm.py)
    preload: tuple[str, ...] = ()  # modules that this zygote imports, besides torch


def start_cold(spec: SandboxSpec) -> Process:
    """A sandbox from nothing; it answers when torch is imported. Raises SandboxUnavailable."""
    filter_fd = memory_file(seccomp.program())
    arguments = (*bwrap_arguments(spec.withhold), *COLD, "--seccomp", str(filter_fd))
    cgroup, own = limited(spec)
    try:
        return in_bwrap(arguments, {"limits": own}, (filter_fd,), cgroup)
    finally:
        os.close(filter_fd)


def start_zygote(spec: SandboxSpec, requests_fd: int) -> Process:
    """A process that forks sandboxes (inside/zygote.py). Raises SandboxUnavailable."""
    if "--disable-userns" not in optional_flags():
        raise SandboxUnavailable("bubblewrap is older than 0.8")
    arguments = (*bwrap_arguments(spec.withhold), *WARM)
    cgroup, _ = limited(spec)
    settings = {"zygote": requests_fd, "preload": [*PRELOAD, *spec.preload]}
    return in_bwrap(arguments, settings, (requests_fd,), cgroup)


def limited(spec: SandboxSpec) -> tuple[limits.Cgroup | None, dict]:
    """A group for a sandbox, if one can be made, and what the worker sets itself."""
    cgroup = limits.make_cgroup(spec.memory_mb, spec.processes)
    shares = cgroup is not None and cgroup.shares
    own = limits.worker_limits(spec.memory_mb, spec.processes, cgroup is not None, shares)
    return cgroup, own


def in_bwrap(
    arguments: tuple[str, ...],
    settings: dict,
    inherited: tuple[int, ...],
    cgroup: limits.Cgroup | None,
) -> Process:
    # not on the command line, which student code can read in /proc/1/cmdline
    args_fd = memory_file("".join(f"{argument}\0" for argument in arguments).encode())
    python = [str(image.interpreter()), *PYTHON_OPTIONS, image.WORKER]

    def command(read: int, write: int) -> list[str]:
        all_settings = json.dumps(settings | {"path": [image.SITE], "read": read, "write": write})
        return [bwrap(), "--args", str(args_fd), "--", *python, all_settings]

    try:
        return Process(command, ENVIRONMENT, (args_fd, *inherited), cgroup)
    except BaseException:
        if cgroup:
            cgroup.remove()
        raise
    finally:
        os.close(args_fd)


def start_unsafe(spec: SandboxSpec) -> Process:
    """No isolation: the worker is a child process with this user's rights.

    With AUTOGRADER_STUDENT_USER (for root, where no sandbox can be made) it has the rights of that
    user: it cannot read what only root may, and nothing else is promised.
    """
    staged = image.staged(spec.withhold)
    settings = {"path": [str(staged)], "limits": limits.worker_limits(spec.memory_mb, None, False)}
    folder = tempfile.mkdtemp(prefix="unsafe-")
    as_user = other_user(folder)

    def command(read: int, write: int) -> list[str]:
        all_settings = json.dumps(settings | {"read": read, "write": write})
        return [*as_user, sys.executable, *PYTHON_OPTIONS, str(staged / "worker.py"), all_settings]

    return Process(command, ENVIRONMENT | {"HOME": folder}, scratch=folder)


def other_user(folder: str) -> list[str]:
    """What starts a command as the user of AUTOGRADER_STUDENT_USER, to whom the folder is given."""
    name, program = os.environ.get(STUDENT_USER), shutil.which("setpriv")
    if not name:
        return []
    if program is None:
        raise SandboxUnavailable(f"{STUDENT_USER} needs setpriv (package util-linux)")
    try:
        user = pwd.getpwnam(name)
        os.chown(folder, user.pw_uid, user.pw_gid)
    except (KeyError, PermissionError) as error:
        raise SandboxUnavailable(f"{STUDENT_USER}={name}: {error}") from None
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
    return [program, *ids, "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--"]


def memory_file(content: bytes) -> int:
    """A file without a name, to hand to bwrap."""
    fd = os.memfd_create("bwrap")
    os.pwrite(fd, content, 0)
    return fd


@cache
def bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(f"bubblewrap (bwrap) is not installed; {INSTALL}")
    return found


@cache
def optional_flags() -> tuple[str, ...]:
    """--disable-userns came with bubblewrap 0.8."""
    help_text = subprocess.run([bwrap(), "--help"], capture_output=True, text=True).stdout
    return ("--disable-userns",) if "--disable-userns" in help_text else ()


@cache
def bwrap_arguments(withhold: tuple[str, ...]) -> tuple[str, ...]:
    pairs, masks = image.binds(withhold)
    args = [f"--unshare-{name}" for name in NAMESPACES]
    args += [*optional_flags(), "--die-with-parent", "--new-session"]
    args += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    for link in ("/lib", "/lib64"):
        if os.path.islink(link):
            args += ["--symlink", os.readlink(link), link]
    for source, inside in pairs:
        args += ["--ro-bind", str(source), inside]
    for mask in masks:
        args += ["--size", "4096", "--tmpfs", str(mask), "--remount-ro", str(mask)]
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        args += ["--ro-bind-try", path, path]
    args += ["--dev", "/dev"]
    for path, megabytes in WRITABLE_MB.items():
        args += ["--size", str(megabytes * 2**20), "--tmpfs", path]
    return (*args, "--remount-ro", "/dev", "--chdir", "/w")


def start_failure(spec: SandboxSpec, kind: str, errors: str) -> SandboxUnavailable:
    """What to tell about a worker that ended (kind says how) before it was ready."""
    if kind == "MemoryLimit":
        return SandboxUnavailable(f"memory_mb={spec.memory_mb} is too little to import torch")
    if kind == "Killed":
        return SandboxUnavailable(
            "sandboxes are killed while they start: perhaps this machine has too little memory for "
            "so many at once (--jobs 1 needs least)"
        )
    said = errors.strip() or "it ended without a message"
    blocked = any(word in said for word in ("namespace", "uid map", "Operation not permitted"))
    return SandboxUnavailable(
        f"the sandbox did not start: {said}" + (f"\n{NO_NAMESPACES}" if blocked else "")
    )
