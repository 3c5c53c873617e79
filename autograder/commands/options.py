"""Options that several commands have. Imports nothing heavy: --help is quick to come."""

import os
from pathlib import Path
from typing import Annotated

import typer

from autograder.errors import UsageError
from autograder.labs.suites import VARIABLE
from autograder.own.which import configured_root, course_upwards, two_courses

CourseOption = Annotated[
    Path | None, typer.Option("--course", help="Folder of the course (default: found upwards).")
]
RosterOption = Annotated[
    Path | None,
    typer.Option("--roster", help="CSV of the class (default: roster.csv of the course, if any)."),
]
MapOption = Annotated[
    Path | None, typer.Option("--map", help="CSV of folder,id for names that nobody can assign.")
]


def use_suites(context: typer.Context, given: Path | None) -> Path | None:
    """For the time of the command and its processes, hidden suites are those in this folder."""
    if given is None:
        return None
    if not any(given.glob("*/manifest.toml")):
        raise UsageError(f"--suites: no <lab>/manifest.toml in {given}")
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(given.resolve())
    restored = {} if before is None else {VARIABLE: before}
    context.call_on_close(lambda: (os.environ.pop(VARIABLE, None), os.environ.update(restored)))
    return given


SuitesOption = Annotated[
    Path | None,
    typer.Option("--suites", help="Folder of private suites.", callback=use_suites),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Worker processes (default: one per core).")
]
UnsafeOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run the code without a sandbox, with your rights, and mark the results.",
    ),
]
LabsArgument = Annotated[list[str] | None, typer.Argument(metavar="[LAB]...")]


def course_folder(given: Path | None) -> Path:
    """--course, else the first course folder upwards, else nbgrader's, else this folder.

    Raises UsageError where nbgrader would act on another one than that.
    """
    if given is not None:
        if not given.is_dir():
            raise UsageError(f"--course: there is no folder {given}")
        return given.resolve()
    here, elsewhere = course_upwards(Path.cwd()), configured_root()
    if here and elsewhere and here != elsewhere:
        raise UsageError(f"{two_courses(here, elsewhere)}: say with --course which one you mean")
    return here or elsewhere or Path.cwd()


def roster_of(course: Path, given: Path | None) -> Path | None:
    """--roster, else roster.csv of the course folder, if there is one."""
    own = course / "roster.csv"
    return given or (own if own.is_file() else None)
