"""Races: two programs of a launch that touch the same bytes, one of them writing.

Programs run in any order and at the same time on a GPU, so what such a kernel computes there is
a matter of luck; the interpreter runs them one after the other and hides it.  For every granule of
memory (the smallest element of an argument that lies in it) three numbers are kept: the program
that read it, the one that wrote it, and the one that updated it atomically.

    now \\ before by another program     read     write     atomic
    read                                 -        race      race
    write                                race     race      race
    atomic                               race     race      -

Locks and counters are made of atomics: an atomic with acquire semantics that meets an earlier
program's release at the same address orders all that that program did before all that follows.
Triton's default is both.  This is believed per program, not per operation, so a race between a
program's accesses after its release is not seen.  Inside of one program nothing is checked, but
for lanes of one store that write different values to one address.
"""

from __future__ import annotations

import numpy as np

from efflib.meter.memory import Access, Argument, KernelFault, Launch

NOBODY, SEVERAL = -1, -2


class DataRace(KernelFault, RuntimeError):
    """The result depends on the order of programs, or of lanes."""


class _Storage:
    """Who touched each granule of one allocation."""

    def __init__(self, arguments: list[Argument]):
        self.granule = min(a.itemsize for a in arguments)
        ends = [a.in_storage + a.span * a.itemsize for a in arguments]
        size = -(-max(ends) // self.granule)
        self.last = {kind: np.full(size, NOBODY, np.int32) for kind in ("read", "write", "atomic")}

    def granules(self, access: Access) -> np.ndarray:
        """Granules that an access touches, [n, granules each]."""
        if access.width < self.granule:  # through a pointer that was cast to a narrower type
            times = self.granule // access.width
            self.last = {kind: np.repeat(last, times) for kind, last in self.last.items()}
            self.granule = access.width
        first = (access.argument.in_storage + access.offsets[:, None]) // self.granule
        return first + np.arange(access.width // self.granule)


class Races:
    """The race detector of one launch."""

    CONFLICTS = {
        "read": ("write", "atomic"),
        "write": ("write", "read", "atomic"),
        "atomic": ("write", "read"),
    }

    def __init__(self, launch: Launch):
        self.launch = launch
        self.storages: dict[int, _Storage] = {}
        self.ordered_before: set[int] = set()  # programs whose accesses precede this program's
        self.released: dict[int, set[int]] = {}  # address -> programs that released there
        self.program = NOBODY

    def start(self) -> None:
        """The next program begins."""
        self.program += 1
        self.ordered_before = {self.program}

    def synchronize(self, addresses: np.ndarray, acquires: bool, releases: bool) -> None:
        """An atomic at these addresses."""
        for address in addresses.tolist():
            if acquires:
                self.ordered_before |= self.released.get(address, set())
            if releases:
                self.released[address] = self.released.get(address, set()) | self.ordered_before

    def check(self, access: Access, kind: str) -> None:
        """Note an access of kind "read", "write" or "atomic"; raises DataRace."""
        key = access.argument.storage
        if key not in self.storages:
            same = [a for a in self.launch.arguments if a.storage == key]
            self.storages[key] = _Storage(same)
        storage = self.storages[key]
        granules = storage.granules(access)
        for earlier in self.CONFLICTS[kind]:
            who = storage.last[earlier][granules]
            if (who != NOBODY).any():
                self._compare(access, kind, earlier, who)
        last = storage.last[kind]
        before = last[granules]
        alone = (before == NOBODY) | (before == self.program)
        last[granules] = np.where(alone, self.program, SEVERAL)

    def _compare(self, access: Access, kind: str, earlier: str, who: np.ndarray) -> None:
        """who: programs that did `earlier` to the granules, [n, granules each]."""
        unordered = ~np.isin(who, [NOBODY, SEVERAL, *self.ordered_before])
        if len(self.ordered_before) <= self.program:  # not all earlier programs are ordered
            unordered |= who == SEVERAL
        if not unordered.any():
            return
        lane = int(unordered.any(1).argmax())
        other = who[lane][unordered[lane]][0]
        done = {"read": "read", "write": "written", "atomic": "updated atomically"}
        raise DataRace(
            f"{kind} of {access.argument.name}: {access.element_name(lane)} was "
            f"{done[earlier]} by {'several programs' if other == SEVERAL else f'program {other}'} "
            f"of the same launch, and programs run in any order; {self.launch.where()}"
        )


def check_lanes(launch: Launch, access: Access, values: np.ndarray) -> None:
    """Raises DataRace if lanes of one store write different values to one element.

    values: [n] bits or numbers that the lanes write.
    """
    order = np.argsort(access.offsets, kind="stable")
    offsets, values = access.offsets[order], values[order]
    clash = (offsets[1:] == offsets[:-1]) & (values[1:] != values[:-1])
    if clash.any():
        lane = int(order[clash.argmax()])
        raise DataRace(
            f"two lanes of one store write different values to {access.argument.name}, "
            f"{access.element_name(lane)}; {launch.where()}"
        )
