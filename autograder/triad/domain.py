"""What a card admits, and what the suites ever try of it.

A suite looks where its author's numbers lie: magnitudes near 1, small ids, one dtype.  So each
exercise declares in exercises.toml what its card admits, argument by argument,

    [ex2.domain]
    "slots_of.positions" = ["int64", "0-d", "2-d", "empty", "strided", ">= 1e8"]
    "slots_of" = ["raises ValueError"]

and the suites have to try every corner of it under every seed, publicly or hidden.  What arrives is
noted in the student's functions (autograder.triad.arrived), behind the codec that grading uses: a
view that a test passes directly arrives contiguous, and counts as that.

A corner is a word of a summary, or a quantity with a bound: ">= 1e9" (a number, or a tensor's
entry), "max <= 1e-8" (the largest magnitude of a tensor), "length >= 1000", "item <= -1",
"numel >= 4096", "dim -1 >= 128".  A function's own name holds its errors: "raises ValueError", or
"raises KeyError, then called": the same object, or function, is used again afterwards.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from autograder.labs.manifest import LabError, LabSpec
from autograder.triad.forked import Run, in_workers, run_all
from autograder.triad.summary import touches
from autograder.triad.sweep import definitions, kernel_functions
from autograder.triad.variants import frozen_but

WATCH = "from autograder.triad.arrived import watch\n"
NOT_BOUND = ("self",)


class Tried(msgspec.Struct):
    """What arrived in one argument (or, under a function's name, what it raised)."""

    words: set[str] = msgspec.field(default_factory=set)
    ranges: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)

    def add(self, words: Sequence[str], ranges: dict[str, Sequence[float]]) -> None:
        self.words |= set(words)
        for quantity, (lo, hi) in ranges.items():
            before = self.ranges.get(quantity, (lo, hi))
            self.ranges[quantity] = (min(lo, before[0]), max(hi, before[1]))

    def touches(self, corner: str) -> bool:
        return touches(self.words, self.ranges, corner)


Arrived = dict[str, Tried]  # "function.argument", or "function" -> what was tried


class Domain(msgspec.Struct):
    """Of one exercise: by kind of tests, what was tried under each seed."""

    exercise: str
    seeds: list[dict[str, Arrived]]  # of each seed: {"public": ..., "hidden": ...}

    def tried(self, argument: str, kind: str, seed: int = 0) -> Tried:
        return self.seeds[seed][kind].get(argument, Tried())

    def seeds_without(self, argument: str, corner: str) -> list[int]:
        """The seeds under which no test of the exercise touches a corner."""
        touched = [
            any(self.tried(argument, kind, seed).touches(corner) for kind in kinds)
            for seed, kinds in enumerate(self.seeds)
        ]
        return [seed for seed, well in enumerate(touched) if not well]


def domains(
    lab: LabSpec, cells: tuple[str, ...], *, seeds: int = 1, jobs: int | None = None
) -> Iterator[Domain]:
    """A Domain for each exercise, as they are ready. cells: of the solved notebook."""
    job = partial(domain_job, seeds=seeds)
    for batch, answer in in_workers(job, lab, cells, list(lab.exercises), jobs, 1):
        yield Domain(batch[0], msgspec.json.decode(answer, type=list[dict[str, Arrived]]))


def domain_job(
    lab: LabSpec, cells: tuple[str, ...], exercises: Sequence[str], *, seeds: int
) -> bytes:
    """What a worker does."""
    return msgspec.json.encode(observed(lab, cells, exercises[0], seeds))


def observed(
    lab: LabSpec, cells: tuple[str, ...], exercise: str, seeds: int
) -> list[dict[str, Arrived]]:
    """Under each seed, what public and hidden tests of the exercise pass to its functions."""
    freeze = frozen_but(lab, exercise, ())[-1].source
    names = list(lab.exercises[exercise].functions)
    own = (freeze, WATCH + f"watch(globals(), {names!r})")
    runs = [Run(own, exercise, seed) for seed in range(seeds)]
    found: list[dict[str, Arrived]] = [{} for _ in range(seeds)]
    for kind in lab.test_files:
        for seed, outcome in enumerate(run_all(lab, cells, runs, kind)):
            if outcome.failed:
                raise LabError(f"{lab.name}: the canonical solution fails {outcome.failed[0]}")
            found[seed][kind] = arrived = {}
            for argument, words, ranges in outcome.recorded:
                arrived.setdefault(argument, Tried()).add(words, ranges)
    return found


# ---- what the card declares ---------------------------------------------------------------------


def untried(lab: LabSpec, cells: tuple[str, ...], domain: Domain) -> list[str]:
    """Corners that no test tries, arguments without a declaration, and names that nobody has."""
    declared = lab.exercises[domain.exercise].domain
    wanted = parameters(lab, cells, domain.exercise)
    arrived = {argument for kinds in domain.seeds for seen in kinds.values() for argument in seen}
    found = [f"{domain.exercise}: {a} is not declared" for a in wanted if a not in declared]
    for argument, corners in declared.items():
        if argument not in wanted and argument not in arrived:
            found.append(f"{domain.exercise}: there is no {argument}, which `domain` declares")
            continue
        for corner in corners:
            seeds = domain.seeds_without(argument, corner)
            if seeds:
                when = "" if len(seeds) == len(domain.seeds) else f" under seeds {seeds}"
                found.append(f"{domain.exercise}: {argument}: no test tries {corner!r}{when}")
    return found


def parameters(lab: LabSpec, cells: tuple[str, ...], exercise: str) -> list[str]:
    """ "function.argument" of all functions and public methods of an exercise; no kernels."""
    names = set(lab.exercises[exercise].functions) - kernel_functions(cells)
    found: dict[str, None] = {}
    for function in definitions(cells):
        if function.name in names:
            found |= dict.fromkeys(f"{function.name}.{a}" for a in arguments(function))
    for kind in (n for cell in cells for n in ast.walk(ast.parse(cell))):
        if isinstance(kind, ast.ClassDef) and kind.name in names:
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and is_public(method.name):
                    shown = kind.name if method.name == "__init__" else f"{kind.name}.{method.name}"
                    found |= dict.fromkeys(f"{shown}.{a}" for a in arguments(method))
    return list(found)


def is_public(method: str) -> bool:
    return method == "__init__" or not method.startswith("_")


def arguments(function: ast.FunctionDef) -> list[str]:
    own = function.args
    named = [*own.posonlyargs, *own.args, *own.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in NOT_BOUND]
