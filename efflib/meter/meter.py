"""`with Meter() as m: kernel[grid](...)`: what a Triton kernel moves, computes and holds on chip.

Works on every @triton.jit kernel that the interpreter runs, with raw pointers or tensor
descriptors (TMA), called in any way, also through autotuned or library functions.  While the meter
is on, the interpreter's loads, stores, atomics, dots and exponentials pass through it, and

- bytes, unique bytes, sectors and counts per element are kept for each named argument;
- every access is checked before memory is touched (see `memory`), and programs against each
  other (see `races`); without the meter a wrong access can end the whole process;
- lanes that a load masks off without `other=` get NaN (integers: a large number): a GPU promises
  nothing about them, while the interpreter gives a friendly 0 that hides the mistake.

On chip: the bytes of all tiles that a program holds at once (values with names and temporaries;
pointers and scalars not), at its peak.  It follows the order of Python's evaluation, not a
compiler's registers and shared memory, so it tells how a footprint grows, not whether it fits.

Not metered: inline assembly and libdevice, which the interpreter refuses, and block pointers,
which Triton 3.9 removed (it says so; use tensor descriptors).
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from efflib.meter.hooks import Hooks, ir
from efflib.meter.memory import Access, KernelFault, Launch
from efflib.meter.races import Races, check_lanes
from efflib.meter.traffic import SECTOR, Traffic, warp_sectors


class Meter:
    """Counts and checks the kernels that are launched inside of the `with` block.

    reads, writes    {argument: Traffic}; atomics count as both
    flops            of tl.dot, 2 M N K each, padding included
    exponentials     elements that went through exp or exp2
    largest_tile     elements of the largest tile
    peak_live_bytes  most bytes of tiles alive at once in a program
    programs         that ran
    launches         one Launch for each kernel started, in order
    unfilled         lines that load masked lanes without `other=`
    products         dtypes of what tl.dot multiplies; "tf32": a GPU rounds these float32 tiles
    trace            (launch, program, "read" or "write", sectors) of each access, if trace=True

    apart: {argument: elements}: the kernel sees the first dimension's rows so far apart, though in
    memory they are not; for offsets beyond 2^31, which int32 cannot count.

    Raises OutOfBounds, UnknownAddress or DataRace (all KernelFault) out of the block.
    """

    def __init__(
        self, races: bool = True, trace: bool = False, apart: dict[str, int] | None = None
    ):
        self.reads: dict[str, Traffic] = defaultdict(Traffic)
        self.writes: dict[str, Traffic] = defaultdict(Traffic)
        self.flops = 0
        self.dots: Counter[tuple[int, int, int]] = Counter()  # (M, N, K) of each tl.dot
        self.exponentials = 0
        self.largest_tile = 0
        self.peak_live_bytes = 0
        self.programs = 0
        self.launches: list[Launch] = []
        self.unfilled: set[str] = set()
        self.products: set[str] = set()
        self.trace: list[tuple[int, int, str, np.ndarray]] | None = [] if trace else None
        self._check_races = races
        self._apart = apart or {}
        self._storages: dict[int, int] = {}  # address of an allocation -> its number in the trace
        self._live: Counter[int] = Counter()  # array -> handles that show it
        self._live_bytes = 0
        self._hooks = Hooks(self)

    def __enter__(self) -> Meter:
        self._hooks.install()
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self._hooks.remove()
        while error is not None and not isinstance(error, KernelFault):
            error = error.__cause__  # Triton wraps errors of kernels once per called function
        if error is not None:
            raise error from None

    # -- results --------------------------------------------------------------------------------

    @property
    def read_bytes(self) -> int:
        return sum(t.bytes for t in self.reads.values())

    @property
    def written_bytes(self) -> int:
        return sum(t.bytes for t in self.writes.values())

    @property
    def bytes(self) -> int:
        """Bytes that all loads and stores ask for: what moves if nothing stays in a cache."""
        return self.read_bytes + self.written_bytes

    def counts(self, name: str, kind: str = "read") -> np.ndarray:
        """How often each element of an argument was read (or "write": written), in its shape.

        The last launch that has an argument of this name counts.  Raises KeyError for no such name.
        """
        for launch in reversed(self.launches):
            for argument in launch.arguments:
                if argument.name == name:
                    per_element = argument.reads if kind == "read" else argument.writes
                    return argument.in_shape(per_element).copy()
        known = sorted({a.name for launch in self.launches for a in launch.arguments})
        raise KeyError(f"no tensor argument {name!r}; there are {known}")

    def report(self, gpu: str | None = None, dtype: str = "fp16") -> str:
        """All that was counted as a table; with a GPU's name ("H100"), its roofline too."""
        from efflib.meter.report import report

        return report(self, gpu, dtype)

    # -- events: the hooks call these -----------------------------------------------------------

    def start_launch(self, kernel: str) -> Launch:
        launch = Launch(kernel, self._apart)
        self.launches.append(launch)
        self._races = Races(launch)
        return launch

    def start_program(self, index: tuple[int, int, int]) -> None:
        self.programs += 1
        self.launches[-1].program = index
        self._races.start()
        self._live.clear()
        self._live_bytes = 0

    def access(
        self, kind: str, tile: np.ndarray, mask: np.ndarray, width: int, atomic: bool
    ) -> np.ndarray:
        """Check and count a load or store of a tile; returns the real addresses to use.

        kind: "read", "write" or "atomic" (both); tile: virtual addresses, any shape; mask: active
        lanes, same shape; width: bytes per lane; atomic: a read or write that may meet atomics.
        Masked lanes get address 0.
        """
        active = np.flatnonzero(mask)
        real = np.zeros(tile.size, np.uint64)
        doing = {"read": "load from", "write": "store to", "atomic": "atomic update of"}[kind]
        for part in self.launches[-1].locate(tile.ravel()[active], width, doing):
            if self._check_races:
                self._races.check(part, "atomic" if atomic else kind)
            lanes = np.zeros(tile.size, bool)
            lanes[active[part.lanes]] = True
            sectors = warp_sectors(tile.astype(np.int64), lanes.reshape(tile.shape), width)
            for direction in ("read", "write") if kind == "atomic" else (kind,):
                self._count(part, direction, tile.size, *sectors)
            real[active[part.lanes]] = part.addresses()
        return real.reshape(tile.shape)

    def _count(self, part: Access, kind: str, lanes: int, sectors: int, warp_bytes: int) -> None:
        argument = part.argument
        reads = kind == "read"
        traffic = (self.reads if reads else self.writes)[argument.name]
        per_element = argument.reads if reads else argument.writes
        fresh = np.unique(part.elements[per_element[part.elements] == 0])
        np.add.at(per_element, part.elements, 1)
        traffic.bytes += len(part.lanes) * part.width
        traffic.unique_bytes += fresh.size * argument.itemsize
        traffic.lanes += lanes
        traffic.active += len(part.lanes)
        traffic.sectors += sectors
        traffic.warp_bytes += warp_bytes
        if self.trace is not None:
            number = self._storages.setdefault(argument.storage, len(self._storages))
            touched = np.unique((part.offsets + argument.in_storage) // SECTOR)
            step = (len(self.launches) - 1, self.programs - 1, kind, touched + (number << 40))
            self.trace.append(step)

    def check_store(
        self, tile: np.ndarray, mask: np.ndarray, width: int, values: np.ndarray
    ) -> None:
        """Lanes of one store must not write different values to one address."""
        values = np.broadcast_to(values, tile.shape)[mask]
        if self._check_races:
            for part in self.launches[-1].locate(tile[mask], width, "store to"):
                check_lanes(self.launches[-1], part, values[part.lanes])

    def synchronize(self, addresses: np.ndarray, order: ir.MEM_SEMANTIC) -> None:
        """An atomic update with this memory order happened at these real addresses."""
        both = order == ir.MEM_SEMANTIC.ACQUIRE_RELEASE
        acquires = both or order == ir.MEM_SEMANTIC.ACQUIRE
        releases = both or order == ir.MEM_SEMANTIC.RELEASE
        self._races.synchronize(addresses, acquires, releases)

    def dot(self, batch: int, m: int, n: int, k: int) -> None:
        self.flops += 2 * batch * m * n * k
        self.dots[m, n, k] += batch

    def tile_made(self, data: np.ndarray) -> np.ndarray:
        """A tile of the running program; returns the array that holds it, for `tile_gone`.

        Tiles that show the same memory (broadcast, transposed) are counted once.
        """
        self.largest_tile = max(self.largest_tile, data.size)
        while isinstance(data.base, np.ndarray):
            data = data.base
        self._live[id(data)] += 1
        if self._live[id(data)] == 1:
            self._live_bytes += data.nbytes
            self.peak_live_bytes = max(self.peak_live_bytes, self._live_bytes)
        return data

    def tile_gone(self, data: np.ndarray) -> None:
        self._live[id(data)] -= 1
        if self._live[id(data)] == 0:
            del self._live[id(data)]
            self._live_bytes -= data.nbytes
