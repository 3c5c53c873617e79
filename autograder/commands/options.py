"""Options that several commands have. Imports nothing heavy: --help is quick to come."""

from pathlib import Path
from typing import Annotated

import typer

from autograder.errors import UsageError

CourseOption = Annotated[
    Path | None, typer.Option("--course", help="Folder of the course (default: found upwards).")
]
RosterOption = Annotated[
    Path | None, typer.Option("--roster", help="CSV of the class: id, and name, email, login, ...")
]
MapOption = Annotated[
    Path | None, typer.Option("--map", help="CSV of folder,id for names that nobody can assign.")
]


def course_folder(given: Path | None) -> Path:
    """--course, else the first folder upwards with labs or solutions in it, else this one."""
    if given is not None:
        if not given.is_dir():
            raise UsageError(f"--course: there is no folder {given}")
        return given.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "nbgrader_config.py").is_file() or (folder / "solutions").is_dir():
            return folder
    return here
