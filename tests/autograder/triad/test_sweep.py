"""The sweep finds tests that pass for a spoilt result (test_triads.py asks it of all labs)."""

import dataclasses

import msgspec
from toytriad import SOLVED, toy

from autograder.triad.run import solved_cells
from autograder.triad.sweep import sweep, text_functions

MORE = """
import torch


@exercise("ex1", points=1, invariant="NaN passes this", cause="error > bound is false for NaN")
def test_error_is_small(student, rng):
    [observed] = student.scale([1.5], 2.0)
    assert not abs(observed - 3.0) > 1e-6


@exercise("ex2", points=1, invariant="any dtype passes this", cause="no test asks for float32")
def test_of_tensors(student, rng):
    observed = student.clip(torch.tensor([1.0, 9.0]), 0.0, 2.0)
    assert [float(x) for x in observed] == [1.0, 2.0]
"""
TENSORS = """
import torch
def clip(numbers, lo, hi):
    many = torch.as_tensor(numbers)
    return many.clamp(lo, hi) if torch.is_tensor(numbers) else many.clamp(lo, hi).tolist()
"""


def test_the_toy_lab_has_no_hole(tmp_path):
    _, lab = toy(tmp_path)
    cells = solved_cells(lab, SOLVED)
    assert [sweep(lab, cells, exercise) for exercise in lab.exercises] == [[], []]


def test_holes_are_found(tmp_path):
    _, lab = toy(tmp_path)
    hidden = lab.test_files["hidden"]
    hidden.write_text(hidden.read_text() + MORE)
    cells = (*solved_cells(lab, SOLVED), TENSORS)
    assert sweep(lab, cells, "ex1") == ["ex1:scale:nan: test_error_is_small passes"]
    assert sweep(lab, cells, "ex2") == [
        "ex2:clip:complex: test_of_tensors passes",
        "ex2:clip:float64: no test fails",
        "ex2:clip:bfloat16: no test fails",
    ]


INSIDE = """
def clip(numbers, lo, hi):
    return [min(max(number.real, lo), hi) for number in scale(numbers, 1)]
"""


def test_only_what_reaches_a_test_is_spoilt(tmp_path):
    """clip calls scale, takes the real part, and is right: its tests are given nothing else."""
    _, lab = toy(tmp_path)
    one = msgspec.structs.replace(lab.exercises["ex2"], functions=("clip", "scale"))
    lab = dataclasses.replace(lab, exercises=lab.exercises | {"ex2": one})
    cells = (*solved_cells(lab, SOLVED), INSIDE)
    assert sweep(lab, cells, "ex2") == ["ex2:scale: no test looks at a number that it returns"]


def test_a_function_that_no_test_calls_is_found(tmp_path):
    _, lab = toy(tmp_path)
    public = lab.test_files["public"]
    public.write_text(public.read_text().replace("student.clip(", "(lambda *_: [1.0, 2.0, -2.0])("))
    hidden = lab.test_files["hidden"]
    hidden.write_text(hidden.read_text().replace("student.clip(", "(lambda n, lo, hi: n)("))
    assert sweep(lab, solved_cells(lab, SOLVED), "ex2") == [
        "ex2:clip: no test looks at a number that it returns"
    ]


def test_functions_that_return_text_have_no_number_to_spoil():
    cells = ("def name(x) -> str:\n    return 'x'", "def size(x) -> int:\n    return 1\n\nsize(2)")
    assert text_functions(cells) == {"name"}


def test_another_dtype_may_be_right_and_nothing_else_is(tmp_path):
    _, lab = toy(tmp_path)
    hidden = lab.test_files["hidden"]
    hidden.write_text(hidden.read_text() + MORE)
    judged = lab.suite_dir / "triad" / "equivalent.toml"
    judged.parent.mkdir(exist_ok=True)
    judged.write_text('"ex2:clip:float64" = "more exact"\n"ex2:clip:complex" = "no reason helps"\n')
    assert sweep(lab, (*solved_cells(lab, SOLVED), TENSORS), "ex2") == [
        "ex2:clip:complex: test_of_tensors passes",
        "ex2:clip:bfloat16: no test fails",
    ]
