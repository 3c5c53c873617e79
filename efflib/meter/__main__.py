"""python -m efflib.meter compile: a table of what the compiler makes of the course's kernels.

A module with kernels takes part by a function compile_cases() that returns a list of
`compiling.Case`, and its name in CATALOGUE.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from efflib.meter.compiling import SHARED_LIMIT, Case, CompileReport, compile_for_targets

CATALOGUE = [
    "efflib.meter.sample_kernel",
    "efflib.kernels.flash_attention",
    "efflib.kernels.tma_attention",
    "efflib.kernels.windowed_attention",
    "efflib.kernels.attention_backward",
    "efflib.kernels.flash_decoding",
    "efflib.kernels.paged_attention",
    "efflib.kernels.w4a16",
    "efflib.kernels.w8a8",
    "efflib.kernels.nf4",
]
COLUMNS = ("kernel", "target", "warps", "registers", "stack", "shared", "tensor cores", "TMA", "")


def tensor_cores(report: CompileReport) -> str:
    """Which tensor-core instructions, and how many of them in the text, as "wgmma 32"."""
    counts = {name: getattr(report, name) for name in ("tcgen05", "wgmma", "mma")}
    return ", ".join(f"{name} {n}" for name, n in counts.items() if n) or "none"


def row(case: Case, target: str, result: CompileReport | Exception) -> tuple[str, ...]:
    if isinstance(result, Exception):
        last = str(result).strip().splitlines()[-1]
        return (case.name, target, *[""] * 6, f"{type(result).__name__}: {last}")
    return (
        case.name,
        target,
        str(result.warps),
        str(result.registers),
        str(result.stack_bytes),
        f"{result.shared_bytes:,}",
        tensor_cores(result),
        str(result.tma),
        "; ".join(result.problems) or "ok",
    )


def table(cases: list[Case], targets: list[str]) -> tuple[str, bool]:
    """(table of the cases on those of the targets they are for, whether none has a problem)."""
    rows, good = [COLUMNS], True
    for case in cases:
        chosen = [target for target in targets if target in case.targets]
        for target, result in zip(chosen, compile_for_targets(case, chosen), strict=True):
            rows.append(row(case, target, result))
            good = good and rows[-1][-1] == "ok"
    widths = [max(len(r[i]) for r in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join(lines), good


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m efflib.meter", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("compile", help="compile all kernels without a GPU")
    command.add_argument("--target", action="append", choices=sorted(SHARED_LIMIT))
    chosen = parser.parse_args(arguments)
    cases = [case for name in CATALOGUE for case in import_module(name).compile_cases()]
    text, good = table(cases, chosen.target or list(SHARED_LIMIT))
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
