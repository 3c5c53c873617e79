"""Which of two limits a pass meets, and where they change places.

    intensity    FLOPs / bytes                                         of a pass
    ridge        peak / bandwidth                                      of a machine, the same unit
    attainable   min( peak, intensity x bandwidth )                    FLOP/s
    least time   max( FLOPs / peak, bytes / bandwidth )                if both go on at once

Decoding with B sequences of S cached tokens moves W + B c bytes and takes B f FLOPs, where c and f
are one sequence's and grow with S.  Both limits meet at the batch

    B* = W / (f / ridge - c),    none if f / ridge <= c

A token that is seen costs c' bytes and f' FLOPs: f = f0 + S f' and c = (S + 1) c'.  Their quotient
f' / c' is H / Hkv FLOPs a byte in 16 bits, 1 to 16 in the models of the table, and ridges of GPUs
are 150 to 300.  So from a context on no batch is bound by computing,

    S* = (f0 - ridge c') / (ridge c' - f'),    on an H100 85 tokens with Llama-2-7B

for a pass as a whole.  Its parts come one after the other (`seconds_in_turn`): the matrices compute
from B = ridge on, while attention goes on reading.
Source: Williams, Waterman, Patterson 2009, "Roofline".

A machine is anything with `peak` (FLOP/s) and `bandwidth` (bytes/s): one of `efflib.meter.roofline`
by its own rates, a `Machine`, or what `efflib.meter.this_machine` measured.
"""

import math
from collections.abc import Iterable
from typing import Any, Protocol

from efflib.models.cost import Part, step_cost, total

MEMORY, COMPUTE = "memory", "compute"


class Rates(Protocol):
    """Bytes and FLOPs per second."""

    @property
    def bandwidth(self) -> float: ...
    @property
    def peak(self) -> float: ...


def intensity(flops: float, moved: float) -> float:
    """FLOPs for each byte; without bytes inf, and 0.0 if nothing is computed either."""
    if not (flops >= 0 and moved >= 0):
        raise ValueError(f"flops={flops} and moved={moved} must be at least 0")
    if moved == 0:
        return math.inf if flops else 0.0
    return flops / moved


def ridge(machine: Rates) -> float:
    """FLOPs a byte from which on the machine computes at its peak."""
    if not (machine.peak > 0 and machine.bandwidth > 0):
        raise ValueError(f"peak={machine.peak} and bandwidth={machine.bandwidth} must be above 0")
    return machine.peak / machine.bandwidth


def attainable(flops_per_byte: float, machine: Rates) -> float:
    """FLOP/s at most at this intensity, which may be inf."""
    if not flops_per_byte >= 0:
        raise ValueError(f"flops_per_byte={flops_per_byte} must be at least 0")
    bent = ridge(machine)
    return machine.peak if flops_per_byte >= bent else flops_per_byte * machine.bandwidth


def least_seconds(part: Part, machine: Rates) -> float:
    """Of a pass, or a part of it, whose reading and computing overlap."""
    ridge(machine)  # a machine at all
    return max(part.flops / machine.peak, part.moved / machine.bandwidth)


def seconds_in_turn(parts: Iterable[Part], machine: Rates) -> float:
    """Of parts that wait for one another: never less than that of their sum."""
    return float(sum(least_seconds(part, machine) for part in parts))


def bound(part: Part, machine: Rates) -> str:
    """ "memory" where moving the bytes takes longer than computing, else "compute"."""
    return MEMORY if part.moved / machine.bandwidth > part.flops / machine.peak else COMPUTE


def ridge_batch(
    source: Any, cached: int, machine: Rates, bits: float = 16, kv_bits: float = 16
) -> float:
    """B*: sequences, a real number, at which a step computes as long as it moves; inf if never."""
    one = total(step_cost(source, 1, cached, 1, bits, kv_bits))
    lead = one.flops / ridge(machine) - one.cache  # of one more sequence, in bytes
    return one.weights / lead if lead > 0 else math.inf


def ridge_context(source: Any, machine: Rates, kv_bits: float = 16) -> float:
    """S*: cached tokens, a real number, from which on no batch is bound by computing.

    inf where a token that is seen takes longer to compute than to read; 0.0 where even the first
    one's bytes take longer than all its FLOPs.
    """
    none, one = (total(step_cost(source, 1, n, kv_bits=kv_bits)) for n in (0, 1))
    flops, moved = one.flops - none.flops, one.cache - none.cache  # of a token that is seen
    lead = moved * ridge(machine) - flops
    return max(0.0, (none.flops - none.cache * ridge(machine)) / lead) if lead > 0 else math.inf
