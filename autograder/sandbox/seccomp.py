"""System calls that student code may not make, as a BPF program for bwrap --seccomp.

The namespaces hide files, processes and networks. This closes what no namespace covers: sockets of
families without network namespaces (AF_VSOCK reaches the host of a virtual machine), kernel
keyrings, and parts of the kernel that computing with tensors never needs.  Sandboxes share the
files of Python and torch, read-only: locks, leases and watches on them, by which two that run at
once could talk, are denied as well.
"""

import platform
import struct
import sys

from autograder.sandbox.limits import SandboxUnavailable

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
# name: number on x86_64, number on aarch64
DENIED = {
    "flock": (73, 32),
    "inotify_init": (253, None),  # where there is a number
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "unshare": (272, 97),
    "setns": (308, 268),
    "perf_event_open": (298, 241),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}
SOCKET, CLONE, FCNTL = (41, 198), (56, 220), (72, 25)
# commands of fcntl: SETLK, SETLKW, OFD_SETLK, OFD_SETLKW, SETLEASE, NOTIFY
LOCKS = (6, 7, 37, 38, 1024, 1026)
NEW_USER = 0x10000000  # of the flags of clone: a user namespace gives capabilities
CLONE3 = 435  # its flags lie in memory, where a filter cannot look; the C library then uses clone
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32_BIT = 0x40000000  # x86_64 also answers to these numbers

LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = (
    0,
    4,
    16,
    24,
)  # offsets in struct seccomp_data
ALLOW, KILL = 0x7FFF0000, 0x80000000
NOT_PERMITTED, NOT_THERE = 0x00050001, 0x00050026  # EPERM, ENOSYS


def program() -> bytes:
    """The filter: EPERM for the calls above, for new user namespaces, for locks, and for sockets
    other than local and IP ones."""
    if platform.machine() not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise SandboxUnavailable(f"sandboxes run on {known}, not on {platform.machine()}")
    column, audit = ARCHITECTURES[platform.machine()]
    code = [
        step(LOAD, ARCHITECTURE),
        step(JUMP_EQUAL, audit, 1, 0),
        step(RETURN, KILL),
        step(LOAD, NUMBER),
        step(JUMP_ABOVE, X32_BIT, 0, 1),
        step(RETURN, NOT_PERMITTED),
    ]
    for number in filter(None, (numbers[column] for numbers in DENIED.values())):
        code += [step(JUMP_EQUAL, number, 0, 1), step(RETURN, NOT_PERMITTED)]
    code += [
        step(JUMP_EQUAL, FCNTL[column], 0, len(LOCKS) + 3),
        step(LOAD, SECOND_ARGUMENT),
        *(step(JUMP_EQUAL, lock, len(LOCKS) - i, 0) for i, lock in enumerate(LOCKS)),
        step(RETURN, ALLOW),
        step(RETURN, NOT_PERMITTED),
    ]
    code += [
        step(JUMP_EQUAL, CLONE3, 0, 1),
        step(RETURN, NOT_THERE),
        step(JUMP_EQUAL, CLONE[column], 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        step(JUMP_SET, NEW_USER, 0, 1),
        step(RETURN, NOT_PERMITTED),
        step(RETURN, ALLOW),
    ]
    families = (AF_UNIX, AF_INET, AF_INET6)
    code += [
        step(JUMP_EQUAL, SOCKET[column], 1, 0),
        step(RETURN, ALLOW),
        step(LOAD, FIRST_ARGUMENT),
        *(step(JUMP_EQUAL, f, len(families) - i, 0) for i, f in enumerate(families)),
        step(RETURN, NOT_PERMITTED),
        step(RETURN, ALLOW),
    ]
    return b"".join(code)


def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction of classic BPF: struct sock_filter."""
    return struct.pack(
        f"{'<' if sys.byteorder == 'little' else '>'}HBBI", code, if_true, if_false, value
    )
