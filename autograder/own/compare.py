"""`autograder course check`: what the installed version would change in a course folder's labs.

Points, tests and texts, lab by lab: the folder's copies against what the package brings.  Tests are
read, not run: one has changed if its own text has, or that of the helpers of its file.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import efflib
from autograder.errors import UsageError
from autograder.labs.manifest import (
    HIDDEN_TESTS,
    PUBLIC_TESTS,
    LabError,
    Manifest,
    read_exercises,
    read_toml,
)
from autograder.labs.source import EXERCISES, expand, read_percent
from autograder.labs.suites import GO_THERE
from autograder.labs.which import course_upwards
from autograder.nbgrader.questions import model_answers_of, question_of
from autograder.own.new import own_changes
from autograder.own.record import FILE, folders, read_record

MAX_NAMES = 6  # of tests and cells in one line


class Lab(NamedTuple):
    """What students and graders meet of a lab, by name."""

    points: dict[str, float]  # exercises and written questions
    tests: dict[str, str]  # "hidden test_x" -> its text
    helpers: dict[str, str]  # "public", "hidden" -> all other code of the file
    questions: dict[str, str]
    answers: dict[str, str]  # model answers
    cells: dict[str, str]


def compared(root: Path) -> Iterator[str]:
    """A sentence for each change, lab by lab. Raises UsageError, LabError."""
    record = read_record(root)
    if not record and course_upwards(root) != root:
        raise UsageError(f"{root} is no course folder: {GO_THERE}")
    if not record:
        raise UsageError(
            f"{root} has no {FILE}, so its labs are those that are installed: nothing to compare"
        )
    for lab, made in sorted(record.items()):
        (new_source, source), (new_suite, suite) = folders(root, lab).values()
        if not new_source.is_dir() or not new_suite.is_dir():
            yield f"{lab} (of {made.version}): the installed version has no such lab; yours stays"
            continue
        lines = list(changes(read_lab(source, suite), read_lab(new_source, new_suite)))
        yours = [f"  {folder}: changed by you" for folder in own_changes(root, lab)]
        what = "an update would change" if lines else "nothing to update"
        yield f"{lab} (of {made.version}, installed is {efflib.__version__}): {what}"
        yield from [f"  {line}" for line in lines] + yours
    yield (
        "efflib and the grader are the installed ones in any case: after an upgrade `autograder "
        "grade` grades hand-ins anew and prints each point that this changes"
    )


def read_lab(source: Path, suite: Path) -> Lab:
    """Of a lab's sources; the suite may have its own points and public tests."""
    manifest = read_toml(suite / "manifest.toml", Manifest)
    own = {n: suite / n if (suite / n).is_file() else source / n for n in (PUBLIC_TESTS, EXERCISES)}
    _, exercises = read_exercises(own[EXERCISES])
    nb = read_percent(source / f"{manifest.notebook}.py")
    expand(nb, exercises, manifest.written)
    tests, helpers = {}, {}
    for kind, path in (("public", own[PUBLIC_TESTS]), ("hidden", suite / HIDDEN_TESTS)):
        found, helpers[kind] = tests_of(path)
        tests |= {f"{kind} {name}": text for name, text in found.items()}
    return Lab(
        points={name: one.points for name, one in exercises.items()} | manifest.written,
        tests=tests,
        helpers=helpers,
        questions={name: question_of(nb, name) for name in manifest.written},
        answers=model_answers_of(nb),
        cells={cell.id: cell.source for cell in nb.cells},
    )


def tests_of(path: Path) -> tuple[dict[str, str], str]:
    """{test: its text with its decorators}, and the rest of the file's code. Raises LabError."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}") from None
    tests = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    rest = [ast.unparse(node) for node in tree.body if node not in tests]
    return {test.name: ast.unparse(test) for test in tests}, "\n".join(rest)


def changes(old: Lab, new: Lab) -> Iterator[str]:
    """Sentences on what differs between two versions of a lab."""
    for name in [*old.points, *(name for name in new.points if name not in old.points)]:
        before, after = old.points.get(name), new.points.get(name)
        if before != after:
            yield f"points of {name}: {spelled(before)} -> {spelled(after)}"
    yield from sorted_out("test", old.tests, new.tests)
    for kind, text in old.helpers.items():
        if new.helpers[kind] != text:
            yield f"code that {kind} tests share has changed"
    for name, text in new.questions.items():
        if name in old.questions and old.questions[name] != text:
            yield (
                f"question {name} has another text: answers to the old one ask for a person, so do "
                "not update while hand-ins are out"
            )
    yield from sorted_out("model answer", old.answers, new.answers)
    cells = [{k: v for k, v in one.cells.items() if k not in one.answers} for one in (old, new)]
    yield from sorted_out("cell", *cells)


def sorted_out(what: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for verb, names in {
        "new": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
        "changed": [name for name in old if name in new and old[name] != new[name]],
    }.items():
        if names:
            listed = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
            yield f"{len(names)} {what}{'s' * (len(names) != 1)} {verb}: {listed}"


def spelled(points: float | None) -> str:
    return "none" if points is None else f"{points:g}"
