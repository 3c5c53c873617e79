"""Public tests of lab14: what lab.check runs.  Examples by hand, invariants, and random walks.

A walk is a list of arrivals and steps of a server.  One call runs all walks beside the student's
code; the judge here follows the server by what the scheduler answered, and says what rule a step
broke.  A walk that fails is made as short as it can be.
"""

import math

import torch

from efflib.lab import exercise, expect_close
from efflib.lab.walks import expect_walks


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def whole(value, what):
    """The int that `value` is; fails for a float or a bool."""
    right = not isinstance(value, bool) and hasattr(value, "__index__")
    assert right, f"{what} is {value!r} of type {type(value).__name__}, not an int"
    return value.__index__()


def pairs(value, what):
    """A plan or a line: a list of (name, number)."""
    assert isinstance(value, (list, tuple)), f"{what} is {value!r}, not a list"
    for pair in value:
        right = isinstance(pair, (list, tuple)) and len(pair) == 2
        assert right, f"{what} holds {pair!r}, not a pair (name, tokens)"
    return [(name, whole(n, f"the number of {name!r} in {what}")) for name, n in value]


def blocks_of(tokens, block):
    return math.ceil(tokens / block)


# ---- walks of a server -----------------------------------------------------------------------


def server_walk(rng, length, prompt, output):
    """Random arrivals and steps."""
    walk, names = [], iter([a + b for a in "ABCD" for b in "abcdefghij"])
    for _ in range(length):
        if draw(rng, 0, 2) == 0:
            walk.append(("arrive", next(names), draw(rng, 1, prompt), draw(rng, 1, output)))
        else:
            walk.append(("step",))
    return walk


def drive_server(student, walks, which, blocks, budget, most, block):
    """Runs beside the student's code: what the scheduler answered in each step.

    Whoever runs, waits and is done follows from the answers; where one cannot be followed the walk
    ends.
    """
    seen = []
    for walk in walks:
        running, waiting, left, answers = {}, [], {}, []
        for op in walk:
            if op[0] == "arrive":
                waiting.append((op[1], op[2]))
                left[op[1]] = op[3]
                answers.append(None)
                continue
            state = [(name, *entry) for name, entry in running.items()]
            free = blocks - sum(-(-cached // block) for _, _, cached in state)
            try:
                answer = getattr(student, which)(state, list(waiting), free, budget, most, block)
                work, back = answer if which == "preempting" else (answer, [])
                work, back = [(name, n.__index__()) for name, n in work], list(back)
            except NotImplementedError:
                raise
            except Exception as fault:
                answers.append(f"{type(fault).__name__}: {fault}"[:200])
                break
            answers.append((work, back))
            known = {name for name, _ in waiting} | set(running)
            if not {name for name, _ in work} <= known - set(back) or not set(back) <= set(running):
                break
            again = [(name, entry[0]) for name, entry in running.items() if name in back]
            waiting = again + waiting
            for name in back:
                running.pop(name, None)
            for name, n in work:
                if name not in running:
                    running[name] = [dict(waiting)[name], 0]
                    waiting = [pair for pair in waiting if pair[0] != name]
                running[name][1] += n
                if running[name][1] >= running[name][0]:
                    left[name] -= 1
                    running[name][0] = running[name][1] + 1
                    if left[name] == 0:
                        del running[name]
        seen.append(answers + ["not reached"] * (len(walk) - len(answers)))
    return seen


def rules(which, state, answer):
    """The rule that an answer breaks in a state, in words, or None."""
    running, waiting, free, budget, most, block = state
    if isinstance(answer, str):
        return f"it raised or returned something else: {answer}"
    work, back = answer
    lacks = {name: tokens - cached for name, (tokens, cached) in running.items()} | dict(waiting)
    names = [name for name, _ in work]
    for name, n in work:
        if name not in lacks:
            return f"{name!r} neither runs nor waits"
        if not 1 <= n <= lacks[name]:
            return f"{name} gets {n} tokens and lacks {lacks[name]}"
    if len(set(names)) < len(names):
        return f"somebody is served twice in one step: {work}"
    if sum(n for _, n in work) > budget:
        return f"{sum(n for _, n in work)} tokens, and the budget is {budget}"
    order = list(running)
    if back != order[::-1][: len(back)]:
        return f"{back} are put back, and {order} run in this order: the last one goes first"
    if set(back) & set(names):
        return "somebody is put back and served"
    cached = {name: entry[1] for name, entry in running.items()}
    spare = free + sum(blocks_of(cached[name], block) for name in back)
    taken = sum(
        blocks_of(cached.get(name, 0) + n, block) - blocks_of(cached.get(name, 0), block)
        for name, n in work
    )
    if taken > spare:
        return f"{taken} blocks are taken, and {spare} are free"
    new = [name for name in names if name not in running]
    if new != [name for name, _ in waiting][: len(new)]:
        return f"{new} are admitted, and the line is {[name for name, _ in waiting]}"
    if new and len(running) + len(new) > most:
        return f"{len(running) + len(new)} run, and at most {most} may"
    if names != [name for name in order if name in names] + new:
        return f"{names} is not the order of {order} and then of the line"
    return RULES[which](running, waiting, free, budget, most, block, work, back, new)


def could_come(running, waiting, free, most, block):
    """Whether there are places and blocks for the first in line."""
    return len(running) < most and blocks_of(waiting[0][1], block) <= free


def apart_rules(running, waiting, free, budget, most, block, work, back, new):
    """Of exercise 1."""
    if new and len(new) < len(work):
        return "prompts and answers are in one step"
    if any(n < dict(waiting)[name] for name, n in work if name in new):
        return "a prompt is cut"
    if (
        waiting
        and not new
        and waiting[0][1] <= budget
        and could_come(running, waiting, free, most, block)
    ):
        return f"{waiting[0][0]} waits, and budget, blocks and most have room for it"
    could = [n for n, (_, c) in running.items() if c % block or free]
    if not work and budget and could:
        return f"nobody gets a token, and {could} could have one"
    return None


def mixed_rules(running, waiting, free, budget, most, block, work, back, new):
    """Of exercise 2."""
    got, left = dict(work), budget - sum(n for _, n in work)
    for name, (tokens, cached) in running.items():
        end = cached + got.get(name, 0)
        if left and end < tokens and end % block:
            return f"{name} lacks {tokens - end} more tokens, budget and its last block have room"
        free -= blocks_of(end, block) - blocks_of(cached, block)
    if waiting and not new and left and could_come(running, waiting, free, most, block):
        return f"{waiting[0][0]} waits, and budget, blocks and most have room for it"
    return None


def preempting_rules(running, waiting, free, budget, most, block, work, back, new):
    """Of exercise 4."""
    if back and new:
        return "somebody is put back, and somebody else admitted"
    got, left = dict(work), budget - sum(n for _, n in work)
    for name in running:
        if left and name not in back and not got.get(name):
            return f"{name} gets nothing, and there is budget: it has room or somebody is put back"
    need = sum(blocks_of(t, block) - blocks_of(c, block) for t, c in running.values())
    if back and need <= free:
        return f"{back} are put back, and {free} free blocks are enough for all who run"
    return None


RULES = {
    "prefill_first": apart_rules,
    "mixed_chunks": mixed_rules,
    "preempting": preempting_rules,
}


def judge_server(which, blocks, budget, most, block):
    def judge(walk, seen):
        running, waiting, left = {}, [], {}
        for i, (op, answer) in enumerate(zip(walk, seen, strict=True)):
            if op[0] == "arrive":
                waiting.append((op[1], op[2]))
                left[op[1]] = op[3]
                continue
            free = blocks - sum(blocks_of(c, block) for _, c in running.values())
            state = running, waiting, free, budget, most, block
            answer = answer if isinstance(answer, str) else ([*map(tuple, answer[0])], answer[1])
            if broken := rules(which, state, answer):
                shown = [(name, *entry) for name, entry in running.items()]
                limits = f"{free} blocks of {block} free, budget {budget}"
                return i, f"{broken} (running {shown}, waiting {waiting}, {limits}: {answer})"
            work, back = answer
            waiting = [(n, t) for n, (t, _) in running.items() if n in back] + waiting
            for name in back:
                del running[name]
            for name, n in work:
                if name not in running:
                    running[name] = [dict(waiting)[name], 0]
                    waiting = [pair for pair in waiting if pair[0] != name]
                running[name][1] += n
                if running[name][1] == running[name][0]:
                    left[name] -= 1
                    running[name][0] += 1
                    if left[name] == 0:
                        del running[name]
        return None

    return judge


def say_server(op):
    if op[0] == "step":
        return "step"
    return f"{op[1]} arrives (prompt {op[2]}, answer {op[3]})"


def check_walks(student, rng, which, cases, count=12, length=24):
    for blocks, budget, most, block, prompt, output in cases:
        limits = blocks, budget, most, block
        expect_walks(
            lambda walks, limits=limits: student.drive(drive_server, walks, which, *limits),
            [server_walk(rng, length, prompt, output) for _ in range(count)],
            judge_server(which, *limits),
            lambda walk: walk,
            say_server,
            shorten=True,
        )


def check_plan(student, which, state, right):
    work = pairs(getattr(student, which)(*state), which)
    running, waiting, free, budget, most, block = state
    assert work == right, (
        f"running {running}, waiting {waiting}, {free} blocks of {block} free, budget {budget}, at "
        f"most {most}: {work}, expected {right}"
    )


# ---- exercise 1: prompts first ---------------------------------------------------------------

AB, CD = [("A", 9, 8), ("B", 6, 5)], [("C", 7), ("D", 4), ("E", 1)]


@exercise(
    "ex1",
    points=2,
    invariant="blocks of 4: C (7 tokens) comes with 2 free blocks and a budget of 10, D does not",
    cause="somebody overtakes, budget or blocks of the first not taken off for the second, most "
    "not counted with who runs already, or a plan for both kinds of work",
)
def test_prompts_by_hand(student, rng):
    for free, budget, most, right in (
        (2, 10, 9, [("C", 7)]),
        (3, 11, 9, [("C", 7), ("D", 4)]),
        (4, 12, 9, [("C", 7), ("D", 4), ("E", 1)]),
        (4, 11, 9, [("C", 7), ("D", 4)]),
        (3, 12, 9, [("C", 7), ("D", 4)]),
        (9, 99, 4, [("C", 7), ("D", 4)]),
        (9, 99, 3, [("C", 7)]),
        (9, 9, 9, [("C", 7)]),
    ):
        check_plan(student, "prefill_first", (AB, CD, free, budget, most, 4), right)


@exercise(
    "ex1",
    points=2,
    invariant="if nobody is admitted each of A and B gets a token; without a free block only B, "
    "whose last block is not full",
    cause="everybody stops at the first who needs a block, or a block is counted for every token",
)
def test_answers_by_hand(student, rng):
    for free, budget, most, right in (
        (1, 10, 9, [("A", 1), ("B", 1)]),
        (0, 10, 9, [("B", 1)]),
        (9, 99, 2, [("A", 1), ("B", 1)]),
        (1, 1, 9, [("A", 1)]),
        (0, 1, 9, [("B", 1)]),
        (9, 0, 9, []),
    ):
        check_plan(student, "prefill_first", (AB, CD, free, budget, most, 4), right)
    check_plan(student, "prefill_first", (AB, [], 9, 9, 9, 4), [("A", 1), ("B", 1)])
    check_plan(student, "prefill_first", ([], [("C", 3)], 9, 9, 9, 4), [("C", 3)])
    check_plan(student, "prefill_first", ([], [], 9, 9, 9, 4), [])


@exercise(
    "ex1",
    points=2,
    invariant="over random arrivals: budget, blocks and most are kept, nobody overtakes, nobody is "
    "served twice, and nobody waits for nothing",
    cause="a rule that two examples do not show: read the shortest walk that breaks it",
)
def test_walks_of_the_server(student, rng):
    check_walks(student, rng, "prefill_first", ((30, 9, 3, 4, 9, 4), (40, 20, 9, 3, 9, 9)))


# ---- exercise 2: pieces ----------------------------------------------------------------------

HALF, LINE = [("A", 9, 8), ("B", 20, 5)], [("C", 7), ("D", 4)]


@exercise(
    "ex2",
    points=2,
    invariant="blocks of 4: A gets 1 and B 15 of the tokens that they lack; with 10 B gets 9",
    cause="tokens in place of what is lacking, the empty rows of the last block not counted, or "
    "blocks of the cached tokens counted again",
)
def test_who_runs_by_hand(student, rng):
    for free, budget, right in (
        (9, 10, [("A", 1), ("B", 9)]),
        (4, 16, [("A", 1), ("B", 15)]),
        (3, 16, [("A", 1), ("B", 11)]),
        (2, 16, [("A", 1), ("B", 7)]),
        (1, 16, [("A", 1), ("B", 3)]),
        (0, 16, [("B", 3)]),
        (0, 2, [("B", 2)]),
        (9, 1, [("A", 1)]),
        (9, 0, []),
    ):
        check_plan(student, "mixed_chunks", (HALF, [], free, budget, 9, 4), right)


@exercise(
    "ex2",
    points=2,
    invariant="C (7 tokens) is admitted with 2 blocks still free, and takes those of its piece",
    cause="admitted although only its piece fits, charged for all its blocks, or most counted "
    "without who runs",
)
def test_pieces_by_hand(student, rng):
    both = [("A", 1), ("B", 15)]
    for free, budget, most, right in (
        (5, 20, 9, both),
        (6, 20, 9, [*both, ("C", 4)]),
        (6, 16, 9, both),
        (6, 17, 9, [*both, ("C", 1)]),
        (7, 30, 9, [*both, ("C", 7), ("D", 4)]),
        (6, 30, 9, [*both, ("C", 7)]),
        (9, 30, 3, [*both, ("C", 7)]),
        (9, 30, 2, both),
    ):
        check_plan(student, "mixed_chunks", (HALF, LINE, free, budget, most, 4), right)
    check_plan(student, "mixed_chunks", ([], LINE, 3, 8, 9, 4), [("C", 7), ("D", 1)])
    check_plan(student, "mixed_chunks", ([], LINE, 2, 3, 9, 4), [("C", 3)])
    check_plan(student, "mixed_chunks", ([], [], 3, 8, 9, 4), [])


@exercise(
    "ex2",
    points=2,
    invariant="over random arrivals: budget, blocks and most are kept, order too, and who runs "
    "gets what budget and its last block allow",
    cause="a rule that two examples do not show: read the shortest walk that breaks it",
)
def test_walks_with_pieces(student, rng):
    check_walks(student, rng, "mixed_chunks", ((30, 6, 3, 4, 15, 4), (12, 9, 9, 3, 9, 9)))


# ---- exercise 3: tails, limits, Little, the knee ---------------------------------------------

A3, B3 = (0.0, [1.0, 2.0, 4.0]), (1.0, [5.0])


@exercise(
    "ex3",
    points=2,
    invariant="A at 0 with tokens at 1, 2, 4 and B at 1 with one at 5: TTFT 1 and 4, TPOT 1.5",
    cause="divided by n, a request of one token given a TPOT of 0, or the nearest value in place "
    "of the line between two",
)
def test_tails_by_hand(student, rng):
    for log, ttft, tpot in (
        ([A3, B3], (2.5, 3.97), (1.5, 1.5)),
        ([B3, A3], (2.5, 3.97), (1.5, 1.5)),
        ([B3], (4.0, 4.0), None),
        ([A3, A3, (0.0, [2.0, 2.5])], (1.0, 1.98), (1.5, 1.5)),
    ):
        seen = student.tails(log)
        right = isinstance(seen, dict) and set(seen) == {"ttft", "tpot"}
        assert right, f"tails returned {seen!r}, not a dictionary with ttft and tpot"
        for name, wanted in (("ttft", ttft), ("tpot", tpot)):
            if wanted is None:
                assert seen[name] is None, f"{name} is {seen[name]!r}, and no request has one"
                continue
            assert seen[name] is not None and len(seen[name]) == 2, f"{name} is {seen[name]!r}"
            for value, number, q in zip(seen[name], wanted, ("p50", "p99"), strict=True):
                what = f"{q} of {name} of {log}"
                expect_close(torch.tensor(float(value)), torch.tensor(number), what=what, rtol=1e-6)


@exercise(
    "ex3",
    points=2,
    invariant="of A and B, A alone keeps 1 s and 1.5 s a token, just so; 1.6 are inside on average",
    cause="less than in place of at most, one limit only, a request of one token left out, or the "
    "time from another arrival than the first",
)
def test_attained_and_inside_by_hand(student, rng):
    for limits, right in (
        ((1.0, 1.5), 0.5),
        ((0.99, 1.5), 0.0),
        ((4.0, 1.49), 0.5),
        ((4.0, 1.5), 1.0),
        ((math.inf, 0.0), 0.5),
        ((3.9, math.inf), 0.5),
    ):
        seen = student.attained([A3, B3], *limits)
        assert math.isclose(seen, right), f"limits {limits}: {seen}, expected {right}"
    for log, right in (
        ([A3, B3], 1.6),
        ([B3, A3], 1.6),
        ([B3], 1.0),
        ([A3, (10.0, [11.0])], 5 / 11),
    ):
        seen = student.inside(log)
        assert math.isclose(seen, right, rel_tol=1e-9), f"{log}: {seen} inside, expected {right}"


@exercise(
    "ex3",
    points=2,
    invariant="(1, 1.0) and (2, 0.8) cross 0.9 at 1.5; a rate behind a bad one does not count",
    cause="the largest good rate taken, no line between two rates, or points taken in the order "
    "in which they come",
)
def test_knee_by_hand(student, rng):
    for points, right in (
        ([(1, 1.0), (2, 0.8)], 1.5),
        ([(2, 0.8), (1, 1.0)], 1.5),
        ([(1, 1.0), (2, 0.7), (3, 1.0)], 4 / 3),
        ([(1, 0.5), (2, 1.0)], 0.0),
        ([(1, 0.9), (3, 0.95)], 3.0),
        ([(1, 0.9), (3, 0.5)], 1.0),
        ([(4, 0.95)], 4.0),
    ):
        seen = student.knee(points, 0.9)
        assert math.isclose(seen, right, abs_tol=1e-9), f"{points}: {seen}, expected {right}"


# ---- exercise 4: put back --------------------------------------------------------------------

ABC = [("A", 9, 8), ("B", 5, 4), ("C", 8, 6)]


def check_put_back(student, state, work, back):
    seen = student.preempting(*state)
    right = isinstance(seen, (list, tuple)) and len(seen) == 2
    assert right, f"preempting returned {seen!r}, not (work, put_back)"
    seen = pairs(seen[0], "the work of preempting"), list(seen[1])
    running, waiting, free, budget, _, block = state
    assert seen == (work, back), (
        f"running {running}, waiting {waiting}, {free} blocks of {block} free, budget {budget}: "
        f"{seen}, expected {(work, back)}"
    )


@exercise(
    "ex4",
    points=2,
    invariant="A, B, C in blocks of 4, none free: C is put back, A and B go on with its blocks",
    cause="the first one put back, one that still has room in its last block, somebody admitted in "
    "the same step, or the blocks that came free not used",
)
def test_put_back_by_hand(student, rng):
    for free, budget, work, back in (
        (0, 9, [("A", 1), ("B", 1)], ["C"]),
        (1, 9, [("A", 1), ("B", 1)], ["C"]),
        (2, 9, [("A", 1), ("B", 1), ("C", 2)], []),
        (3, 9, [("A", 1), ("B", 1), ("C", 2), ("D", 1)], []),
        (0, 1, [("A", 1)], ["C"]),
        (0, 0, [], []),
        (1, 1, [("A", 1)], []),
    ):
        state = ABC, [("D", 1)], free, budget, 9, 4
        check_put_back(student, state, work, back)
    three = [("A", 9, 8), ("B", 5, 4), ("C", 9, 8)]
    check_put_back(student, ([("A", 9, 8), ("B", 5, 4)], [], 0, 9, 9, 4), [("A", 1)], ["B"])
    check_put_back(student, (three, [], 1, 9, 9, 4), [("A", 1), ("B", 1)], ["C"])
    check_put_back(student, ([("A", 6, 5), ("B", 5, 4)], [], 0, 9, 9, 4), [("A", 1)], ["B"])
    three = [("A", 20, 4), ("B", 12, 11), ("C", 5, 4)]
    check_put_back(student, (three, [], 0, 9, 9, 4), [("A", 4), ("B", 1)], ["C"])


@exercise(
    "ex4",
    points=2,
    invariant="who is put back stands at the head of the line, as it ran, with all of its tokens",
    cause="at the end of the line, in the order of putting back, with its cached tokens only, or "
    "with what it lacks",
)
def test_the_line_after(student, rng):
    for back, right in (
        (["C"], [("C", 8), ("D", 3)]),
        (["C", "B"], [("B", 5), ("C", 8), ("D", 3)]),
        ([], [("D", 3)]),
        (["C", "B", "A"], [("A", 9), ("B", 5), ("C", 8), ("D", 3)]),
    ):
        seen = pairs(student.line_after(ABC, [("D", 3)], back), "line_after")
        assert seen == right, f"{back} put back: the line is {seen}, expected {right}"


@exercise(
    "ex4",
    points=2,
    invariant="over random arrivals in little memory: nobody is lost or served twice, the last "
    "goes first, nobody is put back without need",
    cause="a rule that the examples do not show: read the shortest walk that breaks it",
)
def test_walks_in_little_memory(student, rng):
    check_walks(student, rng, "preempting", ((6, 9, 4, 4, 8, 9), (9, 5, 9, 2, 7, 9)))


# ---- exercise 5: the tree --------------------------------------------------------------------


class Prefixes:
    """The model: every stored prefix, when it was used, who holds it, and where edges end."""

    def __init__(self):
        self.used, self.holders, self.cuts, self.now, self.held = {}, {}, set(), 0, []

    def found(self, text):
        return max(i for i in range(len(text) + 1) if i == 0 or text[:i] in self.used)

    def touch(self, text, n):
        self.now += 1
        for i in range(1, n + 1):
            self.used[text[:i]] = self.now
        end = text[:n]
        while n and end not in self.cuts:  # the rest of the edge in which it ends
            [end] = [p for p in self.used if len(p) == len(end) + 1 and p[:-1] == end]
            self.used[end] = self.now

    def apply(self, name, text):
        """What an operation must return."""
        if name == "evict":
            return self.evict(len(text))
        n = self.found(text)
        if name == "insert":
            self.cuts |= {text[:n], text} - {()}
            self.holders |= {text[:i]: 0 for i in range(n + 1, len(text) + 1)}
            self.touch(text, len(text))
            return len(text) - n
        if name == "hold":
            self.cuts |= {text[:n]} - {()}
            for i in range(1, n + 1):
                self.holders[text[:i]] += 1
            self.held.append(text[:n])
        self.touch(text, n)
        return n

    def release(self, text):
        for i in range(1, len(text) + 1):
            self.holders[text[:i]] -= 1

    def evict(self, wanted):
        gone = 0
        while gone < wanted:
            inner = {p[:-1] for p in self.used}
            leaves = [p for p in self.used if p not in inner and not self.holders[p]]
            if not leaves:
                break
            oldest = min(leaves, key=lambda p: self.used[p])
            start = max((i for i in range(len(oldest)) if oldest[:i] in self.cuts), default=0)
            for i in range(start + 1, len(oldest) + 1):
                del self.used[oldest[:i]], self.holders[oldest[:i]]
                gone += 1
            self.cuts.discard(oldest)
        return gone


def tree_walk(rng, length, letters, longest):
    """Random operations: ("release", i) gives back the i-th of what is held; evict has no text."""
    walk = []
    for _ in range(length):
        kind = ("insert", "insert", "match", "hold", "release", "evict")[draw(rng, 0, 5)]
        text = tuple(draw(rng, 0, letters - 1) for _ in range(draw(rng, 0, longest)))
        walk.append((kind, draw(rng, 0, 9)) if kind == "release" else (kind, text))
    return walk


def drive_tree(student, walks):
    """Runs beside the student's code: what each operation returned, and the size after it."""
    seen = []
    for walk in walks:
        tree, held, rows = student.Radix(), [], []
        other = student.Radix()  # which is none of this one's business
        for name, what in walk:
            other.insert([5, 5, 5])
            try:
                if name == "release":
                    value = None
                    if held:
                        tree.release(held.pop(what % len(held)))
                elif name == "evict":
                    value = tree.evict(len(what))
                else:
                    value = getattr(tree, name)(list(what))
                    if name == "hold":
                        held.append(list(what)[:value])
                rows.append(
                    (value if value is None else value.__index__(), tree.size().__index__())
                )
            except NotImplementedError:
                raise
            except Exception as fault:
                rows.append((f"{type(fault).__name__}: {fault}"[:120], -1))
        seen.append(rows)
    return seen


def judge_tree(walk, seen):
    model = Prefixes()
    for i, ((name, what), (value, size)) in enumerate(zip(walk, seen, strict=True)):
        if name == "release":
            right = None
            if model.held:
                model.release(model.held.pop(what % len(model.held)))
        else:
            right = model.apply(name, tuple(what))
        if value != right:
            return i, f"it returned {value!r}, expected {right!r}"
        if size != len(model.used):
            return i, f"size() is {size}, expected {len(model.used)}"
    return None


def say_tree(op):
    name, what = op
    if name == "release":
        return "release"
    return (
        f"evict {len(what)}"
        if name == "evict"
        else f"{name} {''.join('abcdef'[t] for t in what)!r}"
    )


def check_tree(student, walks, shorten=True):
    expect_walks(
        lambda walks: student.drive(drive_tree, walks),
        walks,
        judge_tree,
        lambda walk: walk,
        say_tree,
        shorten=shorten,
    )


A, B, C, D, E, F = range(6)


@exercise(
    "ex5",
    points=2,
    invariant="abcdef and abcxy share abc: 6 new tokens, then 2; abcdeq finds 5 of them",
    cause="match that stops at whole edges, an edge not cut or cut in the wrong place, or a text "
    "that ends within an edge",
)
def test_match_and_insert_by_hand(student, rng):
    walk = [
        ("match", (A, B)), ("insert", (A, B, C, D, E, F)), ("match", (A, B, C, B)),
        ("match", (A, B, C, D, E, A)), ("insert", (A, B, C, B, A)), ("match", (A, B, C, B)),
        ("insert", (A, B)), ("insert", ()), ("match", (A, B, C, D, E, F)), ("match", (B,)),
        ("insert", (F,)), ("match", ()),
    ]  # fmt: skip
    check_tree(student, [walk], shorten=False)


@exercise(
    "ex5",
    points=2,
    invariant="what is held stays, its leaf goes whole, the longest unused first, then its parent",
    cause="holders lost in a cut, the parent of the last leaf never looked at again, a held leaf "
    "dropped, or the time of use not noted by match and hold",
)
def test_hold_and_evict_by_hand(student, rng):
    walk = [
        ("insert", (A, B, C, D, E, F)), ("hold", (A, B, C, B)), ("insert", (A, B, C, B, A)),
        ("evict", (A,)), ("evict", (A,) * 9), ("release", 0), ("evict", (A,) * 9),
        ("insert", (A, B)), ("insert", (C, D)), ("match", (A,)), ("evict", (A,)),
        ("match", (A, B)), ("evict", ()), ("match", (C,)),
    ]  # fmt: skip
    check_tree(student, [walk], shorten=False)


@exercise(
    "ex5",
    points=2,
    invariant="after any operations: sizes, matches and what goes are those of a set of prefixes",
    cause="a rule that the examples do not show: read the shortest walk that breaks it",
)
def test_walks_of_the_tree(student, rng):
    walks = [tree_walk(rng, 20, 2, 5) for _ in range(20)]
    check_tree(student, walks + [tree_walk(rng, 20, 3, 4) for _ in range(10)])


# ---- exercise 6: two pools -------------------------------------------------------------------


def numbers(values, what, count):
    assert isinstance(values, (list, tuple)), f"{what} is {values!r}, not a list"
    assert len(values) == count, f"{what} has {len(values)} entries, expected {count}"
    return [float(v) for v in values]


def drive_decoding(student, cases, fixed, each, row):
    """Runs beside the student's code: times, and what `step` was asked."""
    seen = []
    for ready, cached, left, most in cases:
        asked = []

        def step(rows, asked=asked):
            asked.append(list(rows))
            return fixed + each * len(rows) + row * sum(rows)

        times = student.decode_pool(list(ready), list(cached), list(left), most, step)
        seen.append(([[float(t) for t in request] for request in times], asked))
    return seen


@exercise(
    "ex6",
    points=2,
    invariant="two machines; prompts at 0, 0, 1 that take 4, 1, 1 are read at 4, 1, 2",
    cause="the machine of the last prompt in place of the one free first, or a start before the "
    "arrival",
)
def test_prefill_by_hand(student, rng):
    for arrivals, seconds, workers, right in (
        ([0, 0, 1], [4, 1, 1], 2, [4, 1, 2]),
        ([0, 0, 1], [4, 1, 1], 1, [4, 5, 6]),
        ([0, 0, 1], [4, 1, 1], 3, [4, 1, 2]),
        ([2, 9], [1, 1], 1, [3, 10]),
        ([0, 1, 2, 2], [5, 3, 2, 1], 2, [5, 4, 6, 6]),
        ([], [], 2, []),
    ):
        seen = numbers(student.prefill_pool(arrivals, seconds, workers), "ends", len(arrivals))
        call = f"prefill_pool({arrivals}, {seconds}, {workers})"
        assert seen == right, f"{call} is {seen}, expected {right}"


@exercise(
    "ex6",
    points=2,
    invariant="the link carries what is read first: ends 4, 1, 2 and 2 bytes arrive at 7, 3, 5",
    cause="the order of the list, results in the order of the link, or a link that carries all at "
    "once",
)
def test_link_by_hand(student, rng):
    for ends, sizes, bandwidth, right in (
        ([4, 1, 2], [2, 2, 2], 1, [7, 3, 5]),
        ([4, 1, 2], [2, 2, 2], 4, [4.5, 1.5, 2.5]),
        ([4, 1, 2], [2, 8, 2], 2, [7, 5, 6]),
        ([3, 3], [1, 2], 1, [4, 6]),
        ([5], [0], 1, [5]),
        ([], [], 1, []),
    ):
        seen = numbers(student.hand_over(ends, sizes, bandwidth), "ready", len(ends))
        call = f"hand_over({ends}, {sizes}, {bandwidth})"
        assert seen == right, f"{call} is {seen}, expected {right}"


@exercise(
    "ex6",
    points=2,
    invariant="steps of 1, one at a time, ready at 7, 3, 5 with 1, 2, 1 to make: 8; 4, 5; 6",
    cause="a clock that jumps back or not at all, a batch sorted anew, cached tokens that do not "
    "grow, or somebody with nothing to make who joins",
)
def test_decoding_by_hand(student, rng):
    cases = [
        (([7, 3, 5], [9, 9, 9], [1, 2, 1], 1), [[8], [4, 5], [6]], [[9], [10], [9], [9]]),
        (([7, 3, 5], [9, 4, 2], [1, 3, 1], 2), [[8], [4, 5, 6], [6]], [[4], [5], [6, 2], [9]]),
        (([1, 0], [3, 5], [0, 1], 2), [[], [1]], [[5]]),
        (([1, 1, 0], [3, 5, 7], [2, 1, 4], 2), [[2, 3], [4], [1, 2, 3, 4]],
         [[7], [8, 3], [9, 4], [10, 5]]),
        (([0, 0], [3, 5], [1, 1], 2), [[1], [1]], [[3, 5]]),
        (([0, 0], [3, 5], [2, 2], 1), [[1, 2], [3, 4]], [[3], [4], [5], [6]]),
        (([], [], [], 2), [], []),
    ]  # fmt: skip
    runs = student.drive(drive_decoding, [case for case, _, _ in cases], 1.0, 0.0, 0.0)
    for (case, times, rows), (seen, asked) in zip(cases, runs, strict=True):
        call = "decode_pool({}, {}, {}, {}, step)".format(*case)
        assert seen == times, f"{call}, steps of 1: {seen}, expected {times}"
        assert asked == rows, f"{call} asked step for {asked}, expected {rows}"
