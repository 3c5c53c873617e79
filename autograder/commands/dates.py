"""`autograder course show`, `due`, `extend` and `late`."""

from pathlib import Path

from msgspec.structs import replace

from autograder.commands.options import roster_of
from autograder.errors import UsageError
from autograder.intake.names import ID_RULE, STUDENT_ID
from autograder.intake.roster import read_roster
from autograder.intake.terms import Terms, parse_when, read_terms, shown_time, write_terms, zone_in
from autograder.labs.manifest import LabError, lab_names

NONE = "none"


def change(root: Path, lab: str, **values: object) -> Terms:
    """Writes other terms of a lab. Raises LabError, UsageError, StorageError."""
    terms = read_terms(root)
    terms[lab] = replace(terms_of(root, lab), **values)
    write_terms(root, terms)
    return terms[lab]


def terms_of(root: Path, lab: str) -> Terms:
    if lab not in lab_names(root):
        known = ", ".join(lab_names(root)) or "none"
        raise LabError(f"there is no lab {lab!r} (found: {known})")
    return read_terms(root).get(lab, Terms())


def set_due(root: Path, lab: str, time: str) -> str:
    before = terms_of(root, lab)
    if time == NONE:
        change(root, lab, due=None, extensions={}, zone="")
        forget_due(root, lab, before)
        return f"{lab}: no due date (one that is set in formgrader holds)"
    due = parse_when(time)
    early = sorted(student for student, until in before.extensions.items() if until <= due)
    if early:
        names = ", ".join(early)
        raise UsageError(f"{lab}: the extensions of {names} would end before: change them first")
    zone = zone_in(time)
    change(root, lab, due=due, zone=zone)
    return f"{lab}: due {shown_time(due, zone)}"


def forget_due(root: Path, lab: str, terms: Terms) -> None:
    """The gradebook must not go on with a date that it has from course.toml."""
    if terms.due is None:
        return
    from autograder.nbgrader.course import course_directory  # takes a second
    from autograder.nbgrader.database import database_told, open_gradebook
    from autograder.nbgrader.lateness import clear_due

    coursedir = course_directory(root)
    with open_gradebook(coursedir) as gradebook, database_told(coursedir):
        clear_due(gradebook, lab, terms.due)


def extend(root: Path, lab: str, student: str, time: str) -> str:
    before = terms_of(root, lab)
    if not STUDENT_ID.fullmatch(student):
        raise UsageError(f"{student!r} is not a student id ({ID_RULE})")
    if time == NONE:
        if student not in before.extensions:
            raise UsageError(f"{lab}: {student} has no extension")
        kept = {name: until for name, until in before.extensions.items() if name != student}
        change(root, lab, extensions=kept)
        return f"{lab}: no extension for {student}"
    on_the_roster(root, student)
    until = parse_when(time)
    if before.due is None:
        raise UsageError(f"{lab} has no due date: set one first (autograder course due {lab} TIME)")
    if until <= before.due:
        raise UsageError(
            f"{lab} is due {shown_time(before.due, before.zone)}: an extension has to be later"
        )
    change(root, lab, extensions=before.extensions | {student: until})
    return f"{lab}: {student} has until {shown_time(until, before.zone)}"


def on_the_roster(root: Path, student: str) -> None:
    """Raises UsageError if there is a roster in the course folder without this id."""
    path = roster_of(root, None)
    people = read_roster(path) if path else {}
    if people and student not in people:
        raise UsageError(f"{student} is not on the roster ({path}): an extension is for its ids")


def set_penalty(root: Path, lab: str, told: str) -> str:
    try:
        points = float(told)
    except ValueError:
        raise UsageError(
            f"{told!r} is no number: say how many points are taken off a day, for example 10"
        ) from None
    if not 0 <= points < float("inf"):
        raise UsageError(f"{points:g} points a day cannot be taken off: 0 or more")
    change(root, lab, points_per_day=points)
    return f"{lab}: {told_penalty(points)}"


def told_penalty(points: float) -> str:
    if not points:
        return "late work loses what nbgrader's LateSubmissionPlugin says, by default nothing"
    return f"late work loses {points:g} points for every day that has begun, at most all its points"


def shown(root: Path) -> list[str]:
    lines, terms = [], read_terms(root)
    for lab, own in sorted(terms.items()):
        date = f"due {shown_time(own.due, own.zone)}" if own.due else "no due date in course.toml"
        lines.append(f"{lab}: {date}; {told_penalty(own.points_per_day)}")
        for student, until in sorted(own.extensions.items()):
            lines.append(f"  {student} has until {shown_time(until, own.zone)}")
    if others := sorted(set(lab_names(root)) - set(terms)):
        lines.append(f"nothing is set for {', '.join(others)}")
    return lines
