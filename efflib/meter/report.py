"""What a meter counted, as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from efflib.meter.roofline import Roofline, metered_roofline

if TYPE_CHECKING:
    from efflib.meter.meter import Meter
    from efflib.meter.traffic import Traffic

COLUMNS = ("argument", "", "bytes", "unique", "reuse", "coalescing", "lanes on")


def _row(name: str, kind: str, t: Traffic) -> tuple[str, ...]:
    return (
        name,
        kind,
        f"{t.bytes:,}",
        f"{t.unique_bytes:,}",
        f"{t.reuse:.2f}",
        f"{t.coalescing:.2f}",
        f"{t.active / max(t.lanes, 1):.2f}",
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns of equal width, the first two flush left, numbers flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _bounds(bounds: Roofline) -> str:
    times = ", ".join(
        f"{name} {1e6 * getattr(bounds, name):.3g} us"
        for name in ("tensor", "memory", "exponentials")
    )
    return (
        f"roofline on {bounds.gpu.name}: {times}; bound by {bounds.bound} "
        f"({bounds.intensity:.3g} FLOP/byte, ridge at {bounds.ridge:.3g})"
    )


def report(m: Meter, gpu: str | None = None, dtype: str = "fp16") -> str:
    """A table of traffic by argument, then totals; with a GPU's name, the roofline there.

    The roofline takes each byte once per launch, as if L2 held everything.
    Raises ValueError for an unknown GPU or type, see `roofline`.
    """
    rows = [COLUMNS]
    rows += [_row(name, "read", t) for name, t in m.reads.items()]
    rows += [_row(name, "written", t) for name, t in m.writes.items()]
    started = Counter(launch.kernel for launch in m.launches)
    lines = [
        ", ".join(f"{name} x {n}" for name, n in started.items()) + f": {m.programs} programs",
        *_table(rows),
        f"tl.dot FLOPs {m.flops:,}; exponentials {m.exponentials:,}",
        f"largest tile {m.largest_tile:,} elements; live tiles at most {m.peak_live_bytes:,} bytes",
    ]
    if m.unfilled:
        lines.append("masked lanes without other=, poisoned: " + "; ".join(sorted(m.unfilled)))
    if gpu is not None:
        lines.append(_bounds(metered_roofline(m, gpu, dtype)))
    return "\n".join(lines)
