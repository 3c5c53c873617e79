"""Tests of the tests: what must get full points, what must lose them, and by which test.

For a lab there are the canonical solution (solutions/), for each exercise independent right ones
and named wrong ones (see written.py), and work that is none: the untouched release and functions
that return None, their argument, or 0.
A variant is graded as one more cell behind the canonical cells, in the sandbox, as a submission.

Exercises build on one another: a wrong ex1 makes a right ex3 give wrong results.  That says nothing
about the tests of ex3, so before a wrong variant the functions of the other exercises are frozen:
they go on calling the canonical ones.  What a wrong variant breaks then, the tests blame on it.
"""

from dataclasses import dataclass

from autograder.intake.notebook import Cell, Notebook, parse_notebook
from autograder.labs.manifest import LabError, LabSpec
from autograder.triad.written import Written, rights, wrongs

EQUIVALENT = "equivalent.toml"  # of mutants, see mutants.py
DOMAIN = "domain.md"  # what the suite tries, see domain.py
MARKS = ("### BEGIN SOLUTION", "### END SOLUTION")
STUBS = {
    "none": "return None",
    "argument": "return args[0] if args else None",
    "zero": "import torch; return torch.zeros_like(args[0]) if torch.is_tensor(args[0]) else 0",
}
NO_WORK = 1 + len(STUBS)  # variants that must get nothing: these, and the untouched release

FREEZE = """
import types
frozen = dict(globals())
def freeze(value, owner=None):
    names, cells = value.__code__.co_freevars, value.__closure__ or ()
    cells = tuple(owner if n == "__class__" and owner else c for n, c in zip(names, cells))
    made = types.FunctionType(value.__code__, frozen, value.__name__, value.__defaults__, cells)
    made.__kwdefaults__ = value.__kwdefaults__
    return made
def own(value):
    return isinstance(value, types.FunctionType) and value.__globals__ is globals()
for name, value in list(frozen.items()):
    if own(value):
        frozen[name] = freeze(value)
    elif isinstance(value, type) and name in {classes!r}:
        owner = types.CellType()  # what super() without arguments looks into
        body = {k: freeze(part, owner) if own(part) else part for k, part in vars(value).items()}
        body = {key: part for key, part in body.items() if key not in ("__dict__", "__weakref__")}
        owner.cell_contents = frozen[name] = type(name, value.__bases__, body)
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
    strange -= {*lab.exercises, *(f"{ex}.diff" for ex in lab.exercises)}
    strange -= {EQUIVALENT, DOMAIN, "__pycache__"}
    if strange:
        raise LabError(f"{folder}: no exercise is called {sorted(strange)}")
    for exercise in lab.exercises:
        canonical = canonical_cell(solved, exercise)
        for name, text in rights(folder, exercise, canonical).items():
            variants.append(Variant(exercise, name, "right", appended(solved, text.cell)))
        frozen = frozen_but(lab, exercise, solved)
        for name, text in wrongs(folder, exercise, canonical).items():
            _expect_a_check(lab, exercise, name, text)
            cells = appended(frozen, text.cell)
            variants.append(Variant(exercise, name, "wrong", cells, text.fails, text.mistake))
    return variants


def canonical_cell(solved: Notebook, exercise: str) -> str:
    """The source of the cell in which the exercise is solved, without nbgrader's marks."""
    return without_marks(next((c.source for c in solved if c.grade_id == exercise), ""))


def without_marks(source: str) -> str:
    return "\n".join(line for line in source.split("\n") if line.strip() not in MARKS)


def _expect_a_check(lab: LabSpec, exercise: str, name: str, text: Written) -> None:
    known = {test.test for test in lab.tests if test.exercise == exercise}
    if not text.mistake or not text.fails or set(text.fails) - known:
        raise LabError(
            f"{lab.suite_dir}/triad/{exercise}.diff: {name}: a wrong variant needs a mistake in a "
            f"sentence, and a line fails: with tests of {exercise} (unknown: "
            f"{sorted(set(text.fails) - known)})"
        )


def frozen_but(lab: LabSpec, exercise: str, solved: Notebook) -> Notebook:
    """The solved notebook, where the functions of all other exercises are frozen.

    They see this exercise's own classes frozen too: a class that is a wrong variant's neighbour
    would call the variant.
    """
    every = [name for ex in lab.exercises.values() for name in ex.functions]
    names = [name for name in every if name not in lab.exercises[exercise].functions]
    text = FREEZE.replace("{names!r}", repr(names)).replace("{classes!r}", repr(every))
    return appended(solved, text)


def appended(cells: Notebook, source: str) -> Notebook:
    return (*cells, Cell(position=len(cells) + 1, kind="code", source=source))
