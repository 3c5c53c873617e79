"""The few PTX instructions that `w4a16_packed` writes by hand, bit by bit, in Python.

Run on the very text that is compiled.  PTX ISA: lop3.b32 looks up, for each bit of a, b and c, bit
4 a + 2 b + c of its last operand; .f16x2 and .bf16x2 work on both halves of a word.
"""

import re

import torch

LOW = 0xFFFFFFFF
FORMATS = {"f16x2": torch.float16, "bf16x2": torch.bfloat16}


def lop3(a, b, c, table):
    out = torch.zeros_like(a)
    for i in range(8):
        if table >> i & 1:
            terms = [v if i >> shift & 1 else ~v for v, shift in ((a, 2), (b, 1), (c, 0))]
            out |= terms[0] & terms[1] & terms[2]
    return out & LOW


def halves(word, dtype):
    """[..., 2] numbers of a word (int64 tensor)."""
    bits = torch.stack([word & 0xFFFF, word >> 16], -1)
    return torch.where(bits < 2**15, bits, bits - 2**16).to(torch.int16).view(dtype)


def word(numbers):
    """The inverse of `halves`."""
    bits = numbers.view(torch.int16).long() & 0xFFFF
    return bits[..., 0] | bits[..., 1] << 16


def paired(function, *words, dtype):
    """Exact (float64 holds products and sums of these), then rounded to nearest, once."""
    return word(function(*(halves(w, dtype).double() for w in words)).to(dtype))


def run(text, values):
    """Registers after the instructions of text; values: {"$4": int64 tensor of words, ...}."""
    registers = dict(values)

    def read(name):
        if name in registers:
            return registers[name]
        return torch.tensor(int(name, 0))

    for line in text.strip("{} \n").split(";"):
        operation, _, operands = line.strip().partition(" ")
        if not operation or operation == ".reg":
            continue
        out, *names = re.split(r",\s*", operands)
        a = [read(name) for name in names]
        kind, *modifiers = operation.split(".")
        if kind == "lop3":
            a = torch.broadcast_tensors(*a[:3]) + (int(names[3], 0),)
            registers[out] = lop3(*a)
        elif kind == "shr" and modifiers == ["u32"]:
            registers[out] = a[0] >> a[1]
        elif kind == "mov":
            registers[out] = a[0]
        elif kind == "add" and modifiers[0] == "rn":
            registers[out] = paired(lambda x, y: x + y, *a, dtype=FORMATS[modifiers[1]])
        elif kind == "fma" and modifiers[0] == "rn":
            registers[out] = paired(lambda x, y, z: x * y + z, *a, dtype=FORMATS[modifiers[1]])
        else:
            raise NotImplementedError(line)
    return registers
