"""The main loop of compiled machine code: which instructions a kernel repeats.

An SM of an NVIDIA GPU issues a fixed number of instructions in a clock, whatever they do, so their
count in the loop bounds the time from below.  PTX is not what runs: ptxas merges, moves and adds
instructions.  SASS is, as nvdisasm prints it:

    .L_x_1:
            /*0b70*/                   LDGSTS.E.BYPASS.128 [R25], desc[UR8][R8.64], P3 ;
            /*0b80*/              @!P0 BRA `(.L_x_1) ;

A loop is a branch to a label above it, and the main loop the one with most instructions.
"""

from __future__ import annotations

import re
from collections import Counter

LABEL = re.compile(r"^\s*(\.L\w+):")
# optional predicate, operation with its modifiers, operands
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*)")
TARGET = re.compile(r"`\((\.L\w+)\)")


def main_loop(sass: str) -> Counter[str]:
    """{operation: how many in one pass}, such as {"FFMA": 64, "LDGSTS": 4, ...}; empty: no loop."""
    operations, labels, longest = [], {}, range(0)
    for line in sass.splitlines():
        label, instruction = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(operations)
        elif instruction:
            operations.append(instruction[1].partition(".")[0])
            target = TARGET.search(instruction[2])
            if operations[-1] == "BRA" and target and target[1] in labels:
                loop = range(labels[target[1]], len(operations))
                longest = max(longest, loop, key=len)
    return Counter(operations[i] for i in longest)
