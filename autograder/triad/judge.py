"""What grading has to make of a variant, and what is wrong if it does not."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autograder.grading.results import Result, TestResult
from autograder.labs.manifest import LabSpec
from autograder.triad.forked import Outcome
from autograder.triad.variants import Variant

MIN_RIGHT, MIN_WRONG = 2, 5  # variants of each exercise


@dataclass(frozen=True)
class Row:
    """A variant, the tests that failed on it, and what is not as it should be ("" if nothing)."""

    variant: Variant
    failed: tuple[str, ...]
    problem: str


def judge_variant(lab: LabSpec, variant: Variant, result: Result) -> Row:
    tests = [test for exercise in result.exercises for test in exercise.tests]
    failed = tuple(test.test for test in tests if test.outcome != "passed")
    if result.status != "graded":
        return Row(variant, failed, f"not graded: {result.reason}")
    if variant.kind == "right":
        lost = [f"{test.test}: {test.message or test.invariant}" for test in tests if lost_by(test)]
        return Row(variant, failed, f"loses points: {'; '.join(lost)}" if lost else "")
    if variant.kind == "none":
        given = [test.test for test in tests if test.points > 0]
        return Row(variant, failed, f"gets points: {', '.join(given)}" if given else "")
    elsewhere = [test.test for test in tests if lost_by(test) and test.exercise != variant.exercise]
    survived = sorted(set(variant.fails) - set(failed))
    problems = [f"survives {', '.join(survived)}"] if survived else []
    problems += [f"also breaks {', '.join(elsewhere)}"] if elsewhere else []
    return Row(variant, failed, "; ".join(problems))


def judge_seeds(variant: Variant, outcomes: Sequence[Outcome]) -> Row:
    """outcomes: of the tests that matter for this variant, under seeds 0, 1, ..."""
    wrong = variant.kind == "wrong"
    bad, observed = defaultdict(list), {}
    for seed, outcome in enumerate(outcomes):
        for test in sorted(set(variant.fails) - set(outcome.failed)) if wrong else outcome.failed:
            bad[test].append(seed)
        observed.update({saw.test: saw.observed for saw in outcome.saw if not saw.passed})
    problems = []
    for test, seeds in bad.items():
        under = f"under {len(seeds)} of {len(outcomes)} seeds ({', '.join(map(str, seeds))})"
        said = f"survives {test} {under}" if wrong else f"loses {test} {under}: {observed[test]}"
        problems.append(said)
    return Row(variant, tuple(observed), "; ".join(problems))


def joined(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """The rows, each with what `more` rows say about the same variant."""
    said = {row.variant.student: row.problem for row in more}
    return [
        replace(row, problem="; ".join(filter(None, [row.problem, said.get(row.variant.student)])))
        for row in rows
    ]


def lost_by(test: TestResult) -> bool:
    return test.outcome != "passed"


def missing_variants(lab: LabSpec, rows: Sequence[Row]) -> list[str]:
    """Exercises that have fewer variants than a triad needs."""
    have = Counter((row.variant.exercise, row.variant.kind) for row in rows)
    return [
        f"{exercise} has {have[exercise, kind]} {kind} variants, at least {least} are needed"
        for exercise in lab.exercises
        for kind, least in (("right", MIN_RIGHT), ("wrong", MIN_WRONG))
        if have[exercise, kind] < least
    ]
