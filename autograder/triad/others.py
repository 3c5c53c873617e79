"""Right and wrong answers that somebody else wrote, who has the cards and not the tests:

    FOLDER/right/ex4_<name>.py    the exercise solved; has to pass all its tests
    FOLDER/wrong/ex4_<name>.py    breaks a sentence of the card; has to fail a test, whichever

Each is a whole cell of its exercise. What comes first in it, a comment or a docstring, says how it
is written, or what the mistake is. A triad holds the mistakes that its author thought of; these
show what he did not.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from autograder.errors import UsageError
from autograder.intake.notebook import Notebook
from autograder.labs.manifest import LabSpec
from autograder.triad.forked import RECORDED, Outcome, in_workers
from autograder.triad.judge import Row, judge_seeds
from autograder.triad.run import BATCH, seeds_job, solved_cells
from autograder.triad.variants import Variant, appended, frozen_but

KINDS = ("right", "wrong")
RAN = f"\n{RECORDED} = ['to its end']\n"  # behind an answer: what raises on the way is none


def read_others(lab: LabSpec, solved: Notebook, folder: Path) -> list[Variant]:
    """The answers in a folder. Raises UsageError for a file that is none, which it names."""
    unknown = [p for p in folder.glob("*/*.py") if p.parent.name not in KINDS]
    if unknown:
        raise UsageError(f"{unknown[0]}: answers lie in {folder}/right and {folder}/wrong")
    found = [
        read_answer(lab, solved, path, kind)
        for kind in KINDS
        for path in sorted((folder / kind).glob("*.py"))
    ]
    if not found:
        raise UsageError(f"{folder} has neither right/ex1_<name>.py nor wrong/ex1_<name>.py")
    return found


def read_answer(lab: LabSpec, solved: Notebook, path: Path, kind: str) -> Variant:
    exercise, _, name = path.stem.partition("_")
    if exercise not in lab.exercises or not name:
        known = ", ".join(lab.exercises)
        raise UsageError(f"{path}: an answer is called ex1_<name>.py; {lab.name} has {known}")
    source = path.read_text(encoding="utf-8")
    missing = set(lab.exercises[exercise].functions) - defined(source, path)
    if missing:
        raise UsageError(f"{path}: {exercise} is to define {', '.join(sorted(missing))} as well")
    base = solved if kind == "right" else frozen_but(lab, exercise, solved)
    cells = appended(base, source + RAN)
    return Variant(exercise, name, kind, cells, mistake=first_words(source))


def defined(source: str, path: Path) -> set[str]:
    """What a cell's own lines define or bind. Raises UsageError for what is no Python."""
    try:
        lines = ast.parse(source).body
    except SyntaxError as error:
        raise UsageError(f"{path}: line {error.lineno}: {error.msg}") from None
    names = {node.name for node in lines if hasattr(node, "name")}
    bound = [target for node in lines for target in getattr(node, "targets", [])]
    return names | {node.id for target in bound for node in ast.walk(target)
                    if isinstance(node, ast.Name)}  # fmt: skip


def first_words(source: str) -> str:
    """The comment that a cell begins with, or its docstring; "" without."""
    comment = re.match(r"\s*#+ *(.+)", source)
    text = comment[1] if comment else ast.get_docstring(ast.parse(source)) or ""
    return " ".join(text.split())


def run_others(
    lab: LabSpec,
    solved: Notebook,
    others: list[Variant],
    *,
    seeds: int = 1,
    jobs: int | None = None,
) -> Iterator[Row]:
    """A row for each answer, run without a sandbox under seeds 0, 1, ..."""
    job = partial(seeds_job, known=len(solved), seeds=seeds)
    for batch, answer in in_workers(job, lab, solved_cells(lab, solved), others, jobs, BATCH):
        outcomes = msgspec.json.decode(answer, type=list[list[Outcome]])
        for variant, own in zip(batch, outcomes, strict=True):
            yield judge_other(variant, own)


def judge_other(variant: Variant, outcomes: list[Outcome]) -> Row:
    """A wrong one has to fail something under every seed."""
    if not all(outcome.recorded for outcome in outcomes):
        return Row(variant, (), "its cell does not run to its end, or a test ends the process")
    row = judge_seeds(variant, outcomes)
    through = [seed for seed, outcome in enumerate(outcomes) if not outcome.failed]
    if variant.kind == "right" or not through:
        return row
    under = f"under {len(through)} of {len(outcomes)} seeds ({', '.join(map(str, through))})"
    return replace(row, problem=f"gets through {under}")
