"""Objects with a state, tested by random sequences of operations: walks.

A test draws many walks, and one driver runs them all beside the student's code: one call, whatever
their number.  The test's own model then judges what was seen.  A walk that fails is made shorter,
as long as it fails, so that a student reads "append A 3, fork A B, append B 1: block 0 was written
while A reads it", and not forty operations.
"""

from collections.abc import Callable, Sequence

Walk = list  # of operations: tuples (name, arguments...)
Seen = list  # what the driver saw after each of them
Judge = Callable[[Walk, Seen], tuple[int, str] | None]  # (number of the operation, what is wrong)

ROUNDS = 40  # of making a walk shorter, each one call


def expect_walks(
    run: Callable[[list[Walk]], list[Seen]],
    walks: Sequence[Walk],
    judge: Judge,
    possible: Callable[[Walk], Walk],
    say: Callable[[tuple], str],
    shorten: bool,
) -> None:
    """Fails with the shortest failing walk that is found, if any of the walks fails.

    run: walks -> what was seen, in one call; judge: None for a walk that is as it must be;
    possible: a walk from which operations were taken, without those that no longer make sense;
    say: an operation in words.  shorten: where nobody reads the message, it need not be short.
    """
    failing = first_failure(run, walks, judge)
    if failing is None:
        return
    walk, wrong = failing
    for _ in range(ROUNDS if shorten else 0):
        shorter = [possible(walk[:i] + walk[i + 1 :]) for i in range(len(walk) - 1)]
        failing = first_failure(run, shorter, judge)
        if failing is None:
            break
        walk, wrong = failing
    raise AssertionError(f"{', '.join(map(say, walk))}: {wrong}")


def first_failure(
    run: Callable[[list[Walk]], list[Seen]], walks: Sequence[Walk], judge: Judge
) -> tuple[Walk, str] | None:
    """The failing walk that fails after the fewest operations, up to there, and what is wrong."""
    failing = []
    for walk, seen in zip(walks, run(list(walks)) if walks else [], strict=True):
        if (wrong := judge(walk, seen)) is not None:
            failing.append((walk[: wrong[0] + 1], wrong[1]))
    return min(failing, key=lambda pair: len(pair[0]), default=None)
