"""`autograder course grades` and `autograder course feedback`."""

from collections.abc import Collection, Mapping
from pathlib import Path

from autograder.commands.options import roster_of
from autograder.errors import UsageError
from autograder.intake.archive import shown
from autograder.intake.discover import IntakeError, found_at
from autograder.intake.layout import of_this_lab
from autograder.intake.lms import Parcel, parcels_of
from autograder.intake.owners import Owner, not_one, owners_of
from autograder.intake.roster import (
    IDENTIFYING,
    Person,
    Roster,
    csv_rows,
    no_student,
    person,
    read_map,
    read_roster,
)
from autograder.intake.twice import REMOVE, named_alike, namesakes, renamed
from autograder.intake.twice import told as told_pairs
from autograder.labs.manifest import load_lab
from autograder.lms.feedback import Desk, collect, write_zip
from autograder.lms.grades import fill_in, other_lab
from autograder.lms.scores import Scores, read_scores
from autograder.lms.sheet import Sheet, read_sheet, write_sheet
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import database_told, open_gradebook

MAX_NAMES = 10  # of students in one sentence


def write_grades(
    root: Path,
    lab_name: str,
    export: Path,
    out: Path,
    column: str | None,
    roster: Path | None = None,
) -> list[str]:
    """Writes the file; sentences on what is in it, and on who is not. Raises UsageError, ..."""
    given = roster_of(root, roster)
    people = read_roster(given) if given else {}
    lab, coursedir = load_lab(lab_name, root), course_directory(root)
    with open_gradebook(coursedir) as gradebook, database_told(coursedir):
        scores = read_scores(gradebook, lab)
    sheet = read_sheet(export, scores.names, scores.by_student, people)
    if not set(sheet.students.values()) & scores.by_student.keys():
        raise UsageError(
            f"{export}: none of its {counted(sheet.lines, 'line')} is a student who is graded here "
            f"({some(sorted(scores.by_student))}): give the --roster with which they were graded"
        )
    doubles = by_two_ids(root, export, sheet, scores, people)
    filled = fill_in(sheet, scores, (lab.name, lab.title), column)
    write_sheet(out, sheet, filled.rows, filled.heading)
    listed = set(sheet.students.values())
    graded = sorted(listed & scores.by_student.keys())
    left = sorted(scores.by_student.keys() - listed)
    awaited = [student for student in graded if scores.by_student[student].awaits]
    into = f"into '{shown(filled.column)}', " if filled.column else ""
    told = [f"{out}: points of {counted(graded, 'student')}, {into}"]
    told[0] += f"in the columns of {filled.system}"
    if other_lab(filled.column, lab.name):
        told.append(
            f"look before you upload it: '{shown(filled.column)}' has another number than "
            f"{lab.name}"
        )
    if filled.stays:
        n, names = len(filled.stays), some(filled.stays)
        told.append(f"nothing of theirs is graded here, and the score there stays ({n}): {names}")
    if awaited:
        told.append(f"a person has still to grade answers of {len(awaited)}: {some(awaited)}")
    if left:
        told.append(f"graded, and not in {export} ({len(left)}): {some(left)}")
    return told + doubles


def by_two_ids(
    root: Path, export: Path, sheet: Sheet, scores: Scores, people: Mapping[str, Person]
) -> list[str]:
    """A sentence on who is graded by one id and may stand in the sheet by another.

    Raises UsageError if numbers or addresses say so: whose points are right then, nobody can tell.
    """
    listed = Roster()
    for line, row in csv_rows(export):
        student = sheet.students.get(line) or next(filter(None, map(row.get, IDENTIFYING)), "")
        if student and not no_student(row):
            listed[student] = person(student, row)
    left = {one: scores.names.get(one, "") for one in scores.by_student.keys() - listed.keys()}
    own = roster_of(root, None)
    rosters = {**(read_roster(own) if own else {}), **people}
    others = renamed(listed, left, rosters)
    if others:
        raise UsageError(
            f"{export} and the gradebook have other ids for {len(others)} of the same people "
            f"({told_pairs(others)}), who are graded under the latter. Give the --roster with "
            "which they were graded; who stands in the gradebook twice, take the wrong id out "
            f"({REMOVE.format('ID')}) and grade again"
        )
    named = named_alike(listed, left, rosters)
    if not named:
        return []
    return [
        f"graded here, and there by another id, if names are right ({told_pairs(named)}): give the "
        "--roster with which they were graded, or take the wrong id out of the gradebook"
    ]


def write_feedback(
    root: Path, lab_name: str, path: Path, out: Path, roster: Path | None, mapping: Path | None
) -> list[str]:
    """Writes the zip; sentences on what is in it, and on who is not. Raises UsageError, ..."""
    lab, coursedir = load_lab(lab_name, root), course_directory(root)
    given = roster_of(root, roster)
    people = read_roster(given) if given else None
    mapped = read_map(mapping, people) if mapping else {}
    entries, _ = of_this_lab(found_at(path, people, mapped, lab), lab)
    owned, unclear = owned_by([(p, owners_of(p, people, mapped)) for p in parcels_of(entries)])
    with open_gradebook(coursedir) as gradebook, database_told(coursedir):
        made = collect(Desk(coursedir, gradebook, lab), owned)
    if people is None and not set(made.students) and owned:
        from autograder.nbgrader.people import known_people

        rows = {student: sender.name for _, each in owned for sender, student in each}
        others = namesakes(rows, known_people(root))
        raise UsageError(
            f"nobody in {path} is graded here under these ids"
            + (f" ({told_pairs(others)})" if others else "")
            + ": give the --roster with which they were graded (or the --map)"
        )
    if not made.files:
        why = "; ".join([*made.without, *unclear][:MAX_NAMES]) or "it is empty"
        raise IntakeError(f"there is no feedback for anything in {path}: {why}")
    write_zip(out, made.files)
    students, files = counted(set(made.students), "student"), counted(made.files, "file")
    told = [f"{out}: feedback of {students}, in {files}"]
    return told + [f"left out: {why}" for why in [*made.without, *unclear]]


def owned_by(found: list[tuple[Parcel, list[Owner | str]]]) -> tuple[list, list[str]]:
    """(parcels with [(sender, id)], why others get nothing): nobody gets another's feedback."""
    by_id: dict[str, list[Owner]] = {}
    for owner in (owner for _, owners in found for owner in owners if isinstance(owner, Owner)):
        by_id.setdefault(owner.id, []).append(owner)
    doubts = {student: why for student, owners in by_id.items() if (why := not_one(owners))}
    owned = [
        (parcel, [(sender, owner.id) for sender, owner in zip(parcel.senders, owners, strict=False)
                  if isinstance(owner, Owner) and owner.id not in doubts])
        for parcel, owners in found
    ]  # fmt: skip
    unclear = [owner for _, owners in found for owner in owners if isinstance(owner, str)]
    return owned, unclear + [f"{student} {why}" for student, why in doubts.items()]


def counted(things: Collection, what: str) -> str:
    """ "1 file", "3 files" """
    return f"{len(things)} {what}{'s' * (len(things) != 1)}"


def some(students: list[str]) -> str:
    return ", ".join(students[:MAX_NAMES]) + (", ..." if len(students) > MAX_NAMES else "")
