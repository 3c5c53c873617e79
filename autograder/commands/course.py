"""`autograder course ...`: the folder, dates, and what goes back to a course system."""

from pathlib import Path
from typing import Annotated

import typer

from autograder.commands.options import (
    CourseOption,
    LabsArgument,
    MapOption,
    RosterOption,
    SuitesOption,
    course_folder,
)

app = typer.Typer(
    help="A course folder of your own; due dates; grades and feedback for a course system.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TimeArgument = Annotated[
    str, typer.Argument(help="For example '2026-10-01 23:59 Europe/Berlin', or none.")
]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="New folder; its name becomes the course's id.")],
    more: LabsArgument = None,
    labs: Annotated[
        list[str] | None,
        typer.Option("--labs", metavar="LAB...", help="Numbers or names (default: all labs)."),
    ] = None,
) -> None:
    """Make a course folder of your own: its labs, suites and settings."""
    from autograder.own.new import new_course

    for line in new_course(folder.absolute(), [*(labs or []), *(more or [])]):
        typer.echo(line)


@app.command()
def check(course: CourseOption = None) -> None:
    """Say what the installed version would change in the labs of this folder."""
    from autograder.own.compare import compared

    for line in compared(course_folder(course)):
        typer.echo(line)


@app.command()
def update(
    labs: Annotated[list[str], typer.Argument(metavar="LAB...")], course: CourseOption = None
) -> None:
    """Put the installed version of these labs in place of the folder's, or bring new ones."""
    from autograder.own.new import update_course

    for line in update_course(course_folder(course), labs):
        typer.echo(line)


@app.command()
def show(course: CourseOption = None, suites: SuitesOption = None) -> None:
    """Due dates, penalties and extensions of all labs."""
    from autograder.commands.dates import shown

    for line in shown(course_folder(course)):
        typer.echo(line)


@app.command()
def due(
    lab: str, time: TimeArgument, course: CourseOption = None, suites: SuitesOption = None
) -> None:
    """Set the due date of a lab; "none" removes it, with the extensions."""
    from autograder.commands.dates import set_due

    typer.echo(set_due(course_folder(course), lab, time))


@app.command()
def extend(
    lab: str,
    student: str,
    time: TimeArgument,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Give one student another due date; "none" takes it back."""
    from autograder.commands.dates import extend as extend_date

    typer.echo(extend_date(course_folder(course), lab, student, time))


@app.command()
def late(
    lab: str,
    points: Annotated[str, typer.Argument(help="Taken off for each day that has begun; 0: none.")],
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Set what late work loses; at most all its points."""
    from autograder.commands.dates import set_penalty

    typer.echo(set_penalty(course_folder(course), lab, points))


@app.command()
def grades(
    lab: str,
    export: Annotated[Path, typer.Argument(help="CSV that Canvas, Moodle or Gradescope exported.")],
    out: Annotated[Path, typer.Argument(help="New CSV file, to be uploaded there.")],
    column: Annotated[
        str | None, typer.Option(help="Heading of the assignment in Canvas's gradebook.")
    ] = None,
    roster: RosterOption = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Fill the grades of a lab into the columns of a course system."""
    from autograder.commands.send_back import write_grades

    for line in write_grades(course_folder(course), lab, export, out, column, roster):
        typer.echo(line)


@app.command()
def feedback(
    lab: str,
    submissions: Annotated[Path, typer.Argument(help="The download that was graded.")],
    out: Annotated[Path, typer.Argument(help="New zip, to be uploaded there.")],
    roster: RosterOption = None,
    map: MapOption = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Pack everyone's feedback as the course system takes it back."""
    from autograder.commands.send_back import write_feedback

    for line in write_feedback(course_folder(course), lab, submissions, out, roster, map):
        typer.echo(line)
