"""What grading knows of a lab: exercises and points, what to withhold, which tests must report.

Three files say it, and nothing of it comes from a submission:
labs/<lab>/exercises.toml, labs/<lab>/<notebook>.ipynb and autograder/suites/<lab>/manifest.toml.
"""

import contextlib
import hashlib
import math
import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from autograder.labs.hashing import efflib_hash, grader_hash, suite_hash
from autograder.labs.suites import lab_names, no_such_lab, suites_root, way_to_release

TOTAL_POINTS = 100
POINTS_EPS = 1e-9  # points are small decimal numbers: their sums differ by less than this
PUBLIC_TESTS, HIDDEN_TESTS = "test_public.py", "test_hidden.py"
T = TypeVar("T")


class LabError(Exception):
    """A lab is missing, or its files contradict each other; the text says which and where."""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one submission: seconds, MB and processes.

    cell_seconds: of one cell.  Every solution and set-up cell has them, whatever ran before.
    notebook_seconds: of all other cells together, in their order; what comes after is not run.
    """

    cell_seconds: float = 10
    notebook_seconds: float = 120
    call_seconds: float = 10
    memory_mb: int = 4096
    processes: int = 64


class Exercise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exercise as students know it (exercises.toml).

    domain: "function.argument" -> corners that its card admits (see autograder.triad.domain).
    """

    title: str
    points: float
    functions: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    domain: dict[str, tuple[str, ...]] = {}


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What students do not see (manifest.toml). withhold: modules that grading hides; builds: those
    that are this lab's own, stubs in a bundle until it is released; preload: modules of torch or of
    efflib.models that are imported once for all sandboxes; seed: mixed into all seeds.
    """

    notebook: str
    withhold: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()
    preload: tuple[Annotated[str, msgspec.Meta(pattern="^(torch|efflib[.]models)[.]")], ...] = ()
    seed: str = ""
    written: dict[str, float] = {}
    budget: Budget = Budget()


@dataclass(frozen=True)
class TestDecl:
    """A test that has to report: what does not report scores 0."""

    __test__ = False  # pytest: not a test class

    exercise: str
    test: str
    title: str
    kind: str  # "public" | "hidden"
    points: float
    invariant: str
    cause: str

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.test


@dataclass(frozen=True)
class LabSpec:
    """Everything about a lab that grading needs; plain values, so it travels to other processes."""

    name: str
    title: str
    notebook: str
    exercises: dict[str, Exercise]
    written: dict[str, float]
    withhold: tuple[str, ...]
    budget: Budget
    release_dir: Path
    suite_dir: Path
    suite_hash: str
    efflib_hash: str
    preload: tuple[str, ...] = ()
    seed: str = ""
    tests: tuple[TestDecl, ...] = field(default=(), repr=False)

    @property
    def release_notebook(self) -> Path:
        return self.release_dir / f"{self.notebook}.ipynb"

    @property
    def test_files(self) -> dict[str, Path]:
        """In the order in which they run: what a public test may tell has seen no hidden input."""
        return {
            "public": self.release_dir / PUBLIC_TESTS,
            "hidden": self.suite_dir / HIDDEN_TESTS,
        }

    @property
    def max_score(self) -> float:
        """Points that tests give; written questions come on top."""
        return math.fsum(exercise.points for exercise in self.exercises.values())


def load_lab(name: str, course_root: Path) -> LabSpec:
    """Reads and validates a lab. Raises LabError with a sentence that names the file to mend."""
    course_root = Path(course_root).resolve()
    suite_dir, release_dir = suites_root(course_root) / name, course_root / "labs" / name
    if name not in lab_names(course_root):
        raise LabError(no_such_lab(name, course_root))
    manifest = read_toml(suite_dir / "manifest.toml", Manifest)
    notebook = release_dir / f"{manifest.notebook}.ipynb"
    if not notebook.is_file():
        raise LabError(f"{notebook} is missing: {way_to_release(name, course_root)}")
    title, exercises = read_exercises(release_dir / "exercises.toml")
    lab = LabSpec(
        name=name,
        title=title,
        notebook=manifest.notebook,
        exercises=exercises,
        written=manifest.written,
        withhold=manifest.withhold,
        budget=manifest.budget,
        release_dir=release_dir,
        suite_dir=suite_dir,
        suite_hash=suite_hash(suite_dir, release_dir),
        efflib_hash=efflib_hash(),
        preload=manifest.preload,
        seed=manifest.seed,
    )
    lab = replace(lab, tests=known_tests(lab, course_root / "build" / "declared"))
    check_points(lab)
    return lab


def known_tests(lab: LabSpec, folder: Path) -> tuple[TestDecl, ...]:
    """The tests that the lab's files declare: as they were found when these files were last read.

    Collecting them imports torch.  A folder that cannot be written only costs that time again.
    """
    same = hashlib.sha256(f"{lab.suite_hash} {lab.efflib_hash} {grader_hash()}".encode())
    path = folder / f"{lab.name}-{same.hexdigest()[:32]}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[TestDecl, ...])
    except (OSError, msgspec.DecodeError):
        tests = declared_tests(*lab.test_files.values())
    partial = path.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{lab.name}-*"):
            old.unlink()
        try:
            partial.write_bytes(msgspec.json.encode(tests))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return tests


def read_toml(path: Path, kind: type[T]) -> T:
    return convert(load_toml(path), kind, path)


def read_exercises(path: Path) -> tuple[str, dict[str, Exercise]]:
    """(title of the lab, exercises by id) of an exercises.toml."""
    data = load_toml(path)
    title = convert(data.pop("title", ""), str, path)
    return title, convert(data, dict[str, Exercise], path)


def load_toml(path: Path) -> dict:
    if not path.is_file():
        raise LabError(f"{path} is missing")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}") from None


def convert(data: object, kind: type[T], path: Path) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise LabError(f"{path}: {error}") from None


def declared_tests(public: Path, hidden: Path) -> tuple[TestDecl, ...]:
    """The tests that the trusted files declare, without running any."""
    from efflib.lab.runner import TestFileError, collect

    found = []
    for kind, path in (("public", public), ("hidden", hidden)):
        if not path.is_file():
            raise LabError(f"{path} is missing")
        try:
            tests = collect([path])
        except TestFileError as error:
            raise LabError(str(error)) from None
        for test in tests:
            points = float(test.points)
            text = (test.exercise, test.test, test.title)
            found.append(TestDecl(*text, kind, points, test.invariant, test.cause))
    return tuple(found)


def check_points(lab: LabSpec) -> None:
    """Points of tests sum to those of their exercise, and all with the written ones to 100."""
    unknown = {test.exercise for test in lab.tests} - set(lab.exercises)
    if unknown:
        raise LabError(f"{lab.name}: tests of {sorted(unknown)}, which exercises.toml lacks")
    if len({test.key for test in lab.tests}) < len(lab.tests):
        raise LabError(f"{lab.name}: two tests of one file have the same name")
    numbers = [*(t.points for t in lab.tests), *lab.written.values()]
    if any(not (math.isfinite(p) and p >= 0) for p in numbers):
        raise LabError(f"{lab.name}: points must be finite and not negative")
    for name, exercise in lab.exercises.items():
        points = math.fsum(test.points for test in lab.tests if test.exercise == name)
        if abs(points - exercise.points) > POINTS_EPS:
            raise LabError(
                f"{lab.name}: the tests of {name} give {points:g} points, "
                f"exercises.toml says {exercise.points:g}"
            )
    total = math.fsum([lab.max_score, *lab.written.values()])
    if abs(total - TOTAL_POINTS) > POINTS_EPS:
        raise LabError(f"{lab.name}: the points sum to {total:g}, not to {TOTAL_POINTS}")
