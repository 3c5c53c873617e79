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
    unzip,
    walk,
)
from autograder.intake.choose import Unclear, choose, last_sent
from autograder.intake.layout import Left, of_this_lab
from autograder.intake.lms import (
    METADATA,
    Parcel,
    Stamp,
    is_nobodys,
    parcels_of,
    sender_of,
)
from autograder.intake.names import nobodys_id
from autograder.intake.nested import class_in_one, lies_inside, several_in, unwrapped
from autograder.intake.notebook import Notebook, NotebookError, notebook_digest
from autograder.intake.owners import HOW, Owner, mapped_id, not_one, other_people, owners_of
from autograder.intake.roster import Roster
from autograder.labs.manifest import LabSpec

MAX_CLASS_ZIP = 1_000_000_000
MAX_CLASS_ENTRIES = 200_000  # one student's libraries must not keep the class from being read
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

    What is under `path` and is nobody's hand-in has a row of its own that says so.
    """
    everything = found_at(Path(path), roster, mapping or {}, lab)
    entries, left = of_this_lab(everything, lab)
    parcels = parcels_of(entries)
    if not parcels:
        raise IntakeError(f"{path} holds no submission of {lab.name}")
    rows, students = [nobodys(entry, lab) for entry in entries if is_nobodys(entry)], {}
    top, doubt = class_in_one(entries, lab, roster, mapping or {})
    if doubt:
        parcels, rows = [], [*rows, unclear(top, lab, doubt)]
    for parcel in parcels:
        for owner in owners_of(parcel, roster, mapping or {}):
            if isinstance(owner, Owner):
                students.setdefault(owner.id.casefold(), []).append((owner, parcel))
            else:
                told = owner + lies_inside(parcel, roster, mapping or {})
                rows.append(unclear("/".join(parcel.labels), lab, told))
    for sent in students.values():
        rows += student_rows(sent, lab, left, roster is None and len(parcels) > 1, mapping or {})
    absent = {one.id: one.name for one in (roster or {}).values()}
    if roster is None:
        absent = with_other_labs(everything, entries, mapping or {})
    present = {row.student.casefold() for row in rows}
    rows += [
        Rejected(student, lab.name, MISSING, name, "missing")
        for student, name in absent.items()
        if student.casefold() not in present
    ]
    return sorted(rows, key=lambda row: row.student)


def with_other_labs(
    everything: list[Entry], kept: list[Entry], mapping: dict[str, str]
) -> dict[str, str]:
    """id -> name of who has folders of other labs only: told, since that may be a slip."""
    tops = {entry.parts[0] for entry in kept} - {METADATA}  # which says whose a folder is
    parcels = parcels_of(entry for entry in everything if entry.parts[0] not in tops)
    owners = [owner for parcel in parcels for owner in owners_of(parcel, None, mapping)]
    return {owner.id: owner.name for owner in owners if isinstance(owner, Owner)}


def read_submission(path: Path, student: str, lab: LabSpec) -> Row:
    """One student's notebook, zip or folder, under an id that is known already."""
    folder = path.is_dir() and not path.is_symlink()
    files = list(walk(path)) if folder else [file_entry(path, (path.name,))]
    sender = sender_of(path.name, alone=not folder)
    return student_row([(Owner(student), Parcel((sender,), tuple(files)))], lab)


def student_row(parts: list[tuple[Owner, Parcel]], lab: LabSpec, left: Left | None = None) -> Row:
    """The row of one student, who may have sent several parcels. left: see layout.py."""
    owner, parcels = parts[0][0], [parcel for _, parcel in parts]
    ids = {one.id for one, _ in parts}
    if len(ids) > 1:
        told = f"{' and '.join(sorted(ids))} differ only in capitals: {HOW}"
        return unclear("/".join(sorted(ids)), lab, told)
    if doubt := not_one(one for one, _ in parts) or other_people(parts):
        return Rejected(owner.id, lab.name, f"{owner.id} {doubt}", owner.name, "unclear")
    try:
        best = choose(parcels, lab)
    except Unclear as error:
        return Rejected(owner.id, lab.name, f"{owner.id}: {error}", owner.name, "unclear")
    except (EntryError, NotebookError) as error:
        sent = last_sent(parcels)
        return Rejected(owner.id, lab.name, str(error), owner.name, sent=sent)
    digest = notebook_digest(best.cells)
    when = best.when[1] if best.when and best.when[0] == "time" else None
    tops = {label for parcel in parcels for label in parcel.labels}
    notes = (*best.notes, *(note for top in sorted(tops) for note in (left or {}).get(top, ())))
    return Submission(
        owner.id, lab.name, best.file, best.cells, digest, notes, owner.name, when, best.when
    )


def student_rows(
    parts: list[tuple[Owner, Parcel]], lab: LabSpec, left: Left, guessed: bool, mapping: dict
) -> list[Row]:
    """The row, and one for each parcel that may be several students'.

    guessed: nothing but the names of folders says who is a student. What then is no row of one
    student's is none at all.
    """
    row, more = student_row(parts, lab, left), []
    for _, parcel in parts:
        doubt = guessed and not mapped_id(parcel, mapping) and several_in(parcel, lab)
        more += [unclear("/".join(parcel.labels), lab, doubt)] if doubt else []
    return more if more and isinstance(row, Rejected) else [row, *more]


def unclear(name: str, lab: LabSpec, reason: str) -> Rejected:
    """A row that is no student's; its id is none that a student could have."""
    return Rejected(nobodys_id(name), lab.name, reason, status="unclear")


def nobodys(entry: Entry, lab: LabSpec) -> Rejected:
    told = f"{entry.name} was left out: it is neither a notebook nor a zip"
    return unclear("/".join(entry.parts), lab, told)


# ---- where it is --------------------------------------------------------------------------------


def found_at(
    path: Path, roster: Roster | None, mapping: dict[str, str], lab: LabSpec
) -> list[Entry]:
    """Everything under a path, without folders around all of it. Raises IntakeError."""
    if path.is_dir():
        entries, called = list(walk(path.resolve())), path.resolve().name
    elif path.suffix.lower() == ".zip" and path.is_file():
        entries, called = class_zip(path), path.stem
    elif path.suffix.lower() == ".ipynb" and path.is_file():
        return [file_entry(path.resolve(), (path.name,))]
    elif not path.exists():
        raise IntakeError(f"{path} does not exist")
    else:
        raise IntakeError(f"{path} is neither a folder nor a .zip nor a .ipynb")
    return unwrapped(entries, called, lab, roster, mapping)


def class_zip(path: Path) -> list[Entry]:
    """Entries of a zip with everyone's files."""
    if path.stat().st_size > MAX_CLASS_ZIP:
        raise IntakeError(f"{path} is larger than {MAX_CLASS_ZIP // 10**6} MB")
    try:
        return list(unzip(path.resolve(), path.name, MAX_CLASS_ENTRIES))
    except EntryError as error:
        raise IntakeError(str(error)) from None
