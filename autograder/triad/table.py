"""Tables of what triads, mutants and domains gave: for the terminal, and as Markdown."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from autograder.labs.manifest import LabSpec
from autograder.triad.domain import Domain, Tried
from autograder.triad.judge import Row
from autograder.triad.mutants import Verdict, reason_for

COLUMNS = ("exercise", "mutants", "killed by public tests", "by hidden tests only", "equivalent")
OPEN = "not judged"


def triad_table(lab: LabSpec, rows: Sequence[Row]) -> Table:
    """Every variant, what it is, the tests that it failed, and "ok" or what is wrong."""
    table = Table(title=f"{lab.name}: triad")
    for column in ("exercise", "variant", "what it is", "killed by", "verdict"):
        table.add_column(column, overflow="fold")
    for row in rows:
        variant = row.variant
        killed = ", ".join(row.failed) if variant.kind == "wrong" else ""
        what = variant.mistake or {"right": "right", "none": "no work"}[variant.kind]
        name = f"{variant.kind} {variant.name}"
        table.add_row(variant.exercise, name, what, killed, row.problem or "ok")
    return table


def mutant_rows(
    lab: LabSpec, verdicts: Sequence[Verdict], equivalent: dict[str, str]
) -> list[tuple[str, ...]]:
    """A row for each exercise and one for all, as COLUMNS and OPEN say."""
    rows = []
    for exercise in [*lab.exercises, "all"]:
        own = [v for v in verdicts if exercise in (v.mutant.exercise, "all")]
        counts = Counter(v.killed_by or survivor(v, equivalent) for v in own)
        numbers = [len(own), *(counts[key] for key in ("public", "hidden", "equivalent", OPEN))]
        rows.append((exercise, *map(str, numbers)))
    return rows


def survivor(verdict: Verdict, equivalent: dict[str, str]) -> str:
    return "equivalent" if reason_for(verdict.mutant, equivalent) else OPEN


def mutant_table(lab: LabSpec, rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=f"{lab.name}: mutants")
    for column in (*COLUMNS, OPEN):
        table.add_column(column, justify="left" if column == COLUMNS[0] else "right")
    for row in rows:
        table.add_row(*row)
    return table


def mutants_markdown(labs: Sequence[tuple[LabSpec, Sequence[tuple[str, ...]]]]) -> str:
    """One table: the exercises of all labs."""
    columns = ("lab", *COLUMNS, OPEN)
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * (len(columns) - 2)]
    for lab, rows in labs:
        lines += ["| " + " | ".join((lab.name, *row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# ---- what suites try ----------------------------------------------------------------------------

LONGEST = 160  # characters of a cell


def domain_rows(domain: Domain) -> list[tuple[str, str, str, str]]:
    """(exercise, argument, tried publicly, tried hidden), under the first seed."""
    both = domain.seeds[0]
    names = sorted({name for arrived in both.values() for name in arrived})
    kinds = ("public", "hidden")
    return [
        (domain.exercise, name, *(tried_words(domain.tried(name, kind)) for kind in kinds))
        for name in names
    ]


def tried_words(tried: Tried) -> str:
    """ "float32, 2-d, strided; max 1e-08 to 3e+04": words first, values of arguments last."""
    values = {word for word in tried.words if "== " in word}
    texts = sorted(word for word in values if "== '" in word)  # the ranges tell the numbers
    said = ", ".join([*sorted(tried.words - values), *texts])
    if len(said) > LONGEST:
        said = said[:LONGEST] + " ..."
    spans = [f"{q} {lo:.4g} to {hi:.4g}" for q, (lo, hi) in sorted(tried.ranges.items())]
    return "; ".join(filter(None, [said, ", ".join(spans)])) or "-"


def domain_table(lab: LabSpec, found: Sequence[Domain]) -> Table:
    table = Table(title=f"{lab.name}: what the suite tries")
    for column in ("exercise", "argument", "publicly", "hidden"):
        table.add_column(column, overflow="fold")
    for domain in found:
        for row in domain_rows(domain):
            table.add_row(*row)
    return table


def domain_markdown(lab: LabSpec, found: Sequence[Domain]) -> str:
    """The same, with what the cards declare. Made by `autograder domain --write`."""
    lines = [f"# What the suite of {lab.name} tries (`autograder domain {lab.name} --write`)", ""]
    lines += ["| exercise | argument | declared | publicly | hidden |", "|---|---|---|---|---|"]
    for domain in found:
        declared = lab.exercises[domain.exercise].domain
        for exercise, name, *tried in domain_rows(domain):
            cells = (exercise, name, ", ".join(declared.get(name, ())), *tried)
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"
