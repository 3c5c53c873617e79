"""The command `autograder`. Heavy imports stand in the commands, so that --help is quick.

Exit code 0: the command did its work, whatever the grades; 1: it found something wrong or could
not do it, or not for every file; 2: it was called wrongly, which one line explains.
"""

import gc
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import autograder
from autograder.commands import course, proofs
from autograder.commands.options import (
    CourseOption,
    JobsOption,
    LabsArgument,
    MapOption,
    RosterOption,
    SuitesOption,
    UnsafeOption,
    course_folder,
)
from autograder.errors import StorageError, UsageError

app = typer.Typer(
    help=autograder.__doc__.split("`autograder")[0],
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
INTERRUPTED = 130  # as shells say it
app.add_typer(course.app, name="course")


@app.command()
def doctor(course: CourseOption = None, suites: SuitesOption = None) -> None:
    """Say whether labs can be released and graded here, and what to do if not."""
    from autograder.doctor import examine

    healthy = True
    for name, well, detail in examine(course_folder(course)):
        typer.echo(f"{'[ok]  ' if well else '[fail]'} {name}: {detail}")
        healthy = healthy and well
    raise typer.Exit(0 if healthy else 1)


@app.command()
def release(
    labs: LabsArgument = None,
    over: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="LAB", help="Bring what this lab built (repeatable)."),
    ] = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Generate what students get (labs/) from solutions/; all labs if none is named."""
    from autograder.nbgrader.release import release as release_labs

    for path in release_labs(course_folder(course), labs or None, over or ()):
        typer.echo(path)


@app.command()
def bundle(
    labs: LabsArgument = None,
    released: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="LAB", help="Give out what this lab builds (repeatable)."),
    ] = None,
    colab: Annotated[
        str | None, typer.Option(metavar="URL", help="Also notebooks that load the wheel from it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder (default: build/bundle).")] = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Make what students get instead of the repository: a zip and a wheel, without answers."""
    from autograder.commands.bundle import bundle_labs

    root = course_folder(course)
    told = bundle_labs(root, labs or [], released or [], out, colab=colab)
    for line in told:
        typer.echo(line)


@app.command()
def grade(
    lab: str,
    submissions: Path,
    roster: RosterOption = None,
    map: MapOption = None,
    jobs: JobsOption = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to grade on.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all results to this file.")] = None,
    regrade: Annotated[
        bool, typer.Option("--regrade", help="Grade also what is stored already (same seeds).")
    ] = False,
    older: Annotated[
        bool, typer.Option("--older", help="Record also what is older than what is recorded.")
    ] = False,
    unsafe: UnsafeOption = False,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Grade a folder or zip of submissions; write gradebook, feedback and a table of results."""
    from autograder.commands.grade import grade_class

    if jobs is not None and scheduler is not None:
        raise UsageError("--jobs is for this machine, --scheduler for a cluster: give one of them")
    if json is not None and not json.resolve().parent.is_dir():
        raise UsageError(f"--json: there is no folder {json.resolve().parent}")
    results = grade_class(
        course_folder(course), lab, submissions, roster=roster, mapping=map, jobs=jobs,
        scheduler=scheduler, json=json, regrade=regrade, unsafe=unsafe, older=older,
    )  # fmt: skip
    raise typer.Exit(1 if any(result.status in ("fault", "unclear") for result in results) else 0)


@app.command()
def report(
    lab: str,
    results: Annotated[Path, typer.Argument(help="What `autograder grade --json` wrote.")],
    names: Annotated[bool, typer.Option("--names", help="Say who is who.")] = False,
    cells: Annotated[
        Path | None,
        typer.Option(help="Also write everyone's code to this new folder, for JPlag and Dolos."),
    ] = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Show a graded class on one page: scores, tests, usual causes, who is missing or late."""
    from autograder.commands.report import report_class

    for line in report_class(course_folder(course), lab, results, named=names, cells=cells):
        typer.echo(line)


@app.command()
def gradescope(
    lab: str,
    out: Annotated[Path, typer.Argument(help="New zip, for Gradescope's Configure Autograder.")],
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Make a zip with which Gradescope grades a lab in its own containers."""
    from autograder.commands.gradescope import write_autograder

    typer.echo(write_autograder(course_folder(course), lab, out))


@app.command()
def check(notebook: Path, course: CourseOption = None) -> None:
    """Run a notebook and its public tests on this machine, without a sandbox."""
    from autograder.grading.check import CheckError, as_text, check_notebook

    try:
        typer.echo(as_text(check_notebook(notebook, course_folder(course))))
    except CheckError as error:
        raise UsageError(str(error)) from None


app.command()(proofs.triad)
app.command()(proofs.domain)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors that people can mend come as one line; SIGTERM is taken as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # else Python looks at all objects of nbgrader's once more, for nothing
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code; what went wrong is told on stderr."""
    try:
        code = app(arguments or ["--help"], prog_name="autograder", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.TyperException as error:  # typer's own words about wrong arguments
        told = error.format_message() if hasattr(error, "format_message") else str(error)
        return complain(told, 2)
    except Exception as error:
        code = expected(error)
        if code is None:
            raise
        return complain(str(error), code)
    if code == INTERRUPTED:
        complain("stopped; what is graded is stored, and the same command goes on from there", code)
    return code or 0


def expected(error: Exception) -> int | None:
    """Exit code of an error that is no bug: 2 if other arguments help, 1 if not."""
    from autograder.intake.discover import IntakeError
    from autograder.labs.manifest import LabError

    if isinstance(error, UsageError | IntakeError | LabError):
        return 2
    if isinstance(error, StorageError):
        return 1
    return 1 if type(error).__name__ == "SandboxUnavailable" else None


def complain(text: str, code: int) -> int:
    typer.echo(f"autograder: {' '.join(text.split())}", err=True)
    return code


if __name__ == "__main__":
    main()
