"""Finds what each student handed in. One row per student, whatever the files are.

Understood: a folder with one folder (or one .ipynb, or one .zip) per student, nbgrader's
submitted/<student>/<lab>/, one zip of any of these, one notebook named after its student.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from autograder.intake.archive import Entry, EntryError, file_entry, shown, unzip, walk
from autograder.intake.notebook import (
    MAX_NOTEBOOK_BYTES,
    Notebook,
    NotebookError,
    notebook_digest,
    parse_notebook,
)
from autograder.labs.manifest import LabSpec

STUDENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
MAX_CLASS_ZIP = 1_000_000_000
MAX_STUDENT_ZIP = 50_000_000
MAX_NOTEBOOKS = 10  # of one student, to choose from


class IntakeError(Exception):
    """The path given on the command line holds nothing to grade."""


@dataclass(frozen=True)
class Submission:
    """One student's notebook, reduced to what is graded."""

    student: str
    lab: str
    file: str  # its name where it was found, for messages
    cells: Notebook
    digest: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """A submission that cannot be graded, and why, in a sentence for the student."""

    student: str
    lab: str
    reason: str


def discover(path: Path, lab: LabSpec) -> list[Submission | Rejected]:
    """One row per student found under `path`, sorted by id. Raises IntakeError if there is none."""
    path = Path(path)
    if path.is_dir():
        entries = list(walk(path.resolve()))
    elif path.suffix.lower() == ".zip" and path.is_file():
        entries = class_zip(path, lab.name)
    elif path.suffix.lower() == ".ipynb" and path.is_file():
        entries = [file_entry(path.resolve(), (path.name,))]
    else:
        raise IntakeError(f"{path} is neither a folder nor a .zip nor a .ipynb")
    rows = [choose(name, files, lab) for name, files in by_student(entries, lab.name).items()]
    if not rows:
        raise IntakeError(f"{path} holds no submission of {lab.name}")
    return sorted(rows, key=lambda row: row.student)


def read_submission(path: Path, student: str, lab: LabSpec) -> Submission | Rejected:
    """One student's notebook, zip or folder, under an id that is known already."""
    folder = path.is_dir() and not path.is_symlink()
    return choose(student, list(walk(path)) if folder else [file_entry(path, (path.name,))], lab)


def class_zip(path: Path, lab: str) -> list[Entry]:
    """Entries of a zip with everyone's files; one folder around all of them is taken off."""
    if path.stat().st_size > MAX_CLASS_ZIP:
        raise IntakeError(f"{path} is larger than {MAX_CLASS_ZIP // 10**6} MB")
    try:
        entries = list(unzip(path.resolve(), path.name))
    except EntryError as error:
        raise IntakeError(str(error)) from None
    inner = [entry for entry in entries if len(entry.parts) > 1]
    one_top = len({entry.parts[0] for entry in entries}) == 1
    if not one_top or any(entry.parts[1] == lab for entry in inner):
        return entries
    handed_in = [entry for entry in inner if is_zip(entry) or is_notebook(entry)]
    several = len(handed_in) > 1 or any(len(entry.parts) > 2 for entry in handed_in)
    return [Entry(e.parts[1:], e.kind, e.read) for e in inner] if several else entries


def is_zip(entry: Entry) -> bool:
    return entry.kind == "file" and entry.parts[-1].lower().endswith(".zip")


def is_notebook(entry: Entry) -> bool:
    return entry.kind != "folder" and entry.parts[-1].lower().endswith(".ipynb")


def by_student(entries: list[Entry], lab: str) -> dict[str, list[Entry]]:
    """Entries of each student; a file on the top level counts as a folder of one file."""
    students: dict[str, list[Entry]] = {}
    for entry in entries:
        top, alone = entry.parts[0], len(entry.parts) == 1
        if alone and (is_notebook(entry) or is_zip(entry)):
            students.setdefault(top.rpartition(".")[0], []).append(entry)
        elif not alone or entry.kind != "file":  # other files on the top level are not students
            students.setdefault(top, []).append(entry)
    if not any(in_lab_folder(entry, lab) for entry in entries):
        return students
    # nbgrader's layout, <student>/<lab>/...: who has no folder of this lab did not hand it in
    found = {
        student: [e for e in files if in_lab_folder(e, lab) or loose(e)]
        for student, files in students.items()
    }
    return {student: files for student, files in found.items() if files}


def in_lab_folder(entry: Entry, lab: str) -> bool:
    return entry.parts[1:2] == (lab,) and (len(entry.parts) > 2 or entry.kind != "file")


def loose(entry: Entry) -> bool:
    """On the top level, and not a folder."""
    return len(entry.parts) == 1 and entry.kind != "folder"


def choose(student: str, files: list[Entry], lab: LabSpec) -> Submission | Rejected:
    """The notebook among a student's files: the only one, or the one with the lab's cell ids."""
    if not STUDENT_ID.fullmatch(student):
        why = "is not a student id: letters, digits and . _ @ + - only, at most 64"
        return Rejected(stand_in(student), lab.name, f"{ascii(shown(student))} {why}")
    try:
        name, cells, notes = pick(read_all(files), lab)
    except (EntryError, NotebookError) as error:
        return Rejected(student, lab.name, str(error))
    return Submission(student, lab.name, name, cells, notebook_digest(cells), notes)


def stand_in(name: str) -> str:
    """A safe id for a name that is none: distinct names get distinct ids."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"invalid-{digest[:12]}"


def read_all(files: list[Entry]) -> list[tuple[str, Notebook | Exception]]:
    """(name, cells or what is wrong) of every notebook; zips are opened if there is none beside."""
    notebooks = list(filter(is_notebook, files))
    if not notebooks:
        for entry in filter(is_zip, files):
            packed = list(unzip(entry.read(MAX_STUDENT_ZIP), entry.name))
            files = files + packed
            notebooks += filter(is_notebook, packed)
    for entry in files:
        escapes = ".." in entry.parts or entry.parts[0] == ""
        if escapes or (entry.kind == "other" and not notebooks):
            entry.read(0)  # raises its reason
    if len(notebooks) > MAX_NOTEBOOKS:
        raise EntryError(f"there are {len(notebooks)} notebooks: hand in one")
    return [(entry.name, read_one(entry)) for entry in notebooks]


def read_one(entry: Entry) -> Notebook | Exception:
    try:
        return parse_notebook(entry.read(MAX_NOTEBOOK_BYTES))
    except (EntryError, NotebookError) as error:
        return error


def pick(found: list[tuple[str, Notebook | Exception]], lab: LabSpec) -> tuple:
    """(name, cells, notes) of the notebook to grade; raises what is wrong with it."""
    if not found:
        raise EntryError("there is no notebook (.ipynb) in the submission")
    if len(found) > 1:
        known = set(lab.exercises) | set(lab.written)
        counts = [own_ids(cells, known) for _, cells in found]
        best = [item for item, count in zip(found, counts, strict=True) if count == max(counts)]
        if max(counts) == 0 or len({repr(cells) for _, cells in best}) > 1:
            names = ", ".join(name.rpartition("/")[2] for name, _ in found)
            raise EntryError(f"there are {len(found)} notebooks ({names}): hand in one")
        found = best[:1]
        notes = (f"There were several notebooks; {best[0][0]} was graded.",)
    else:
        notes = ()
    name, cells = found[0]
    if isinstance(cells, Exception):
        raise cells
    return name, cells, notes


def own_ids(cells: Notebook | Exception, known: set[str]) -> int:
    """How many of the lab's exercise ids a notebook has."""
    ids = set() if isinstance(cells, Exception) else {cell.grade_id for cell in cells}
    return len(ids & known)
