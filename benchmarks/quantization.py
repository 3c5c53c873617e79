"""Bytes and time of quantized linears on this CPU, against torch's and torchao's, in one run.

    python benchmarks/quantization.py [--columns 512 1024] [--batches 1 16 256] [--rounds 15]

For square weights [K, K] and batches of tokens it measures

    fp32, bf16       torch.nn.Linear
    int8             efflib's `Int8Linear`: int8 weights and activations, a scale per token
    int4             efflib's `W4A16Linear`: packed words in groups of 128, decoded in every call
    torch int4       the int4 kernel that torch has for CPUs, on the same codes, in bf16
    torchao int8     `Int8WeightOnlyConfig`, inputs in fp32
    torchao int4     `Int4WeightOnlyConfig`, where it runs on a CPU

All contenders of a setting run in turn, round after round, so that a slow moment of the machine
hits all of them; the figure is the fastest round.  Ratios are to nn.Linear in fp32: above 1 is
faster or smaller.  `error` is the relative error of the output, which shows that all of them
compute the same product.  The first call of each is not timed.  A contender that does not run here
is listed with its reason and never counted as anything.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from efflib.quantization.linear import quantize_weight
from efflib.quantization.packing import W4A16Linear, stored_bytes
from efflib.quantization.w8a8 import Int8Linear

GROUP = 128
LEAST_SECONDS = 2e-3  # a round repeats the call for at least so long
SLOW_SECONDS, SLOW_ROUNDS = 0.2, 3  # calls that take longer are timed in the first rounds only

Make = Callable[[nn.Linear], tuple[nn.Module | Callable, int, torch.dtype]]


class Row(NamedTuple):
    """One contender at one size and batch."""

    name: str
    columns: int
    batch: int
    bytes: int
    seconds: float
    error: float


# ---- contenders: linear -> (callable, bytes of its weight, dtype of its inputs) ----------------


def fp32(linear: nn.Linear):
    return linear, stored_bytes(linear), torch.float32


def bf16(linear: nn.Linear):
    linear = copy.deepcopy(linear).bfloat16()
    return linear, stored_bytes(linear), torch.bfloat16


def int8(linear: nn.Linear):
    made = Int8Linear(linear, "token")
    return made, stored_bytes(made), torch.float32


def int4(linear: nn.Linear):
    made = W4A16Linear(quantize_weight(linear.weight, 4, GROUP))
    return made, stored_bytes(made), torch.float32


def torch_int4(linear: nn.Linear):
    """w = (q - 8) scale + zero there, so zero = scale (8 - z)."""
    qw = quantize_weight(linear.weight, 4, GROUP)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(qw.codes.int(), 1)
    pairs = torch.stack([qw.scale.T, (qw.scale * (8 - qw.zero)).T], dim=-1).contiguous().bfloat16()

    def product(x: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, pairs)

    stored = packed.numel() * packed.element_size() + pairs.numel() * pairs.element_size()
    return product, stored, torch.bfloat16  # in fp32 it is a plain loop, 30 times as slow


def torchao_linear(linear: nn.Linear, config) -> tuple[nn.Module, int, torch.dtype]:
    from torchao.quantization import quantize_

    holder = nn.Sequential(copy.deepcopy(linear))
    quantize_(holder, config)
    holder(torch.zeros(1, linear.in_features))  # some kinds fail only when they run
    weight = holder[0].weight
    parts = [getattr(weight, name) for name in weight.tensor_data_names]
    return holder[0], sum(p.numel() * p.element_size() for p in parts), torch.float32


def torchao_int8(linear: nn.Linear):
    from torchao.quantization import Int8WeightOnlyConfig

    return torchao_linear(linear, Int8WeightOnlyConfig())


def torchao_int4(linear: nn.Linear):
    from torchao.quantization import Int4WeightOnlyConfig

    return torchao_linear(linear, Int4WeightOnlyConfig(group_size=GROUP))


CONTENDERS: dict[str, Make] = {
    "fp32": fp32,
    "bf16": bf16,
    "int8": int8,
    "int4": int4,
    "torch int4": torch_int4,
    "torchao int8": torchao_int8,
    "torchao int4": torchao_int4,
}


# ---- measuring ---------------------------------------------------------------------------------


def make_all(linear: nn.Linear, missing: dict[str, str]) -> dict:
    """{name: (callable, bytes, dtype)} of those that run here; reasons of the others in missing."""
    made = {}
    for name, make in CONTENDERS.items():
        try:
            made[name] = make(linear)
        except Exception as fault:  # whatever a library says that cannot do it here
            missing[name] = f"{type(fault).__name__}: {' '.join(str(fault).split())[:120]}"
    return made


def timed(call: Callable, x: Tensor, repeats: int) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    for _ in range(repeats):
        call(x)
    return (time.perf_counter() - started) / repeats


@torch.no_grad()
def measure(columns: int, batch: int, made: dict, linear: nn.Linear, rounds: int) -> list[Row]:
    """A row per contender: the fastest of `rounds` rounds, all contenders in turn."""
    x = torch.randn(batch, columns)
    exact = x.double() @ linear.weight.double().T
    inputs = {name: x.to(dtype) for name, (_, _, dtype) in made.items()}
    errors, repeats, best = {}, {}, {}
    for name, (call, _, _) in made.items():
        y = call(inputs[name]).double()
        errors[name] = ((y - exact).norm() / exact.norm()).item()
        once = timed(call, inputs[name], 1)
        repeats[name] = max(1, round(LEAST_SECONDS / once))
        best[name] = once
    for i in range(rounds):
        for name, (call, _, _) in made.items():
            if i >= SLOW_ROUNDS and best[name] > SLOW_SECONDS:
                continue
            best[name] = min(best[name], timed(call, inputs[name], repeats[name]))
    return [
        Row(name, columns, batch, size, best[name], errors[name])
        for name, (_, size, _) in made.items()
    ]


def lines(rows: list[Row]) -> list[str]:
    """The table of one size and batch."""
    base = next(row for row in rows if row.name == "fp32")
    made = []
    for row in rows:
        made.append(
            f"{row.columns:6d}{row.batch:6d}  {row.name:14s}{row.bytes / 1e6:9.3f}"
            f"{base.bytes / row.bytes:9.2f}{1e6 * row.seconds:12.1f}"
            f"{base.seconds / row.seconds:9.2f}{row.error:10.4f}"
        )
    return made


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quantized linears on this CPU.")
    parser.add_argument("--columns", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args(arguments)
    if any(columns < 1 or columns % GROUP for columns in chosen.columns):
        parser.error(f"--columns must be multiples of {GROUP}, the size of a group")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    torch.manual_seed(0)
    missing: dict[str, str] = {}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; groups of {GROUP}")
    print("     K batch  linear               MB  smaller  microsec.   faster     error")
    for columns in chosen.columns:
        linear = nn.Linear(columns, columns, bias=False).eval().requires_grad_(False)
        made = make_all(linear, missing)
        for batch in chosen.batches:
            print(
                "\n".join(lines(measure(columns, batch, made, linear, chosen.rounds))), flush=True
            )
    for name, reason in missing.items():
        print(f"{name}: not available here ({reason})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
