"""The notebook that formgrader and feedback show: autograded/<student>/<lab>/<topic>.ipynb.

It is the release, with two things of the student's filled in (code of the solution cells, text of
the written answers) and what the grader says as output of the check cells.  Below the other cells
stands what they showed when they were handed in: text and pictures only (see shown.py).  Metadata
and files of the student's do not enter, so nothing of theirs reaches an instructor's browser but
text, which every viewer escapes, PNG pictures, and markdown, which `safe_markdown` takes the HTML
and the links out of.
"""

import hashlib
import re

import msgspec
import nbformat
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory

from autograder.grading.results import (
    NOT_ATTEMPTED,
    ExerciseResult,
    Late,
    Result,
    TestResult,
    encode,
    untimed,
)
from autograder.grading.structure import match_cells, role
from autograder.intake.discover import Rejected, Submission
from autograder.intake.notebook import Notebook, notebook_cells, parse_notebook
from autograder.intake.timestamps import duration
from autograder.labs.hashing import grader_hash
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.folders import (
    executed_path,
    handed_in,
    previous,
    to_hand_on,
    write_folder,
)
from autograder.nbgrader.newest import dumped
from autograder.nbgrader.shown import outputs_by_cell, own_cell, own_cells_near

MAX_OUTPUT_CHARS = 20_000
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w-]+\.(?:svg|png))\)")  # without a folder
MISSING = "# This cell is missing in the submission."
NOT_GIVEN = "*No response.*"
BREAK = "\u200b"  # a space without width: the text looks as it was, and is no syntax any more
ACTIVE = [
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f]"), ""),
    (re.compile(r"<(?=[A-Za-z/!?])"), "<" + BREAK),  # tags, comments, <javascript:...>
    (re.compile(r"\](?=[(:\[])"), "]" + BREAK),  # links, images, link definitions
    (
        re.compile(r"\\(?=(?:href|style|class|cssId|require|mmlToken|csname)(?![A-Za-z]))"),
        "\\" + BREAK,
    ),  # MathJax
    (re.compile(r"(?<=[`~])([ \t]*)(?=mermaid)"), r"\1" + BREAK),  # nbconvert leaves these raw
]


def safe_markdown(text: str) -> str:
    """Markdown of a student's that no renderer turns into tags, links or images."""
    for pattern, replacement in ACTIVE:
        text = pattern.sub(replacement, text)
    return text


def safe_text(text: str) -> str:
    """The same for a sentence that goes into a list or a comment: one line."""
    return safe_markdown(" ".join(text.split()))


def not_graded(reason: str) -> str:
    """The comment at every answer of a rejected submission."""
    return safe_text(f"Not graded: {reason}")


# ---- the notebook -------------------------------------------------------------------------------


def release_notebook(lab: LabSpec) -> NotebookNode:
    return nbformat.read(lab.release_notebook, as_version=4)


def released_answers(lab: LabSpec) -> dict[str, str]:
    """grade_id -> what the release holds where students write code or an answer."""
    cells = parse_notebook(lab.release_notebook.read_bytes())
    return {c.grade_id: c.source for c in cells if role(c) in ("solution", "written")}


def executed_notebook(
    lab: LabSpec, result: Result, submitted: Notebook = (), late: Late | None = None
) -> NotebookNode:
    """The release with the student's answers and outputs, and the grader's messages."""
    nb, answers = release_notebook(lab), result.answers
    exercises = {f"{part.exercise}-check": part for part in result.exercises}
    release = notebook_cells(nb)
    placed = match_cells(submitted, release)
    outputs, own = outputs_by_cell(placed), own_cells_near(placed, release)
    cells = [nbformat.v4.new_markdown_cell(summary_text(result), id="grading")]
    for cell, plain in zip(nb.cells, release, strict=True):
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = outputs.get(plain.position, []), None
        kind = role(plain)
        if kind == "solution":
            cell.source = answers.get(plain.grade_id, MISSING)
        elif kind == "written":
            cell.source = safe_markdown(answers.get(plain.grade_id, NOT_GIVEN)) or NOT_GIVEN
        elif kind == "check":
            add_messages(cell, exercises.get(plain.grade_id), result)
        cells += [cell, *(own_cell(c, plain.grade_id) for c in own.get(plain.grade_id, ()))]
    nb.cells = cells
    nb.metadata["autograder"] = nbformat.from_dict(about(lab, result, late))
    return nb


def about(lab: LabSpec, result: Result, late: Late | None = None) -> dict:
    """What the feedback page says at its top, and what a regrade compares with."""
    told = msgspec.to_builtins(result)
    kept = ("student", "status", "reason", "score", "max_score", "sandbox", "look")
    kept += ("seed", "submission_hash", "suite_hash", "efflib_hash")
    made = {"lab": lab.name, "title": lab.title, "remarks": remarks(result)}
    made["titles"] = {name: exercise.title for name, exercise in lab.exercises.items()}
    made |= {"notebook": lab.notebook, "late": late_sentence(late)}
    return made | {key: told[key] for key in kept}


def late_sentence(late: Late | None) -> str:
    """What the student reads about the date; "" if there is nothing to say."""
    if late is None or not late.dated:
        return ""
    own = "your extension" if late.extended else "the due date"
    if not late.seconds:
        return f"Handed in on time: {own} was {late.due}."
    return f"Handed in {duration(late.seconds)} after {own}, {late.due}."


def summary_text(result: Result) -> str:
    """The first cell: points and notes, or why there are none."""
    if result.status == "rejected":
        return not_graded(result.reason)
    lines = [f"**Tests: {result.score:g} of {result.max_score:g} points.**", ""]
    if result.sandbox == "none":
        lines += ["Graded without a sandbox.", ""]
    return "\n".join(lines + [f"- {safe_text(note)}" for note in remarks(result)])


def remarks(result: Result) -> list[str]:
    """What a student should know about the notebook itself."""
    failed = [f"{cell.label} raised {cell.error}" for cell in result.cells if cell.error]
    return [*result.notes, *result.look.values(), *(text[:1].upper() + text[1:] for text in failed)]


def add_messages(cell: NotebookNode, exercise: ExerciseResult | None, result: Result) -> None:
    """The grader's words as output of a check cell, and the same as data for the feedback page."""
    if exercise is None:
        text = f"Not graded: {result.reason}"
    else:
        text = exercise_text(exercise)
        cell.metadata["autograder"] = nbformat.from_dict(msgspec.to_builtins(exercise))
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text[:MAX_OUTPUT_CHARS])]


def exercise_text(exercise: ExerciseResult) -> str:
    """Points of an exercise and of its tests; for what did not pass, the rule and usual cause."""
    head = f"{exercise.title}: {exercise.points:g} of {exercise.max_points:g} points"
    return "\n".join([head, *(line for test in exercise.tests for line in test_lines(test))])


def test_lines(test: TestResult) -> list[str]:
    sign = "+" if test.outcome == "passed" else "-"
    points = f"{test.points:g} of {test.max_points:g}"
    lines = [f"{sign} {test.title} ({test.kind} test, {test.outcome}, {points})"]
    if test.outcome == "passed":
        return lines
    if test.message == NOT_ATTEMPTED:
        return [f"- {test.title} ({test.kind} test, not attempted, {points})"]
    said = [test.message, f"must hold: {test.invariant}", f"usual cause: {test.cause}"]
    return lines + [f"    {text}" for text in said if text]


# ---- on disk ------------------------------------------------------------------------------------


def write_executed(
    coursedir: CourseDirectory,
    lab: LabSpec,
    submission: Submission | Rejected,
    result: Result,
    late: Late | None = None,
) -> int:
    """Writes the executed notebook, unless the one on disk is made from the same.

    Returns how many different hand-ins of the student were graded, this one with them.
    """
    files = pictures(lab) | to_hand_on(handed_in(coursedir, lab, result.student))
    made = made_from(lab, submission, result, files, late)
    before = previous(coursedir, lab, result.student)
    hand_ins = hand_ins_of(before, result.submission_hash)
    kept = {"made_from": made, "hand_ins": hand_ins, "sent": dumped(submission.sent)}
    if all(before.get(key) == value for key, value in kept.items()):
        return len(hand_ins)
    nb = executed_notebook(lab, result, cells_of(submission), late)
    nb.metadata["autograder"] |= kept
    path = executed_path(coursedir, lab, result.student)
    write_folder(path.parent, files | {path.name: nbformat.writes(nb).encode()})
    return len(hand_ins)


def pictures(lab: LabSpec) -> dict[str, bytes]:
    """Files of the release that its text shows: formgrader finds them beside the notebook."""
    texts = [cell.source for cell in release_notebook(lab).cells if cell.cell_type == "markdown"]
    shown = {name: lab.release_dir / name for text in texts for name in PICTURE.findall(text)}
    return {name: path.read_bytes() for name, path in shown.items() if path.is_file()}


def hand_ins_of(before: dict, digest: str) -> list[str]:
    """Hashes of a student's hand-ins that were graded, in order; one that is no notebook has none.

    before: what the last executed notebook says of itself.
    """
    known = before.get("hand_ins") or list(filter(None, [before.get("submission_hash")]))
    return known if not digest or digest in known[-1:] else [*known, digest]


def cells_of(submission: Submission | Rejected) -> Notebook:
    return () if isinstance(submission, Rejected) else submission.cells


def made_from(
    lab: LabSpec,
    submission: Submission | Rejected,
    result: Result,
    files: dict[str, bytes],
    late: Late | None,
) -> str:
    """Hash of everything that the executed notebook shows; when it was graded is not in it."""
    digest = hashlib.sha256(f"{lab.suite_hash} {grader_hash()}".encode())
    digest.update(encode(untimed(result)))
    shown = [late_sentence(late), *(cell.outputs for cell in cells_of(submission))]
    for part in (msgspec.json.encode(shown), repr(sorted(files.items())).encode()):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
