"""Tests of the tests: what must get full points, what must lose them, and by which test.

For a lab there are the canonical solution (solutions/), for each exercise independent right ones
and named wrong ones (autograder/suites/<lab>/triad/<exercise>/{right,wrong}_<name>.py), and work
that is none: the untouched release and functions that return None, their argument, or 0.
A variant is graded as one more cell behind the canonical cells, in the sandbox, as a submission.

Exercises build on one another: a wrong ex1 makes a right ex3 give wrong results.  That says nothing
about the tests of ex3, so before a wrong variant the functions of the other exercises are frozen:
they go on calling the canonical ones.  What a wrong variant breaks then, the tests blame on it.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from autograder.grading.batch import grade_many
from autograder.grading.results import Result, TestResult
from autograder.intake.discover import Submission
from autograder.intake.notebook import Cell, Notebook, notebook_digest, parse_notebook
from autograder.labs.manifest import LabError, LabSpec

MIN_RIGHT, MIN_WRONG = 2, 5  # variants of each exercise
STUBS = {
    "none": "return None",
    "argument": "return args[0] if args else None",
    "zero": "import torch; return torch.zeros_like(args[0]) if torch.is_tensor(args[0]) else 0",
}

FREEZE = """
import types
frozen = dict(globals())
for name, value in list(frozen.items()):
    if isinstance(value, types.FunctionType) and value.__globals__ is globals():
        parts = value.__code__, frozen, name, value.__defaults__, value.__closure__
        frozen[name] = types.FunctionType(*parts)
        frozen[name].__kwdefaults__ = value.__kwdefaults__
globals().update((name, frozen[name]) for name in {names!r})
"""


@dataclass(frozen=True)
class Variant:
    """One piece of work and what grading has to make of it."""

    exercise: str  # "" for work on the whole lab
    name: str
    kind: str  # "right": full points; "wrong": loses some in its exercise; "none": gets none
    cells: Notebook
    fails: tuple[str, ...] = ()  # tests that have to fail
    mistake: str = ""

    @property
    def student(self) -> str:
        return f"{self.exercise or 'lab'}.{self.kind}.{self.name}"


@dataclass(frozen=True)
class Row:
    """A variant, the tests that failed on it, and what is not as it should be ("" if nothing)."""

    variant: Variant
    failed: tuple[str, ...]
    problem: str


def run_triad(
    lab: LabSpec,
    solved: Notebook,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    unsafe: bool = False,
) -> Iterator[Row]:
    """Grades every variant of a lab; yields a row each, as they are ready.

    solved: cells of the solved notebook, which autograder.labs.source.build_source writes.
    """
    variants = {variant.student: variant for variant in collect_variants(lab, solved)}
    submissions = [
        Submission(student, lab.name, variant.name, variant.cells, notebook_digest(variant.cells))
        for student, variant in variants.items()
    ]
    results = grade_many(lab, submissions, jobs=jobs, executor=executor, unsafe=unsafe)
    for result in results:
        yield judge_variant(lab, variants[result.student], result)


# ---- variants -----------------------------------------------------------------------------------


def collect_variants(lab: LabSpec, solved: Notebook) -> list[Variant]:
    """Raises LabError for a variant file that declares nothing to check."""
    release = parse_notebook(lab.release_notebook.read_bytes())
    variants = [Variant("", "canonical", "right", solved), Variant("", "release", "none", release)]
    names = [name for exercise in lab.exercises.values() for name in exercise.functions]
    for stub, body in STUBS.items():
        source = "\n\n".join(f"def {name}(*args, **kwargs):\n    {body}" for name in names)
        variants.append(Variant("", f"returns-{stub}", "none", appended(release, source)))
    folder = lab.suite_dir / "triad"
    strange = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if strange - set(lab.exercises) - {"__pycache__"}:
        raise LabError(f"{folder}: no exercise is called {sorted(strange - set(lab.exercises))}")
    for exercise in lab.exercises:
        paths = sorted((folder / exercise).glob("*.py"))
        variants += [read_variant(lab, exercise, path, solved) for path in paths]
    return variants


def read_variant(lab: LabSpec, exercise: str, path: Path, solved: Notebook) -> Variant:
    kind, _, name = path.stem.partition("_")
    if kind not in ("right", "wrong") or not name:
        raise LabError(f"{path}: a variant is called right_<name>.py or wrong_<name>.py")
    source = path.read_text(encoding="utf-8")
    module = ast.parse(source, filename=str(path))
    mistake = " ".join((ast.get_docstring(module) or "").split())
    fails = declared_fails(module)
    known = {test.test for test in lab.tests if test.exercise == exercise}
    if kind == "wrong" and (not mistake or not fails or set(fails) - known):
        raise LabError(
            f"{path}: a wrong variant needs a docstring that says the mistake, and "
            f"FAILS = [tests of {exercise} that must fail] (unknown: {sorted(set(fails) - known)})"
        )
    cells = solved if kind == "right" else frozen_but(lab, exercise, solved)
    return Variant(exercise, name, kind, appended(cells, source), fails, mistake)


def frozen_but(lab: LabSpec, exercise: str, solved: Notebook) -> Notebook:
    """The solved notebook, where the functions of all other exercises are frozen."""
    others = [lab.exercises[name].functions for name in lab.exercises if name != exercise]
    names = [name for functions in others for name in functions]
    return appended(solved, FREEZE.replace("{names!r}", repr(names)))


def declared_fails(module: ast.Module) -> tuple[str, ...]:
    """The module constant FAILS, read without running the file."""
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FAILS":
            value = ast.literal_eval(node.value)
            return (value,) if isinstance(value, str) else tuple(value)
    return ()


def appended(cells: Notebook, source: str) -> Notebook:
    return (*cells, Cell(position=len(cells) + 1, kind="code", source=source))


# ---- what must come out -------------------------------------------------------------------------


def judge_variant(lab: LabSpec, variant: Variant, result: Result) -> Row:
    tests = [test for exercise in result.exercises for test in exercise.tests]
    failed = tuple(test.test for test in tests if test.outcome != "passed")
    if result.status != "graded":
        return Row(variant, failed, f"not graded: {result.reason}")
    if variant.kind == "right":
        lost = [f"{test.test}: {test.message or test.invariant}" for test in tests if lost_by(test)]
        return Row(variant, failed, f"loses points: {'; '.join(lost)}" if lost else "")
    if variant.kind == "none":
        given = [test.test for test in tests if test.points > 0]
        return Row(variant, failed, f"gets points: {', '.join(given)}" if given else "")
    elsewhere = [test.test for test in tests if lost_by(test) and test.exercise != variant.exercise]
    survived = sorted(set(variant.fails) - set(failed))
    problems = [f"survives {', '.join(survived)}"] if survived else []
    problems += [f"also breaks {', '.join(elsewhere)}"] if elsewhere else []
    return Row(variant, failed, "; ".join(problems))


def lost_by(test: TestResult) -> bool:
    return test.outcome != "passed"


def missing_variants(lab: LabSpec, rows: Sequence[Row]) -> list[str]:
    """Exercises that have fewer variants than a triad needs."""
    have = Counter((row.variant.exercise, row.variant.kind) for row in rows)
    return [
        f"{exercise} has {have[exercise, kind]} {kind} variants, at least {least} are needed"
        for exercise in lab.exercises
        for kind, least in (("right", MIN_RIGHT), ("wrong", MIN_WRONG))
        if have[exercise, kind] < least
    ]
