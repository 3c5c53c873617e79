"""A tiny course with a source, for tests of release, gradebook and feedback.

`make_course(root)` writes solutions/ and autograder/suites/; submissions and results are made here
too, so that most tests need no sandbox.
"""

import copy
from pathlib import Path

import msgspec
import nbformat

from autograder.grading import results
from autograder.grading.rebuild import rebuild
from autograder.intake import discover as intake
from autograder.intake.notebook import notebook_cells, notebook_digest
from autograder.labs import manifest
from autograder.nbgrader import recording

ROOT = Path(__file__).parents[3]
LAB, NOTEBOOK = "lab00_toy", "toy"
CANARY = "SECRET-CANARY"

EXERCISES = """\
title = "Toy <lab>"
[ex1]
title = "Scale"
points = 50
functions = ["scale"]
[ex2]
title = "Clip"
points = 40
functions = ["clip"]
"""

MANIFEST = """\
notebook = "toy"
withhold = ["efflib.quantization"]
[written]
w1 = 10
[budget]
cell_seconds = 5
call_seconds = 3
"""

SOURCE = '''\
# %% [markdown]
# # Toy
#
# A lab with $a < b$.

# %%
from efflib.lab import Lab

lab = Lab("lab00_toy")

# %% tags=["demo"]
raise SystemExit  # a demonstration: not run in grading

# %% solution="ex1"
def scale(numbers, factor):
    """All numbers times factor."""
    ### BEGIN SOLUTION
    return [factor * number for number in numbers]
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% solution="ex2"
def low(number, lo):
    ### BEGIN SOLUTION
    return max(number, lo)
    ### END SOLUTION


# %% solution="ex2-b"
def clip(numbers, lo, hi):
    ### BEGIN SOLUTION
    return [min(low(number, lo), hi) for number in numbers]
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# **Question 1.** Why?

# %% [markdown] written="w1"
# Because.
'''

PUBLIC = '''\
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

HIDDEN = f'''\
"""Hidden tests of the toy lab."""

from efflib.lab import exercise


@exercise("ex1", points=30, invariant="negative numbers are multiplied too", cause="abs")
def test_scale_negative(student, rng):
    observed = student.scale([-1.5, -2.5], 2.0)
    assert observed == [-3.0, -5.0], "{CANARY}"


@exercise("ex2", points=25, invariant="both bounds hold", cause="one bound only")
def test_clip_bounds(student, rng):
    observed = student.clip([-7.0, 0.5, 7.0], -1.0, 1.5)
    assert observed == [-1.0, 0.5, 1.5], "{CANARY}"
'''

RIGHT = {
    "ex1": "def scale(numbers, factor):\n    return [factor * n for n in numbers]",
    "ex2": "def low(number, lo):\n    return max(number, lo)",
    "ex2-b": "def clip(numbers, lo, hi):\n    return [min(low(n, lo), hi) for n in numbers]",
    "w1": "Because it *is* so.",
}


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def make_course(root: Path, source: str = SOURCE, exercises: str = EXERCISES) -> Path:
    """Writes the lab's source and suite below root; `release` makes the rest."""
    write(root / "solutions" / LAB / f"{NOTEBOOK}.py", source)
    write(root / "solutions" / LAB / "test_public.py", PUBLIC)
    write(root / "solutions" / LAB / "exercises.toml", exercises)
    write(root / "autograder" / "suites" / LAB / "manifest.toml", MANIFEST)
    write(root / "autograder" / "suites" / LAB / "test_hidden.py", HIDDEN)
    return root


def load(root: Path) -> manifest.LabSpec:
    return manifest.load_lab(LAB, root)


def answered(lab: manifest.LabSpec, **answers: str):
    """The released notebook with these cells filled in (ex2_b for ex2-b)."""
    given = {name.replace("_", "-"): text for name, text in answers.items()}
    nb = nbformat.read(lab.release_notebook, as_version=4)
    for cell in nb.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        cell.source = given.get(grade_id, cell.source)
    return nb


def right(lab: manifest.LabSpec):
    return answered(lab, **{name.replace("-", "_"): text for name, text in RIGHT.items()})


def submission(lab: manifest.LabSpec, nb, student: str = "ada") -> intake.Submission:
    cells = notebook_cells(copy.deepcopy(nb))
    return intake.Submission(student, lab.name, "toy.ipynb", cells, notebook_digest(cells))


def graded(
    lab: manifest.LabSpec, handed_in: intake.Submission, lost: tuple[str, ...] = (), **changes
) -> results.Result:
    """A result as the grader makes it, without running anything; lost: names of failed tests."""
    parts = []
    for name, exercise in lab.exercises.items():
        tests = [declared(test, test.test in lost) for test in lab.tests if test.exercise == name]
        points = sum(test.points for test in tests)
        parts.append(
            results.ExerciseResult(
                exercise=name,
                title=exercise.title,
                points=points,
                max_points=exercise.points,
                tests=tuple(tests),
            )
        )
    released = notebook_cells(nbformat.read(lab.release_notebook, as_version=4))
    rebuilt = rebuild(handed_in.cells, released)
    made = dict(
        student=handed_in.student,
        lab=lab.name,
        status="graded",
        score=sum(part.points for part in parts),
        max_score=lab.max_score,
        exercises=tuple(parts),
        written=dict(lab.written),
        answers=rebuilt.answers,
        look=rebuilt.look,
        submission_hash=handed_in.digest,
    )
    return results.Result(**(made | changes))


def declared(test: manifest.TestDecl, failed: bool) -> results.TestResult:
    return results.TestResult(
        exercise=test.exercise,
        test=test.test,
        title=test.title,
        kind=test.kind,
        outcome="failed" if failed else "passed",
        points=0.0 if failed else test.points,
        max_points=test.points,
        invariant=test.invariant,
        cause=test.cause,
        message="it is <b>7</b>" if failed and test.kind == "public" else "",
    )


def rejected(lab: manifest.LabSpec, student: str, reason: str) -> tuple:
    row = intake.Rejected(student, lab.name, reason)
    result = results.Result(
        student=student, lab=lab.name, status="rejected", reason=reason, max_score=lab.max_score
    )
    return row, result


def submit(root: Path, student: str, nb, name: str = f"{NOTEBOOK}.ipynb") -> Path:
    """Puts a notebook (or bytes) into submitted/<student>/<lab>/, as nbgrader does."""
    content = nb if isinstance(nb, bytes) else nbformat.writes(nb).encode()
    return write(root / "submitted" / student / LAB / name, content)


def recorded(root: Path, lab: manifest.LabSpec, made: list, rows=(), **options) -> list:
    """Records results, of submissions without outputs if no rows are given."""
    rows = rows or [intake.Rejected(result.student, lab.name, "") for result in made]
    return list(recording.record(root, lab, rows, made, **options))


def record(*arguments, **options) -> None:
    """The same, where nothing may go wrong."""
    assert [row.trouble for row in recorded(*arguments, **options) if row.trouble] == []


def changed(struct, **values):
    """A copy of a result, test or exercise with other values."""
    return msgspec.structs.replace(struct, **values)
