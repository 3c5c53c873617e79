"""A tiny course for tests of the pipeline: one lab, two exercises, one written question.

`make_course(root)` writes labs/ and autograder/suites/; the functions below make submissions.
"""

import copy
import json
from pathlib import Path

NAME, NOTEBOOK = "lab00_toy", "toy"

EXERCISES = """
title = "Toy"
[ex1]
title = "Scale"
points = 50
functions = ["scale"]
hidden = ["negative numbers"]
[ex2]
title = "Clip"
points = 40
functions = ["clip"]
hidden = ["tensors"]
"""

MANIFEST = """
notebook = "toy"
withhold = ["efflib.quantization"]
[written]
w1 = 10
[budget]
cell_seconds = 2
call_seconds = 3
"""

PUBLIC = '''
"""Public tests of the toy lab."""
from efflib.lab import exercise


@exercise("ex1", points=20, invariant="every number is multiplied", cause="only the first is")
def test_scale_by_hand(student, rng):
    observed = student.scale([1.0, 2.0], 3.0)
    assert observed == [3.0, 6.0], f"scale([1, 2], 3) is {observed}"


@exercise("ex2", points=15, invariant="numbers above hi become hi", cause="max for min")
def test_clip_by_hand(student, rng):
    observed = student.clip([1.0, 9.0, -9.0], -2.0, 2.0)
    assert observed == [1.0, 2.0, -2.0], f"it is {observed}"
'''

HIDDEN = '''
"""Hidden tests of the toy lab; SECRET-CANARY stands for data that must never leave them."""
import torch

from efflib.lab import exercise, expect_close


@exercise("ex1", points=30, invariant="negative numbers are multiplied too", cause="abs")
def test_scale_negative(student, rng):
    x = torch.rand(4, generator=rng, dtype=torch.float64).sub(2).tolist()
    observed = student.scale(x, 2.0)
    assert observed == [2 * v for v in x], f"SECRET-CANARY {x}"


@exercise("ex2", points=25, invariant="the bounds hold for random numbers", cause="one bound only")
def test_clip_random(student, rng):
    x = torch.randn(20, generator=rng, dtype=torch.float64)
    observed = torch.tensor(student.clip((10 * x).tolist(), -1.0, 1.5), dtype=torch.float64)
    expect_close(observed, (10 * x).clamp(-1, 1.5), what="SECRET-CANARY")
'''

POINTS = {"ex1-check": 50, "ex2-check": 40, "w1": 10}
SETUP = 'import math\nfrom efflib.lab import Lab\n\nlab = Lab("lab00_toy")'
STUB1 = 'def scale(numbers, factor):\n    raise NotImplementedError("Exercise 1")'
STUB2 = 'def clip(numbers, lo, hi):\n    raise NotImplementedError("Exercise 2")'
RIGHT1 = "def scale(numbers, factor):\n    return [factor * number for number in numbers]"
RIGHT2 = "def clip(numbers, lo, hi):\n  return [math.fsum([max(lo, min(n, hi))]) for n in numbers]"
WRONG1 = "def scale(numbers, factor):\n    return [abs(factor * number) for number in numbers]"


def cell(kind, source, grade_id=None, flags="", tags=(), cell_id=None):
    """A notebook cell as JSON; flags: letters of s(olution), g(rade), l(ocked)."""
    metadata = {"tags": list(tags)} if tags else {}
    if grade_id:
        named = {"solution": "s" in flags, "grade": "g" in flags, "locked": "l" in flags}
        metadata["nbgrader"] = {"grade_id": grade_id, "schema_version": 3, "task": False, **named}
        if "g" in flags:
            metadata["nbgrader"]["points"] = POINTS[grade_id]
    made = {"cell_type": kind, "metadata": metadata, "source": source}
    if cell_id or grade_id:
        made["id"] = cell_id or f"id-{grade_id}"
    return made | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def notebook(cells):
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def release():
    """The notebook that students get."""
    return notebook(
        [
            cell("markdown", "# Toy", cell_id="title"),
            cell("code", SETUP, "setup", "l"),
            cell("code", STUB1, "ex1", "s"),
            cell("code", 'lab.check("ex1")', "ex1-check", "gl"),
            cell("code", "raise SystemExit  # a demonstration", tags=["demo"], cell_id="demo"),
            cell("code", STUB2, "ex2", "s"),
            cell("code", 'lab.check("ex2")', "ex2-check", "gl"),
            cell("markdown", "*your answer*", "w1", "sg"),
        ]
    )


def index(nb, grade_id):
    ids = [c["metadata"].get("nbgrader", {}).get("grade_id") for c in nb["cells"]]
    return ids.index(grade_id)


def answered(ex1=RIGHT1, ex2=RIGHT2, w1="Because."):
    """The release with the given answers filled in."""
    nb = copy.deepcopy(release())
    for grade_id, source in (("ex1", ex1), ("ex2", ex2), ("w1", w1)):
        nb["cells"][index(nb, grade_id)]["source"] = source
    return nb


def write(path: Path, nb) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(nb if isinstance(nb, bytes) else json.dumps(nb).encode())
    return path


def make_course(root: Path) -> Path:
    """Writes the course below root."""
    for path, text in {
        f"labs/{NAME}/exercises.toml": EXERCISES,
        f"labs/{NAME}/test_public.py": PUBLIC,
        f"autograder/suites/{NAME}/manifest.toml": MANIFEST,
        f"autograder/suites/{NAME}/test_hidden.py": HIDDEN,
    }.items():
        write(root / path, text.lstrip().encode())
    write(root / "labs" / NAME / f"{NOTEBOOK}.ipynb", release())
    return root
