"""Student code cannot change what a test sees: forged values, exceptions, frames and clocks."""

import pytest
import torch

from autograder.sandbox.clock import WALL_FACTOR
from autograder.sandbox.session import SandboxDied
from efflib.lab.student import StudentError

pytestmark = pytest.mark.slow

REFUSED = {
    "equal-to-everything": "class E:\n def __eq__(s, o): return True\n"
    " def __getattr__(s, n): return s",
    "tensor-subclass": "import torch\nclass E(torch.Tensor):\n"
    " @classmethod\n def __torch_function__(c, f, t, a=(), k=None): return True",
    "pickles-itself": "import os\nclass E:\n def __reduce__(s): return os.system, ('true',)",
    "generator": "def E():\n yield 1",
    "numpy": "import numpy\ndef E(): return numpy.zeros(2)",
    "function": "def E(): return lambda: 1",
    "sparse": "import torch\ndef E(): return torch.eye(3).to_sparse()",
    "meta": "import torch\ndef E(): return torch.empty(3, device='meta')",
    "expanded": "import torch\ndef E(): return torch.zeros(1).expand(10**6, 10**6)",
    "cyclic": "def E():\n x = []\n x.append(x)\n return x",
    "big-int": "def E(): return 2**64",
    "lone-surrogate": r"def E(): return '\ud800'",
    "too-large": "import torch\ndef E(): return torch.zeros(20 * 2**20)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_only_plain_values_arrive(victim, name):
    with pytest.raises(StudentError) as caught:
        victim.run(f"{REFUSED[name]}\ndef attack(): return E()")
    assert caught.value.kind == "TypeError"
    assert not isinstance(caught.value, SandboxDied)


def test_a_parameter_arrives_as_a_plain_tensor(victim):
    value = victim.run("import torch\ndef attack(): return torch.nn.Parameter(torch.ones(2))")
    assert type(value) is torch.Tensor and not value.requires_grad


SUBCLASSES = {
    "int": ("class E(int):\n def __eq__(s, o): return True", "E(2)", 2),
    "float": ("class E(float):\n def __eq__(s, o): return True", "E(2.5)", 2.5),
    "str": ("class E(str):\n def __eq__(s, o): return True\n __hash__ = None", "E('a')", "a"),
    "list": ("class E(list):\n def __eq__(s, o): return True", "E([1, 2])", [1, 2]),
    "dict": (
        "class E(dict):\n def __getitem__(s, k): return 1\n def __eq__(s, o): return True",
        "E(a=2)",
        {"a": 2},
    ),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_subclass_arrives_as_its_plain_base(victim, name):
    """Members of a StrEnum travel so; what a subclass says of itself stays behind."""
    cell, made, plain = SUBCLASSES[name]
    value = victim.run(f"{cell}\ndef attack(): return {made}")
    assert type(value) is type(plain) and value == plain
    assert not value == "something else"


@pytest.mark.parametrize("name", ["nan", "inf"])
def test_odd_floats_arrive_as_they_are(victim, name):
    value = victim.run(f"def attack(): return float('{name}')")
    assert type(value) is float and not value == 1.0


def test_patched_torch_stays_inside(victim):
    cell = (
        "import torch\ntorch.allclose = lambda *a, **k: True\ntorch.Tensor.__eq__ = lambda a, b: 1"
    )
    assert torch.equal(victim.run(f"{cell}\ndef attack(): return torch.zeros(2)"), torch.zeros(2))
    assert not torch.allclose(torch.zeros(2), torch.ones(2))


EXCEPTIONS = {
    "sys.exit": ("import sys\ndef attack(): sys.exit(0)", "SystemExit"),
    "keyboard": ("def attack(): raise KeyboardInterrupt", "KeyboardInterrupt"),
    "generator-exit": ("def attack(): raise GeneratorExit", "GeneratorExit"),
    "skip": ("class Skipped(BaseException): pass\ndef attack(): raise Skipped", "Skipped"),
    # "Exit" and "Killed" are words for the end of a sandbox: no exception is called so
    "exit": ("class Exit(Exception): pass\ndef attack(): raise Exit", "Exception"),
    "xfail": ("class XFailed(Exception): pass\ndef attack(): raise XFailed", "XFailed"),
    "group": ("def attack(): raise ExceptionGroup('g', [ValueError()])", "ExceptionGroup"),
    "unicode": ("def attack(): b'\\xff'.decode()", "UnicodeDecodeError"),
    "recursion": ("def attack(): return attack()", "RecursionError"),
    "bad-str": (
        "class B(Exception):\n def __str__(s): raise SystemExit\ndef attack(): raise B",
        "B",
    ),
    "bad-name": ("E = type('<b>&', (Exception,), {})\ndef attack(): raise E", "Exception"),
    "assertion": ("def attack(): assert 1 == 2, 'one is not two'", "AssertionError"),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_arrive_as_words(victim, name):
    cell, kind = EXCEPTIONS[name]
    with pytest.raises(StudentError) as caught:
        victim.run(cell)
    assert caught.value.kind == kind
    assert not isinstance(caught.value, SandboxDied)
    assert victim.run("def attack(): return 'still there'") == "still there"


def test_arguments_are_copies(victim):
    values = {"x": torch.arange(3.0), "list": [1, [2]]}
    with pytest.raises(StudentError, match="attack changed its argument v in place"):
        victim.run(
            "def attack(v):\n v['x'].mul_(0)\n v['list'][1].clear()\n v.clear()\n return None",
            values,
        )
    assert torch.equal(values["x"], torch.arange(3.0)) and values["list"] == [1, [2]]


def test_a_patched_clock_does_not_change_the_measured_time(victim):
    report = victim.cell("import time\nsleep = time.sleep\ntime.monotonic = lambda: 0\nsleep(0.3)")
    assert report.error is None and report.seconds >= 0.3 / WALL_FACTOR


def test_output_of_calls_is_dropped_and_of_cells_is_cut(victim):
    cell = "def attack():\n print('PASSED test_x')\n print('x' * 50_000_000)\n return 1\nattack()"
    report = victim.cell(cell)
    assert report.error is None and report.stdout.startswith("PASSED test_x\nxxx")
    assert len(report.stdout) == 10_000
    assert victim.attack() == 1


def test_output_to_descriptors_does_not_block(victim):
    cell = (
        "import os\ndef attack():\n for fd in (1, 2):\n  os.write(fd, b'x' * 50_000_000)\n return 1"
    )
    assert victim.run(cell) == 1


def test_output_after_the_cell_does_not_reach_the_next(victim):
    victim.cell("import sys\nold = sys.stdout")
    assert victim.cell("old.write('late'); print('now')").stdout == "now\n"


# ---- frames -------------------------------------------------------------------------------------

WORKER = """
import sys
def worker():
    frame = sys._getframe()
    while "self" not in frame.f_locals or not hasattr(frame.f_locals["self"], "write_fd"):
        frame = frame.f_back
    return frame.f_locals["self"]
def forged(value, nonce=None):
    me = worker()
    me.send(me.codec.pack({"nonce": nonce or me.open[-1], "ok": value}))
"""


def test_a_second_answer_ends_the_sandbox(victim):
    with pytest.raises(SandboxDied) as caught:
        assert victim.run(WORKER + "def attack():\n forged(1)\n return 2") == 1
        victim.attack()
    assert caught.value.kind == "Protocol"
    assert victim.run("def attack(): return 3") == 3
