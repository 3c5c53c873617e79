"""Words of the tests of attention kernels, and the notebook's kernel in a process of its own."""

import efflib.meter.interpreter  # isort: skip  # noqa: F401  before triton
import linecache
from pathlib import Path

import pytest
import torch

from efflib.kernel_lab import on_gpu
from efflib.kernel_lab.cases import (
    attention_case,
    expect_products,
    expect_traffic,
    poison_named,
    read_once,
    values_first,
)
from efflib.kernel_lab.words import LENGTH, compiler_words, fault_words

ROOT = Path(__file__).parents[2]
CASE = attention_case(torch.Generator(), 1, 1, 16, 16, 16, (16, 16), torch.float32)
LEAST = {
    "reads": {"Q": [1024] * 2, "K": [1024] * 2, "V": [1024] * 2},
    "writes": {"Out": [1024] * 2, "LSE": [64] * 2},
    "flops": 4 * 16**3,
    "largest_tile": 256,
}


def test_flops_too_many_and_too_few():
    expect_traffic(LEAST, CASE)
    for flops, words in ((2 * 4 * 16**3, "no query needs"), (0, "too few: both products")):
        with pytest.raises(AssertionError, match=words):
            expect_traffic(LEAST | {"flops": flops}, CASE)
    with pytest.raises(AssertionError, match="a tile has 512 elements, 256 are enough"):
        expect_traffic(LEAST | {"largest_tile": 512}, CASE)


def test_fewer_bytes_are_no_fault():
    read_once({"reads": {"K": [8, 8]}}, "K", 10)
    with pytest.raises(AssertionError, match="1.20 times as many"):
        read_once({"reads": {"K": [12, 12]}}, "K", 10)


def test_products():
    expect_products({"products": ["fp32"]}, CASE)
    expect_products({"products": []}, CASE)
    for kind, words in (("tf32", "input_precision='ieee'"), ("fp16", "inputs are float32")):
        with pytest.raises(AssertionError, match=words):
            expect_products({"products": [kind]}, CASE)


def test_a_wrong_value_is_told_with_the_load_that_was_poisoned():
    run = {"unfilled": ["kernel_source.py:7: x = tl.load(X + j, mask=j < N)"]}
    with pytest.raises(AssertionError, match="o is nan. Masked lanes of `x = tl.load") as told:
        with poison_named(run):
            raise AssertionError("o is nan")
    assert "kernel_source" not in str(told.value) and str(told.value).endswith("say other=...")
    with pytest.raises(AssertionError, match="^o is 1$"), poison_named({"unfilled": []}):
        raise AssertionError("o is 1")


def test_traffic_waits_for_values():
    with pytest.raises(AssertionError, match="not counted: the results are not right yet"):
        with values_first():
            raise AssertionError("o is 3, expected 4")


def test_a_fault_shows_its_line_once():
    fault = {
        "kind": "OutOfBounds",
        "line": "x = tl.load(X + r * row_x + j)",
        "message": "load from X [3] out of bounds: 2147483648 before the first element; 1 of 1 "
        "active lanes, in program (2, 0, 0) of k, "
        "kernel_source.py:8: x = tl.load(X + r * row_x + j)",
    }
    words = fault_words("k", fault)
    assert words.count("tl.load") == 1 and "wrapped round: make one factor tl.int64" in words


def test_advice_is_not_cut_off():
    fault = {
        "kind": "OutOfBounds",
        "line": "x = tl.load(X + r * row_x + j)" + " " * 400,
        "message": "load from X [3] out of bounds: 2147483648 before the first element",
    }
    words = fault_words("k", fault)
    assert words.endswith("make one factor tl.int64") and len(words) <= LENGTH


def kernel_of(file: Path, name: str):
    """A kernel of a notebook's percent file, as its cell defines it, beside its helpers."""
    text = file.read_text()
    end = text.index("# %% check=", text.index(f"def {name}("))
    cell = text[text.rindex("# %% solution=", 0, end) : end]
    source = f"import triton\nimport triton.language as tl\n{cell}"
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(True), "<cell>")
    scope = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), scope)
    return scope[name]


def test_a_notebooks_kernel_runs_in_a_process_of_its_own():
    attend = kernel_of(ROOT / "solutions/lab08_flash_attention/flash_attention.py", "attend")
    [row] = on_gpu.against_sdpa(attend, (40,), "cpu").values()
    assert row["off"] < 1e-5 and row["ms"] > 0 and row["sdpa_ms"] > 0
    if not torch.cuda.is_available():
        assert on_gpu.timed(attend, (40,)) == "no GPU here: nothing is timed"
        with pytest.raises(RuntimeError, match="attend does not run on cuda: "):
            on_gpu.against_sdpa(attend, (40,))


def test_a_single_element_of_a_tile_is_told():
    fault = {"kind": "TypeError", "message": "'int' object is not iterable", "line": "y = x[0]"}
    assert "in the line `y = x[0]`: a tile has no single elements" in fault_words("k", fault)
    words = compiler_words("k", "y = x[0]\nunsupported tensor index: constexpr[0]")
    assert "no single elements" in words
