"""`autograder triad` and `autograder domain`: what proves the graders of the labs."""

from pathlib import Path
from typing import Annotated

import typer

from autograder.commands.options import (
    CourseOption,
    JobsOption,
    LabsArgument,
    SuitesOption,
    UnsafeOption,
    course_folder,
)
from autograder.errors import UsageError


def triad(
    labs: LabsArgument = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Run all variants under so many seeds, not under one.")
    ] = 1,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Run mechanical mutants of the solutions instead.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="With --mutants: write the table to this file as well.")
    ] = None,
    show: Annotated[
        str | None, typer.Option(help="Run nothing: print this exercise's variants as diffs.")
    ] = None,
    others: Annotated[
        Path | None,
        typer.Option(help="Judge, instead, answers in the folders right/ and wrong/ of this one."),
    ] = None,
    jobs: JobsOption = None,
    unsafe: UnsafeOption = False,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Test the tests: right solutions must pass, wrong ones must fail; exit code 1 if not."""
    from autograder.commands.triads import mutants_of_labs, others_of_lab, show_exercise, triad_labs

    root = course_folder(course)
    if mutants and (seeds > 1 or unsafe):
        raise UsageError("--mutants goes neither with --seeds nor with --unsafe-no-sandbox")
    if markdown is not None and not (mutants and markdown.resolve().parent.is_dir()):
        raise UsageError(
            f"--markdown needs --mutants and a folder, {markdown.parent}, that is there"
        )
    if show is not None:
        show_exercise(root, the_lab(labs, "--show ex4", mutants or others or seeds > 1), show)
        return
    if others is not None:
        lab = the_lab(labs, "--others FOLDER", mutants or unsafe)
        well = others_of_lab(root, lab, others, seeds=seeds, jobs=jobs)
    elif mutants:
        well = mutants_of_labs(root, labs or None, jobs=jobs, markdown=markdown)
    else:
        well = triad_labs(root, labs or None, seeds=seeds, jobs=jobs, unsafe=unsafe)
    raise typer.Exit(0 if well else 1)


def the_lab(labs: list[str] | None, option: str, too_much: object) -> str:
    """The only one. Raises UsageError."""
    if len(labs or []) != 1 or too_much:
        raise UsageError(f"this goes with one lab: autograder triad lab04_wanda {option}")
    return labs[0]


def domain(
    labs: LabsArgument = None,
    seeds: Annotated[int, typer.Option(min=1, help="Look under so many seeds.")] = 3,
    write: Annotated[
        bool, typer.Option("--write", help="Also write each table to triad/domain.md of its suite.")
    ] = False,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="Print, instead, which corners no call has both of."),
    ] = False,
    jobs: JobsOption = None,
    course: CourseOption = None,
    suites: SuitesOption = None,
) -> None:
    """Print what the suites ever try of each argument; exit code 1 if a declared corner is not."""
    from autograder.commands.triads import domains_of_labs, pairs_of_labs

    if pairs:
        pairs_of_labs(course_folder(course), labs or None, jobs=jobs)
        return
    well = domains_of_labs(course_folder(course), labs or None, seeds=seeds, jobs=jobs, write=write)
    raise typer.Exit(0 if well else 1)
