"""Opens nbgrader's gradebook; what it cannot do is said in one sentence.

nbgrader commits after every row and logs a traceback for every error of the database; here all rows
of one submission are one commit, and who asked for them tells what went wrong.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbgrader
from alembic.script import ScriptDirectory
from nbgrader.api import Base, Gradebook, InvalidEntry
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import MetaData, create_engine, inspect, select, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from autograder.errors import FULL, NOT_ALLOWED, StorageError

MIGRATIONS = Path(nbgrader.__file__).parent / "alembic"
UPGRADE = "copy it to a safe place, then run `nbgrader db upgrade` in the course folder"
OTHER_VERSION = f"it was made by another version of nbgrader: {UPGRADE}"
DAMAGED = "it is no database, or a damaged one: put back a copy of it, or move it away"
WORDS = {  # what databases say -> what it means, and the remedy
    "database is locked": "another program is writing to it: close that, then run this again",
    "readonly database": NOT_ALLOWED,
    "unable to open database file": NOT_ALLOWED,
    "disk is full": FULL,
    "disk i/o error": "the disk does not read or write it: look whether it is full or damaged",
    "no such column": OTHER_VERSION,
    "no such table": OTHER_VERSION,
    "has no column": OTHER_VERSION,
    "not null constraint": OTHER_VERSION,
    "not a database": DAMAGED,
    "malformed": DAMAGED,
}


@contextmanager
def open_gradebook(coursedir: CourseDirectory) -> Iterator[Gradebook]:
    """The gradebook of a course, made if there is none. Raises StorageError."""
    with database_told(coursedir):
        check_version(coursedir.db_url)
        gradebook = Gradebook(coursedir.db_url, coursedir.course_id)
    with gradebook:
        yield gradebook


def check_version(url: str) -> None:
    """Raises InvalidEntry where the tables are those of another version of nbgrader.

    StorageError: the driver of that kind of database is not installed.
    """
    try:
        engine = create_engine(url)
    except ModuleNotFoundError as error:
        extra = "pip install 'efficient-llm-course[postgres]'"
        raise StorageError(f"the gradebook needs {error.name} ({extra} for PostgreSQL)") from None
    try:
        remove_unfinished(engine)
        if not inspect(engine).get_table_names():
            return make_tables(engine)
        with engine.connect() as connection:
            [made_by] = connection.execute(text("SELECT version_num FROM alembic_version")).one()
    finally:
        engine.dispose()
    if made_by != newest_version():
        raise InvalidEntry(f"no such column ({made_by})")


def newest_version() -> str:
    """The version of the tables that this nbgrader makes."""
    return ScriptDirectory(str(MIGRATIONS)).get_current_head()


def make_tables(engine: Engine) -> None:
    """Those of a new gradebook, as nbgrader makes them, which starts a program for the version."""
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        version = {"version": newest_version()}
        connection.execute(text("INSERT INTO alembic_version VALUES (:version)"), version)


def remove_unfinished(engine: Engine) -> None:
    """Removes nbgrader's tables where none holds a row: who made them was killed at that.

    nbgrader writes the version last, and takes tables without one for those of an old version.
    """
    tables = MetaData()
    tables.reflect(engine)
    if not tables.tables or not tables.tables.keys() <= {*Base.metadata.tables, "alembic_version"}:
        return
    with engine.begin() as connection:
        rows = (
            connection.execute(select(table).limit(1)).first() for table in tables.sorted_tables
        )
        if all(row is None for row in rows):
            tables.drop_all(connection)


@contextmanager
def database_told(coursedir: CourseDirectory) -> Iterator[None]:
    """An error of the database becomes one sentence, and nbgrader logs no traceback of it."""
    log = logging.getLogger("tornado.application")
    was, log.disabled = log.disabled, True
    try:
        yield
    except (SQLAlchemyError, InvalidEntry) as error:
        raise StorageError(database_trouble(error, coursedir)) from error
    finally:
        log.disabled = was


def database_trouble(error: Exception, coursedir: CourseDirectory) -> str:
    """The file (or the address without its password), what is wrong, and what helps."""
    url = make_url(coursedir.db_url)
    where = url.database if url.get_backend_name() == "sqlite" else url.render_as_string()
    said = str(getattr(error, "orig", None) or error)
    meant = next((words for part, words in WORDS.items() if part in said.lower()), None)
    return f"the gradebook {where}: {meant or ' '.join(said.split())}"


@contextmanager
def one_commit(gradebook: Gradebook) -> Iterator[None]:
    """All or nothing: nbgrader's calls commit on their own, which here they do not."""
    session = gradebook.db
    session.commit, commit = (lambda: None), session.commit
    try:
        yield
        session.flush()
        del session.commit
        commit()
    except BaseException:
        vars(session).pop("commit", None)
        session.rollback()
        raise
