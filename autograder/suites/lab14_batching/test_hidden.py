"""Hidden tests of lab14: schedulers counted token by token, longer walks, events, ticking clocks.

Inputs are drawn for each submission.  Schedulers are compared with slow ones that hand out one
token after another; a server is followed from its first request to its last.
"""

import math
from fractions import Fraction

import torch

from efflib.lab import exercise, expect_at_most, expect_close
from efflib.lab.again import held_results
from efflib.lab.walks import expect_walks


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def pairs(value):
    """A plan or a line as a list of (name, int)."""
    assert isinstance(value, (list, tuple)), f"a {type(value).__name__} in place of a list"
    for pair in value:
        assert isinstance(pair, (list, tuple)) and len(pair) == 2, "an entry is no pair"
        right = not isinstance(pair[1], bool) and hasattr(pair[1], "__index__")
        assert right, "a number of tokens is no int"
    return [(name, n.__index__()) for name, n in value]


# ---- slow schedulers -------------------------------------------------------------------------


class Shop:
    """Budget and blocks, handed out token by token."""

    def __init__(self, free, budget, block):
        self.free, self.budget, self.block = free, budget, block

    def token(self, cached):
        """Whether one more token behind so many can be computed; if so it is paid."""
        full = cached % self.block == 0
        if self.budget == 0 or (full and self.free == 0):
            return False
        self.budget, self.free = self.budget - 1, self.free - full
        return True

    def tokens(self, cached, wanted):
        if wanted > 64:
            return self.many(cached, wanted)
        n = 0
        while n < wanted and self.token(cached + n):
            n += 1
        return n

    def many(self, cached, wanted):
        """As tokens, by halving what may be given, for numbers that nobody counts by ones."""
        low, high = 0, min(wanted, self.budget)
        while low < high:
            n = (low + high + 1) // 2
            fits = self.blocks(cached, n) <= self.free
            low, high = (n, high) if fits else (low, n - 1)
        self.budget, self.free = self.budget - low, self.free - self.blocks(cached, low)
        return low

    def blocks(self, cached, n):
        return needed(cached + n, self.block) - needed(cached, self.block)


def needed(tokens, block):
    return len(range(0, tokens, block))


def slow_prefill_first(running, waiting, free, budget, most, block):
    shop, work, inside = Shop(free, budget, block), [], len(running)
    for name, tokens in waiting:
        if tokens > shop.budget or needed(tokens, block) > shop.free or inside + 1 > most:
            break
        work.append((name, shop.tokens(0, tokens)))
        inside += 1
    if not work:
        work = [(name, 1) for name, _, cached in running if shop.token(cached)]
    return work, []


def slow_line(shop, running, waiting, most):
    work, inside = [], len(running)
    for name, tokens in waiting:
        if needed(tokens, shop.block) > shop.free or shop.budget == 0 or inside + 1 > most:
            break
        work.append((name, shop.tokens(0, tokens)))
        inside += 1
    return work


def slow_mixed_chunks(running, waiting, free, budget, most, block):
    shop = Shop(free, budget, block)
    work = [(name, shop.tokens(cached, tokens - cached)) for name, tokens, cached in running]
    work = [(name, n) for name, n in work if n]
    return work + slow_line(shop, running, waiting, most), []


def slow_preempting(running, waiting, free, budget, most, block):
    shop, stay, work, back = Shop(free, budget, block), list(running), [], []
    turn = 0
    while turn < len(stay) and shop.budget:
        name, tokens, cached = stay[turn]
        n = shop.tokens(cached, tokens - cached)
        if n:
            work.append((name, n))
            turn += 1
        else:
            gone, _, held = stay.pop()
            back.append(gone)
            shop.free += needed(held, block)
    return work + ([] if back else slow_line(shop, running, waiting, most)), back


SLOW = {
    "prefill_first": slow_prefill_first,
    "mixed_chunks": slow_mixed_chunks,
    "preempting": slow_preempting,
}


def random_state(rng, which, kinds):
    """(running, waiting, free, budget, most, block), with names of one of some kinds."""
    names = [f"r{i}" for i in range(30)]
    if kinds and draw(rng, 0, 1):
        names = [*range(15), *map(str, range(15))]  # 1 and "1" are two
    order = torch.randperm(30, generator=rng).tolist()
    names = [names[i] for i in order]
    block, running, waiting = (1, 2, 3, 4, 5, 16)[draw(rng, 0, 5)], [], []
    for _ in range(draw(rng, 0, 6)):
        cached = draw(rng, 1, 14) if draw(rng, 0, 1) else block * draw(rng, 0, 4)
        lacks = 1 if which == "prefill_first" or draw(rng, 0, 1) else draw(rng, 1, 12)
        running.append((names.pop(), cached + lacks, cached))
    for _ in range(draw(rng, 0, 5)):
        waiting.append((names.pop(), draw(rng, 1, 14)))
    free = 0 if draw(rng, 0, 3) == 0 else draw(rng, 0, 12)
    most = max(1, len(running)) + draw(rng, 0, 4)
    return running, waiting, free, draw(rng, 0, 30), most, block


def tight_states(rng, which):
    """States in which a limit is reached just so, or missed by one."""
    states = []
    for block in (1, 3, 4, 16):
        for prompt in (1, block, block + 1, 2 * block, 3 * block - 1):
            blocks = needed(prompt, block)
            run = [("a", block + 1, block), ("b", block + 2, block + 1)]
            line = [("c", prompt), ("d", prompt)]
            for free in range(blocks - 1, 2 * blocks + 3):
                states.append((run, line, free, 10**6, 9, block))
            for budget in range(0, 2 * prompt + 4):
                states.append((run, line, 10**6, budget, 9, block))
            states += [(run, line, 10**6, 10**6, most, block) for most in (2, 3, 4)]
    order = torch.randperm(len(states), generator=rng).tolist()
    return [states[i] for i in order[:250]]


def drive_states(student, which, states):
    """Runs beside the student's code: its answers, as plain values, read when all are there."""
    held, answers = [], []
    for running, waiting, *limits in states:
        try:
            held.append(getattr(student, which)(list(running), list(waiting), *limits))
        except Exception as fault:
            held.append(type(fault).__name__)
    for answer in held:
        try:
            work, back = answer if which == "preempting" else (answer, [])
            answers.append(([(name, n.__index__()) for name, n in work], list(back)))
        except Exception as fault:
            answers.append(answer if isinstance(answer, str) else type(fault).__name__)
    return answers


def check_states(student, which, states, what):
    for state, seen in zip(states, student.drive(drive_states, which, states), strict=True):
        assert not isinstance(seen, str), f"{what}: {seen} was raised"
        work, back = SLOW[which](*state)
        seen = ([tuple(pair) for pair in seen[0]], list(seen[1]))
        assert seen == (work, back), f"{what}: another plan"


def check_direct(student, which, state, right):
    answer = getattr(student, which)(*state)
    if which == "preempting":
        assert isinstance(answer, (list, tuple)) and len(answer) == 2, "not (work, put_back)"
        assert isinstance(answer[1], (list, tuple)), "put_back is no list"
        answer = (pairs(answer[0]), list(answer[1]))
    else:
        answer = (pairs(answer), [])
    assert answer == right, "another plan"


# ---- walks of a server -----------------------------------------------------------------------


def random_requests(rng, count, prompt, output):
    """[(step of arrival, name, prompt, output)]"""
    at, found = 0, []
    for i in range(count):
        at += draw(rng, 0, 3)
        found.append((at, (f"u{i}", i)[count % 2], draw(rng, 1, prompt), draw(rng, 1, output)))
    return found


def drive_whole(student, requests, which, own_line, blocks, budget, most, block, steps):
    """Runs beside the student's code: what it answered in every step until all is served.

    own_line: the student's line_after says where somebody who is put back stands.
    """
    running, waiting, seen = {}, [], []
    coming, left = list(requests), {name: output for _, name, _, output in requests}
    for now in range(steps):
        while coming and coming[0][0] <= now:
            waiting.append((coming[0][1], coming[0][2]))
            coming.pop(0)
        if not (coming or waiting or running):
            break
        state = [(name, *entry) for name, entry in running.items()]
        free = blocks - sum(-(-cached // block) for _, _, cached in state)
        try:
            answer = getattr(student, which)(state, list(waiting), free, budget, most, block)
            work, back = answer if which == "preempting" else (answer, [])
            work, back = [(name, n.__index__()) for name, n in work], list(back)
            line = None
            if own_line:
                line = student.line_after(state, list(waiting), list(back))
                line = [(name, n.__index__()) for name, n in line]
            seen.append((work, back, line))
            again = [(name, entry[0]) for name, entry in running.items() if name in back]
            waiting = list(line) if own_line else again + waiting
            for name in back:
                del running[name]
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
        except Exception as fault:
            seen.append(type(fault).__name__)
            break
    return seen


def check_whole(student, rng, which, limits, count, prompt, output):
    blocks, budget, most, block = limits
    requests = random_requests(rng, count, prompt, output)
    steps = 4000
    own_line = which == "preempting"
    seen = student.drive(drive_whole, requests, which, own_line, *limits, steps)
    running, waiting, made = {}, [], {name: 0 for _, name, _, _ in requests}
    coming, left = list(requests), {name: output for _, name, _, output in requests}
    for now, answer in enumerate(seen):
        assert not isinstance(answer, str), f"step {now}: {answer} was raised"
        while coming and coming[0][0] <= now:
            waiting.append((coming[0][1], coming[0][2]))
            coming.pop(0)
        state = [(name, *entry) for name, entry in running.items()]
        free = blocks - sum(needed(cached, block) for _, _, cached in state)
        assert free >= 0, "more blocks are in use than there are"
        work, back = SLOW[which](state, waiting, free, budget, most, block)
        got = ([tuple(pair) for pair in answer[0]], list(answer[1]))
        assert got == (work, back), "a step of a server: another plan"
        waiting = [(n, tokens) for n, tokens, _ in state if n in back] + waiting
        if own_line:
            assert [tuple(pair) for pair in answer[2]] == waiting, "another line"
        for name in back:
            del running[name]
        for name, n in work:
            if name not in running:
                running[name] = [dict(waiting)[name], 0]
                waiting = [pair for pair in waiting if pair[0] != name]
            running[name][1] += n
            if running[name][1] == running[name][0]:
                made[name] += 1
                running[name][0] += 1
                if made[name] == left[name]:
                    del running[name]
    assert made == left, "somebody is not served to the end"


def many_that_run(count, block):
    """(running, waiting) of so many requests whose last blocks are full or not, in turns."""
    running = [(i, block * (i + 1) + 1 + i % 2, block * (i + 1) + i % 2) for i in range(count)]
    return running, [(count + i, 1 + i) for i in range(count)]


def crowd(count):
    """(running, waiting) of so many requests with few tokens each."""
    running = [(i, 4 + i % 3, 3 + i % 3) for i in range(count)]
    return running, [(count + i, 1 + i % 7) for i in range(count)]


def check_crowds(student, which):
    """10^9 tokens in blocks of one, pieces that no float32 holds and nobody counts by ones; five
    hundred or two thousand that run or wait, no limit or one of them; blocks of thousands.
    """
    most = 10**9
    check_direct(student, which, ([], [("x", most)], most, most, 9, 1), ([("x", most)], []))
    if which != "prefill_first":
        state = [(0, most, 3)], [], most, most, 9, 16
        check_direct(student, which, state, ([(0, most - 3)], []))
        state = [], [("x", most)], most, most - 3, 9, 1
        check_direct(student, which, state, ([("x", most - 3)], []))
    count = 500 if which == "preempting" else 2000  # who is put back may be looked for recursively
    running, waiting = crowd(count)
    for free, budget, most, block in (
        (0, 10**9, 10**9, 3),
        (10**6, 10**9, count + count // 10, 3),
        (10**6, 10**9, 10**9, 3),
        (10**6, 10**9, 10**9, 5000),
    ):
        state = running, waiting, free, budget, most, block
        check_direct(student, which, state, SLOW[which](*state))
    if which == "preempting":
        running, waiting = crowd(2500)  # nobody has to be put back
        work = [(name, tokens - cached) for name, tokens, cached in running] + waiting[:100]
        check_direct(student, which, (running, waiting, 10**6, 10**9, 2600, 3), (work, []))
        running = [("A", 5, 4), *((i, 1, 0) for i in range(2500))]  # who gives back nothing
        back = [i for i in reversed(range(2500))]
        check_direct(student, which, (running, waiting, 0, 9, 2600, 4), ([], [*back, "A"]))
    for prompt, free in ((3000, 1), (3001, 1), (3001, 2), (6000, 2), (6001, 2)):
        state = [(0, 3001, 3000), (1, 3000, 2999)], [("x", prompt)], free, 10**5, 9, 3000
        check_direct(student, which, state, SLOW[which](*state))


# ---- anywhere in what the cards admit --------------------------------------------------------


def in_pairs(rng, never=(), **dims):
    """Cases, one value of each dimension, in which every two values of two dimensions meet.

    never: pairs {(name, value), (name, value)} that cannot meet. Values are drawn for each case
    among those that meet most that they have not met.
    """
    never, names = {frozenset(pair) for pair in never}, list(dims)
    every = [(name, value) for name in names for value in dims[name]]
    open_ = {frozenset((a, b)) for a in every for b in every if a[0] != b[0]} - never
    cases = []
    while open_:
        todo = sorted(open_, key=lambda pair: sorted(map(every.index, pair)))
        case = dict(todo[draw(rng, 0, len(todo) - 1)])
        rest = [name for name in names if name not in case]
        for i in torch.randperm(len(rest), generator=rng).tolist():
            fit = []
            for value in dims[rest[i]]:
                met = {frozenset((other, (rest[i], value))) for other in case.items()}
                if not met & never:
                    fit.append((len(met & open_), value))
            best = [value for count, value in fit if count == max(fit)[0]]
            case[rest[i]] = best[draw(rng, 0, len(best) - 1)]
        items = list(case.items())
        open_ -= {frozenset((a, b)) for a in items for b in items if a[0] != b[0]}
        cases.append(case)
    return cases


COUNTS = (0, 1, 4, 70)
SMALL, LARGE = (1, 40), (10**8, 10**9)
NEVER_RUN = [(("running", n), ("most", 0)) for n in (4, 70)]  # no more than `most` run
NOBODY = [((who, 0), (f"of_{who}", LARGE)) for who in ("running", "waiting")]
NOBODY += [((who, 0), ("zero", who)) for who in ("running", "waiting")]
LIMITS = {
    "running": COUNTS,
    "waiting": COUNTS,
    "of_running": (SMALL, LARGE),
    "of_waiting": (SMALL, LARGE),
    "zero": ("running", "waiting", "nobody"),
    "free": (0, 1, -1, 10**9),  # -1: what some of the states use, or one block more or less
    "budget": (0, 1, -1, 10**9),
    "most": (0, 1, 2, 10**4),  # 0: one; 1: just those who run; 2: a few more
    "block": (1, 3, 16, 256, 5000),
}


def drawn_names(rng, first, second, zero):
    """Names for two lists; some look alike, and 0 is in the one that `zero` says."""
    special = ["", "0", "00", "-1", 1, "1"]
    special = [special[i] for i in torch.randperm(6, generator=rng).tolist()]
    names = [x for i in range(2, first + second + 2) for x in (i, str(i))]
    names, at = [names[i] for i in torch.randperm(len(names), generator=rng).tolist()], first
    one, other = (special[:3] + names[:at])[:first], (special[3:] + names[at:])[:second]
    for where, part in (("running", one), ("waiting", other)):
        if where == zero and part:
            part[draw(rng, 0, len(part) - 1)] = 0
    return one, other


def drawn_running(rng, names, sizes, block, one_lacks):
    """Who runs: last blocks that are full, empty but for one token, or anything."""
    running, whole = [], draw(rng, 0, 1)
    for name in names:
        size = draw(rng, *sizes)
        kind = draw(rng, 0, 2)
        cached = (size, size // block * block, size // block * block + 1)[kind]
        lacks = (1, draw(rng, 1, 2 * block), draw(rng, 1, 12), draw(rng, *sizes))[draw(rng, 0, 3)]
        running.append((name, cached + (1 if one_lacks or whole else lacks), cached))
    return [(name, min(tokens, 10**9), min(cached, 10**9 - 1)) for name, tokens, cached in running]


def used_by_some(rng, wanted, high):
    """The sum of the first few, or one less or more."""
    some = sum(wanted[: draw(rng, 0, len(wanted))])
    return min(max(0, some + draw(rng, -1, 1)), high)


def state_of(rng, which, case):
    block = case["block"]
    one, other = drawn_names(rng, case["running"], case["waiting"], case["zero"])
    running = drawn_running(rng, one, case["of_running"], block, which == "prefill_first")
    waiting = []
    for name in other:
        size = draw(rng, *case["of_waiting"])
        waiting.append((name, (size, max(1, size // block * block))[draw(rng, 0, 1)]))
    lacking = [] if which == "prefill_first" else [t - cached for _, t, cached in running]
    blocks = [needed(t, block) - needed(cached, block) for _, t, cached in running]
    blocks = [] if which == "prefill_first" and draw(rng, 0, 1) else blocks
    if draw(rng, 0, 1) and which != "prefill_first":
        at_line = []
    else:
        at_line = [tokens for _, tokens in waiting]
    free, budget, most = case["free"], case["budget"], case["most"]
    if free < 0:
        free = used_by_some(rng, blocks + [needed(n, block) for n in at_line], 10**9)
    if budget < 0:
        budget = used_by_some(rng, lacking + at_line, 10**9)
    if most < 10:
        most = (1, max(1, len(running)), max(1, len(running)) + draw(rng, 1, 5))[most]
    return running, waiting, free, budget, most, block


def drive_kept(student, which, states):
    """Runs beside the student's code: whether its arguments are as they were."""
    import copy

    kept = []
    for state in states:
        given = copy.deepcopy(state)
        getattr(student, which)(*given)
        kept.append(list(map(list, given[:2])) == list(map(list, state[:2])))
    return kept


def check_anywhere(student, rng, which):
    cases = in_pairs(rng, NEVER_RUN + NOBODY, **LIMITS)
    states = []
    for case in cases:
        states.append(state_of(rng, which, case))
        for only in ("free", "budget", "most"):  # the only limit
            wide = {"free": 10**9, "budget": 10**9, "most": 10**4, "of_waiting": SMALL}
            wide[only] = {"free": -1, "budget": -1, "most": 2}[only]
            states.append(state_of(rng, which, case | wide))
    check_states(student, which, states, "a state anywhere")
    assert all(student.drive(drive_kept, which, states[::17])), "a list that was given is changed"


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=1,
    invariant="any two corners together: nobody or many run or wait, limits of 0, 1, just enough "
    "or none, blocks of 1 to 5000, tokens up to 10^9",
    cause="a short way for one corner that forgets another, or a number taken for too large",
)
def test_states_anywhere(student, rng):
    check_anywhere(student, rng, "prefill_first")


@exercise(
    "ex1",
    points=3,
    invariant="any state: prompts in the order of the line while all limits are kept, else a token "
    "for each that has room",
    cause="one of the limits, on one of its sides; who is admitted not counted; overtaking",
)
def test_states_token_by_token(student, rng):
    for _ in range(3):
        states = [random_state(rng, "prefill_first", True) for _ in range(150)]
        check_states(student, "prefill_first", states, "a random state")
    check_states(student, "prefill_first", tight_states(rng, "prefill_first"), "a limit")


@exercise(
    "ex1",
    points=3,
    invariant="a server from its first request to its last: all answers are written, each step is "
    "the one that the rules say",
    cause="something kept between calls, somebody who waits for ever, or a rule of long lines",
)
def test_a_server_to_its_end(student, rng):
    for limits in ((60, 12, 4, 4), (90, 30, 9, 3), (200, 12, 2, 1), (20, 12, 8, 16)):
        check_whole(student, rng, "prefill_first", limits, 9 + draw(rng, 0, 1), 12, 8)


@exercise(
    "ex1",
    points=2,
    invariant="large numbers, long lists, names that are 0 or empty, nothing to do",
    cause="floats for blocks, a name taken for a truth value, lists changed, something kept",
)
def test_large_plans(student, rng):
    which, big = "prefill_first", 10**9
    check_crowds(student, which)
    for block in (1, 3, 16, 256):
        tokens = (10**8 // block) * block
        run = [(0, tokens + 1, tokens), ("", tokens + 2, tokens + 1)]
        for free in (tokens // block - 1, tokens // block, tokens // block + 1):
            for prompt in (tokens, tokens + 1):
                state = run, [("x", prompt), (7, 1)], free, big, 9, block
                line, left, work = state[1], free, []
                for name, n in line:
                    if -(-n // block) > left:
                        break
                    work.append((name, n))
                    left -= -(-n // block)
                if not work:
                    shop = Shop(free, big, block)
                    work = [(name, 1) for name, _, cached in run if shop.token(cached)]
                check_direct(student, which, state, (work, []))
        for free in (0, 1):
            state = run, [], free, big, 9, block
            check_direct(student, which, state, slow_prefill_first(*state))
        state = run, [("x", tokens)], tokens, tokens, 1000, block
        check_direct(student, which, state, ([("x", tokens)], []))
        state = run, [("x", tokens)], tokens, tokens - 1, 1000, block
        check_direct(student, which, state, ([(0, 1), ("", 1)], []))
    running, waiting = many_that_run(60, 3)
    for free, budget in ((0, 100), (29, 100), (5, 40), (9, 0), (0, 1), (1, 1)):
        state = running, [(99, 10**6)], free, budget, 1000, 3
        check_direct(student, which, state, slow_prefill_first(*state))
        state = running, waiting, 10 * free + 1, budget, 90, 3
        check_direct(student, which, state, slow_prefill_first(*state))
    for state in (([], [], 9, 9, 9, 4), ([], [(0, 3)], 0, 9, 9, 4), ([(0, 5, 4)], [], 0, 9, 1, 4)):
        check_direct(student, which, state, ([], []))
    check_direct(student, which, ([], [(0, 3)], 1, 9, 9, 4), ([(0, 3)], []))


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=1,
    invariant="any two corners together: nobody or many run or wait, limits of 0, 1, just enough "
    "or none, blocks of 1 to 5000, tokens up to 10^9",
    cause="a short way for one corner that forgets another, or a number taken for too large",
)
def test_pieces_anywhere(student, rng):
    check_anywhere(student, rng, "mixed_chunks")


@exercise(
    "ex2",
    points=3,
    invariant="any state: who runs gets what budget and room allow, then pieces of those whose "
    "tokens all have blocks",
    cause="one of the limits, on one of its sides; blocks of a piece and of a prompt mixed up",
)
def test_pieces_token_by_token(student, rng):
    for _ in range(3):
        states = [random_state(rng, "mixed_chunks", True) for _ in range(150)]
        check_states(student, "mixed_chunks", states, "a random state")
    check_states(student, "mixed_chunks", tight_states(rng, "mixed_chunks"), "a limit")


@exercise(
    "ex2",
    points=3,
    invariant="a server from its first request to its last, with prompts far longer than a step",
    cause="a prompt begun twice, something kept between calls, or somebody who waits for ever",
)
def test_pieces_to_the_end(student, rng):
    for limits in ((90, 5, 4, 4), (150, 12, 9, 3), (400, 1, 2, 1), (40, 7, 8, 16)):
        check_whole(student, rng, "mixed_chunks", limits, 8 + draw(rng, 0, 1), 30, 8)


@exercise(
    "ex2",
    points=2,
    invariant="large numbers, long lists, names that are 0 or empty, nothing to do",
    cause="floats for blocks, a name taken for a truth value, lists changed, something kept",
)
def test_large_pieces(student, rng):
    which, big = "mixed_chunks", 10**9
    check_crowds(student, which)
    for block in (1, 16, 256):
        cached = (10**8 // block) * block
        for lacks in (1, block, 10**8 + 1):
            for free in (0, 1, 10**8):
                n = min(lacks, free * block)
                run = [(0, cached + lacks, cached)]
                right = ([(0, n)] if n else [], [])
                check_direct(student, which, (run, [], free, big, 9, block), right)
                n = min(lacks, block - 1 + free * block)
                run = [("", cached + 1 + lacks, cached + 1)]
                right = ([("", n)] if n else [], [])
                check_direct(student, which, (run, [], free, big, 1, block), right)
        blocks = cached // block
        for free, budget, right in (
            (blocks, big, [("x", cached)]),
            (blocks - 1, big, []),
            (blocks, 5, [("x", 5)]),
            (blocks + 1, big, [("x", cached), (0, 1)]),
        ):
            state = [], [("x", cached), (0, 1)], free, budget, 1000, block
            check_direct(student, which, state, (right, []))
    running, waiting = many_that_run(60, 3)
    for free, budget in ((0, 100), (29, 100), (90, 200), (9, 0), (0, 1), (1, 1)):
        for most in (60, 63, 1000):
            state = running, waiting, free, budget, most, 3
            check_direct(student, which, state, slow_mixed_chunks(*state))
    for state in (([], [], 9, 9, 9, 4), ([], [(0, 3)], 0, 9, 9, 4), ([(0, 5, 4)], [], 0, 9, 1, 4)):
        check_direct(student, which, state, ([], []))


# ---- exercise 3 ------------------------------------------------------------------------------


def random_log(rng, count, unit, late=0.0):
    """Requests whose times are whole multiples of `unit`, in random order."""
    log = []
    for _ in range(count):
        arrival = draw(rng, 0, 200)
        gaps = [draw(rng, 1, 60)] + [
            draw(rng, 0, 20) for _ in range((0, 1, 2, 4, 8)[draw(rng, 0, 4)])
        ]
        ticks = torch.tensor(gaps).cumsum(0).tolist()
        log.append((late + arrival * unit, [late + (arrival + t) * unit for t in ticks]))
    return log


def of_each(log):
    """(TTFT, TPOT or None) of each request."""
    return [(t[0] - at, (t[-1] - t[0]) / (len(t) - 1) if len(t) > 1 else None) for at, t in log]


def rank(values, q):
    """The percentile by its definition: a place between two of the sorted values."""
    values = sorted(values)
    place = q / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


@exercise(
    "ex3",
    points=2,
    invariant="percentiles over requests that have a value, in any order, tiny and large, late on "
    "the clock",
    cause="a nearest value, gaps of all requests put together, float32, or the last gap forgotten",
)
def test_tails_of_any_log(student, rng):
    cases = [
        (count, unit) for count in (1, 2, 3, 7, 101, 220) for unit in (2.0**-6, 2.0**-27, 64.0)
    ]
    for count, unit in cases:
        for late in (0.0, 2.0**20):
            if late and unit < 1e-6:
                continue
            log = random_log(rng, count, unit, late)
            seen = student.tails(log)
            assert isinstance(seen, dict) and set(seen) == {"ttft", "tpot"}, "not the two keys"
            for name, column in zip(("ttft", "tpot"), zip(*of_each(log), strict=True), strict=True):
                values = [v for v in column if v is not None]
                if not values:
                    assert seen[name] is None, f"{name} of requests that have none"
                    continue
                assert seen[name] is not None and len(seen[name]) == 2, f"{name} is no pair"
                for value, q in zip(seen[name], (50, 99), strict=True):
                    right = torch.tensor(rank(values, q), dtype=torch.float64)
                    value = torch.tensor(float(value), dtype=torch.float64)
                    expect_close(value, right, what=f"p{q} of {name}", rtol=1e-6)
    few = random_log(rng, 20, 0.25)
    seen, ttft = student.tails(120 * few)["ttft"], 120 * [t for t, _ in of_each(few)]
    for value, q in zip(seen, (50, 99), strict=True):
        what = f"p{q} of ttft of 2400 requests"
        expect_close(torch.tensor(float(value)), torch.tensor(rank(ttft, q)), what=what, rtol=1e-6)
    for log in ([(0.0, [1.0]), (3.0, [4.0])], [(5.0, [6.5])]):
        assert student.tails(log)["tpot"] is None, "tpot of requests that have none"
    held = held_results(student, "tails", [([(0.0, [t])],) for t in (1.0, 2.0)])
    first = [tuple(map(float, seen["ttft"])) for seen in held]
    assert first == [(1.0, 1.0), (2.0, 2.0)], "percentiles held while others were asked for"
    at_once = student.tails([(0.0, [1.0, 1.0, 1.0])])["tpot"]
    assert at_once is not None and tuple(at_once) == (0.0, 0.0), "tpot of tokens that come at once"


@exercise(
    "ex3",
    points=2,
    invariant="the share that keeps both limits, also just so; limits of 0 and infinity",
    cause="one limit only, below in place of at most, or a request of one token that keeps none",
)
def test_attained_of_any_log(student, rng):
    for unit in (2.0**-6, 2.0**-27, 64.0, 2.0**14):
        for count in (1, 5, 40):
            log = random_log(rng, count, unit)
            each = of_each(log)
            limits = [(each[draw(rng, 0, count - 1)][0], math.inf) for _ in range(3)]
            tpots = [t for _, t in each if t is not None]
            limits += [(math.inf, t) for t in tpots[:3]] + [(100 * 64.0, 0.0), (math.inf, math.inf)]
            limits += [(ttft, t) for (ttft, _), t in zip(each[:4], tpots, strict=False)]
            limits += [(1e-9, 1e-9), (150.0, 150.0)]
            limits += [(each[0][0] - unit / 16, math.inf)]  # missed by a little
            limits += [(math.inf, t - unit / 16) for t in tpots[:2] if t]  # no limit is below 0
            for a, b in limits:
                right = sum(x <= a and (y is None or y <= b) for x, y in each) / count
                seen = float(student.attained(log, float(a), float(b)))
                assert math.isclose(seen, right, abs_tol=1e-12), "another share keeps the limits"


@exercise(
    "ex3",
    points=2,
    invariant="the average number inside, counted from event to event",
    cause="a division by the number of requests, the first request taken for the first arrival, "
    "or the last request for the last token",
)
def test_inside_from_event_to_event(student, rng):
    for unit, late in ((2.0**-6, 0.0), (2.0**-27, 0.0), (64.0, 0.0), (2.0**-6, 2.0**20)):
        for count in (1, 2, 6, 30):
            log = random_log(rng, count, unit, late)
            events = sorted([(at, 1) for at, _ in log] + [(t[-1], -1) for _, t in log])
            area, now, there = 0.0, events[0][0], 0
            for at, change in events:
                area, now, there = area + there * (at - now), at, there + change
            right = torch.tensor(area / (events[-1][0] - events[0][0]), dtype=torch.float64)
            seen = torch.tensor(float(student.inside(log)), dtype=torch.float64)
            expect_close(seen, right, what="inside", rtol=1e-6)
    seen = torch.tensor(float(student.inside(80 * log)), dtype=torch.float64)
    expect_close(seen, 80 * right, what="inside of 2400 requests", rtol=1e-6)


def crossing(points, goal):
    """Where the line through the points falls below the goal first, by halving intervals."""
    points = sorted(points)
    if points[0][1] < goal:
        return 0.0
    for (a, s), (b, t) in zip(points, points[1:], strict=False):
        if t >= goal:
            continue
        low, high = 0.0, 1.0
        for _ in range(60):
            mid = (low + high) / 2
            low, high = (mid, high) if s + mid * (t - s) >= goal else (low, mid)
        return a + low * (b - a)
    return float(points[-1][0])


@exercise(
    "ex3",
    points=2,
    invariant="the first crossing of the goal from the lowest rate on, for curves of any kind",
    cause="the last crossing, points not sorted, a share that is just the goal taken for too low",
)
def test_knees_of_any_curve(student, rng):
    for count in (1, 2, 3, 5, 9):
        for _ in range(12):
            rates = (torch.randperm(40, generator=rng)[:count] + 1).tolist()
            scale = (0.25, 1, 64)[draw(rng, 0, 2)]
            points = [(rate * scale, draw(rng, 0, 16) / 16) for rate in rates]
            for goal in (0.0, 0.5, 0.9, 15 / 16, 1.0):
                seen = torch.tensor(float(student.knee(points, goal)), dtype=torch.float64)
                right = torch.tensor(crossing(points, goal), dtype=torch.float64)
                expect_close(seen, right, what="the knee", rtol=1e-9, atol=1e-9)
    falling = [(float(i), 1 - i / 16) for i in range(9)][1:]
    for rate in (1500.0, 15000.0):
        seen = float(student.knee([(rate * r, s) for r, s in falling], 0.625))
        expect_at_most(abs(seen - 6 * rate), 1e-6, what="a knee at a point")
    missed = [(1.0, 1.0), (2.0, 0.75 - 2.0**-30), (3.0, 1.0)]
    seen = float(student.knee(missed, 0.75))
    expect_at_most(abs(seen - 2.0), 1e-6, what="a share that is a little too low")


def long_log(rng, count, unit, late, gaps):
    """Requests whose TPOT is a whole multiple of `unit`, with `gaps` gaps between tokens."""
    log = []
    for i in range(count):
        arrival, first = draw(rng, 0, 200), draw(rng, 1, 60)
        n = gaps if i == 0 else (0, 1, 2, 3, 5, 7, gaps)[draw(rng, 0, 6)]
        total = n * draw(rng, 0, 9)
        inner = sorted(draw(rng, 0, total) for _ in range(n - 1))
        ticks = [first] + [first + t for t in [*inner, total][: n if n else 0]]
        log.append((late + arrival * unit, [late + (arrival + t) * unit for t in ticks]))
    return log


def drive_limits(student, log, limits):
    """Runs beside the student's code: the share that keeps each pair of limits."""
    return [student.attained(log, *pair) for pair in limits]


@exercise(
    "ex3",
    points=1,
    invariant="any two corners together: one request or hundreds, answers of one token or "
    "hundreds, tiny and large times, limits just kept and just missed, 0 and infinite",
    cause="a short way for one corner that forgets another, a tolerance, or a size that is large",
)
def test_logs_anywhere(student, rng):
    dims = {"count": (1, 2, 65, 300), "unit": (2.0**-27, 2.0**-10, 1.0, 2.0**14)}
    dims |= {"gaps": (0, 1, 3, 41, 300), "ttft": ("tiny", "at", "large", "inf")}
    dims |= {"tpot": ("zero", "at", "large", "inf")}
    for case in in_pairs(rng, **dims):
        log = long_log(rng, case["count"], case["unit"], 0.0, case["gaps"])
        each = of_each(log)
        ttft = {"tiny": 2.0**-21, "at": 0.0, "large": 128.0, "inf": math.inf}[case["ttft"]]
        tpot = {"zero": 0.0, "at": 0.0, "large": 128.0, "inf": math.inf}[case["tpot"]]
        limits = [(ttft, tpot)]
        for i in (0, draw(rng, 0, len(each) - 1)):
            for just in (1 - 2.0**-40, 1, 1 + 2.0**-40):  # further than any rounding
                a = each[i][0] * just if case["ttft"] == "at" else ttft
                limits += [(a, (each[i][1] or 0.0) * just if case["tpot"] == "at" else tpot)]
                limits += [(math.inf, (each[i][1] or 0.0) * just)]
        for (a, b), seen in zip(limits, student.drive(drive_limits, log, limits), strict=True):
            kept = sum(x <= a and (y is None or y <= b) for x, y in each)
            same = math.isclose(float(seen), kept / len(log), rel_tol=1e-12)
            assert same, "another share keeps the limits"
        if case["count"] < 300 or case["gaps"] == 41:
            check_tails(student.tails(log), each)
            area = math.fsum(t[-1] - at for at, t in log)
            right = area / (max(t[-1] for _, t in log) - min(at for at, _ in log))
            seen = float(student.inside(log))
            assert math.isclose(seen, right, rel_tol=1e-9), "another number inside"
    for count in (1, 2, 10, 65, 300):
        rates = (torch.randperm(1000, generator=rng)[:count] + 1).tolist()
        for goal in (0.0, 0.7, 1.0, draw(rng, 1, 99) / 100):
            shares = [goal + (1 - goal) * (0, 0, 0.25, 0.5, 1)[draw(rng, 0, 4)] for _ in rates]
            if draw(rng, 0, 3):
                shares[draw(rng, 0, count - 1)] = goal * (1 - 2.0 ** -draw(rng, 0, 20))
            points = list(zip(rates, shares, strict=True))
            seen, right = float(student.knee(points, goal)), exact_crossing(points, goal)
            assert math.isclose(seen, right, rel_tol=1e-6), "another knee"


def exact_crossing(points, goal):
    """The knee in whole numbers and fractions."""
    points = sorted((Fraction(rate), Fraction(share)) for rate, share in points)
    low = [i for i, (_, share) in enumerate(points) if share < Fraction(goal)]
    if not low:
        return float(points[-1][0])
    if low[0] == 0:
        return 0.0
    (a, s), (b, t) = points[low[0] - 1 : low[0] + 1]
    return float(a + (b - a) * (s - Fraction(goal)) / (s - t))


def check_tails(seen, each):
    for name, column in zip(("ttft", "tpot"), zip(*each, strict=True), strict=True):
        values = [v for v in column if v is not None]
        if not values:
            assert seen[name] is None, f"{name} of requests that have none"
            continue
        for value, q in zip(seen[name], (50, 99), strict=True):
            right = rank(values, q)
            assert math.isclose(float(value), right, rel_tol=1e-9), f"another p{q} of {name}"


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=1,
    invariant="any two corners together: nobody or many run, wait or are put back, limits of 0, "
    "1, just enough or none, blocks of 1 to 5000, tokens up to 10^9",
    cause="a short way for one corner that forgets another, or a number taken for too large",
)
def test_put_back_anywhere(student, rng):
    check_anywhere(student, rng, "preempting")
    states = []  # every block of the last one is needed
    for block in (1, 3, 16, 256, 5000):
        for size in (block, 40 * block, 10**8 // block * block):
            for more in (0, 1, block - 1):
                run = [("", 10**9, size), (0, size + more + 2, size + more)]
                states += [(run, [], free, 10**9, 9, block) for free in (0, 1)]
    check_states(student, "preempting", states, "a state in which one is put back")
    dims = {"running": COUNTS, "waiting": COUNTS, "back": (0, 1, 11, 70), "zero": LIMITS["zero"]}
    dims |= {"of_running": (SMALL, LARGE), "of_waiting": (SMALL, LARGE)}
    never = [(("running", n), ("back", b)) for n in COUNTS for b in dims["back"] if b > n]
    for case in in_pairs(rng, never + NOBODY, **dims):
        one, other = drawn_names(rng, case["running"], case["waiting"], case["zero"])
        running = drawn_running(rng, one, case["of_running"], 4, False)
        waiting = [(name, draw(rng, *case["of_waiting"])) for name in other]
        stay = len(running) - case["back"]
        back = [name for name, _, _ in running[stay:]][::-1]
        right = [(name, tokens) for name, tokens, _ in running[stay:]] + waiting
        assert pairs(student.line_after(running, waiting, back)) == right, "another line"


@exercise(
    "ex4",
    points=3,
    invariant="any state: turns in order, the last put back until there is room for one token",
    cause="one of the limits, on one of its sides; put back for a whole piece; nobody's turn is "
    "itself the last; blocks that came free not used",
)
def test_put_back_block_by_block(student, rng):
    for _ in range(3):
        states = [random_state(rng, "preempting", True) for _ in range(150)]
        check_states(student, "preempting", states, "a random state")
    check_states(student, "preempting", tight_states(rng, "preempting"), "a limit")
    poor = [
        (*random_state(rng, "preempting", False)[:2], free, 40, 9, 2) for free in (0, 0, 1) * 30
    ]
    check_states(student, "preempting", poor, "no memory")
    which, running = "preempting", many_that_run(60, 3)[0]
    for free, budget in ((0, 1000), (5, 40), (9, 0), (1, 1), (200, 900), (10**8, 10**8)):
        for line in ([(99, 5)], many_that_run(60, 3)[1]):
            state = running, line, free, budget, 1000, 3
            check_direct(student, which, state, slow_preempting(*state))
    check_crowds(student, which)
    for each in (1, 2):  # every second one has to go, or nearly
        state = [(i, 1 + each, each) for i in range(60)], [], 0, 10**4, 99, each
        check_direct(student, which, state, slow_preempting(*state))
    for block in (1, 16, 256):
        cached = (10**8 // block) * block
        run = [(0, cached + 1, cached), ("", cached + 2, cached + 1)]
        right = ([(0, 1)], [""]) if block == 1 else ([(0, 1)], [""])
        check_direct(student, which, (run, [("x", 3 * 10**8)], 0, 10**9, 9, block), right)
        right = ([(0, 1), ("", 1)], [])
        check_direct(student, which, (run, [("x", 3 * 10**8)], 2, 10**9, 9, block), right)
    for state in (([], [], 0, 9, 1, 4), ([], [(0, 3)], 0, 9, 9, 4), ([(0, 5, 4)], [], 0, 0, 1, 4)):
        check_direct(student, which, state, ([], []))


@exercise(
    "ex4",
    points=3,
    invariant="a server in little memory from its first request to its last: all tokens, each once",
    cause="a line in another order, an answer that begins again, or somebody who is put back for "
    "ever",
)
def test_little_memory_to_the_end(student, rng):
    for limits in ((8, 9, 4, 4), (7, 30, 9, 4), (26, 5, 9, 1), (5, 12, 8, 7), (9, 3, 3, 3)):
        count = 8 + draw(rng, 0, 1)
        check_whole(student, rng, "preempting", limits, count, 14, 12)


@exercise(
    "ex4",
    points=2,
    invariant="the line: all that was put back, as it ran, with every token, then the others",
    cause="the order of put_back, tokens of the cache or of the prompt, a name that is 0 or empty",
)
def test_lines(student, rng):
    for count in (0, 1, 5, 60, 2400):
        running = [(i, draw(rng, 5, 40), draw(rng, 1, 4)) for i in range(count)]
        waiting = [
            (100 + i, draw(rng, 1, 9)) for i in range(draw(rng, 0, 4) + (count >= 60) * 9 * count)
        ]
        for many in {0, min(1, count), count // 2, count} if count < 100 else {count - 1}:
            back = [name for name, _, _ in running[count - many :]][::-1]
            right = [(n, tokens) for n, tokens, _ in running[count - many :]] + waiting
            seen = pairs(student.line_after(running, waiting, back))
            assert seen == right, "another line"
    big = [("", 10**8 + 1, 10**8), (0, 7, 6), ("0", 8, 6)]
    for back, right in (
        (["0", 0], [(0, 7), ("0", 8)]),
        (["0"], [("0", 8)]),
        (["0", 0, ""], [("", 10**8 + 1), (0, 7), ("0", 8)]),
    ):
        seen = pairs(student.line_after(big, [("z", 1)], back))
        assert seen == [*right, ("z", 1)], "another line"
    calls = [(big, [(name, 1)], ["0"]) for name in "yz"]
    for name, seen in zip("yz", held_results(student, "line_after", calls), strict=True):
        assert pairs(seen) == [("0", 8), (name, 1)], "a line held while another was asked for"


# ---- exercise 5 ------------------------------------------------------------------------------


class Prefixes:
    """Every stored prefix, when it was used, who holds it, and where edges end."""

    def __init__(self):
        self.used, self.holders, self.cuts, self.now, self.held = {}, {}, set(), 0, []

    def found(self, text):
        n = 0
        while n < len(text) and text[: n + 1] in self.used:
            n += 1
        return n

    def touch(self, text, n):
        self.now += 1
        for i in range(1, n + 1):
            self.used[text[:i]] = self.now
        end = text[:n]
        while n and end not in self.cuts:
            [end] = [p for p in self.used if len(p) == len(end) + 1 and p[:-1] == end]
            self.used[end] = self.now

    def apply(self, name, text):
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


def tree_walk(rng, length, letters, longest, kinds):
    """Random operations; a text often begins like one that was there before."""
    walk, texts, high = [], [()], 120_000 if letters > 9 else 0
    for _ in range(length):
        kind = kinds[draw(rng, 0, len(kinds) - 1)]
        if kind in ("release", "evict"):
            walk.append((kind, draw(rng, 0, 9)))
            continue
        old = texts[draw(rng, 0, len(texts) - 1)]
        text = old[: draw(rng, 0, len(old))] if draw(rng, 0, 1) else ()
        text += tuple(high + draw(rng, 0, letters - 1) for _ in range(draw(rng, 0, longest)))
        texts.append(text)
        walk.append((kind, text))
    return walk


def drive_tree(student, walks, as_tuples):
    """Runs beside the student's code: what each operation returned, the size after it, and the
    caller's text, which the caller then writes over."""
    seen = []
    for walk in walks:
        tree, other, held, rows = student.Radix(), student.Radix(), [], []
        for name, what in walk:
            try:
                other.insert([len(rows), 1])
                value, text = None, ()
                if name == "release":
                    if held:
                        text = held.pop(what % len(held))
                        tree.release(text)
                elif name == "evict":
                    value = tree.evict(what - 1)
                else:
                    is_tuple = len(rows) % 2 if as_tuples == "in turns" else as_tuples
                    text = tuple(what) if is_tuple else list(what)
                    value = getattr(tree, name)(text)
                    if name == "hold":
                        held.append(text[:value])
                size, after = tree.size(), tuple(text)
                if isinstance(value, bool) or isinstance(size, bool):
                    raise TypeError("a bool")
                value = None if value is None else value.__index__()
                rows.append((value, size.__index__(), after))
                if isinstance(text, list):
                    text[:] = [-9] * (len(text) + 1)
            except Exception as fault:
                rows.append((type(fault).__name__, -1, ()))
                break
        seen.append(rows + [("not reached", -1, ())] * (len(walk) - len(rows)))
    return seen


def judge_tree(walk, seen):
    model = Prefixes()
    for i, ((name, what), (value, size, after)) in enumerate(zip(walk, seen, strict=True)):
        right, text = None, ()
        if name == "evict":
            right = model.evict(what - 1)
        elif name != "release":
            text = tuple(what)
            right = model.apply(name, text)
        elif model.held:
            text = model.held.pop(what % len(model.held))
            model.release(text)
        if value != right or size != len(model.used):
            return i, "the tree is not as it must be"
        if tuple(after) != text:
            return i, "a text that was given is another one afterwards"
    return None


def check_trees(student, walks, as_tuples=False):
    expect_walks(
        lambda walks: student.drive(drive_tree, walks, as_tuples),
        walks,
        judge_tree,
        lambda walk: walk,
        str,
        shorten=False,
    )


EVERY = ("insert", "insert", "match", "hold", "release", "evict")


@exercise(
    "ex5",
    points=3,
    invariant="after any operations: what is found, what is new, what goes, and the size",
    cause="an edge cut wrongly, a time of use not noted or noted on too much, an edge that is lost",
)
def test_long_walks_of_the_tree(student, rng):
    for letters, longest in ((2, 6), (3, 4), (30, 3), (1, 5)):
        walks = [tree_walk(rng, 45, letters, longest, EVERY) for _ in range(12)]
        check_trees(student, walks, as_tuples={2: "in turns", 3: True}.get(letters, False))
    leaves = [(k,) for k in range(150)]  # the first twenty are used last
    walk = [("insert", leaf) for leaf in leaves] + [("match", leaf) for leaf in leaves[:20]]
    check_trees(student, [[*walk, *[("evict", 2)] * 40, *[("match", leaf) for leaf in leaves]]])
    few = ("insert", "match", "match", "evict")
    check_trees(student, [tree_walk(rng, 40, 2, 5, few) for _ in range(12)])


@exercise(
    "ex5",
    points=3,
    invariant="what is held stays, through cuts above and below, held twice, released in any order",
    cause="holders that one part of a cut does not get, a flag in place of a count, a hold that "
    "holds more than it found",
)
def test_holders(student, rng):
    a, b, c = (1, 2, 3, 4, 5, 6), (1, 2, 3, 9), (1, 2, 7)
    story = [
        ("insert", a), ("hold", a), ("insert", b), ("insert", c), ("evict", 9), ("match", a),
        ("hold", (1, 2)), ("release", 0), ("evict", 10), ("match", a), ("release", 0),
        ("evict", 10), ("insert", a), ("hold", b), ("hold", b), ("release", 0), ("evict", 10),
        ("match", a), ("release", 0), ("evict", 10), ("hold", a), ("release", 0), ("insert", b),
        ("hold", ()), ("release", 0), ("evict", 2),
    ]  # fmt: skip
    twice = [
        ("insert", a), ("hold", a), ("hold", (1, 2, 3)), ("release", 0), ("evict", 10),
        ("match", a), ("release", 0), ("evict", 10), ("match", a),
    ]  # fmt: skip
    outer = [  # a path of two edges is held and released, then its first edge alone
        ("insert", a), ("insert", b), ("hold", a), ("release", 0), ("hold", (1, 2, 3)),
        ("evict", 10), ("match", a), ("release", 0), ("evict", 10), ("match", a),
    ]  # fmt: skip
    x, y, z = (1, 2, 3), (1, 2, 4), (7, 8, 9)  # 1 2 was used after z, though it is no leaf then
    inner = [("insert", x), ("insert", y), ("insert", z), ("hold", z), ("match", x), ("match", y)]
    inner += [("evict", 3), ("release", 0), ("evict", 2), ("match", z), ("match", y)]
    check_trees(student, [story, twice, outer, inner])
    held = ("insert", "hold", "hold", "release", "release", "evict", "evict")
    for letters, longest in ((2, 6), (3, 3)):
        check_trees(student, [tree_walk(rng, 45, letters, longest, held) for _ in range(15)])


def drive_long(student, texts, wanted):
    """Runs beside the student's code: numbers of a tree with long texts."""
    tree, seen = student.Radix(), []
    for text in texts:
        seen.append(tree.insert(text))
    seen.append(tree.size())
    for text in texts:
        seen.append(tree.match(text))
    found = tree.hold(texts[0][: len(texts[0]) // 2])
    seen += [found, tree.evict(-5), tree.evict(0), tree.size()]
    seen += [tree.evict(n) for n in wanted]
    tree.release(texts[0][:found])
    return [*seen, tree.size(), tree.evict(10**4), tree.size()]


def drive_chain(student, depth):
    """Runs beside the student's code: numbers of a tree whose edges lie one behind another."""
    tree, text = student.Radix(), list(range(depth))
    new = [tree.insert(text[:n]) for n in range(depth, 0, -1)]
    seen = [sum(new), tree.size(), tree.match(text), tree.hold(text), tree.evict(1)]
    tree.release(text)
    seen.append(tree.insert([*text, -1]))
    return [*seen, tree.evict(1), tree.evict(3), tree.size()]


@exercise(
    "ex5",
    points=2,
    invariant="texts of thousands of tokens, one within another; leaves go in the order of use",
    cause="a node for each token and recursion, the wrong leaf, or more evicted than asked",
)
def test_long_texts(student, rng):
    base = torch.randint(0, 130_000, (3200,), generator=rng).tolist()
    texts = [base, base[:2000] + [-1] * 700, base[:2000] + [-1] * 100 + [-2] * 50, base[:1000]]
    seen = student.drive(drive_long, texts, [1, 60, 1])
    # edges 0-1000-2000-3200 and 2000-2100-2700, 2100-2150; base was matched first, then the others
    right = [3200, 700, 50, 0, 3950, 3200, 2700, 2150, 1000]
    # hold cuts 1600; leaves: 1200 of base, 600 and 50: all but base used later, base's tail oldest
    right += [1600, 0, 0, 3950, 1200, 600, 50]
    right += [3950 - 1850, 3950 - 1850, 0]
    assert [int(v) for v in seen] == right, "long texts: another number"
    seen = [int(v) for v in student.drive(drive_chain, 1500)]
    right = [1500, 1500, 1500, 1500, 0, 1, 1, 3, 1497]
    assert seen == right, "1500 edges in a row: another number"
    chain = [list(range(i)) for i in range(1, 120)]  # each text ends within the next
    walk = [("insert", tuple(t)) for t in reversed(chain)] + [("evict", 2)] * 5
    check_trees(student, [walk[::-1][5:] + walk[-5:], walk])
    # ids that are alike in their last bits, and many children of one edge
    far = [(7, 5 + (k << bits)) for bits in (4, 8, 12, 16, 20) for k in range(1, 9)]
    walk = [("insert", text) for text in far] + [("match", text) for text in far]
    check_trees(student, [[*walk, *[("evict", 2)] * 9, *walk]])


@exercise(
    "ex5",
    points=1,
    invariant="many holders, many children, edges of one token and of many, ids of any size, and "
    "an eviction of just a leaf, of one token less and of one more",
    cause="a count or a size with a limit, ids that look alike, one leaf too few or too many",
)
def test_trees_anywhere(student, rng):
    walks = []
    for apart in (2**8, 2**16, 2**31, 2**32, 2**53):
        a, c, b = torch.randperm(9, generator=rng)[:3].tolist()
        b, d = [(b, b + apart), (b - apart, b)][draw(rng, 0, 1)]
        for long in (1, 2, 17, 65):
            base, n = (a, b) * 2 + (a,) * long, draw(rng, 65, 140)
            walk = [("insert", base), ("insert", (*base, c)), ("insert", (c,) * long)]
            walk += [("hold", base[:5])] * n + [("release", draw(rng, 0, 9)) for _ in range(n - 1)]
            walk += [
                ("insert", (*base[:3], d)),
                ("evict", long + draw(rng, 0, 2)),
                ("evict", 10**4),
            ]
            walk += [
                ("match", base),
                ("release", 0),
                ("insert", base),
                ("insert", (d,)),
                ("match", base[:-1]),
            ]
            walk += [("evict", 2), ("match", (d,)), ("match", base), ("evict", draw(rng, 2, 9))]
            walks.append([*walk, ("match", base), ("match", (d,)), ("evict", 10**4), ("match", ())])
    for long in (1, 2, 9):  # insert goes along an edge, which is used then
        base, other = (1,) * long, (7,) * (long + 2)
        walk = [("insert", base), ("insert", other), ("hold", other), ("insert", (*base, 3))]
        walk += [("evict", 2), ("release", 0), ("evict", 2), ("match", base), ("match", other)]
        walks.append(walk)
        walk = [("insert", (*base, 2)), ("insert", other), ("insert", base), ("evict", 2)]
        walks.append([*walk, ("evict", 2), ("match", base), ("match", other), ("match", (1,))])
    for t in (-1, -2, 0, -(10**9), 2**31 - 1, 2**62):  # no id says that a text ends
        some = [(1, 2, t), (t,), (t, t), (1, t), (1, 2)]
        for first in ((1, 2), (1, 2, 3), (3,)):
            asked = [("match", text) for text in some]
            stored = [("insert", text) for text in some[:: draw(rng, 0, 1) * 2 - 1]]
            walks.append([("insert", first), *asked, *stored, *asked, ("evict", 2), *asked])
    count = draw(rng, 280, 300)
    leaves = [(0, k) for k in torch.randperm(count, generator=rng).tolist()]
    some = [leaves[i] for i in torch.randperm(count, generator=rng)[:9].tolist()]
    walk = [("insert", leaf) for leaf in leaves] + [("hold", leaf) for leaf in some]
    walk += [("evict", count - 12), ("evict", 10**4), ("release", 3), ("evict", 3)]
    walks.append(
        [*walk, *[("match", leaf) for leaf in some], *[("release", 0)] * 8, ("evict", 999)]
    )
    check_trees(student, walks, as_tuples="in turns")


# ---- exercise 6 ------------------------------------------------------------------------------


def random_jobs(rng, count, unit):
    arrivals = sorted(draw(rng, 0, 40) for _ in range(count))
    return [a * unit for a in arrivals], [draw(rng, 0, 12) * unit for _ in range(count)]


def ticked_queue(arrivals, seconds, workers, unit):
    """A pool of machines, tick by tick."""
    ends, busy, line, now = [None] * len(arrivals), [], list(range(len(arrivals))), 0
    while line:
        busy = [end for end in busy if end > now]
        while line and arrivals[line[0]] <= now * unit and len(busy) < workers:
            i = line.pop(0)
            end = now + round(seconds[i] / unit)
            ends[i] = end * unit
            if end > now:
                busy.append(end)
        now += 1
    return ends


def floats(values, count):
    assert isinstance(values, (list, tuple)) and len(values) == count, "not a list of that length"
    return [float(v) for v in values]


@exercise(
    "ex6",
    points=3,
    invariant="every prompt by the first free machine, against a clock that ticks",
    cause="machines in turn, a queue for each machine, or one that starts before it is free",
)
def test_machines_tick_by_tick(student, rng):
    for unit, late in ((1.0, 0.0), (64.0, 0.0), (0.25, 0.0), (2.0**-10, 2.0**20), (2.0**-20, 0.0)):
        for workers in (1, 2, 3, 5):
            for count in (1, 4, 12, 25):
                arrivals, seconds = random_jobs(rng, count, unit)
                right = [late + t for t in ticked_queue(arrivals, seconds, workers, unit)]
                arrivals = [late + t for t in arrivals]  # all of them exact
                seen = floats(student.prefill_pool(arrivals, seconds, workers), count)
                assert seen == right, "another time at which prompts are read"
    arrivals, seconds = random_jobs(rng, 2400, 0.25)
    seen = floats(student.prefill_pool(arrivals, seconds, 17), 2400)
    assert seen == ticked_queue(arrivals, seconds, 17, 0.25), "seventeen machines"
    seen = floats(student.prefill_pool([0.0] * 300, [2.0] * 300, 100), 300)
    assert seen == 100 * [2.0] + 100 * [4.0] + 100 * [6.0], "a hundred machines"
    assert floats(student.prefill_pool([], [], 3), 0) == []
    assert floats(student.prefill_pool([0.0, 0.0], [1.5, 0.5], 9), 2) == [1.5, 0.5]
    calls = [([0.0], [s], 2) for s in (1.0, 2.0)]
    held = held_results(student, "prefill_pool", calls)
    assert [floats(ends, 1) for ends in held] == [[1.0], [2.0]], (
        "times held while others were asked for"
    )


@exercise(
    "ex6",
    points=3,
    invariant="one cache at a time, the one that is ready to go first; equal ones as in the list",
    cause="the order of the list or of sizes, a link that waits for nobody, results out of place",
)
def test_links_tick_by_tick(student, rng):
    for unit, late in ((1.0, 0.0), (64.0, 0.0), (0.25, 0.0), (2.0**-10, 2.0**20), (2.0**-20, 0.0)):
        for count in (1, 3, 8, 25):
            ends = [draw(rng, 0, 30) * unit for _ in range(count)]
            for speed in (1.0, 4.0, 2.0**31):
                sizes = [draw(rng, 0, 9) * unit * speed for _ in range(count)]
                order = sorted(range(count), key=lambda i, ends=ends: ends[i])
                crossed = ticked_queue(
                    [ends[i] for i in order], [sizes[i] / speed for i in order], 1, unit
                )
                seen = student.hand_over([late + end for end in ends], sizes, speed)
                right = [late + crossed[order.index(i)] for i in range(count)]
                assert floats(seen, count) == right, "another time"
    seen = floats(student.hand_over([2.0, 2.0, 2.0], [8e9, 4e9, 0], 4e9), 3)
    assert all(math.isclose(a, b) for a, b in zip(seen, (4, 5, 5), strict=True)), "equal ends"
    close = [3.0 - i * 2.0**-20 for i in range(9)]  # a millionth of a second apart
    seen = floats(student.hand_over(close, [1.0] * 9, 1.0), 9)
    assert seen == [close[8] + 9 - i for i in range(9)], "ends close to one another"
    many = [(2400 - i) / 4 for i in range(2400)]
    seen = floats(student.hand_over(many, [1.0] * 2400, 2.0), 2400)
    assert seen == [0.25 + (2400 - i) / 2 for i in range(2400)], "2400 caches"
    assert floats(student.hand_over([], [], 1), 0) == []
    held = held_results(student, "hand_over", [([0.0], [s], 1.0) for s in (1.0, 2.0)])
    assert [floats(ends, 1) for ends in held] == [[1.0], [2.0]], (
        "times held while others were asked for"
    )


def drive_decoding(student, cases, fixed, each, row):
    """Runs beside the student's code: times, read when all are there, and what `step` was asked."""
    held, seen = [], []
    for ready, cached, left, most in cases:
        asked = []

        def step(rows, asked=asked):
            asked.append(list(rows))
            return fixed + each * len(rows) + row * sum(rows)

        try:
            times = student.decode_pool(list(ready), list(cached), list(left), most, step)
            held.append((times, asked))
        except Exception as fault:
            held.append(type(fault).__name__)
    for answer in held:
        try:
            times, asked = answer
            seen.append(([[float(t) for t in request] for request in times], asked))
        except Exception as fault:
            seen.append(answer if isinstance(answer, str) else type(fault).__name__)
    return seen


def slow_decoding(ready, cached, left, most, step):
    """Times by looking at everybody at the beginning of every step."""
    times, rows, inside, now = [[] for _ in ready], [], [], 0.0
    while any(len(t) < n for t, n in zip(times, left, strict=True)):
        there = [
            (ready[i], i) for i in range(len(ready))
            if ready[i] <= now and i not in inside and len(times[i]) < left[i]
        ]  # fmt: skip
        inside += [i for _, i in sorted(there)][: most - len(inside)]
        if not inside:
            now = min(r for r, t, n in zip(ready, times, left, strict=True) if len(t) < n)
            continue
        rows.append([cached[i] + len(times[i]) for i in inside])
        now += step(rows[-1])
        for i in inside:
            times[i].append(now)
        inside = [i for i in inside if len(times[i]) < left[i]]
    return times, rows


@exercise(
    "ex6",
    points=2,
    invariant="every step: who is in it, how much is cached, and when its tokens are there",
    cause="a clock that jumps over somebody or back, the order of joining lost, somebody with "
    "nothing to make, step asked too often",
)
def test_decoding_step_by_step(student, rng):
    for fixed, each, row, late in (
        (1.0, 0.0, 0.0, 0.0),
        (0.25, 0.5, 0.0, 2.0**24),
        (64.0, 16.0, 0.5, 0.0),  # minutes
        (0.5, 0.25, 2.0**-6, 0.0),
        (2.0**-22, 2.0**-23, 2.0**-28, 0.0),  # microseconds
    ):
        unit, cases = min(fixed, max(0.25, fixed / 4)), []
        for count in (0, 1, 3, 8, 22):
            for most in (1, 2, 5, 40):
                ready = [late + draw(rng, 0, 40) * unit for _ in range(count)]
                cached = [draw(rng, 0, 30) for _ in range(count)]
                left = [draw(rng, 0, 9) if draw(rng, 0, 3) else 0 for _ in range(count)]
                if count:
                    left[0] = 9
                cases.append((ready, cached, left, most))
        cases.append(([0.0, 100.0, 50.0], [3, 4, 5], [1, 2, 2], 2))  # nobody for long
        just = fixed + each + 3 * row + 2.0**-25  # by so little after the first step
        cases.append(([0.0, just], [3, 4], [2, 2], 2))
        cases.append(([0.0] * 6, [0] * 6, [3, 1, 1, 2, 1, 9], 2))  # all together
        cases.append(([0.0] * 90, [2] * 90, [1 + i % 4 for i in range(90)], 70))
        cases.append(([0.0] * 2400, [1] * 2400, [1] * 2400, 2400))
        cases.append(([0.0], [2], [1500], 1))  # 1500 steps
        for case, seen in zip(
            cases, student.drive(drive_decoding, cases, fixed, each, row), strict=True
        ):
            assert not isinstance(seen, str), f"{seen} was raised"
            times, asked = slow_decoding(
                *case, lambda rows, f=fixed, e=each, r=row: f + e * len(rows) + r * sum(rows)
            )
            assert list(map(list, seen[1])) == asked, "step was asked for something else"
            assert list(map(list, seen[0])) == times, "tokens at other times"


def spread_times(rng, kind, count, unit):
    """Times of a list: all 0, all equal, or any."""
    same = draw(rng, 1, 30) * unit
    return [{"zero": 0.0, "equal": same}.get(kind, draw(rng, 0, 40) * unit) for _ in range(count)]


@exercise(
    "ex6",
    points=1,
    invariant="any two corners together: nobody or many, all at once or apart, nothing to read, "
    "to carry, in the cache or to make, one or many places, tiny and large times",
    cause="a short way for one corner that forgets another, or a size that is large",
)
def test_pools_anywhere(student, rng):
    dims = {"count": (0, 1, 3, 24, 70), "unit": (2.0**-20, 0.25, 1.0, 2.0**12)}
    dims |= {
        "when": ("zero", "equal", "any"),
        "many": (1, 2, 5, 100),
        "speed": (1.0, 0.25, 2.0**31),
    }
    dims |= {"cached": (0, 30, 10**6), "work": (0, 1, 12), "late": (0, 1)}
    seen = floats(student.hand_over([3.0 + 2.0**-40, 3.0], [1.0, 1.0], 1.0), 2)
    assert seen == [5.0, 4.0], "ends 2^-40 s apart"
    cases = []
    for case in in_pairs(rng, **dims):
        count, unit, many, late = (case[key] for key in ("count", "unit", "many", "late"))
        times = spread_times(rng, case["when"], count, unit)
        takes = [draw(rng, 0, case["work"]) for _ in times]
        seconds, begun = [n * unit for n in takes], sorted(times)
        seen = floats(student.prefill_pool(begun, seconds, many), count)
        assert seen == ticked_queue(begun, seconds, many, unit), "prompts are read at other times"
        order = sorted(range(count), key=lambda i, times=times: times[i])
        right = ticked_queue(begun, [seconds[i] for i in order], 1, unit)
        sizes = [s * case["speed"] for s in seconds]
        seen = floats(student.hand_over(times, sizes, case["speed"]), count)
        assert [seen[i] for i in order] == right, "caches cross at other times"
        cached = [draw(rng, 0, case["cached"]) for _ in times]
        left = takes if late else [draw(rng, 0, 1) * n for n in takes]
        cases.append((times, cached, left, many))
    just = 1.5 + 5 * 2.0**-10  # the end of the first step, and 2^-40 s later
    cases += [([0.0, just + gap], [5, 0], [3, 2], 2) for gap in (0.0, 2.0**-40)]
    runs = student.drive(drive_decoding, cases, 1.0, 0.5, 2.0**-10)
    for case, seen in zip(cases, runs, strict=True):
        assert not isinstance(seen, str), f"{seen} was raised"
        times, asked = slow_decoding(*case, lambda rows: 1 + 0.5 * len(rows) + 2.0**-10 * sum(rows))
        assert list(map(list, seen[1])) == asked, "step was asked for something else"
        assert list(map(list, seen[0])) == times, "tokens at other times"
