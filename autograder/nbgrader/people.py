"""Whom the gradebook of a course knows."""

from pathlib import Path

from sqlalchemy.engine import make_url

from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import database_told, open_gradebook


def known_people(course_root: Path) -> dict[str, str]:
    """id -> name, "" where the gradebook knows none. Makes no gradebook. Raises StorageError."""
    coursedir = course_directory(course_root)
    url = make_url(coursedir.db_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return {}
    with open_gradebook(coursedir) as gradebook, database_told(coursedir):
        people = [(one.id, one.first_name, one.last_name) for one in gradebook.students]
    return {student: " ".join(filter(None, (first, last))) for student, first, last in people}
