"""Grades the variants of a lab: in the sandbox as submissions, and under many seeds without it.

Luck must not decide: a test that catches a mistake under some draws only takes points from one
student and not from the next.  Under each seed a right variant passes all tests of its exercise
(under several seeds those of all exercises, as the canonical solution), and a wrong one fails the
tests that it declares.
"""

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import msgspec

from autograder.grading.batch import grade_many
from autograder.grading.rebuild import rebuild
from autograder.intake.discover import Submission
from autograder.intake.notebook import Notebook, notebook_digest, parse_notebook
from autograder.labs.manifest import LabSpec
from autograder.triad.forked import Outcome, Run, in_workers, run_all
from autograder.triad.judge import Row, judge_seeds, judge_variant
from autograder.triad.variants import Variant, collect_variants

SEED = 0  # of the sandbox
BATCH = 4  # variants between two steps of the progress bar


def run_triad(
    lab: LabSpec,
    solved: Notebook,
    *,
    chosen: Sequence[Variant] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    unsafe: bool = False,
) -> Iterator[Row]:
    """Grades variants of a lab (default: all); yields a row each, as they are ready.

    solved: cells of the solved notebook, which autograder.labs.source.build_source writes.
    """
    chosen = collect_variants(lab, solved) if chosen is None else chosen
    variants = {variant.student: variant for variant in chosen}
    submissions = [handed_in(lab, variant) for variant in variants.values()]
    results = grade_many(lab, submissions, jobs=jobs, executor=executor, seed=SEED, unsafe=unsafe)
    for result in results:
        yield judge_variant(lab, variants[result.student], result)


def handed_in(lab: LabSpec, variant: Variant) -> Submission:
    cells = variant.cells
    return Submission(variant.student, lab.name, variant.name, cells, notebook_digest(cells))


def a_few(variants: Sequence[Variant]) -> list[Variant]:
    """What is graded with the demonstration class, which takes right and wrong work and the release
    through the sandbox: work that is none, and what forges the machinery."""
    whole = ("canonical", "release")
    return [v for v in variants if "forged" in v.name or not v.exercise and v.name not in whole]


def with_one_test(variants: Sequence[Variant]) -> list[Variant]:
    """Each wrong one with one of the tests that it has to fail, always the same one."""

    def one_of(variant: Variant) -> Variant:
        number = zlib.crc32(variant.student.encode()) % max(len(variant.fails), 1)
        return replace(variant, fails=variant.fails[number : number + 1])

    return [one_of(variant) for variant in variants]


def run_seeds(
    lab: LabSpec,
    solved: Notebook,
    seeds: int,
    *,
    chosen: Sequence[Variant] | None = None,
    jobs: int | None = None,
) -> Iterator[Row]:
    """A row for each variant that is some work, run without a sandbox under seeds 0, 1, ...

    chosen: default all.
    """
    chosen = collect_variants(lab, solved) if chosen is None else chosen
    variants = [variant for variant in chosen if variant.kind != "none"]
    job = partial(seeds_job, known=len(solved), seeds=seeds)
    for batch, answer in in_workers(job, lab, solved_cells(lab, solved), variants, jobs, BATCH):
        outcomes = msgspec.json.decode(answer, type=list[list[Outcome]])
        for variant, own in zip(batch, outcomes, strict=True):
            yield judge_seeds(variant, own)


def solved_cells(lab: LabSpec, solved: Notebook) -> tuple[str, ...]:
    """Sources of the cells of the solved notebook that grading runs."""
    release = parse_notebook(lab.release_notebook.read_bytes())
    return tuple(cell.source for cell in rebuild(solved, release).cells)


def seeds_job(
    lab: LabSpec, cells: tuple[str, ...], variants: Sequence[Variant], *, known: int, seeds: int
) -> bytes:
    """What a worker does. known: how many cells of each variant are the solved notebook's."""
    runs = []
    for variant in variants:
        own = tuple(cell.source for cell in variant.cells[known:])
        # what is right costs nothing in the exercises that build on it either
        asked = "" if variant.kind == "right" and seeds > 1 else variant.exercise
        runs += [Run(own, asked, seed, variant.fails) for seed in range(seeds)]
    outcomes = run_all(lab, cells, runs)
    return msgspec.json.encode([outcomes[i : i + seeds] for i in range(0, len(runs), seeds)])
