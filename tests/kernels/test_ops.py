"""The kernels as PyTorch operators: right schemas and shapes, whole graphs, clear errors."""

import os
import subprocess
import sys

import pytest
import torch
from torch.library import opcheck

from efflib.kernels import ops  # noqa: F401  registers them
from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.nf4 import nf4_values
from efflib.kernels.paged_attention import paged_attention
from efflib.kernels.w4a16 import w4a16_matmul
from efflib.kernels.w8a8 import int8_matmul, w8a8_matmul

UTILS = ("test_schema", "test_autograd_registration", "test_faketensor")


def calls():
    """{name: (function, arguments)}, small."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    def codes(*shape):
        return torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)

    q, kv, pages = normal(1, 2, 16), normal(1, 1, 40, 16), normal(3, 16, 1, 16)
    table = torch.arange(3, dtype=torch.int32)[None]
    lengths = torch.tensor([40], dtype=torch.int32)
    words, scale = torch.arange(12, dtype=torch.int32).view(6, 2), normal(6, 2).half()
    packed = torch.arange(40, dtype=torch.uint8)
    nf4 = packed, torch.ones(2), None, None, [2, 40], torch.bfloat16
    nf4_double = packed, packed[:2], torch.ones(1), torch.tensor(0.5), [80], torch.float32
    return {
        "flash_decoding": (flash_decoding, (q.half().transpose(0, 1), *[kv.half().expand(
            2, 1, 40, 16)] * 2, None, 2, 16)),
        "paged_attention": (paged_attention, (q, pages, pages, table, lengths, None, 1, 16)),
        "w4a16_matmul": (w4a16_matmul, (normal(3, 16), words, scale,
                                        torch.zeros(2, dtype=torch.int32), 8)),
        "int8_matmul": (int8_matmul, (codes(3, 20), codes(5, 20))),
        "w8a8_matmul": (w8a8_matmul, (codes(3, 20), codes(5, 20), normal(3), normal(5),
                                      torch.float16)),
        "nf4_values": (nf4_values, nf4),
        "nf4_values double": (nf4_values, nf4_double),
    }  # fmt: skip


def operator(name):
    return getattr(torch.ops.efflib, name.split()[0]).default


def leaves(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", calls())
def test_schema_fake_results_and_values(name):
    function, arguments = calls()[name]
    opcheck(operator(name), arguments, test_utils=UTILS)
    pairs = zip(leaves(operator(name)(*arguments)), leaves(function(*arguments)), strict=True)
    for got, want in pairs:
        assert got.dtype == want.dtype and torch.equal(got, want)


def test_compiled_as_one_graph():
    """fullgraph: the compiler would refuse to break its graph at a kernel."""
    everything = calls()

    def run(*results):
        outs = [operator(name)(*arguments) for name, (_, arguments) in everything.items()]
        return sum(2 * x.float().sum() for out in outs for x in leaves(out))

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(), run())


def test_backward_is_an_error_that_says_so():
    x = torch.randn(2, 16, requires_grad=True)
    _, arguments = calls()["w4a16_matmul"]
    y = operator("w4a16_matmul")(x, *arguments[1:])
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()


def test_on_the_cpu_without_the_interpreter_the_error_says_what_to_do():
    """In another process, which takes itself for one with a GPU."""
    code = (
        "import sys, torch; torch.cuda.is_available = lambda: True;"
        f"sys.path.insert(0, {os.path.dirname(__file__)!r});"
        "import test_ops\n"
        "for name, (function, arguments) in test_ops.calls().items():\n"
        "    for run in (function, test_ops.operator(name)):\n"
        "        try: run(*arguments)\n"
        "        except Exception as error: print(type(error).__name__, error, sep='|')"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert len(lines) == 2 * len(calls()), done.stderr
    for kind, text in lines:
        assert kind == "RuntimeError"
        assert "compiled for a GPU" in text and "TRITON_INTERPRET=1" in text, text
