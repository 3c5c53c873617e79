"""Joules of a request, by formula: each FLOP, each byte, and each second have a price.

    pass      e_F FLOPs + e_B bytes + P least time       P: watts that flow whether it works or not
    sentence  the pass over its prompt, which gives the first token, and one for each further token
    of a batch of B, each sentence pays 1 / B

Prices, in joules:

    fp32      2.3e-12  a FLOP       3.7 pJ a product, 0.9 pJ a sum             } Horowitz 2014,
    fp16      0.75e-12 a FLOP       1.1 pJ a product, 0.4 pJ a sum             } figure 1.1.9:
    DRAM      160e-12  a byte       1.3 nJ for 64 bits, the lower end          } 45 nm, 0.9 V
    HBM2      31e-12   a byte       3.9 pJ a bit: O'Connor et al. 2017 (MICRO-50), section 2

A whole card takes more than its arithmetic and its memory: instructions, caches, wires, leakage.
`by_power` is the other end: watts x least time, as if the card drew its full power throughout.

What both leave out: the time above the least (a half-idle card draws nearly as much), the rest of
the server, its cooling (a factor PUE), requests that wait, training, and making the hardware.
Source of the prices: Horowitz 2014, "Computing's Energy Problem (and what we can do about it)",
ISSCC, doi 10.1109/ISSCC.2014.6757323.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from efflib.checks import expect_whole
from efflib.models.cost import Part, step_cost, total
from efflib.serving.limits import Rates, least_seconds

PJ = 1e-12
FP32_FLOP, FP16_FLOP = (3.7 + 0.9) / 2 * PJ, (1.1 + 0.4) / 2 * PJ
DRAM_BYTE, HBM2_BYTE = 1300 / 8 * PJ, 8 * 3.9 * PJ
WATT_HOUR = 3600.0  # joules


class Prices(NamedTuple):
    """Joules for a FLOP and for a byte, and watts for as long as it takes."""

    flop: float
    byte: float
    watts: float = 0.0


HOROWITZ = Prices(FP16_FLOP, DRAM_BYTE)  # 45 nm
HBM2 = Prices(FP16_FLOP, HBM2_BYTE)  # the same arithmetic, memory on the package


class Joules(NamedTuple):
    """Of one sentence."""

    prefill: float
    decoding: float

    @property
    def sum(self) -> float:
        return self.prefill + self.decoding


def pass_joules(part: Part, machine: Rates, prices: Prices) -> float:
    """Of one pass.  Raises ValueError for a price below 0."""
    if not min(prices) >= 0:
        raise ValueError(f"{prices} must be at least 0")
    return (
        prices.flop * part.flops
        + prices.byte * part.moved
        + prices.watts * least_seconds(part, machine)
    )


def passes(
    source: Any, prompt: int, new: int, batch: int = 1, bits: float = 16, kv_bits: float = 16
) -> Iterator[Part]:
    """The prompt, then a step for each token but the first, which came with the prompt."""
    expect_whole(1, prompt=prompt, new=new)
    yield total(step_cost(source, prompt, 0, batch, bits, kv_bits))
    for made in range(1, new):
        yield total(step_cost(source, 1, prompt + made - 1, batch, bits, kv_bits))


def sentence_joules(
    source: Any,
    prompt: int,
    new: int,
    machine: Rates,
    prices: Prices,
    batch: int = 1,
    bits: float = 16,
    kv_bits: float = 16,
) -> Joules:
    """For each of `batch` sentences of `new` tokens behind a prompt of `prompt` tokens.

    Raises ValueError for prompt, new or batch < 1.
    """
    first, *rest = (
        pass_joules(part, machine, prices) / batch
        for part in passes(source, prompt, new, batch, bits, kv_bits)
    )
    return Joules(first, float(sum(rest)))


def by_power(
    source: Any, prompt: int, new: int, machine: Rates, watts: float, batch: int = 1
) -> Joules:
    """The same from the power that a card may draw, over the least time."""
    return sentence_joules(source, prompt, new, machine, Prices(0, 0, watts), batch)
