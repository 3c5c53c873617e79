"""The class as a CSV file, and the CSV file that says whose a file is.

A roster needs one column that identifies students and may have more by which to recognize them:

    id,name,email,login,canvas id

Understood as they are: Canvas's gradebook ("Student", "ID", "SIS User ID", "SIS Login ID") and
group list, Moodle's grading worksheet ("Identifier", "Full name", "Email address", ...) and list of
participants, Gradescope's roster ("Name", "Email", "SID").
"""

import csv
import io
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from autograder.errors import UsageError
from autograder.intake.archive import EntryError, read_file, shown
from autograder.intake.names import ID_RULE, STUDENT_ID, canonical

MAX_CSV_BYTES = 10_000_000
COLUMNS = {  # heading, in small letters and without punctuation -> what it holds
    "id": "id", "student id": "id",
    "sis user id": "official", "user id": "official", "sid": "official",
    "id number": "official", "student number": "official",
    "login": "login", "login id": "login", "sis login id": "login", "username": "login",
    "email": "email", "e mail": "email", "email address": "email",
    "name": "name", "full name": "name", "student": "name", "student name": "name",
    "first name": "first", "last name": "last", "surname": "last",
    "firstname": "first", "lastname": "last",
    "canvas id": "canvas", "canvas user id": "canvas",
    "moodle id": "moodle", "identifier": "moodle",
}  # fmt: skip
CANVAS_EXPORT = {"sis user id", "sis login id"}  # beside them, "ID" is Canvas's own number
IDENTIFYING = ("id", "official", "login", "email")  # the first that is filled in for all is the id


@dataclass(frozen=True)
class Person:
    """One line of a roster."""

    id: str
    name: str = ""
    email: str = ""
    handles: frozenset[str] = frozenset()  # id, login, e-mail address and the like, as `canonical`
    numbers: dict[str, str] = field(default_factory=dict)  # "Canvas", "Moodle" -> number there


class Roster(dict[str, Person]):
    """id -> person; `column` is the heading under which the ids stood, `why` not an earlier one."""

    column = why = ""


def read_roster(path: Path) -> Roster:
    """The class. Raises UsageError, which names the file, the line and what to do."""
    rows = [(line, row) for line, row in csv_rows(path) if not no_student(row)]
    key = next((name for name in IDENTIFYING if rows and all(row.get(name) for _, row in rows)), "")
    if any(row.get("id") for _, row in rows):
        key = "id"
    if not key:
        raise UsageError(f"{path}: {no_ids(path, bool(rows))}")
    headings = headings_of(path)
    roster = Roster()
    roster.column, roster.why = headings[key], passed_over(key, headings, rows)
    seen = set()  # ids name folders: on some file systems, capitals do not tell two apart
    for line, row in rows:
        student = checked_id(row.get(key, ""), f"{path}, line {line}")
        if student.casefold() in seen:
            raise UsageError(f"{path}, line {line}: the id {student} stands there a second time")
        seen.add(student.casefold())
        roster[student] = person(student, row)
    return roster


def no_ids(path: Path, students: bool) -> str:
    """Why a file is no roster."""
    lines, names = csv_lines(path, COLUMNS)
    if students:
        return "no column that identifies every student: add one with the heading id"
    if len(lines) < 2 or any(names):
        return "no student stands in it"
    there = ", ".join(shown(title.strip()) for title in lines[0][1])
    return (
        f"none of its headings ({there}) is one of a roster: id is needed, and name, email, login "
        "and canvas id help; exports of Canvas, Moodle and Gradescope have English ones"
    )


def passed_over(key: str, headings: dict[str, str], rows: list) -> str:
    """Why the ids are not an earlier column: who has nothing in it."""
    for name in IDENTIFYING[: IDENTIFYING.index(key)]:
        empty = [line for line, row in rows if not row.get(name)]
        if name in headings and len(empty) < len(rows):
            return f"'{headings[name]}' is empty in line {', '.join(map(str, empty[:5]))}" + (
                ", ..." if len(empty) > 5 else ""
            )
    return ""


def read_map(path: Path, roster: Roster | None) -> dict[str, str]:
    """folder or file name -> id, from a CSV with the columns folder and id. Raises UsageError."""
    mapping = {}
    for line, row in csv_rows(path, {"folder": "folder", "file": "folder", "id": "id"}):
        where = f"{path}, line {line}"
        student = checked_id(row.get("id", ""), where)
        if roster is not None and student not in roster:
            raise UsageError(f"{where}: {student} is not on the roster")
        folder = map_key(row.get("folder", ""))
        if not folder:
            raise UsageError(f"{where}: no folder; it needs the columns folder,id")
        if mapping.setdefault(folder, student) != student:
            raise UsageError(f"{where}: {row['folder']} is mapped to two students")
    if not mapping:
        raise UsageError(f"{path}: no line says whose a folder is; it needs the columns folder,id")
    return mapping


def map_key(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip().rstrip("/"))


def csv_rows(path: Path, columns: dict[str, str] = COLUMNS) -> list[tuple[int, dict[str, str]]]:
    """(line, column -> value) of every line that holds something; known columns only."""
    lines, names = csv_lines(path, columns)
    rows = []
    for line, row in lines[1:]:
        pairs = zip(names, map(str.strip, row), strict=False)  # lines may be short or long
        rows.append((line, {name: value for name, value in pairs if name and value}))
    return [(line, row) for line, row in rows if row]


def headings_of(path: Path) -> dict[str, str]:
    """Column -> its heading in the file."""
    lines, names = csv_lines(path, COLUMNS)
    return {name: title.strip() for name, title in zip(names, lines[0][1], strict=True) if name}


def csv_lines(path: Path, columns: dict[str, str]) -> tuple[list, list[str | None]]:
    """(number, cells) of all lines that are not empty, and what the columns hold."""
    text = csv_text(path)
    heading = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=heading.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        lines = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: no CSV ({error})") from None
    titles = [plain_heading(title) for title in lines[0][1]] if lines else []
    if columns is COLUMNS and CANVAS_EXPORT & set(titles):
        columns = columns | {"id": "canvas"}
    return lines, [columns.get(title) for title in titles]


def csv_text(path: Path) -> str:
    try:
        data = read_file(path, MAX_CSV_BYTES)
    except EntryError as error:
        raise UsageError(str(error)) from None
    if data.startswith(b"PK\x03\x04"):
        raise UsageError(
            f"{path} is a zip or a spreadsheet, and a CSV file is wanted here: the course system's "
            "export of grades or list of people, saved as 'CSV UTF-8'"
        )
    try:
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8: save it as 'CSV UTF-8'") from None


def plain_heading(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.replace("_", " ").casefold()))


def no_student(row: dict[str, str]) -> bool:
    """Lines of Canvas's export that are no students: the maximum points, the test student."""
    name = row.get("name", "").casefold()
    own = ("id", "official") if "canvas" in row else IDENTIFYING  # Canvas gives it a login
    test = name in ("student, test", "test student") and not any(map(row.get, own))
    return test or name.startswith("points possible")


def checked_id(student: str, where: str) -> str:
    if not STUDENT_ID.fullmatch(student):
        told = f"{student!r} is not a student id" if student else "no student id"
        raise UsageError(f"{where}: {told} ({ID_RULE})")
    return student


def person(student: str, row: dict[str, str]) -> Person:
    whole = " ".join(filter(None, (row.get("first"), row.get("last"))))
    handles = {student, *(row[name] for name in IDENTIFYING if name in row)} - {""}
    moodle = re.search(r"\d+", row.get("moodle", ""))  # "Participant 123456"
    numbers = {"Canvas": row.get("canvas", ""), "Moodle": moodle[0] if moodle else ""}
    return Person(
        id=student,
        name=row.get("name") or whole,
        email=row.get("email", ""),
        handles=frozenset(map(canonical, handles)),
        numbers={system: number for system, number in numbers.items() if number},
    )
