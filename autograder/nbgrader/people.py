"""Whom the gradebook of a course knows."""

from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.engine import make_url

from autograder.intake.roster import Roster, read_roster
from autograder.intake.twice import same_ids
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import database_told, open_gradebook

ROSTER = "roster.csv"  # in the course folder
MARKUP = '<>&"`'


def known_people(course_root: Path) -> dict[str, str]:
    """id -> name, "" where the gradebook knows none. Makes no gradebook. Raises StorageError."""
    coursedir = course_directory(course_root)
    url = make_url(coursedir.db_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return {}
    with open_gradebook(coursedir) as gradebook, database_told(coursedir):
        people = [(one.id, one.first_name, one.last_name) for one in gradebook.students]
    return {student: " ".join(filter(None, (first, last))) for student, first, last in people}


def class_of(course_root: Path) -> Roster:
    """roster.csv of the course folder; nobody, if there is none.

    Raises UsageError, also if it gives people of the gradebook other ids.
    """
    path = Path(course_root) / ROSTER
    if not path.is_file():
        return Roster()
    people = read_roster(path)
    where = f"{path}: {len(people)} students, whose ids are the column '{people.column}'"
    same_ids(where, people, known_people(course_root))
    return people


def enrol(coursedir: CourseDirectory, people: Roster) -> None:
    """Puts names into the gradebook before anything is graded: formgrader shows them.

    Raises StorageError.
    """
    if people:
        with open_gradebook(coursedir) as gradebook, database_told(coursedir):
            for student, person in people.items():
                record_name(gradebook, student, person.name)


def record_name(gradebook: Gradebook, student: str, name: str) -> None:
    """The person's name, "First Last" or "Last, First"; one that stands there already stays.

    It may come from the name of a folder, so nothing in it becomes markup on formgrader's pages.
    """
    name = "".join(c for c in name if c.isprintable() and c not in MARKUP).strip()
    if not name:
        return
    try:
        known = gradebook.find_student(student)
    except MissingEntry:
        known = None
    if known is not None and (known.first_name or known.last_name):
        return
    last, comma, first = (part.strip() for part in name.partition(","))
    if not comma:
        first, _, last = name.rpartition(" ")
    gradebook.update_or_create_student(student, first_name=first, last_name=last)
