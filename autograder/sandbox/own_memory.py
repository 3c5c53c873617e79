"""How much memory a process that grades one submission may use itself, outside of any sandbox.

What student code returns, or gives a function of the test, is bounded on the wire; what a test
makes of it is not: "x" * 1_000_003 of a text of some thousand letters fills a machine.  Beyond the
bound a test meets a MemoryError, which fails it like any other error.
"""

import contextlib
import resource
from collections.abc import Iterator

MOST_MB = 2048  # beside what the process begins with; tests of the course need a tenth of it
MEGABYTE = 2**20


def bound(most_mb: int = MOST_MB) -> None:
    """Limits private memory of this process from now on; what it starts is told by `lifted`."""
    with open("/proc/self/statm") as statm:
        private = int(statm.read().split()[5]) * resource.getpagesize()
    set_soft_limit(private + most_mb * MEGABYTE)


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """For starting a process that has limits of its own."""
    before = resource.getrlimit(resource.RLIMIT_DATA)[0]
    set_soft_limit(resource.RLIM_INFINITY)
    try:
        yield
    finally:
        set_soft_limit(before)


def set_soft_limit(wanted: int) -> None:
    """At most the hard limit, which may be lower, and which only root could raise again."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limits = [limit for limit in (wanted, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits, default=hard), hard))
