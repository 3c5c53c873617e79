"""Words for what goes wrong in kernels: the mistakes that everybody makes once."""

from __future__ import annotations

import re

SINGLE = "a tile has no single elements to take by number: load them by their own address"
# what the compiler says -> what it means; the first that fits is told
COMPILER = (
    (r"Input shapes should have M >= \d+, N >= \d+ and K >= \d+|must be at least 16",
     "tl.dot needs at least 16 along the dimension that is summed over"),
    (r"arange's (arguments|range) must be",
     "tl.arange needs constants (tl.constexpr), and their distance must be a power of two"),
    (r"Shape element \d+ must be a power of 2|numel.*power of 2",
     "every dimension of a tile must be a power of two"),
    (r"Shape element|constexpr\[int\]|must be.*constexpr",
     "the shape of a tile must be made of tl.constexpr parameters"),
    (r"Both operands must be same dtype|lhs and rhs must have the same|must have the same dtype",
     "both tiles of tl.dot need one dtype, that of the inputs: .to(k.dtype), for p .to(v.dtype). "
     "A tile times a float32 number is float32"),
    (r"Loop-carried variable|has initial type|re-assigned",
     "a variable changes its type or shape in the loop: create it before the loop as what it is "
     "inside (tl.float32 for sums)"),
    (r"unsupported tensor index", SINGLE),
    (r"Expected dtype", "tl.exp and tl.log take float32: x.to(tl.float32)"),
    (r"Cannot access global variable",
     "a kernel sees only constants from outside: write NAME = tl.constexpr(value)"),
    (r"is not defined", "a variable is used that does not exist on every way through the kernel"),
    (r"is not string", "print wants a text first: print('x', x)"),
    (r"'MatMult'", "a product of tiles is tl.dot(a, b), and a transposed tile tl.trans(k)"),
    (r"out of resource|shared memory", "the tiles are too large for a GPU's shared memory"),
)  # fmt: skip
FAULTS = {
    "OutOfBounds": "an address outside of the tensor",
    "UnknownAddress": "an address that belongs to no tensor",
    "DataRace": "two programs touch the same element, and one of them writes",
}
WRAPPED = ". An offset beyond 2^31 has wrapped round: make one factor tl.int64"
LENGTH = 330


def compiler_words(name: str, message: str) -> str:
    """'row_softmax does not compile: ... (the compiler: ...)'."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if not set(line) <= set("^ ")), "")
    for pattern, meaning in COMPILER:
        if re.search(pattern, message):
            told = f"{name} does not compile{_where(lines)}: {meaning}"
            return f"{told} (the compiler: {said})"[:LENGTH]
    return f"{name} does not compile{_where(lines)}: {said}"[:LENGTH]


def _where(lines: list[str]) -> str:
    """' in the line `...`': the one above the compiler's ^."""
    above = [before for before, mark in zip(lines, lines[1:], strict=False) if mark == "^"]
    return f" in the line `{above[-1]}`" if above else ""


def poisoned_words(run: dict) -> str:
    """What may stand behind a wrong value: a load that does not say what masked lanes hold."""
    lines = [line.partition(": ")[2] or line for line in run.get("unfilled", ())]
    if not lines:
        return ""
    told = " and ".join(f"`{line}`" for line in lines[:2])
    return f". Masked lanes of {told} hold anything, here NaN: say other=..."


def fault_words(name: str, fault: dict) -> str:
    """'attend: two programs ...: DataRace ... in the line ...'."""
    about = FAULTS.get(fault["kind"], f"{fault['kind']}")
    line = f" in the line `{fault['line']}`" if fault["line"] else ""
    # the meter's own message ends in the line, which stands here already
    message = re.sub(r",? ?\S*kernel_source\.py:\d+: .*", "", fault["message"], flags=re.S)
    if "'int' object is not iterable" in message and "[" in fault["line"]:
        message = SINGLE  # what the interpreter makes of x[0]
    far_before = "before the first element" in message and re.search(r"\d{9}", message)
    advice = WRAPPED if far_before else ""
    return f"{name}: {about}{line}: {message}"[: LENGTH - len(advice)] + advice


def read_once(run, name, right):
    """Fails, in words, if more than so many bytes of this argument were read.

    Of a kernel that gives right results: fewer were not needed then, masked as they may be.
    """
    seen = run["reads"].get(name, [0, 0])[0]
    times = f", {seen / right:.2f} times as many" if right else ""
    assert seen <= right, f"{name}: {seen:,} bytes were read where {right:,} are enough{times}"


def written_once(run, name, right):
    seen = run["writes"].get(name, [0, 0])[0]
    assert seen == right, f"{name}: {seen:,} bytes written, expected {right:,}"
