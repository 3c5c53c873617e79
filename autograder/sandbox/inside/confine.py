"""What a worker gives up before student code runs in it: descriptors, and the right to use much."""

import fcntl
import os
import resource

MEGABYTE = 2**20
FIRST_FD = 100  # of the pipes: away from 0, 1, 2 and from what student code opens


def keep_only(*fds: int) -> list[int]:
    """Closes all descriptors but these, which get other numbers; 0, 1 and 2 lead nowhere."""
    kept = sorted(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD) for fd in fds)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    low = 3
    for fd in (*kept, os.sysconf("SC_OPEN_MAX")):
        os.closerange(low, fd)
        low = fd + 1
    return kept


def set_limits(file_mb, open_files, nice, address_mb=None, processes=None) -> None:
    """Limits of this process and its children; student code cannot raise them again."""
    os.nice(nice)
    # core dumps: 1 keeps the kernel from starting a crash handler outside, 0 would not
    wanted = {"CORE": 1, "FSIZE": file_mb * MEGABYTE, "NOFILE": open_files, "NPROC": processes}
    if address_mb is not None:  # on top of what Python and torch have mapped
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        wanted["AS"] = mapped + address_mb * MEGABYTE
    for name, limit in wanted.items():
        if limit is not None:
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (limit, limit))
