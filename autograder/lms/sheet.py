"""A CSV file of a course system, to be filled in: its lines as they are, and whose each one is."""

import csv
import io
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from autograder.errors import UsageError, files_told
from autograder.intake.names import canonical, exact_key, inert, safe_id
from autograder.intake.roster import (
    COLUMNS,
    IDENTIFYING,
    Person,
    csv_rows,
    csv_text,
    no_student,
    person,
    plain_heading,
)

NO_FORMULA = re.compile(r"-|[+-]?\d+([.,]\d+)?", re.ASCII)  # although it begins like one
NAMES = ("name", "first", "last")  # columns of text that people chose


class Sheet(NamedTuple):
    path: Path
    delimiter: str
    heading: list[str]
    lines: list[tuple[int, list[str]]]  # number in the file, cells; as many as the heading has
    students: dict[int, str]  # number of a line -> id in the gradebook

    def column(self, heading: str) -> int | None:
        return self.heading.index(heading) if heading in self.heading else None


def read_sheet(
    path: Path,
    known: Iterable[str],
    graded: Container[str] = (),
    people: Mapping[str, Person] | None = None,
) -> Sheet:
    """known: ids in the gradebook; graded: those with a submission; people: the class.

    Raises UsageError: no CSV, no heading, or a line that may be two students'.
    """
    text = csv_text(path)
    delimiter = max(",;\t", key=text.lstrip().partition("\n")[0].count)
    about = dict(csv_rows(path))  # raises for what is no CSV
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    if len(lines) < 2:
        raise UsageError(f"{path}: no student stands in it")
    (_, heading), *rest = lines
    width = len(heading)
    filled = [(line, (row + [""] * width)[:width]) for line, row in rest]
    students = whose(path, about, list(known), graded, people or {})
    return Sheet(path, delimiter, heading, filled, students)


def whose(
    path: Path,
    about: dict[int, dict[str, str]],
    known: list[str],
    graded: Container[str],
    people: Mapping[str, Person],
) -> dict[int, str]:
    """The student of each line whose id, login, address or name is one of the gradebook's ids.

    Or whom the roster knows by one of these, by Canvas's or Moodle's number, or by a name that it
    has once.  Who stands there by two ids is the one with a submission.
    """
    by_key = {canonical(student): student for student in known}
    of_class = [one for one in people.values() if one.id in set(known)]
    students, taken = {}, {}
    for line, row in about.items():
        if no_student(row):
            continue
        fitting = {by_key[key] for key in keys(row) if key in by_key}
        fitting = fitting or on_roster(person("", row), of_class)
        if not fitting and row.get("canvas"):  # ids made of Canvas's names of files end in it
            ending = re.compile(rf".+_{re.escape(row['canvas'])}(-[0-9a-f]{{10}})?")
            fitting = {student for student in known if ending.fullmatch(student)}
        if len(fitting) > 1:
            fitting = {student for student in fitting if student in graded} or fitting
        if len(fitting) > 1:
            raise UsageError(
                f"{path}, line {line} fits several: {', '.join(sorted(fitting))}. If that is one "
                "person, take the wrong one out of the gradebook, in the course folder: nbgrader "
                f"db student remove {max(fitting)} (with --force, where it has grades)"
            )
        for student in fitting:
            if student in taken:
                first = taken[student]
                raise UsageError(f"{path}, lines {first} and {line} are both {student}'s")
            students[line], taken[student] = student, line
    return students


def on_roster(own: Person, people: list[Person]) -> set[str]:
    """Whom the roster knows by a number, a handle or, as the only one, the name of this line."""
    same_name = [one for one in people if own.name and exact_key(one.name) == exact_key(own.name)]
    rules = (
        [one for one in people if one.numbers.items() & own.numbers.items()],
        [one for one in people if one.handles & own.handles],
        same_name if len(same_name) == 1 and not differ(own, same_name[0]) else [],
    )
    return next(({one.id for one in found} for found in rules if found), set())


def differ(own: Person, other: Person) -> bool:
    """Whether Canvas's numbers say that they are two people (Moodle's are new each time)."""
    return len({one.numbers["Canvas"] for one in (own, other) if "Canvas" in one.numbers}) > 1


def keys(row: dict[str, str]) -> set[str]:
    """By what a student of this line may be called in the gradebook."""
    name = row.get("name") or " ".join(filter(None, (row.get("first"), row.get("last"))))
    found = {canonical(row[column]) for column in IDENTIFYING if row.get(column)}
    return found | ({canonical(safe_id(name))} if name else set())


def write_sheet(path: Path, sheet: Sheet, rows: list[list[str]], heading: list[str]) -> None:
    """Writes heading and rows; what people wrote, from names to online texts, computes nothing.

    What the system reads again stays as it is: numbers, and the "-" of Moodle's empty cells.
    Raises UsageError if the file is there already: it may hold grades.
    """
    if path.exists():
        raise UsageError(f"{path} is there already: name a new file")
    chosen = [COLUMNS.get(plain_heading(title)) in NAMES for title in heading]
    with files_told(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=sheet.delimiter)
        writer.writerow(heading)
        for row in rows:
            cells = zip(row, chosen, strict=True)
            writer.writerow(
                [cell if harmless(cell, is_name) else inert(cell) for cell, is_name in cells]
            )


def harmless(cell: str, is_name: bool) -> bool:
    return not is_name and bool(NO_FORMULA.fullmatch(cell))
