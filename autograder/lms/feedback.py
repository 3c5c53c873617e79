"""Feedback of a class as one zip, in the form in which course systems take it back.

Moodle      "Anna Müller_123456_assignfeedback_file_quantization.html": name, participant, plugin
            and file, without underscores in the name ("Upload multiple feedback files in a zip":
            mod/assign/feedback/file/importziplib.php of github.com/moodle/moodle)
Canvas      the names of the download, by whose two numbers Canvas finds person and upload ("Upload
            Submissions": generate_comments_from_files in app/models/assignment.rb of
            github.com/instructure/canvas-lms).  Canvas shows such a file under the name that the
            student gave it, so it has to be of that kind: a notebook, the graded one with points
            and comments on top, or a zip with the page in it.
otherwise   <name of the folder or file>/quantization.html
Gradescope takes no files back: its students see what its own autograder writes.
"""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory

from autograder.errors import UsageError, files_told
from autograder.intake.archive import Entry
from autograder.intake.lms import CANVAS, Parcel, Sender, upload_number
from autograder.intake.names import STUDENT_ID, safe_id
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.executed import safe_markdown
from autograder.nbgrader.feedback import part_title
from autograder.nbgrader.folders import executed_path, page_path, previous
from autograder.nbgrader.pages import write_page

EPOCH = (1980, 1, 1, 0, 0, 0)  # the same feedback is the same zip
KINDS = (".ipynb", ".zip")


class Feedback(NamedTuple):
    """What goes into the zip, and who has none."""

    files: dict[str, bytes]
    students: list[str]  # whose feedback is in it
    without: list[str]  # what was handed in and has no feedback, and why


class Desk(NamedTuple):
    """Where the feedback of a lab is made."""

    coursedir: CourseDirectory
    gradebook: Gradebook
    lab: LabSpec

    def page(self, student: str) -> bytes:
        """The feedback page as the gradebook is now. Raises MissingEntry, OSError."""
        write_page(self.coursedir, self.gradebook, self.lab, student)
        return page_path(self.coursedir, self.lab, student).read_bytes()

    def notebook(self, student: str) -> bytes:
        """The graded notebook, with points and comments on top."""
        path = executed_path(self.coursedir, self.lab, student)
        nb = nbformat.v4.reads(path.read_text(encoding="utf-8"))
        submission = self.gradebook.find_submission_notebook(
            self.lab.notebook, self.lab.name, student
        )
        late = submission.late_submission_penalty or 0.0
        lines = [f"# {submission.score - late:g} of {submission.max_score:g} points", ""]
        told = nb.metadata.get("autograder", {}).get("late")
        lines += [told, ""] * bool(told)
        lines += [f"{late:g} points are taken off for handing in late.", ""] * bool(late)
        for grade in submission.grades:
            awaits = grade.auto_score is None and grade.manual_score is None
            points = "to be graded" if awaits else f"{grade.score:g} of {grade.max_score:g}"
            lines.append(f"- {part_title(nb, grade.name)}: {points}")
        comments = filter(None, (comment.comment for comment in submission.comments))
        said = map(safe_markdown, comments)  # tags are text here as on the page
        cells = ["\n".join(lines), *said]
        nb.cells[:0] = [nbformat.v4.new_markdown_cell(text, id=f"feedback-{number}")
                        for number, text in enumerate(cells)]  # fmt: skip
        return nbformat.writes(nb).encode()


def collect(desk: Desk, owned: list[tuple[Parcel, list[tuple[Sender, str]]]]) -> Feedback:
    """Feedback for every parcel of a download; owned: with sender and id of each of its owners.

    Raises UsageError for a download of Gradescope's.
    """
    files: dict[str, bytes] = {}
    students, without = [], []
    for parcel, owners in owned:
        for sender, student in owners:
            if sender.system == "Gradescope":
                raise UsageError(
                    "Gradescope takes no feedback files: its students see what its own autograder "
                    "writes"
                )
            try:
                files |= dict(named(desk, parcel, sender, student))
                students.append(student)
            except (MissingEntry, OSError):
                without.append(f"{student}: nothing of {desk.lab.name} is recorded")
            except UsageError as error:
                without.append(f"{student}: {error}")
    return Feedback(files, students, without)


def named(desk: Desk, parcel: Parcel, sender: Sender, student: str) -> Iterator[tuple[str, bytes]]:
    """The files for one student under the names that the system wants."""
    html = f"{desk.lab.notebook}.html"
    if sender.system == "Canvas":
        name = newest(parcel).parts[0]
        check_graded(desk, parcel, student)
        if name.lower().endswith(".ipynb"):
            yield name, desk.notebook(student)
        else:
            yield name, packed({html: desk.page(student)})
    elif sender.system == "Moodle":
        person = (sender.name or "Participant").replace("_", " ").replace("/", " ")
        yield f"{person}_{sender.number}_assignfeedback_file_{html}", desk.page(student)
    else:
        folder = sender.label if STUDENT_ID.fullmatch(sender.label) else safe_id(sender.label)
        yield f"{folder}/{html}", desk.page(student)


def check_graded(desk: Desk, parcel: Parcel, student: str) -> None:
    """Raises UsageError if Canvas's upload that was graded is not in this download.

    Canvas shows the answer at the upload that its name says, so it must not be another lab's.
    """
    kind, graded = previous(desk.coursedir, desk.lab, student).get("sent") or ("", 0)
    here = {upload_number(entry.parts[0]) for entry in parcel.files}
    if kind == "upload" and (kind, graded) not in here:
        raise UsageError(
            f"upload {graded} was graded for {desk.lab.name}, and it is not in this download "
            f"({newest(parcel).parts[0]} is): is it another lab's, or newer than what is graded?"
        )


def newest(parcel: Parcel) -> Entry:
    """The upload to answer. Raises UsageError if there is none of a kind that can be made."""
    uploads = [e for e in parcel.files if e.parts[0].lower().endswith(KINDS)]
    if not uploads:
        raise UsageError(
            "no notebook and no zip was handed in, so Canvas has no file to answer: write a "
            "comment there, or send the page in feedback/"
        )
    return max(uploads, key=lambda e: int(CANVAS.fullmatch(e.parts[0])["upload"]))


def packed(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, content)
    return data.getvalue()


def write_zip(path: Path, files: dict[str, bytes]) -> None:
    """Raises UsageError if the file is there already."""
    if path.exists():
        raise UsageError(f"{path} is there already: name a new file")
    with files_told(path):
        path.write_bytes(packed(files))
