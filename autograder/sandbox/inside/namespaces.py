"""System calls that give a forked process a place of its own, and then take its rights away.

What bubblewrap does at a cold start, done again by a child of the zygote: fresh namespaces, empty
writable folders, its own /proc and terminals; then no capability, no new rights, the filter of
system calls.  Everything raises OSError.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct

CLONE = {"mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000}
CLONE |= {"pid": 0x20000000, "net": 0x40000000}
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC = 1, 2, 4, 8
RECURSIVE_PRIVATE = 0x4000 | 0x40000
SET_DUMPABLE, SET_PDEATHSIG, SET_SECCOMP, DROP_BOUNDING, SET_NO_NEW_PRIVS = 4, 1, 22, 24, 38
AMBIENT, CLEAR_AMBIENT = 47, 4
SECCOMP_FILTER = 2
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    checked(libc.prctl(option, *map(ctypes.c_ulong, (value, third, 0, 0))), f"prctl {option}")


def unshare() -> None:
    """New namespaces for this process (for its children, as to process ids)."""
    checked(libc.unshare(sum(CLONE.values())), "unshare")


def mount(kind: str, path: str, flags: int, options: str = "") -> None:
    arguments = (kind.encode(), path.encode(), kind.encode(), flags, options.encode())
    checked(libc.mount(*arguments), f"mount {kind} on {path}")


def furnish(writable: dict[str, int]) -> None:
    """Empty folders of the given sizes in MB, and /proc, terminals and loopback of its own."""
    checked(libc.mount(b"none", b"/", None, RECURSIVE_PRIVATE, None), "make mounts private")
    for path, megabytes in writable.items():
        mount("tmpfs", path, NO_SUID | NO_DEV, f"size={megabytes}m,mode=0755")
    mount("proc", "/proc", READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)
    mount("devpts", "/dev/pts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=0666,mode=620")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, SET_FLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))


def give_up_rights(program: bytes = b"") -> None:
    """No capabilities, none to be had by running a program; program: a filter of system calls."""
    prctl(AMBIENT, CLEAR_AMBIENT)
    for capability in range(CAPABILITIES):
        with contextlib.suppress(OSError):  # the kernel knows fewer of them
            prctl(DROP_BOUNDING, capability)
    prctl(SET_NO_NEW_PRIVS, 1)
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    checked(libc.capset(header, none), "capset")
    if program:
        code = ctypes.create_string_buffer(program, len(program))
        filled = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        block = ctypes.create_string_buffer(filled, len(filled))
        prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.addressof(block))
