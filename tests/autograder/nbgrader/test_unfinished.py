"""A gradebook whose maker was killed is made anew; tables that are something else stay."""

import sqlite3
import sys

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from autograder.errors import StorageError
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import open_gradebook


class Killed(BaseException):
    """Instead of a signal: nothing that comes after it happens."""


def opened(coursedir) -> list:
    with open_gradebook(coursedir) as gradebook:
        gradebook.update_or_create_student("ada")
        return [student.id for student in gradebook.students]


def killed_at(number: int, coursedir) -> int:
    """Opens a gradebook until the database gets its statement of that number; how many it got."""
    seen = []

    def count(connection, cursor, statement, *_):
        if not statement.startswith(("PRAGMA", "SELECT")):
            seen.append(statement)
            if len(seen) == number:
                raise Killed

    event.listen(Engine, "before_cursor_execute", count)
    try:
        opened(coursedir)
    except Killed:
        pass
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    return len(seen)


def moments(whole: int) -> list[int]:
    """Some of so many statements: the first and last ones, and one between."""
    return [1, 2, whole // 2, *range(whole - 6, whole + 1)]


def test_a_maker_killed_at_a_statement(tmp_path):
    stuck, whole = [], killed_at(0, course_directory(tmp_path))
    for number in moments(whole):
        folder = tmp_path / str(number)
        folder.mkdir()
        coursedir = course_directory(folder)
        assert killed_at(number, coursedir) == number
        try:
            assert opened(coursedir) == ["ada"]
        except StorageError as error:
            stuck.append((number, str(error)))
    assert not stuck and whole > 15


@pytest.mark.parametrize(
    "tables",
    [
        ["CREATE TABLE course (id TEXT)", "INSERT INTO course VALUES ('old')"],
        ["CREATE TABLE course (id TEXT)", "CREATE TABLE somebodys (own TEXT)"],
    ],
    ids=["with rows", "of others"],
)
def test_tables_that_are_no_unfinished_gradebook_stay(tmp_path, tables):
    with sqlite3.connect(tmp_path / "gradebook.db") as connection:
        for statement in tables:
            connection.execute(statement)
    with pytest.raises(StorageError, match="another version of nbgrader"):
        opened(course_directory(tmp_path))
    with sqlite3.connect(tmp_path / "gradebook.db") as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert len(names) == sum("CREATE" in statement for statement in tables)


def test_a_driver_that_is_not_installed_is_told_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql+psycopg://teacher:secret@host/gradebook"
    with pytest.raises(StorageError, match=r"needs psycopg \(pip install 'eff.*\[postgres\]'"):
        opened(course_directory(tmp_path, url))
