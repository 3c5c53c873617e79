"""Writes the submissions of the demonstration class, as nbgrader collects them.

    make_class(course_root, "lab01_quantization", course_root / "submitted")

gives <out>/<student>/<lab>/...  `expected_failures` says in which exercises each student loses
points, and the tests that take them (at least these: others may see the same mistake).
"""

import io
import zipfile
from pathlib import Path

import nbformat

from autograder.demo import hollow, honest, hostile
from autograder.demo.entries import load_entries
from autograder.demo.honest import Kit, grade_id
from autograder.grading.results import ExerciseResult, Result
from autograder.labs.manifest import LabSpec, load_lab
from autograder.labs.source import build_source
from autograder.triad.variants import without_marks
from autograder.triad.written import read_edits, rights, wrongs

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
    "forged_driver": hollow.forged_driver,
    "all_nan": hollow.all_nan,
}
REJECTED = None
FILES = {"helpers": "{notebook} (1).ipynb", "zipped": "handed_in.zip"}


def expected_failures(lab: LabSpec) -> dict[str, dict[str, str | set[str]] | None]:
    """For each student: exercises that lose points -> the tests that take them, at least these."""
    entries, triad = load_entries(lab), lab.suite_dir / "triad"
    wrong = {
        exercise: {
            f for w in read_edits(triad / f"{exercise}.diff") if w.name == name for f in w.fails
        }
        for exercise, name in entries.partly_right.items()
    }
    everything = dict.fromkeys(lab.exercises, ALL)
    but_the_first = dict.fromkeys(list(lab.exercises)[1:], ALL)
    return dict.fromkeys(STUDENTS, {}) | {
        "partly_right": wrong,
        "empty": everything,
        "endless_loop": {entries.endless.exercise: set(entries.endless.fails)},
        "not_a_notebook": REJECTED,
        "hostile_reader": but_the_first,
        "hostile_forger": but_the_first,
        "forged_driver": but_the_first,
        "all_nan": but_the_first,
    }


def make_class(course_root: Path, lab: str, out_dir: Path) -> list[Path]:
    """Writes everyone's file; returns the paths. The lab must be released in course_root."""
    spec = load_lab(lab, course_root)
    solved = Path(course_root) / "build" / "source" / lab / f"{spec.notebook}.ipynb"
    if not solved.is_file():
        solved = build_source(course_root, lab)
    kit = make_kit(spec, solved)
    paths = []
    for student, hand_in in STUDENTS.items():
        made = hand_in(kit)
        content = made if isinstance(made, bytes) else nbformat.writes(made).encode()
        if student == "zipped":
            content = packed(f"lab/{spec.notebook}.ipynb", content)
        name = FILES.get(student, "{notebook}.ipynb").format(notebook=spec.notebook)
        path = Path(out_dir) / student / lab / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        paths.append(path)
    return paths


def make_kit(lab: LabSpec, solved: Path) -> Kit:
    """solved: what build_source writes. Raises LabError for a triad that is damaged."""
    cells = {grade_id(cell): cell.source for cell in nbformat.read(solved, as_version=4).cells}
    entries, triad = load_entries(lab), lab.suite_dir / "triad"
    texts = {
        exercise: (triad, exercise, without_marks(cells[exercise])) for exercise in lab.exercises
    }
    return Kit(
        release=nbformat.read(lab.release_notebook, as_version=4),
        solved={name: source for name, source in cells.items() if name},
        functions={name: exercise.functions for name, exercise in lab.exercises.items()},
        rights={name: next(iter(rights(*text).values())).whole for name, text in texts.items()},
        wrongs={name: wrongs(*texts[name])[v].whole for name, v in entries.partly_right.items()},
        entries=entries,
    )


def packed(name: str, notebook: bytes) -> bytes:
    """A zip with the notebook and what people pack along with it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._quantization.ipynb", b"\0")
        archive.writestr("lab/notes.txt", "see the notebook")
        archive.writestr(name, notebook)
    return buffer.getvalue()


def surprises(lab: LabSpec, results: list[Result]) -> list[str]:
    """Where grading gave something else than expected, a sentence each."""
    found, everyone = [], expected_failures(lab)
    for result in results:
        expected = everyone[result.student]
        status = "rejected" if expected is REJECTED else "graded"
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
    missing = everyone.keys() - {result.student for result in results}
    return found + [f"{student} has no result" for student in sorted(missing)]


def failed_tests(part: ExerciseResult) -> set[str]:
    return {test.test for test in part.tests if test.outcome != "passed"}
