"""Words for what goes wrong in kernels: the mistakes that everybody makes once."""

from __future__ import annotations

import re

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
     "both tiles of tl.dot need one dtype: cast p to that of v before the product"),
    (r"Loop-carried variable|has initial type|re-assigned",
     "a variable changes its type or shape in the loop: create it before the loop as what it is "
     "inside (tl.float32 for sums)"),
    (r"Expected dtype", "tl.exp and tl.log take float32: x.to(tl.float32)"),
    (r"Cannot access global variable",
     "a kernel sees only constants from outside: write NAME = tl.constexpr(value)"),
    (r"is not defined", "a variable is used that does not exist on every way through the kernel"),
    (r"out of resource|shared memory", "the tiles are too large for a GPU's shared memory"),
)  # fmt: skip
FAULTS = {
    "OutOfBounds": "an address outside of the tensor",
    "UnknownAddress": "an address that belongs to no tensor",
    "DataRace": "two programs touch the same element, and one of them writes",
}
LENGTH = 330


def compiler_words(name: str, message: str) -> str:
    """'row_softmax does not compile: ... (the compiler: ...)'."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if not set(line) <= set("^ ")), "")
    for pattern, meaning in COMPILER:
        if re.search(pattern, message):
            return f"{name} does not compile: {meaning} (the compiler: {said})"[:LENGTH]
    where = re.search(r"at \d+:\d+", message)
    return f"{name} does not compile: {said} {where[0] if where else ''}".strip()[:LENGTH]


def fault_words(name: str, fault: dict) -> str:
    """'attend: two programs ...: DataRace ... in the line ...'."""
    about = FAULTS.get(fault["kind"], f"{fault['kind']}")
    line = f" in the line `{fault['line']}`" if fault["line"] else ""
    message = re.sub(r"\S*kernel_source\.py:\d+: ", "", fault["message"])
    return f"{name}: {about}{line}: {message}"[:LENGTH]
