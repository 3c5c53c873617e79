"""Mutants of the canonical solutions, which the tests have to kill.

Each is run as a wrong variant is: behind the solved notebook, with the functions of the other
exercises frozen.  Public tests first, then hidden ones; what survives does so under three seeds.
A survivor shows a missing test, or it is no mistake: then it stands with the reason in
autograder/suites/<lab>/triad/equivalent.toml, `"ex2:quantize:L3:clamp dropped" = "why"`, where `*`
in a name stands for anything.
"""

import ast
import difflib
import fnmatch
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from autograder.intake.notebook import Notebook
from autograder.labs.manifest import LabError, LabSpec, read_toml
from autograder.triad.forked import Run, in_workers, run_all
from autograder.triad.mutate import mutants_of
from autograder.triad.run import solved_cells
from autograder.triad.variants import EQUIVALENT, frozen_but
from autograder.triad.whole import ALWAYS, OF_A_FUNCTION, OF_A_PARAMETER, is_public

SEEDS = (0, 1, 2)
BATCH = 24
MOST_VALUES = 3  # of a parameter: values that public tests use, each in turn for all others
WRAP = "from autograder.triad.whole import record, wrap\n"


class Mutant(msgspec.Struct, frozen=True):
    """name: "ex2:quantize:L3:clamp dropped"; cells: behind the solved ones; diff: its lines."""

    name: str
    exercise: str
    cells: tuple[str, ...]
    diff: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """killed_by: "public", "hidden", or "" for a survivor; by which test."""

    mutant: Mutant
    killed_by: str
    test: str = ""


# ---- making them --------------------------------------------------------------------------------


def collect_mutants(lab: LabSpec, solved: Notebook, recorded: Sequence[list]) -> list[Mutant]:
    """recorded: what whole.record notes of the calls of the tests."""
    found = []
    for exercise in lab.exercises:
        freeze = frozen_but(lab, exercise, ())[-1].source
        for cell in solution_cells(solved, exercise):
            for function, what, line, text in mutants_of(cell):
                name = f"{exercise}:{function}:L{line}:{what}"
                found.append(Mutant(name, exercise, (freeze, text), difference(cell, text)))
        for function, what, source in of_functions(lab, solved, exercise, recorded):
            name = f"{exercise}:{function}:{what}"
            found.append(Mutant(name, exercise, (freeze, WRAP + source)))
    counts: Counter[str] = Counter()
    named = []
    for mutant in found:
        counts[mutant.name] += 1
        again = f" #{counts[mutant.name]}" if counts[mutant.name] > 1 else ""
        named.append(msgspec.structs.replace(mutant, name=mutant.name + again))
    return named


def solution_cells(solved: Notebook, exercise: str) -> list[str]:
    """Sources of the cells ex2, ex2-b, ... of an exercise."""
    return [
        cell.source
        for cell in solved
        if cell.kind == "code" and (cell.grade_id or "").split("-")[0] == exercise
        if not (cell.grade_id or "").endswith("-check")
    ]


def difference(before: str, after: str) -> tuple[str, ...]:
    """The lines that differ, with - and +."""
    plain = ast.unparse(ast.parse(before)).splitlines()
    lines = list(difflib.unified_diff(plain, after.splitlines(), n=0, lineterm=""))[2:]
    return tuple(line[0] + " " + line[1:].strip() for line in lines if not line.startswith("@@"))


def of_functions(
    lab: LabSpec, solved: Notebook, exercise: str, recorded: Sequence[list]
) -> Iterator[tuple[str, str, str]]:
    """(function, what was done, source) of the mutants of whole functions."""
    parameters = signatures(solved, exercise)
    for function in lab.exercises[exercise].functions:
        if function not in parameters:  # a kernel is launched, not called
            continue
        own = [call for call in recorded if call[0] == function]
        can_act = {(parameter, what) for _, parameter, kind, what in own if kind == "kind"}
        for kind in (k for k in OF_A_FUNCTION if k in ALWAYS or ("", k) in can_act):
            yield function, kind, wrapping(function, kind)
        for parameter in parameters[function]:
            for kind in (k for k in OF_A_PARAMETER if k in ALWAYS or (parameter, k) in can_act):
                yield function, f"{parameter} {kind}", wrapping(function, kind, parameter)
            values = [what for _, p, kind, what in own if (p, kind) == (parameter, "value")]
            for value in values[:MOST_VALUES]:
                source = wrapping(function, "fixed", parameter, value)
                yield function, f"{parameter} = {value!r} always", source


def wrapping(function: str, kind: str, *details) -> str:
    return f"wrap(globals(), {', '.join(map(repr, (function, kind, *details)))})"


def signatures(solved: Notebook, exercise: str) -> dict[str, list[str]]:
    """Names of the parameters of each function and class of an exercise; no kernels."""
    found = {}
    for cell in solution_cells(solved, exercise):
        for node in ast.parse(cell).body:
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                named = [p for part in methods if is_public(part.name) for p in parameters_of(part)]
                found[node.name] = [p for p in dict.fromkeys(named) if p != "self"]
            if isinstance(node, ast.FunctionDef) and not is_kernel(node):
                found[node.name] = parameters_of(node)
    return found


def parameters_of(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def is_kernel(function: ast.FunctionDef) -> bool:
    """Whether @triton.jit stands above it."""
    return any(ast.unparse(decorator) == "triton.jit" for decorator in function.decorator_list)


# ---- running them -------------------------------------------------------------------------------


def prepare(lab: LabSpec, solved: Notebook) -> list[Mutant]:
    """All mutants of a lab.

    Raises LabError if the canonical solution itself fails a test: nothing would survive then.
    """
    cells, exercises = solved_cells(lab, solved), list(lab.exercises)
    [(_, answer)] = in_workers(controls_job, lab, cells, exercises, 1, len(exercises))
    failed, recorded = msgspec.json.decode(answer, type=tuple[list[str], list[list]])
    if failed:
        raise LabError(f"{lab.name}: the canonical solution itself fails {', '.join(failed)}")
    return collect_mutants(lab, solved, recorded)


def controls_job(lab: LabSpec, cells: tuple[str, ...], exercises: Sequence[str]) -> bytes:
    """What a worker does: the tests that the solution fails, and what is recorded (see whole.py).

    Values are those of public tests, kinds those of all.
    """
    runs = []
    for exercise in exercises:
        source = "".join(f"record(globals(), {f!r})\n" for f in lab.exercises[exercise].functions)
        own = (frozen_but(lab, exercise, ())[-1].source, WRAP + source)
        runs += [Run(own, exercise, seed) for seed in SEEDS]
    outcomes = {kind: run_all(lab, cells, runs, kind) for kind in lab.test_files}
    failed = [test for both in outcomes.values() for outcome in both for test in outcome.failed]
    recorded = {kind: [call for o in outcomes[kind] for call in o.recorded] for kind in outcomes}
    values = [call for call in recorded["public"] if call[2] == "value"]
    kinds = sorted(call for calls in recorded.values() for call in calls if call[2] == "kind")
    known = values + kinds
    distinct = [call for index, call in enumerate(known) if call not in known[:index]]
    return msgspec.json.encode((sorted(set(failed)), distinct))


def run_mutants(
    lab: LabSpec, solved: Notebook, mutants: Sequence[Mutant], *, jobs: int | None = None
) -> Iterator[Verdict | None]:
    """A verdict for each mutant as they are ready; None for one that never acted."""
    cells = solved_cells(lab, solved)
    for _, answer in in_workers(mutants_job, lab, cells, mutants, jobs, BATCH):
        yield from msgspec.json.decode(answer, type=list[Verdict | None])


def mutants_job(lab: LabSpec, cells: tuple[str, ...], mutants: Sequence[Mutant]) -> bytes:
    """What a worker does."""
    alive, found, acted = list(mutants), [], set()
    for seed in SEEDS:
        for kind in lab.test_files:
            runs = [Run(mutant.cells, mutant.exercise, seed, first=True) for mutant in alive]
            outcomes = run_all(lab, cells, runs, kind)
            for mutant, outcome in zip(alive, outcomes, strict=True):
                found += [Verdict(mutant, kind, outcome.failed[0])] if outcome.failed else []
                acted |= {mutant.name} if any(saw.touched for saw in outcome.saw) else set()
            alive = [m for m, outcome in zip(alive, outcomes, strict=True) if not outcome.failed]
        # what did not act under the first seed has no corner here to act in
        alive = [m for m in alive if m.diff or m.name in acted]
    survived = [Verdict(m, "") for m in alive]
    idle = [None] * (len(mutants) - len(found) - len(survived))
    return msgspec.json.encode(found + survived + idle)


# ---- what they say ------------------------------------------------------------------------------


def read_equivalent(lab: LabSpec) -> dict[str, str]:
    """Names (or patterns) of survivors that are no mistakes, with the reasons."""
    path = lab.suite_dir / "triad" / EQUIVALENT
    reasons = read_toml(path, dict[str, str]) if path.is_file() else {}
    empty = [name for name, reason in reasons.items() if not reason.strip()]
    if empty:
        raise LabError(f"{path}: no reason is given for {', '.join(empty)}")
    return reasons


def reason_for(mutant: Mutant, equivalent: dict[str, str]) -> str:
    matching = (equivalent[p] for p in equivalent if fnmatch.fnmatchcase(mutant.name, p))
    return equivalent.get(mutant.name) or next(matching, "")


def problems_of(verdicts: Sequence[Verdict], equivalent: dict[str, str]) -> list[str]:
    """Survivors that nobody has judged, and judgements that no survivor needs."""
    survivors = [verdict.mutant for verdict in verdicts if not verdict.killed_by]
    killed = {verdict.mutant.name: verdict.test for verdict in verdicts if verdict.killed_by}
    open_ones = [mutant for mutant in survivors if not reason_for(mutant, equivalent)]
    problems = [f"{m.name} survives  {'  '.join(m.diff)}".rstrip() for m in open_ones]
    for name in equivalent:
        if not any(m.name == name or fnmatch.fnmatchcase(m.name, name) for m in survivors):
            why = f"{killed[name]} kills it" if name in killed else "there is no such survivor"
            problems.append(f"{EQUIVALENT} lists {name}, but {why}")
    return problems
