"""Writes the submissions of the demonstration class, as nbgrader collects them.

    make_class(course_root, "lab01_quantization", course_root / "submitted")

gives <out>/<student>/<lab>/...  EXPECTED says in which exercises each student loses points, and the
tests that take them (at least these: others may see the same mistake).
"""

import io
import zipfile
from pathlib import Path

import nbformat

from autograder.demo import honest, hostile
from autograder.demo.honest import Kit, grade_id
from autograder.manifest import load_lab
from autograder.release import build_source
from autograder.results import ExerciseResult, Result

LAB = "lab01_quantization"
ALL = "all"  # every test of the exercise
STUDENTS = {
    "right": honest.right,
    "right_otherwise": honest.right_otherwise,
    "partly_right": honest.partly_right,
    "empty": honest.empty,
    "helpers": honest.helpers,
    "messy": honest.messy,
    "endless_loop": honest.endless_loop,
    "not_a_notebook": honest.not_a_notebook,
    "zipped": honest.zipped,
    "hostile_reader": hostile.hostile_reader,
    "hostile_forger": hostile.hostile_forger,
}
BUT_THE_FIRST = dict.fromkeys(("ex2", "ex3", "ex4", "ex5", "ex6"), ALL)
EXPECTED: dict[str, dict[str, str | set[str]] | None] = {
    "right": {},
    "right_otherwise": {},
    "partly_right": {
        "ex4": {"test_empty_clusters"},
        "ex5": {"test_gradient_outside", "test_gradient_by_rows"},
    },
    "empty": {"ex1": ALL} | BUT_THE_FIRST,
    "helpers": {},
    "messy": {},
    "endless_loop": {"ex4": {"test_awkward_values"}},
    "not_a_notebook": None,  # rejected
    "zipped": {},
    "hostile_reader": BUT_THE_FIRST,
    "hostile_forger": BUT_THE_FIRST,
}
FILES = {"helpers": "quantization (1).ipynb", "zipped": "handed_in.zip"}


def make_class(course_root: Path, lab: str, out_dir: Path) -> list[Path]:
    """Writes everyone's file; returns the paths. The lab must be released in course_root."""
    spec = load_lab(lab, course_root)
    solved = Path(course_root) / "build" / "source" / lab / f"{spec.notebook}.ipynb"
    if not solved.is_file():
        solved = build_source(course_root, lab)
    cells = nbformat.read(solved, as_version=4).cells
    kit = Kit(
        release=nbformat.read(spec.release_notebook, as_version=4),
        solved={grade_id(cell): cell.source for cell in cells if grade_id(cell)},
        functions={name: exercise.functions for name, exercise in spec.exercises.items()},
        triad=spec.suite_dir / "triad",
    )
    paths = []
    for student, hand_in in STUDENTS.items():
        made = hand_in(kit)
        content = made if isinstance(made, bytes) else nbformat.writes(made).encode()
        if student == "zipped":
            content = packed(f"lab/{spec.notebook}.ipynb", content)
        path = Path(out_dir) / student / lab / FILES.get(student, f"{spec.notebook}.ipynb")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        paths.append(path)
    return paths


def packed(name: str, notebook: bytes) -> bytes:
    """A zip with the notebook and what people pack along with it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._quantization.ipynb", b"\0")
        archive.writestr("lab/notes.txt", "see the notebook")
        archive.writestr(name, notebook)
    return buffer.getvalue()


def surprises(results: list[Result]) -> list[str]:
    """Where grading gave something else than EXPECTED, a sentence each."""
    found = []
    for result in results:
        expected = EXPECTED[result.student]
        status = "rejected" if expected is None else "graded"
        if result.status != status:
            found.append(f"{result.student} is {result.status}, not {status} {result.reason}")
            continue
        for part in result.exercises:
            failed = failed_tests(part)
            wanted = expected.get(part.exercise, set())
            wanted = {test.test for test in part.tests} if wanted == ALL else wanted
            if bool(failed) != bool(wanted) or not wanted <= failed:
                found.append(
                    f"{result.student}, {part.exercise}: "
                    f"{sorted(failed)} failed, not {sorted(wanted)}"
                )
    missing = EXPECTED.keys() - {result.student for result in results}
    return found + [f"{student} has no result" for student in sorted(missing)]


def failed_tests(part: ExerciseResult) -> set[str]:
    return {test.test for test in part.tests if test.outcome != "passed"}
