"""Caches before paging: every request gets one piece of memory, as long as it may become.

    what is known              piece of a request with p tokens of prompt, o of answer
    maximum   nothing          longest sequence the model can have
    power2    a bound          p + the smallest power of two >= o
    oracle    the answer       p + o                         (no real server has this)

Pieces lie in one arena of rows; a new one goes into the first gap that is long enough (first fit).
A piece can't be moved, because kernels are reading it, so gaps stay where they are.
Source of the three baselines: Kwon et al. 2023 (arXiv:2309.06180), section 6.1, with a buddy
allocator in place of first fit.
"""

from collections.abc import Hashable

from efflib.checks import expect_whole
from efflib.traffic.traces import Request

POLICIES = ("maximum", "power2", "oracle")


def piece(request: Request, policy: str, longest: int) -> int:
    """How many rows a policy gives to a request.  Raises ValueError for another policy."""
    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r} must be one of {POLICIES}")
    if policy == "maximum":
        return longest
    if policy == "power2":
        return request.prompt + (1 << (request.output - 1).bit_length())
    return request.total


class Arena:
    """Rows 0 .. size - 1 with pieces in them."""

    def __init__(self, size: int) -> None:
        expect_whole(1, size=size)
        self.size = size
        self.pieces: dict[Hashable, tuple[int, int]] = {}  # name -> (start, stop)

    def gaps(self) -> list[tuple[int, int]]:
        """The free runs of rows, (start, stop) in order."""
        edges = [0]
        for start, stop in sorted(self.pieces.values()):
            edges += [start, stop]
        edges.append(self.size)
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start, stop) for start, stop in pairs if start < stop]

    def place(self, name: Hashable, length: int) -> bool:
        """Puts a piece into the first gap that is long enough; False if there is none.

        Raises ValueError for a name that is there, or a piece longer than the arena.
        """
        expect_whole(1, length=length)
        if name in self.pieces or length > self.size:
            raise ValueError(f"piece {name!r} of {length} rows: new, and at most {self.size}")
        for start, stop in self.gaps():
            if stop - start >= length:
                self.pieces[name] = (start, start + length)
                return True
        return False

    def free(self, name: Hashable) -> None:
        """Raises ValueError for a name that is not there."""
        if name not in self.pieces:
            raise ValueError(f"there is no piece {name!r}")
        del self.pieces[name]
