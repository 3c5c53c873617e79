"""The parts of the meter's page about what goes wrong: see `meter_page`."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

# isort: off
from efflib.meter import KernelFault, Meter, guarded

# isort: on
import meter_kernels as kernels
import torch
import triton

WIDTH = 92  # of quoted messages


def markdown(header: list[str], rows: list[list]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in lines) + "\n"


def quoted(text: str) -> str:
    wrapped = [textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in text.splitlines()]
    return "```text\n" + "\n".join(wrapped) + "\n```\n"


# ---- the interpreter as it comes --------------------------------------------------------------


def stock(command: str) -> subprocess.CompletedProcess:
    """meter_kernels.py in a process of its own, without efflib's repairs and checks."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", kernels.__file__, command],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )


def repairs() -> str:
    as_it_comes, repaired = json.loads(stock("numbers").stdout), kernels.numbers()
    rows = [
        [label, f"{right:g}", f"{as_it_comes[label]:g}", f"{repaired[label]:g}"]
        for label, right in zip(kernels.OPERATIONS, kernels.EXPECTED, strict=True)
    ]
    far = stock("far").returncode
    fate = f"the process was killed by signal {-far}" if far < 0 else f"the process returned {far}"
    return (
        markdown(["operation", "right", f"Triton {triton.__version__}", "repaired"], rows)
        + "\nA load far beyond the end of a tensor, in the same interpreter without the meter: "
        + f"{fate}, and a notebook would have lost its kernel.\n"
    )


# ---- faults ------------------------------------------------------------------------------------


def row_too_many() -> None:
    kernels.double_rows[(5,)](torch.ones(4, 16), torch.empty(5, 16), 16, 16)


def stride_taken_for_granted() -> None:
    kernels.double_rows[(4,)](guarded(torch.ones(4, 16)), torch.empty(4, 16), 16, 16)


def order_of_programs() -> None:
    kernels.add_up[(4,)](torch.ones(64), torch.zeros(1), 16)


def order_of_lanes() -> None:
    index = torch.arange(16) // 2
    kernels.histogram[(1,)](index, torch.zeros(8, dtype=torch.int32), 16)


def address_from_memory() -> None:
    # refused before it is used; a real address would differ from run to run
    kernels.through_a_list[(1,)](torch.tensor([0x7F0000000000]), torch.empty(16), 16)


FAULTS: dict[str, Callable[[], None]] = {
    "A row too many": row_too_many,
    "A stride taken for granted, met by `guarded`": stride_taken_for_granted,
    "The order of programs": order_of_programs,
    "The order of lanes": order_of_lanes,
    "An address from memory": address_from_memory,
}


def message(faulty: Callable[[], None]) -> str:
    try:
        with Meter():
            faulty()
    except KernelFault as fault:
        return f"{type(fault).__name__}: {fault}"
    raise AssertionError(f"{faulty.__name__} was not found")


def faults() -> str:
    parts = [f"**{title}**\n\n{quoted(message(f))}" for title, f in FAULTS.items()]
    out = torch.empty(2, 5)
    with Meter() as m:
        kernels.softmax_rows[(2,)](torch.ones(2, 5), out, 5, 8)
    told = [line for line in m.report().splitlines() if "poisoned" in line]
    shown = ", ".join(f"{value:g}" for value in out[0].tolist())
    parts.append(
        f"**Masked lanes without `other=`**: no exception; the result is {shown}, and the report "
        f"says\n\n{quoted(*told)}"
    )
    return "\n".join(parts)
