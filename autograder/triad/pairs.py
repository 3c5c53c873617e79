"""Which corners of a card never meet in one call.

Mistakes hide where two corners meet: right for bfloat16 and right for a view, wrong for a view in
bfloat16; right for one token and right where tokens are dropped, wrong where the one token is.  A
suite that tries every declared corner (domain.py) may still never try two of them at once.  So this
lists, for each function, the pairs of declared corners that no call of any test has both of.

Some pairs cannot be, or say nothing: the list is for whoever writes tests, and fails nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from autograder.labs.manifest import LabSpec
from autograder.triad.arrived import watch
from autograder.triad.forked import RECORDED, Run, in_workers, run_all
from autograder.triad.summary import Summary, touches
from autograder.triad.variants import frozen_but

KINDS = "float64 float32 float16 bfloat16 int64 int32 int8 uint8 bool int float str".split()
NOTHING = ("empty", "one element", "size 1")  # of which a view says little
Corner = tuple[str, str]  # ("dispatch.x", "strided")


def watch_pairs(namespace: dict, names: list[str], declared: dict[str, list[str]]) -> None:
    """Notes in the namespace which declared corners met in calls of these functions."""
    met: set[tuple[Corner, Corner]] = set()

    def note(call: dict[str, Summary]) -> None:
        touched = [
            (argument, corner)
            for argument, seen in call.items()
            for corner in declared.get(argument, ())
            if touches(seen.words, seen.ranges, corner)
        ]
        met.update(combinations(sorted(touched), 2))

    watch(namespace, names, note)
    namespace[RECORDED] = met


def unmet_pairs(
    lab: LabSpec, cells: tuple[str, ...], *, jobs: int | None = None
) -> Iterator[tuple[str, list[tuple[Corner, Corner]]]]:
    """(exercise, pairs of corners that no test tries at once, under seed 0), as they are ready."""
    for batch, answer in in_workers(pairs_job, lab, cells, list(lab.exercises), jobs, 1):
        pairs = msgspec.json.decode(answer, type=list[tuple[Corner, Corner]])
        yield batch[0], pairs


def pairs_job(lab: LabSpec, cells: tuple[str, ...], exercises: Sequence[str]) -> bytes:
    """What a worker does."""
    exercise = lab.exercises[exercises[0]]
    declared = {argument: list(corners) for argument, corners in exercise.domain.items()}
    freeze = frozen_but(lab, exercises[0], ())[-1].source
    cell = "from autograder.triad.pairs import watch_pairs\n"
    cell += f"watch_pairs(globals(), {list(exercise.functions)!r}, {declared!r})"
    run, met = Run((freeze, cell), exercises[0], 0), set()
    for kind in lab.test_files:
        (outcome,) = run_all(lab, cells, [run], kind)
        met |= {tuple(map(tuple, pair)) for pair in outcome.recorded}
    return msgspec.json.encode([pair for pair in possible_pairs(declared) if pair not in met])


def possible_pairs(declared: dict[str, list[str]]) -> list[tuple[Corner, Corner]]:
    """Pairs of corners of one function that do not exclude each other at first sight."""
    corners = [
        (argument, corner)
        for argument, own in declared.items()
        for corner in own
        if not corner.startswith("raises") and corner != "function"
    ]
    return [pair for pair in combinations(sorted(corners), 2) if can_meet(*pair)]


def can_meet(a: Corner, b: Corner) -> bool:
    """Of two arguments of a function: always. Of one: a dtype, or a view, and something else."""
    if a[0] != b[0]:
        return a[0].rpartition(".")[0] == b[0].rpartition(".")[0]
    words = {a[1], b[1]}
    if "None" in words or words <= {*KINDS}:
        return False
    if words & {*KINDS}:
        return not all(word.endswith("-d") or word in KINDS for word in words)
    return "strided" in words and not words & {*NOTHING}
