"""The interpreter is switched on in time, and its arithmetic is repaired where it must be."""

import functools
import json
import os
import subprocess
import sys

import interpreter_probes as probes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.runtime.interpreter import TensorHandle
from triton_version import OLDER

from efflib.meter import interpreter, numerics
from efflib.meter.numerics import FORMATS, narrow, widen

assert interpreter.VARIABLE in os.environ
RESULTS = probes.probe()


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run code in a fresh process without TRITON_INTERPRET, unless it is given."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=env
    )


@pytest.fixture(scope="module")
def stock() -> dict[str, bool]:
    """The same probes in Triton's interpreter as it comes."""
    code = f"import runpy; runpy.run_path({probes.__file__!r}, run_name='__main__')"
    done = python(code, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RESULTS)
def test_repaired_arithmetic_is_right(name):
    assert RESULTS[name]


@pytest.mark.skipif(OLDER, reason="older Tritons have fewer of these faults: ask the newest")
@pytest.mark.parametrize("name", RESULTS)
def test_the_repair_is_still_needed(name, stock):
    assert not stock[name], f"this Triton computes '{name}' rightly: remove the repair"


def test_importing_the_meter_switches_the_interpreter_on():
    code = (
        "import efflib.meter.interpreter, triton, os;"
        "from triton.runtime.interpreter import InterpretedFunction;"
        "f = triton.jit(lambda: None);"
        "print(isinstance(f, InterpretedFunction), os.environ['TRITON_INTERPRET'])"
    )
    done = python(code)
    assert done.stdout.split() == ["True", "1"], done.stderr


@pytest.mark.parametrize("late", ["", "os.environ['TRITON_INTERPRET'] = '1';"])
def test_too_late_is_a_clear_error(late):
    done = python(f"import os, triton; {late} import efflib.meter.interpreter")
    assert done.returncode == 1
    assert "InterpreterTooLate: triton was imported without TRITON_INTERPRET=1" in done.stderr
    assert "Restart Python" in done.stderr


def test_installing_twice_changes_nothing():
    before = numerics.InterpreterBuilder.cast_impl
    numerics.install()
    assert numerics.InterpreterBuilder.cast_impl is before


def codes(ty: tl.dtype) -> np.ndarray:
    bits = FORMATS[ty][1]
    return np.arange(np.iinfo(bits).max + 1).astype(bits)


@functools.cache
def finite_numbers(ty: tl.dtype) -> tuple[np.ndarray, np.ndarray]:
    """(all finite numbers of the format, in order; a code of each)."""
    values = widen(TensorHandle(codes(ty), ty)).data
    usable = np.isfinite(values)
    values, first = np.unique(values[usable].astype(np.float64), return_index=True)
    return values, codes(ty)[usable][first]


@pytest.mark.parametrize("ty", FORMATS, ids=str)
def test_every_code_survives_the_way_to_float32_and_back(ty):
    values = widen(TensorHandle(codes(ty), ty)).data
    again = narrow(values, ty).data
    finite = np.isfinite(values)
    assert np.array_equal(again[finite], codes(ty)[finite])
    assert np.isnan(widen(narrow(values[np.isnan(values)], ty)).data).all()


@pytest.mark.parametrize("ty", FORMATS, ids=str)
@given(data=st.data())
def test_narrow_picks_the_nearest_number_and_the_even_one_at_a_tie(ty, data):
    values, code_of = finite_numbers(ty)
    i = data.draw(st.integers(0, len(values) - 2))
    low, high = values[i], values[i + 1]
    middle = (low + high) / 2  # exact in float32
    x = data.draw(st.one_of(st.just(middle), st.floats(low, high, width=32)))
    got = widen(narrow(np.array([x]), ty)).data[0]
    if x == middle:
        [even] = [v for v, c in ((low, code_of[i]), (high, code_of[i + 1])) if c % 2 == 0]
        assert got == even
    else:
        assert got == (low if x < middle else high)


def test_narrow_keeps_the_shape_of_scalars_and_broadcast_views():
    view = np.broadcast_to(np.float32(1.5), (3, 4))
    assert narrow(view, tl.bfloat16).data.shape == (3, 4)
    assert narrow(np.float32(1.5), tl.bfloat16).data.shape == ()
    assert widen(TensorHandle(np.uint16(0x3FC0).reshape(()), tl.bfloat16)).data == 1.5


@triton.jit
def log_of_zero(X, Out):
    i = tl.arange(0, 16)
    x = tl.load(X + i)
    tl.store(Out + i, tl.log2(x) + x * 1e38)


@pytest.mark.filterwarnings("error")
def test_infinities_come_without_warnings():
    x, out = torch.tensor([0.0, 1e38]).repeat(8), torch.empty(16)
    log_of_zero[(1,)](x, out)
    assert out[0] == -torch.inf and out[1] == torch.inf
