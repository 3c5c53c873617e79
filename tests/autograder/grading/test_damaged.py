"""Notebooks damaged by chance: an exercise whose code is whole keeps its points.

The cells of a rebuilt notebook run here one after the other, errors passed over, as in a sandbox.
"""

import copy
import json
import random

import pytest
from toylab import RIGHT1, RIGHT2, SETUP, STUB1, answered, cell, release

from autograder.grading.rebuild import rebuild
from autograder.intake.notebook import parse_notebook

pytestmark = pytest.mark.slow

RELEASE = parse_notebook(json.dumps(release()).encode())
WORKS = {"ex1": RIGHT1, "ex2": RIGHT2}
SCRATCH = [
    "math = 3",
    "for math in range(3):\n    pass",
    "del math, lab",
    "x = scale([1.0], 2.0)",
    "1 / 0",
    "scale(",
    "    indented = 1",
    "%%bash\necho hello",
    "%time y = 1\n!ls",
    "raise KeyboardInterrupt",
    "import sys\nsys.exit()",
    "HALF = math.sqrt(0.25)",
    "<<<<<<< HEAD",
    'lab.check("ex1")',
    "",
]


def anywhere(rng, cells):
    return rng.randint(0, len(cells))


def is_work(made):
    return any(code in made["source"] for code in WORKS.values())


def pick(rng, cells, *, work):
    """Some cell; work: it may be one with a solution."""
    some = [k for k, made in enumerate(cells) if work or not is_work(made)]
    return rng.choice(some) if some else None


def move_set_up(rng, cells):
    at = [k for k, made in enumerate(cells) if made["source"].startswith(SETUP[:11])]
    if at:
        moved = cells.pop(rng.choice(at))
        cells.insert(anywhere(rng, cells), moved)


def duplicate(rng, cells):
    at = pick(rng, cells, work=True)
    made = copy.deepcopy(cells[at])
    if rng.random() < 0.5:
        made.pop("id", None)
    cells.insert(anywhere(rng, cells), made)


def delete(rng, cells):
    at = pick(rng, cells, work=rng.random() < 0.4)
    if at is not None and len(cells) > 1:
        del cells[at]


def retag(rng, cells):
    at = pick(rng, cells, work=True)
    cells[at]["metadata"]["tags"] = [rng.choice(["demo", "skip-grading", "parameters"])]


def convert(rng, cells):
    at = pick(rng, cells, work=rng.random() < 0.4)
    if at is not None:
        cells[at]["cell_type"] = rng.choice(["code", "markdown", "raw"])


def strip(rng, cells):
    for made in cells if rng.random() < 0.3 else [rng.choice(cells)]:
        made["metadata"] = {}
        if rng.random() < 0.5:
            made.pop("id", None)


def flip(rng, cells):
    for made in cells:
        flags = made["metadata"].get("nbgrader", {})
        flags |= {name: rng.random() < 0.5 for name in ("solution", "grade", "locked")}


def scratch(rng, cells):
    cells.insert(anywhere(rng, cells), cell("code", rng.choice(SCRATCH)))


def template(rng, cells):
    cells.insert(anywhere(rng, cells), cell("code", STUB1, "ex1", "s", cell_id="again"))


def damage(rng, cells):
    """Never a copy of a template: what is left of it could be a definition, and the last counts."""
    at = pick(rng, cells, work=False)
    if at is not None and cells[at]["cell_type"] == "code" and STUB1[:9] not in cells[at]["source"]:
        source = cells[at]["source"]
        cells[at]["source"] = source[: rng.randint(0, len(source))]


def shuffle(rng, cells):
    own = [k for k, made in enumerate(cells) if "nbgrader" not in made["metadata"]]
    mixed = rng.sample(own, len(own))
    for target, made in zip(own, [cells[k] for k in mixed], strict=True):
        cells[target] = made


DAMAGES = [move_set_up, duplicate, delete, retag, convert, strip, flip, scratch, scratch]
DAMAGES += [template, damage, shuffle]


def damaged(seed):
    """(cells, names of what was done to them)"""
    rng = random.Random(seed)
    cells = answered()["cells"]
    done = [rng.choice(DAMAGES) for _ in range(rng.randint(1, 8))]
    for work in done:
        if cells:
            work(rng, cells)
    return cells, [work.__name__ for work in done]


def intact(cells):
    """Exercises whose code still stands in a code cell."""
    code = [made["source"] for made in cells if made["cell_type"] == "code"]
    return {name for name, text in WORKS.items() if text in code}


def kept(cells):
    """Exercises whose functions work once all cells have run."""
    nb = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    space = {}
    for part in rebuild(parse_notebook(json.dumps(nb).encode()), RELEASE).cells:
        try:
            exec(compile(part.source, part.label, "exec"), space)
        except BaseException:  # KeyboardInterrupt and SystemExit of the cells above
            continue
    calls = {"ex1": ("scale", [1.0, -2.0], 3.0), "ex2": ("clip", [3.0, -7.0], -1.0, 1.0)}
    expected = {"ex1": [3.0, -6.0], "ex2": [1.0, -1.0]}
    return {name for name, call in calls.items() if result(space, *call) == expected[name]}


def result(space, name, *args):
    try:
        return space[name](*args)
    except Exception as error:
        return error


@pytest.mark.parametrize("first", range(0, 1200, 100))
def test_intact_exercises_keep_their_points(first):
    lost = {}
    for seed in range(first, first + 100):
        cells, done = damaged(seed)
        missing = intact(cells) - kept(cells)
        if missing:
            lost[seed] = (missing, done)
    assert not lost


def test_the_damage_is_of_every_kind_and_some_exercises_are_lost():
    """The test above says something: there is much damage, and not everything survives it."""
    notebooks = [damaged(seed)[0] for seed in range(1200)]
    whole = [intact(cells) for cells in notebooks]
    assert sum(len(w) == 2 for w in whole) > 600 and sum(len(w) < 2 for w in whole) > 30
    below = [c for c in notebooks if not any(m["source"] == SETUP for m in c[:3])]
    assert len(below) > 100
    assert sum(any(m["source"] == "math = 3" for m in c) for c in notebooks) > 50


def test_an_empty_exercise_is_not_kept():
    assert kept(answered(ex1=STUB1)["cells"]) == {"ex2"}
