"""Finds what each student handed in. One row per student, whatever the files are.

Understood: a folder with one folder (or one .ipynb, or one .zip) per student, nbgrader's
submitted/<student>/<lab>/, downloads of Canvas, Moodle, Blackboard and Gradescope (lms.py), one zip
of any of these, one notebook named after its student.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autograder.intake.archive import (
    Entry,
    EntryError,
    file_entry,
    is_notebook,
    is_zip,
    unzip,
    walk,
)
from autograder.intake.choose import Unclear, choose, last_sent
from autograder.intake.lms import Parcel, Stamp, is_alone, looks_exported, parcels_of, sender_of
from autograder.intake.names import name_hash
from autograder.intake.notebook import Notebook, NotebookError, notebook_digest
from autograder.intake.owners import HOW, Owner, owners_of
from autograder.intake.roster import Roster
from autograder.labs.manifest import LabSpec

MAX_CLASS_ZIP = 1_000_000_000
MISSING = "nothing handed in"


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
    name: str = ""  # of the person, if a roster or a course system told it
    when: datetime | None = None  # it was handed in, in UTC, if anything says so
    sent: Stamp = None  # what tells it from an earlier hand-in: that time, or a number


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be graded, and why, in a sentence.

    status: "rejected": the student handed in something that is no notebook; "missing": the student
    handed in nothing; "unclear": nobody can tell whose it is, or which of several counts, so it is
    no student's row, and the sentence is for the teacher.
    """

    student: str
    lab: str
    reason: str
    name: str = ""
    status: str = "rejected"
    sent: Stamp = None


Row = Submission | Rejected


def discover(
    path: Path,
    lab: LabSpec,
    roster: Roster | None = None,
    mapping: dict[str, str] | None = None,
) -> list[Row]:
    """One row per student, sorted by id: who is under `path`, and everyone on the roster.

    mapping: names of folders and files -> id.  Raises IntakeError if there is nothing under `path`.
    """
    parcels = parcels_of(found_at(Path(path), lab))
    if not parcels:
        raise IntakeError(f"{path} holds no submission of {lab.name}")
    rows, students = [], {}
    for parcel in parcels:
        for owner in owners_of(parcel, roster, mapping or {}):
            if isinstance(owner, Owner):
                students.setdefault(owner.id.casefold(), []).append((owner, parcel))
            else:
                rows.append(unclear("/".join(parcel.labels), lab, owner))
    rows += [student_row(sent, lab) for sent in students.values()]
    present = {row.student for row in rows}
    for one in (roster or {}).values():
        if one.id not in present:
            rows.append(Rejected(one.id, lab.name, MISSING, one.name, "missing"))
    return sorted(rows, key=lambda row: row.student)


def read_submission(path: Path, student: str, lab: LabSpec) -> Row:
    """One student's notebook, zip or folder, under an id that is known already."""
    folder = path.is_dir() and not path.is_symlink()
    files = list(walk(path)) if folder else [file_entry(path, (path.name,))]
    sender = sender_of(path.name, alone=not folder)
    return student_row([(Owner(student), Parcel((sender,), tuple(files)))], lab)


def student_row(parts: list[tuple[Owner, Parcel]], lab: LabSpec) -> Row:
    """The row of one student, who may have sent several parcels."""
    owner, parcels = parts[0][0], [parcel for _, parcel in parts]
    ids = {one.id for one, _ in parts}
    if len(ids) > 1:
        told = f"{' and '.join(sorted(ids))} differ only in capitals: {HOW}"
        return unclear("/".join(sorted(ids)), lab, told)
    try:
        best = choose(parcels, lab)
    except Unclear as error:
        return Rejected(owner.id, lab.name, f"{owner.id}: {error}", owner.name, "unclear")
    except (EntryError, NotebookError) as error:
        sent = last_sent(parcels)
        return Rejected(owner.id, lab.name, str(error), owner.name, sent=sent)
    digest = notebook_digest(best.cells)
    when = best.when[1] if best.when and best.when[0] == "time" else None
    return Submission(
        owner.id, lab.name, best.file, best.cells, digest, best.notes, owner.name, when, best.when
    )


def unclear(name: str, lab: LabSpec, reason: str) -> Rejected:
    """A row that is no student's; its id is none that a student could have."""
    return Rejected(f"unclear-{name_hash(name)}", lab.name, reason, status="unclear")


# ---- where it is --------------------------------------------------------------------------------


def found_at(path: Path, lab: LabSpec) -> list[Entry]:
    """Everything under a path, without a folder around all of it. Raises IntakeError."""
    if path.is_dir():
        entries = list(walk(path.resolve()))
        inner = below_the_top(entries)
        entries = inner if looks_exported(inner) and not looks_exported(entries) else entries
    elif path.suffix.lower() == ".zip" and path.is_file():
        entries = class_zip(path, lab.name)
    elif path.suffix.lower() == ".ipynb" and path.is_file():
        entries = [file_entry(path.resolve(), (path.name,))]
    else:
        raise IntakeError(f"{path} is neither a folder nor a .zip nor a .ipynb")
    return of_this_lab(entries, lab.name)


def class_zip(path: Path, lab: str) -> list[Entry]:
    """Entries of a zip with everyone's files; one folder around all of them is taken off."""
    if path.stat().st_size > MAX_CLASS_ZIP:
        raise IntakeError(f"{path} is larger than {MAX_CLASS_ZIP // 10**6} MB")
    try:
        entries = list(unzip(path.resolve(), path.name))
    except EntryError as error:
        raise IntakeError(str(error)) from None
    inner = below_the_top(entries)
    if looks_exported(entries) or any(entry.parts[0] == lab for entry in inner):
        return entries
    handed_in = [entry for entry in inner if is_zip(entry) or is_notebook(entry)]
    several = len(handed_in) > 1 or any(len(entry.parts) > 1 for entry in handed_in)
    return inner if several or looks_exported(inner) else entries


def below_the_top(entries: list[Entry]) -> list[Entry]:
    """The entries in the one folder on the top level; none if there are several."""
    if len({entry.parts[0] for entry in entries}) != 1:
        return []
    return [Entry(e.parts[1:], e.kind, e.read) for e in entries if len(e.parts) > 1]


def of_this_lab(entries: list[Entry], lab: str) -> list[Entry]:
    """In nbgrader's <student>/<lab>/..., who has no folder of this lab handed in nothing."""
    if not any(in_lab_folder(entry, lab) for entry in entries):
        return entries
    return [e for e in entries if in_lab_folder(e, lab) or is_alone(e)]


def in_lab_folder(entry: Entry, lab: str) -> bool:
    return entry.parts[1:2] == (lab,) and (len(entry.parts) > 2 or entry.kind != "file")
