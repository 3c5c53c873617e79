"""What the loads or stores of one tensor argument add up to, and how well warps use them.

Bytes are those of active lanes.  The memory system moves sectors of 32 bytes, and serves the 32
lanes of a warp together, so a warp that reads 32 neighbours of 2 bytes moves two sectors and one
that reads a column of a matrix moves 32, of which it uses 1/16.

    coalescing = bytes that the lanes of a warp need / (32 bytes x sectors that hold them)     <= 1

Which lanes form a warp is the compiler's choice, and it follows the addresses: the dimension of a
tile in which they are closest goes along the lanes.  That is modelled here with one element per
lane.  Real layouts give each lane up to 16 neighbouring bytes; that changes the number of requests,
not the sectors of a tile whose rows are read as a whole.
Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SECTOR = 32  # bytes
WARP = 32  # lanes
INACTIVE = np.iinfo(np.int64).max  # sorts behind all addresses


@dataclass
class Traffic:
    """Loads (or stores) of one argument, summed over programs and launches."""

    bytes: int = 0  # of active lanes
    unique_bytes: int = 0  # each element counted once per launch: the least that has to move
    lanes: int = 0
    active: int = 0  # lanes that were not masked off
    sectors: int = 0  # requested by warps
    warp_bytes: int = 0  # distinct bytes within each warp

    @property
    def reuse(self) -> float:
        """How often each element was moved, on average."""
        return self.bytes / max(self.unique_bytes, 1)

    @property
    def coalescing(self) -> float:
        """Part of the bytes in requested sectors that a warp asked for; 1 is best."""
        return self.warp_bytes / max(self.sectors * SECTOR, 1)


def _slow_to_fast(addresses: np.ndarray) -> list[int]:
    """The dimensions of a tile, the one with the smallest step between addresses last."""

    def step(axis: int) -> float:
        second = [0] * addresses.ndim
        second[axis] = 1
        if addresses.shape[axis] == 1:
            return np.inf
        distance = abs(int(addresses[tuple(second)]) - int(addresses[(0,) * addresses.ndim]))
        return distance or np.inf  # lanes that share an address need not be neighbours

    return sorted(range(addresses.ndim), key=step, reverse=True)


def _distinct(rows: np.ndarray) -> int:
    """Distinct entries of each sorted row, INACTIVE ones not counted; their sum."""
    starts = np.ones(rows.shape, bool)
    starts[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return int((starts & (rows != INACTIVE)).sum())


def warp_sectors(addresses: np.ndarray, active: np.ndarray, width: int) -> tuple[int, int]:
    """(sectors, distinct bytes) that the warps of one access request.

    addresses: of the tile's lanes, any shape; active: which lanes access memory, same shape;
    width: bytes per lane.
    """
    lanes = np.where(active, addresses, INACTIVE).transpose(_slow_to_fast(addresses)).ravel()
    missing = -lanes.size % WARP
    warps = np.concatenate([lanes, np.full(missing, INACTIVE)]).reshape(-1, WARP)
    warps.sort(axis=1)
    sectors = np.where(warps == INACTIVE, INACTIVE, warps // SECTOR)
    return _distinct(sectors), _distinct(warps) * width
