"""Times of the Triton kernels on a GPU, against those of PyTorch and other libraries, in one run.

    python benchmarks/kernels.py [--only decoding] [--rounds 30]

Needs a GPU, torch and triton (3.6 or later), and less than 8 minutes; torchao and bitsandbytes
take part where they are installed.  Nothing is downloaded.  Writes
benchmarks/results/kernels-<GPU>.json, and
course/chapters/_generated/kernels_measured.md from it.  Without a GPU it says so and writes no
file.

Each contender of a case is first checked: a relative error beyond the case's limit is reported and
not timed.  Then it runs `rounds` times, each on the next of several copies of the inputs; together
they have to move more than four L2 caches hold, so that no call finds what it needs there.  A time
is the median between two CUDA events.  The GPU is first kept busy while the calls are queued, so
what is measured is the GPU and not Python.  A contender that does not run is listed with its
reason.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from kernel_inputs import Case

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TABLE = ROOT / "course" / "chapters" / "_generated" / "kernels_measured.md"
PACKAGES = ("torch", "triton", "torchao", "bitsandbytes", "numpy")
L2_TIMES, MOST_COPIES = 4, 16
SECONDS = 1.0  # of timed calls; slow contenders run fewer rounds, three at least
BUSY_CYCLES = 50_000_000  # about 30 ms, while calls are queued
HEADER = ("kernel", "time, ms", "TFLOP/s", "GB/s", "error")


class Row(NamedTuple):
    """One contender; ms and error are None if it did not run, and reason says why."""

    case: str
    title: str
    contender: str
    ms: float | None
    tflops: float | None
    gbs: float | None
    error: float | None
    reason: str
    rounds: int


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return f"{type(error).__name__}: {text.splitlines()[0]}"[:160]


def copies(moved: float, l2: int) -> int:
    """How many inputs of which `moved` bytes are needed do not fit into L2_TIMES caches: 2 or more.

    At most MOST_COPIES: below l2 / 4 bytes a call may find some of them.
    """
    return max(2, min(MOST_COPIES, math.ceil(L2_TIMES * l2 / max(moved, 1))))


def cloned(inputs: dict) -> dict:
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in inputs.items()}


def milliseconds(calls: list[Callable[[], object]], rounds: int) -> tuple[float, int]:
    """(median time of a call by CUDA events, rounds): calls in turn, after a warm-up."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for call in calls:
        call()
    torch.cuda.synchronize()
    start.record()
    calls[0]()
    stop.record()
    torch.cuda.synchronize()
    rounds = max(3, min(rounds, int(1000 * SECONDS / max(start.elapsed_time(stop), 1e-3))))
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(rounds)]
    torch.cuda._sleep(BUSY_CYCLES)
    for i, (before, after) in enumerate(pairs):
        before.record()
        calls[i % len(calls)]()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in pairs), rounds


def run(case: "Case", timer: Callable, l2: int, rounds: int) -> list[Row]:
    """Check and time all contenders of a case.  timer: as `milliseconds`."""
    inputs, rows = case.inputs(), []
    sets = [inputs, *(cloned(inputs) for _ in range(copies(case.moved, l2) - 1))]
    for name, prepare in case.contenders.items():
        ms = tflops = gbs = error = None
        reason, done = "", 0
        try:
            calls = [prepare(one) for one in sets]
            error = case.error(inputs, calls[0]())
            if not error <= case.limit:
                reason = f"wrong: relative error {error:.3g}, limit {case.limit:.3g}"
            else:
                ms, done = timer(calls, rounds)
                tflops, gbs = case.flops / ms / 1e9, case.moved / ms / 1e6
        except Exception as problem:  # whatever a library raises if it cannot do this
            reason, ms = first_line(problem), None
        rows.append(Row(case.name, case.title, name, ms, tflops, gbs, error, reason, done))
        print(f"{case.name:24s} {name:32s} {reason or f'{ms:9.4f} ms'}", flush=True)
    return rows


# ---- results ---------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def environment() -> dict:
    properties = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit",
             "--format=csv,noheader"]  # fmt: skip
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        answer = f"unknown ({type(error).__name__})"
    return {
        "gpu": properties.name,
        "sms": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver, clock, power": answer,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "versions": versions(),
    }


def _cells(row: dict, best: float | None) -> list[str]:
    if row["ms"] is None:
        return [row["contender"], row["reason"].replace("|", "/"), "", "", ""]
    mark = "**" if row["ms"] == best else ""
    return [
        row["contender"],
        f"{mark}{row['ms']:.4f}{mark}",
        f"{row['tflops']:.1f}",
        f"{row['gbs']:.0f}",
        f"{row['error']:.1e}",
    ]


def table(result: dict) -> str:
    """Markdown: the environment, then one table per case, the fastest in bold."""
    env = result["environment"]
    known = ", ".join(f"{k} {v}" for k, v in env["versions"].items())
    lines = [
        f"{env['gpu']}, driver and limits {env['driver, clock, power']}, CUDA {env['cuda']}, "
        f"cuDNN {env['cudnn']}; {known}. Medians; in bold the fastest of each table. A contender "
        "that did not run, or was wrong, is listed with the reason."
    ]
    for title in dict.fromkeys(row["title"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["title"] == title]
        best = min((row["ms"] for row in rows if row["ms"] is not None), default=None)
        body = [list(HEADER), ["---"] * len(HEADER), *(_cells(row, best) for row in rows)]
        lines += ["", f"**{title}**", ""]
        lines += ["| " + " | ".join(cells) + " |" for cells in body]
    return "\n".join(lines) + "\n"


def write(result: dict, results: Path = RESULTS, markdown: Path = TABLE) -> list[Path]:
    name = result["environment"]["gpu"].lower().replace(" ", "-").replace("/", "-")
    path = results / f"kernels-{name}.json"
    for target, text in ((path, json.dumps(result, indent=1) + "\n"), (markdown, table(result))):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return [path, markdown]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=30, help="timed calls of a contender")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 3:
        parser.error(f"--rounds must be at least 3 for a median, got {chosen.rounds}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured, and no file written")
        return 0
    if os.environ.pop("TRITON_INTERPRET", None):
        print("TRITON_INTERPRET was set; ignored, kernels are compiled here")
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    import kernel_cases  # loads triton, which must know by now that it compiles

    every = [case for case in kernel_cases.cases() if chosen.only in case.name]
    if not every:
        print(f"no case contains {chosen.only!r}")
        return 2
    env, rows = environment(), []
    for case in every:
        rows += run(case, milliseconds, env["l2_bytes"], chosen.rounds)
        torch.cuda.empty_cache()
    for path in write({"environment": env, "rows": [row._asdict() for row in rows]}):
        print(f"wrote {path.relative_to(ROOT)}")
    return 1 if any(row.reason.startswith("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
