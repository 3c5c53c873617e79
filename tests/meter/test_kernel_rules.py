"""What a text may hold that runs beside the meter: kernels, and nothing that is Python besides."""

import inspect

import pytest

from efflib.meter.kernel_rules import KernelRefused, check_kernel, kernel_parameters

HEAD = "import triton\nimport triton.language as tl\n"
JIT = "@triton.jit\ndef f(X, N, B: tl.constexpr):\n"


def module(body: str, before: str = "") -> str:
    return HEAD + before + "\n" + JIT + "".join(f"    {line}\n" for line in body.splitlines())


REFUSED = {
    "import inside": "import os",
    "from inside": "from os import system",
    "__import__": "x = __import__('os')",
    "a builtin that looks around": "x = globals()",
    "getattr": "x = getattr(tl, 'core')",
    "open in print": "print(open('/etc/passwd'))",
    "static_assert of a call": "tl.static_assert(exec('x = 1') is None)",
    "subclasses": "x = ().__class__.__base__.__subclasses__()",
    "a dunder name": "x = __builtins__",
    "modules of tl": "x = tl.core.os",
    "modules of triton": "x = triton.runtime.interpreter",
    "numpy behind a tile": "x = tl.arange(0, B).handle.data",
    "the interpreter behind tl": "x = tl.semantic",
    "attribute assigned": "tl.load = tl.store",
    "attribute counted up": "tl.load += 1",
    "attribute as a loop variable": "for tl.load in range(3): pass",
    "attribute in a tuple": "(x, tl.load) = (1, 2)",
    "element assigned": "X[0] = 1",
    "attribute deleted": "del tl.load",
    "lambda": "x = (lambda: 1)()",
    "nested function": "def g():\n    return 1",
    "class": "class C:\n    pass",
    "with": "with open('x'):\n    pass",
    "try": "try:\n    x = 1\nexcept Exception:\n    pass",
    "global": "global x\nx = 1",
    "walrus": "y = (x := 1)",
    "comprehension": "x = [i for i in range(3)]",
    "generator": "yield 1",
    "a name from nowhere": "x = elsewhere",
    "a call inside of text": "print(f'{elsewhere}')",
    "an attribute inside of text": "print(f'{tl.core}')",
    "inline assembly": "x = tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)",
    "tl is another": "tl = X",
    "range is another": "range = X",
    "many arguments": "x = tl.load(*[X])",
    "bytes": "x = b'1'",
    "annotation": "x: print(1) = 1",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_a_kernel_that_is_more_than_a_kernel(body):
    with pytest.raises(KernelRefused):
        check_kernel(module(body))


BESIDE = {
    "a call": "print(1)",
    "an import": "import os",
    "an import with a second name": "import triton.language as tl, os",
    "triton under another name": "import os as tl",
    "all of tl": "from triton.language import *",
    "a module of tl": "from triton.language import core",
    "from triton itself": "from triton import runtime",
    "a plain function": "def g(x):\n    return x",
    "another decorator": "@staticmethod\n@triton.jit\ndef g(x):\n    return x",
    "a jit with arguments": "@triton.jit(noinline=print(1))\ndef g(x):\n    return x",
    "a default that is computed": "@triton.jit\ndef g(x=print(1)):\n    return x",
    "an annotation that is computed": "@triton.jit\ndef g(x: print(1)):\n    return x",
    "a list": "found = []",
    "a constant that is computed": "C = tl.constexpr(print(1))",
    "two targets": "C = D = 1",
    "an attribute": "tl.load = 1",
    "a name of Python's": "__name__ = 1",
    "tl is a number": "tl = 1",
    "range is a number": "range = 1",
    "a class": "class tl:\n    pass",
    "if": "if True:\n    import os",
    "no Python": "this is",
    "a zero byte": "C = '\0'",
    "deep": "C = " + "(" * 5000 + "1" + ")" * 5000,
    "long": "#" * 50_000,
}


@pytest.mark.parametrize("before", BESIDE.values(), ids=BESIDE.keys())
def test_what_stands_beside_a_kernel(before):
    with pytest.raises(KernelRefused):
        check_kernel(module("x = 1", before))


def test_kernels_as_people_write_them():
    check_kernel(
        module(
            '"""Says what it does."""\n'
            "tl.static_assert(B >= 16, 'too small')\n"
            "acc = tl.zeros([B], dtype=tl.float32)\n"
            "m, total = tl.full((B,), float('-inf'), tl.float32), acc * 0.0\n"
            "for first in tl.range(0, N, B, num_stages=2):\n"
            "    x = tl.load(X + first + tl.arange(0, B)[None, :], mask=None, other=0.0)\n"
            "    acc += _inside(x.to(tl.float16).T, x.dtype)\n"
            "while N > 3:\n"
            "    N //= 2\n"
            "if B == 3 and not N < 2:\n"
            "    acc = tl.where(acc > 0, -acc, tl.math.exp2(acc))\n"
            "tl.store(X + tl.arange(0, B), acc.to(X.dtype.element_ty), mask=tl.arange(0, B) < N)\n"
            "return\n",
            "LOG2E = tl.constexpr(1.44)\nNONE = tl.constexpr(float('-inf'))\nMINUS = -1\n"
            "from triton.language import exp2 as power\n"
            "@triton.jit\ndef _inside(x, kind: tl.constexpr):\n    return power(x * LOG2E)\n",
        )
    )


def test_the_kernels_of_the_course_are_kernels():
    from efflib.kernels import flash_attention, flash_decoding, split_attention
    from efflib.meter.kernel_source import module_source

    assert inspect.ismodule(split_attention)
    for kernel in (flash_attention.flash_attention_kernel, flash_decoding.decode_kernel,
                   flash_decoding.merge_kernel):  # fmt: skip
        text, name = module_source(kernel)
        check_kernel(text)
        assert "D" in kernel_parameters(text, name)


def test_parameters():
    assert kernel_parameters(module("x = 1"), "f") == {"X": False, "N": False, "B": True}
    assert kernel_parameters(module("x = 1"), "g") is None
