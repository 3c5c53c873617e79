"""`autograder triad` and `domain`: kill tables, mutants of the solutions, what is ever tried."""

from collections.abc import Iterator
from pathlib import Path

from rich.syntax import Syntax

from autograder.commands.tables import console, with_progress
from autograder.errors import UsageError
from autograder.intake.notebook import Notebook, parse_notebook
from autograder.labs.manifest import LabSpec, lab_names, load_lab
from autograder.triad.domain import domains, untried
from autograder.triad.judge import Row, joined, missing_variants
from autograder.triad.mutants import prepare, problems_of, read_equivalent, run_mutants
from autograder.triad.others import read_others, run_others
from autograder.triad.pairs import unmet_pairs
from autograder.triad.run import run_seeds, run_triad, solved_cells
from autograder.triad.table import (
    domain_markdown,
    domain_table,
    mutant_rows,
    mutant_table,
    mutants_markdown,
    triad_table,
)
from autograder.triad.variants import DOMAIN, NO_WORK, canonical_cell, collect_variants
from autograder.triad.written import as_diff, rights, wrongs


def triad_labs(
    root: Path,
    names: list[str] | None,
    *,
    seeds: int = 1,
    jobs: int | None = None,
    unsafe: bool = False,
) -> bool:
    """Kill tables of the labs (default: all); True if nothing is wrong in any.

    seeds: with more than one, all variants also run under each of so many seeds (run_seeds).
    """
    well = True
    for lab, solved in solved_labs(root, names):
        total = len(collect_variants(lab, solved))
        graded = run_triad(lab, solved, jobs=jobs, unsafe=unsafe)
        rows = list(with_progress(graded, total, f"triad of {lab.name}"))
        rows.sort(key=lambda row: row.variant.student)
        if seeds > 1:
            more = run_seeds(lab, solved, seeds, jobs=jobs)
            what = f"{lab.name} under {seeds} seeds"
            rows = joined(rows, list(with_progress(more, total - NO_WORK, what)))
        missing = missing_variants(lab, rows)
        show_triad(lab, rows, missing)
        well = well and not missing and not any(row.problem for row in rows)
    return well


def solved_labs(root: Path, names: list[str] | None) -> Iterator[tuple[LabSpec, Notebook]]:
    """The labs of these names (default: all) with the cells of their solved notebooks."""
    from autograder.labs.source import build_source

    for name in names or lab_names(root):
        lab = load_lab(name, root)
        yield lab, parse_notebook(build_source(root, name).read_bytes())


def show_triad(lab: LabSpec, rows: list[Row], missing: list[str]) -> None:
    out = console()
    out.print(triad_table(lab, rows), markup=False)
    for line in missing:
        out.print(line, markup=False)
    wrong = [row for row in rows if row.variant.kind == "wrong"]
    killed = sum(not row.problem for row in wrong)
    bad = sum(bool(row.problem) for row in rows) + len(missing)
    out.print(f"{killed} of {len(wrong)} wrong variants killed as declared; {bad} problems")


def others_of_lab(
    root: Path, name: str, folder: Path, *, seeds: int = 1, jobs: int | None = None
) -> bool:
    """Answers that somebody wrote from the cards alone; True if all are judged as they should."""
    [(lab, solved)] = solved_labs(root, [name])
    others = read_others(lab, solved, folder)
    found = run_others(lab, solved, others, seeds=seeds, jobs=jobs)
    rows = list(with_progress(found, len(others), f"answers to {lab.name}"))
    out = console()
    for row in rows:
        if row.problem:
            line = f"{row.variant.exercise} {row.variant.kind} {row.variant.name}: {row.problem}"
            out.print(f"{line} [{row.variant.mistake}]", markup=False, highlight=False)
    for kind, verdict in (("right", "refused"), ("wrong", "caught under every seed")):
        own = [row for row in rows if row.variant.kind == kind]
        count = sum((kind == "right") == bool(row.problem) for row in own)
        out.print(f"{kind}: {count} of {len(own)} {verdict}", highlight=False)
    return not any(row.problem for row in rows)


def show_exercise(root: Path, name: str, exercise: str) -> None:
    """Prints each variant of an exercise: what it is, and how it differs from the solution."""
    [(lab, solved)] = solved_labs(root, [name])
    if exercise not in lab.exercises:
        raise UsageError(f"{name} has no exercise {exercise}, only {', '.join(lab.exercises)}")
    folder, canonical, out = lab.suite_dir / "triad", canonical_cell(solved, exercise), console()
    variants = [("right", *item) for item in rights(folder, exercise, canonical).items()]
    variants += [("wrong", *item) for item in wrongs(folder, exercise, canonical).items()]
    for kind, variant, text in variants:
        out.print(f"{kind} {variant}: {text.mistake}", style="bold", markup=False, highlight=False)
        if text.fails:
            of = f"; an edit of right {text.of}" if text.of else ""
            fails = f"has to fail {', '.join(text.fails)}{of}"
            out.print(fails, markup=False, highlight=False)
        out.print(Syntax(as_diff(text), "diff", background_color="default"))


def mutants_of_labs(
    root: Path,
    names: list[str] | None,
    *,
    jobs: int | None = None,
    markdown: Path | None = None,
) -> bool:
    """Mutants of the labs' solutions; True if every survivor is judged. markdown: a table there."""
    well, tables = True, []
    for lab, solved in solved_labs(root, names):
        mutants = prepare(lab, solved)
        found = with_progress(
            run_mutants(lab, solved, mutants, jobs=jobs), len(mutants), f"mutants of {lab.name}"
        )
        verdicts = [verdict for verdict in found if verdict is not None]
        order = {mutant.name: index for index, mutant in enumerate(mutants)}
        verdicts.sort(key=lambda verdict: order[verdict.mutant.name])
        equivalent = read_equivalent(lab)
        tables.append((lab, mutant_rows(lab, verdicts, equivalent)))
        out, problems = console(), problems_of(verdicts, equivalent)
        out.print(mutant_table(*tables[-1]), markup=False)
        for line in problems:
            out.print(line, markup=False, soft_wrap=True, highlight=False)
        well = well and not problems
    if markdown is not None:
        markdown.write_text(mutants_markdown(tables), encoding="utf-8")
    return well


def domains_of_labs(
    root: Path, names: list[str] | None, *, seeds: int, jobs: int | None = None, write: bool = False
) -> bool:
    """What the suites try of each argument; True if every declared corner is.

    write: the table of each lab also goes to domain.md beside its triad.
    """
    well = True
    for lab, solved in solved_labs(root, names):
        cells = solved_cells(lab, solved)
        found = domains(lab, cells, seeds=seeds, jobs=jobs)
        found = list(with_progress(found, len(lab.exercises), f"domain of {lab.name}"))
        found.sort(key=lambda domain: list(lab.exercises).index(domain.exercise))
        out, problems = console(), [p for d in found for p in untried(lab, cells, d)]
        out.print(domain_table(lab, found), markup=False)
        for line in problems:
            out.print(line, markup=False, soft_wrap=True, highlight=False)
        out.print(f"{lab.name} under {seeds} seeds: {len(problems)} problems", markup=False)
        if write:
            text = domain_markdown(lab, found)
            (lab.suite_dir / "triad" / DOMAIN).write_text(text, encoding="utf-8")
        well = well and not problems
    return well


def pairs_of_labs(root: Path, names: list[str] | None, *, jobs: int | None = None) -> None:
    """Prints which declared corners never meet, those of a corner in one line."""
    for lab, solved in solved_labs(root, names):
        found = unmet_pairs(lab, solved_cells(lab, solved), jobs=jobs)
        found = dict(with_progress(found, len(lab.exercises), f"pairs of {lab.name}"))
        out = console()
        for exercise in lab.exercises:
            lines: dict[str, list[str]] = {}
            for (argument, corner), (other, its) in found[exercise]:
                shown = its if other == argument else f"{other.rpartition('.')[2]} {its}"
                lines.setdefault(f"{argument} {corner}", []).append(shown)
            for first, others in lines.items():
                line = f"{exercise}: {first}: never with {', '.join(others)}"
                out.print(line, markup=False, soft_wrap=True, highlight=False)
        pairs = sum(map(len, found.values()))
        out.print(f"{lab.name}: {pairs} pairs of corners that no call has both of", markup=False)
