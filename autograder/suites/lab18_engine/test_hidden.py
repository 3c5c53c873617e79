"""Hidden tests of lab18: engines that run to their end, exact bytes, long walks, counted steps.

Inputs are drawn for each submission.  What is compared with is slow: one request after another, one
key after another, one character after another.
"""

import math
from fractions import Fraction

import torch

from efflib.lab import exercise, expect_at_most, expect_close
from efflib.lab.again import held_results
from efflib.lab.cases import every_pair
from efflib.lab.walks import expect_walks


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def ints(values):
    assert isinstance(values, (list, tuple)), f"a {type(values).__name__} in place of a list"
    if set(map(type, values)) <= {int}:
        return list(values)
    right = all(not isinstance(v, bool) and hasattr(v, "__index__") for v in values)
    assert right, "an entry is no int"
    return [v.__index__() for v in values]


def parts(value, count):
    assert isinstance(value, (list, tuple)) and len(value) == count, "not so many parts"
    return value


def row_of(rng, top, count):
    """So many whole numbers from 0 to top."""
    return torch.randint(0, top + 1, (count,), generator=rng).tolist()


def drive_reused(student, name, calls):
    """Runs beside the student's code: results of all calls, read when all were made; and again,
    when others have written into those.

    The lists and dicts that are passed are the same ones in each call, with other contents.
    """

    def fresh(x):
        if isinstance(x, dict):
            return {key: fresh(value) for key, value in x.items()}
        if isinstance(x, list | tuple):
            return type(x)(map(fresh, x) if of_some(x) else x)
        return x

    def of_some(x):
        return bool(x) and isinstance(x[0], dict | list | tuple)

    def spoil(x):
        if isinstance(x, dict) or (isinstance(x, list | tuple) and of_some(x)):
            for part in x.values() if isinstance(x, dict) else x:
                spoil(part)
        if isinstance(x, dict):
            x.clear()
            x["nobody"] = [-7]
        elif isinstance(x, list):
            x[:] = [-7] * (len(x) + 1)

    def all_of(calls):
        results = []
        for args in calls:
            for i, value in enumerate(args):
                if not isinstance(value, dict | list):
                    boxes[i] = value
                    continue
                box = boxes.setdefault(i, type(value)())
                spoil(box)
                box.clear()
                (box.update if isinstance(box, dict) else box.extend)(fresh(value))
            results.append(getattr(student, name)(*(boxes[i] for i in range(len(args)))))
        return results

    boxes = {}
    results = all_of(calls)
    first = fresh(results)
    spoil(results)
    return first, all_of(calls[::-1])[::-1]


# ---- exercise 1 --------------------------------------------------------------------------------


def slow_layout(pieces, texts, proposed):
    """Token by token."""
    ids, positions, wanted = [], [], []
    for name, cached, n in pieces:
        places = []
        for p in range(cached, cached + n):
            known = len(texts[name])
            ids.append(texts[name][p] if p < known else proposed[name][p - known])
            positions.append(p)
            if p >= known - 1:
                places.append(len(ids) - 1)
        wanted.append(places)
    return ids, positions, wanted


def slow_step(pieces, texts, proposed, best):
    new, after = {}, {}
    for (name, cached, n), places in zip(
        pieces, slow_layout(pieces, texts, proposed)[2], strict=True
    ):
        taken, at = [], 0
        for place in places:
            taken.append(best[place])
            left = proposed.get(name, [])[at:]
            at += 1
            if place == places[-1] or best[place] != left[0]:
                break
        new[name] = taken
        after[name] = cached + n if not places else len(texts[name]) + len(taken) - 1
    return new, after


def random_pass(rng, count, longest, tokens):
    """(pieces, texts, proposed, best): every kind of piece, and some that are in no pass."""
    texts, proposed, pieces = {}, {}, []
    names = torch.randperm(3 * count + 2, generator=rng).tolist()
    for i in range(count + 1):
        name = f"n{names[i]}" if draw(rng, 0, 1) else names[i]
        texts[name] = [draw(rng, 0, tokens) for _ in range(draw(rng, 1, longest))]
        guesses = [draw(rng, 0, tokens) for _ in range(draw(rng, 0, 5))]
        if guesses or draw(rng, 0, 1):
            proposed[name] = guesses
        if i == count:
            continue
        known = len(texts[name])
        cached = known - 1 if draw(rng, 0, 2) else draw(rng, 0, known - 1)
        pieces.append((name, cached, draw(rng, 1, known + len(guesses) - cached)))
    best = []
    for name, cached, n in pieces:
        whole = [*texts[name], *proposed.get(name, [])]
        for p in range(cached, cached + n):
            right = p + 1 < len(whole) and draw(rng, 0, 2)
            said = whole[p + 1] if right else draw(rng, 0, tokens)
            best.append(said if p >= len(texts[name]) - 1 else -1)
    return pieces, texts, proposed, best


def expect_row(value, pieces, texts, proposed):
    ids, positions, wanted = parts(value, 3)
    wanted = [ints(places) for places in parts(wanted, len(pieces))]
    seen = ints(ids), ints(positions), wanted
    assert seen == slow_layout(pieces, texts, proposed), "another row"


def expect_yield(value, pieces, texts, proposed, best):
    new, cached = parts(value, 2)
    assert isinstance(new, dict) and isinstance(cached, dict), "no dicts"
    seen = {k: ints(v) for k, v in new.items()}, {k: ints([v])[0] for k, v in cached.items()}
    assert seen == slow_step(pieces, texts, proposed, best), "another yield"


def check_pass(student, pieces, texts, proposed, best):
    expect_row(student.layout(pieces, texts, proposed), pieces, texts, proposed)
    value = student.step(pieces, texts, proposed, best)
    expect_yield(value, pieces, texts, proposed, best)


@exercise(
    "ex1",
    points=2,
    invariant="every pass of random pieces is what it is token by token, also when others follow",
    cause="a limit that is off by one: the last known token, the last proposal, the end of a "
    "piece; or a list that is filled anew for the next pass",
)
def test_passes_token_by_token(student, rng):
    for count in (1, 2, 3, 5, 9):
        for _ in range(4):
            check_pass(student, *random_pass(rng, count, 6, 3))
    passes = [random_pass(rng, 3, 6, 3) for _ in range(6)]
    rows = held_results(student, "layout", [some[:3] for some in passes])
    for some, value in zip(passes, rows, strict=True):
        expect_row(value, *some[:3])
    for some, value in zip(passes, held_results(student, "step", passes), strict=True):
        expect_yield(value, *some)


@exercise(
    "ex1",
    points=3,
    invariant="large tokens, long texts, many requests, names that are 0 or empty",
    cause="a name that counts as nobody, a token that counts as none, or a limit nobody asked for",
)
def test_large_passes(student, rng):
    check_pass(student, *random_pass(rng, 60, 40, 10**5))
    check_pass(student, *random_pass(rng, 2, 2500, 150000))
    pieces, texts, proposed, best = random_pass(rng, 12, 6, 3)  # tokens that differ by 1 or 2
    texts, proposed = (
        {name: [t + 2**24 for t in row] for name, row in some.items()} for some in (texts, proposed)
    )
    check_pass(student, pieces, texts, proposed, [t if t < 0 else t + 2**24 for t in best])
    text = [draw(rng, 0, 10**5) for _ in range(2500)]
    best = [-1] * 1299 + [draw(rng, 0, 10**5) for _ in range(3)]
    check_pass(student, [("L", 1200, 1302)], {"L": text}, {"L": [1, 2, 3]}, best)
    near = {"a": [2**24]}, {"a": [2**24 + 1, 5]}
    check_pass(student, [("a", 0, 3)], *near, [2**24, 5, 6])
    texts, proposed = {0: [0, 0], "": [0]}, {0: [0, 0, 0], "": [0] * 300}
    check_pass(student, [(0, 1, 3), ("", 0, 301)], texts, proposed, [0] * 304)
    check_pass(student, [(0, 1, 4), ("", 0, 1)], texts, proposed, [0, 0, 0, 7, 7])
    texts, proposed = {"1": [6, 7], 1: [4, 5]}, {"1": [3], 1: []}
    check_pass(student, [(1, 0, 2), ("1", 1, 2)], texts, proposed, [-1, 150000, 3, 8])


def pass_of(rng, count, name, length, guesses, top, begin, reach, extra, holds):
    """A pass whose first piece is as the case says; small ones behind it, and others in none."""
    names = [name] + [f"n{i}" if i % 2 else i + 1 for i in range(count - 1)]
    texts, proposed, pieces, best = {}, {}, [], []
    if extra:
        texts["nobody"] = row_of(rng, top, extra)
        proposed |= {} if guesses is None else {"nobody": row_of(rng, top, 2)}
    for i, who in enumerate(names):
        known = length if i == 0 else draw(rng, 1, 4)
        many = (guesses or 0) if i == 0 else (0 if guesses is None else draw(rng, 0, 2))
        texts[who] = row_of(rng, top, known)
        if guesses is not None:
            proposed[who] = row_of(rng, top, many)
        cached = {"first": 0, "last": known - 1}.get(begin, draw(rng, 0, known - 1))
        most = known + many - cached
        ends = {"one": 1, "short": known - 1 - cached, "text": known - cached, "all": most}
        n = ends.get(reach, most - 1) if i == 0 else draw(rng, 1, most)
        pieces.append((who, cached, max(1, n)))
        whole = [*texts[who], *proposed.get(who, [])]
        wrong = {"all": -1, "first": known}.get(holds, draw(rng, known, known + many))
        for p in range(cached, cached + pieces[-1][2]):
            if p < known - 1:
                best.append(-1)
                continue
            right = p + 1 < len(whole) and p + 1 != wrong
            said = whole[p + 1] if right else draw(rng, 0, top) + (top if p + 1 == wrong else 0)
            best.append(said)
    texts, proposed = (shuffled(rng, some) for some in (texts, proposed))
    return pieces, texts, proposed, best


def shuffled(rng, some):
    """The dict in another order."""
    keys = list(some)
    return {keys[i]: some[keys[i]] for i in torch.randperm(len(keys), generator=rng).tolist()}


@exercise(
    "ex1",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of names, lengths, "
    "tokens, proposals, ends and what holds, in one pass; in lists and dicts that are used again",
    cause="a corner where two others meet, such as many pieces and no proposals at all; one list "
    "that is returned again and again",
)
def test_anywhere_in_a_pass(student, rng):
    cases = every_pair(
        rng,
        (1, 3, 55),
        (0, "", 1500, "1"),
        (1, 6, 1030),
        (None, 0, 3, 320),
        (0, 2, 150000),
        ("first", "last", "between"),
        ("one", "short", "text", "cut", "all"),
        (0, 1, 1030),
        ("all", "first", "some"),
    )
    passes = [pass_of(rng, *case) for case in cases]
    whole = [3] * 1200, [5] * 310  # many, and long, and of large tokens, without an answer yet
    many = [(i, 0, 20) for i in range(59)] + [("", 0, 1), (1500, 0, 1)]
    texts = {i: [150000] * 1010 for i in range(59)} | {"": [0], 1500: [0]}
    passes.append((many, texts, {"": [], 1: whole[1]}, [-1] * 1180 + [0, 150000]))
    passes.append(([("", 0, 1)], {"": whole[0], 0: [0], 1: [150000]}, {0: whole[1]}, [-1]))
    passes.append(([(0, 0, 1)], {0: [0], 1: whole[0], 2: [150000]}, {1: whole[1]}, [150000]))
    small = [(i, 0, 1 + i % 2) for i in range(1030)]  # many, and proposals that all hold
    texts, best = {i: [i, i + 1] for i in range(1030)}, [7] * 1545
    passes.append(
        (small, texts, {5: [7] * 3}, [b if i % 3 == 2 else -1 for i, b in enumerate(best)])
    )
    best = row_of(rng, 150000, 1100)
    passes.append(([("", 0, 1101)], {"": [7]}, {"": best}, [*best, 5]))
    for seen in student.drive(drive_reused, "layout", [some[:3] for some in passes]):
        for some, value in zip(passes, seen, strict=True):
            expect_row(value, *some[:3])
    for seen in student.drive(drive_reused, "step", passes):
        for some, value in zip(passes, seen, strict=True):
            expect_yield(value, *some)


def behind(text):
    value = 2
    for token in text:
        value = (value * 7 + token + 1) % 101
    return value % 5


def alone(prompt, tokens):
    text = list(prompt)
    for _ in range(tokens):
        text.append(behind(text))
    return text


def drive_engine(student, asked, budget, most, passes):
    """Runs beside the student's code: an engine on a rule in place of a model, to its end.

    Who runs goes in order, as far as the budget lasts.  Gives the texts and the number of passes.
    """

    def behind(text):
        value = 2
        for token in text:
            value = (value * 7 + token + 1) % 101
        return value % 5

    texts = {name: list(prompt) for name, prompt, _, _ in asked}
    cached, rows = {name: 0 for name in texts}, {name: {} for name in texts}
    ends = {name: len(prompt) + n for name, prompt, n, _ in asked}
    guesses = {name: some for name, _, _, some in asked}
    for done in range(passes):
        left, pieces, proposed = budget, [], {}
        for name, text in texts.items():
            if len(text) >= ends[name]:
                continue
            if len(text) - cached[name] == 1:
                room = min(most, ends[name] - len(text) - 1)
                proposed[name] = guesses[name][len(text) : len(text) + room]
            n = min(left, len(text) + len(proposed.get(name, [])) - cached[name])
            if n > 0:
                pieces.append((name, cached[name], n))
                left -= n
        if not pieces:
            return texts, done
        ids, positions, wanted = student.layout(list(pieces), dict(texts), dict(proposed))
        here, best = 0, [-1] * len(ids)
        for (name, _, n), places in zip(pieces, wanted, strict=True):
            for i in range(here, here + n):
                rows[name][positions[i]] = ids[i]
                if i in places:
                    best[i] = behind([rows[name][p] for p in range(positions[i] + 1)])
            here += n
        new, after = student.step(list(pieces), dict(texts), dict(proposed), best)
        for name, _, _ in pieces:
            texts[name] = texts[name] + list(new[name])
            cached[name] = int(after[name])
    return texts, passes


def passes_of(asked, budget, most):
    """How many passes that engine takes, from what is proposed and what is true."""
    texts = {name: alone(prompt, n) for name, prompt, n, _ in asked}
    have = {name: len(prompt) for name, prompt, _, _ in asked}
    cached, count = {name: 0 for name in texts}, 0
    while any(have[name] < len(texts[name]) for name in texts):
        left, count = budget, count + 1
        for name, _, _, guesses in asked:
            if have[name] >= len(texts[name]) or not left:
                continue
            room = min(most, len(texts[name]) - have[name] - 1)
            room = room if have[name] - cached[name] == 1 else 0
            n = min(left, have[name] + room - cached[name])
            left -= n
            read = cached[name] + n
            if read < have[name]:
                cached[name] = read
                continue
            hold = 0
            while (
                have[name] + hold < read
                and guesses[have[name] + hold] == texts[name][have[name] + hold]
            ):
                hold += 1
            have[name] += hold + 1
            cached[name] = have[name] - 1
    return count


@exercise(
    "ex1",
    points=3,
    invariant="an engine to its end: texts as one after the other, and not a pass too many",
    cause="fewer tokens taken than hold, or tokens computed again that have a key",
)
def test_engines_to_their_end(student, rng):
    for budget, most in ((3, 2), (9, 4), (40, 6), (5, 0)):
        asked = []
        for i in range(4):
            prompt, n = [draw(rng, 0, 4) for _ in range(draw(rng, 1, 12))], draw(rng, 1, 14)
            lucky = draw(rng, 0, 4)
            some = [t if draw(rng, 0, 4) <= lucky else draw(rng, 0, 4) for t in alone(prompt, n)]
            asked.append((f"q{i}" if i % 2 else i, prompt, n, some))
        count = passes_of(asked, budget, most)
        texts, passes = student.drive(drive_engine, asked, budget, most, 3 * count + 3)
        for name, prompt, n, _ in asked:
            assert texts[name] == alone(prompt, n), "another text than alone"
        assert passes == count, "another number of passes"


# ---- exercise 2 --------------------------------------------------------------------------------


def random_pass_over_blocks(rng, pieces, heads, kv, d, block, dtype, scale):
    """(q, pages, tables, {name: (k, v)}); what is nobody's row is NaN or infinite, block 0 too."""
    need = {name: -(-(cached + n) // block) + draw(rng, 0, 2) for name, cached, n in pieces}
    order = (torch.randperm(sum(need.values()), generator=rng) + 1).tolist()
    tables = {name: [order.pop() for _ in range(count)] for name, count in need.items()}
    tables = {"nobody": [0]} | {name: tables[name] for name in reversed(tables)}
    rows = (sum(need.values()) + 1) * block
    k, v = (torch.full((rows, kv, d), bad, dtype=dtype) for bad in (math.inf, math.nan))
    own = {}
    for name, cached, n in pieces:
        at = torch.tensor([tables[name][p // block] * block + p % block for p in range(cached + n)])
        own[name] = tuple(
            scale * torch.randn(cached + n, kv, d, generator=rng, dtype=dtype) for _ in range(2)
        )
        k[at], v[at] = own[name]
    total = sum(n for _, _, n in pieces)
    q = scale * torch.randn(total, heads, d, generator=rng, dtype=dtype)
    pages = [x.unflatten(0, (-1, block)) for x in (k, v)]
    return q, *pages, tables, own


def plain_attention(q, pieces, own):
    """Each query by itself, and each key head with its own query heads, in float64."""
    out, here = [], 0
    for name, cached, n in pieces:
        k, v = (x.double() for x in own[name])  # [S, Hkv, d]
        of_head = q[here : here + n].double().unflatten(1, (k.shape[1], -1))  # [n, Hkv, group, d]
        for i in range(n):
            end = cached + i + 1
            scores = of_head[i] @ k[:end].permute(1, 2, 0) / q.shape[2] ** 0.5  # [Hkv, group, end]
            out.append((scores.softmax(-1) @ v[:end].transpose(0, 1)).flatten(0, 1))
        here += n
    return torch.stack(out)


def drive_strided(student, q, *rest):
    """Runs beside the student's code: attend with a q that lies head by head, as a model's does,
    or that is every second number of a larger one."""
    heads_first = q.transpose(0, 1).contiguous().transpose(0, 1)
    larger = q.repeat_interleave(2, -1)[..., ::2]
    return [student.attend(view, *rest) for view in (heads_first, larger)]


def check_over_blocks(student, rng, pieces, heads, kv, d, block, dtype, scale=1.0):
    q, k, v, tables, own = random_pass_over_blocks(rng, pieces, heads, kv, d, block, dtype, scale)
    # a score errs by d eps |q| |k| / sqrt(d); a weight by as much, relatively, and a sum by n eps
    size = max(float(x.double().norm(dim=-1).max()) for x in (q, *(k for k, _ in own.values())))
    longest = max(c + n for _, c, n in pieces)
    most = max(float(v.abs().max()) for _, v in own.values())
    bound = 4 * torch.finfo(dtype).eps * most * (longest + d**0.5 * size**2)
    # the same requests in other blocks, of which the last one is nobody's
    order = torch.cat([torch.randperm(k.shape[0] - 1, generator=rng) + 1, torch.zeros(1).long()])
    moved = {name: order.argsort()[table].tolist() for name, table in tables.items()}
    outputs = [student.attend(q, k, v, pieces, tables)]
    outputs += student.drive(drive_strided, -q, k[order], v[order], pieces, moved)
    for out, query in zip(outputs, (q, -q, -q), strict=True):
        assert isinstance(out, torch.Tensor) and out.shape == q.shape, "another shape"
        assert out.dtype == dtype, "another dtype"
        right = plain_attention(query, pieces, own)
        expect_close(out.double(), right, what="attend", atol=bound)
    for where in (tables, moved):
        seen = student.slots(pieces, where, block)
        assert isinstance(seen, torch.Tensor) and seen.dtype == torch.int64, "slots are no int64"
        right = [
            where[a][p // block] * block + p % block for a, c, n in pieces for p in range(c, c + n)
        ]
        assert seen.tolist() == right, "other slots"


@exercise(
    "ex2",
    points=2,
    invariant="any number of requests, each as alone, in blocks of any size",
    cause="offsets of the pass, a cached number of another request, a table too long, rows of a "
    "block that is nobody's, a q that is not contiguous, or another dtype",
)
def test_many_requests(student, rng):
    for dtype in (torch.float32, torch.float64):
        for block in (1, 2, 5, 16):
            for count in (1, 3, 8):
                names = [str(i - 1) if i % 2 else i for i in range(count)]  # 0 and "0" are two
                pieces = [(name, draw(rng, 0, 20), draw(rng, 1, 6)) for name in names]
                check_over_blocks(student, rng, pieces, 4, 2, 4, block, dtype)
        names = ["a", 0, "", 7, "7"]
        for pieces in (  # all answer, all begin, all alike, and one alone
            [(name, 3 + 5 * i, 1) for i, name in enumerate(names)],
            [(name, 0, 2 + 3 * i) for i, name in enumerate(names)],
            [(name, 6, 2) for name in names],
            [("a", draw(rng, 1, 9), 1)],
            [("a", 0, draw(rng, 2, 9))],
            [("a", 0, 1)],
        ):
            check_over_blocks(student, rng, pieces, 4, 2, 4, 4, dtype)
    table = [draw(rng, 2**20, 2**30) * 2 + 1 for _ in range(9)]  # of blocks by the thousand million
    for block in (1, 7, 16):
        seen = student.slots([("a", 3, 5), ("b", 2, 1)], {"b": table[::-1], "a": table}, block)
        assert isinstance(seen, torch.Tensor) and seen.dtype == torch.int64, "slots are no int64"
        right = [table[p // block] * block + p % block for p in range(3, 8)]
        assert seen.tolist() == [*right, table[8 - 2 // block] * block + 2 % block], "other slots"


@exercise(
    "ex2",
    points=3,
    invariant="heads of real models, one key head for all or for each, long and short pieces",
    cause="groups of heads in another order, a size taken for another one, or float32 forgotten",
)
def test_shapes_of_models(student, rng):
    pieces = [("a", 300, 1), (0, 0, 70), ("", 33, 4)]
    check_over_blocks(student, rng, pieces, 8, 8, 16, 16, torch.float32)
    check_over_blocks(student, rng, pieces, 9, 3, 64, 16, torch.float32)
    check_over_blocks(student, rng, [("a", 64, 64)], 6, 1, 2, 64, torch.float64)
    check_over_blocks(student, rng, [("a", 2000, 2), ("b", 0, 1)], 32, 8, 128, 32, torch.float32)
    check_over_blocks(student, rng, [("a", 0, 1)], 1, 1, 1, 1, torch.float64)


def drive_together(student, calls):
    """Runs beside the student's code: the results of all calls, which are held until the end."""
    return [getattr(student, name)(*args) for name, args in calls]


@exercise(
    "ex2",
    points=3,
    invariant="scores of thousands, and of nothing",
    cause="exp without the largest score taken off, or a mask by a number that is not small enough",
)
def test_large_scores(student, rng):
    pieces = [("a", 6, 3), ("b", 0, 5)]
    for scale in (300.0, 30.0, 1e-6, 0.0):  # scores of a million, too
        check_over_blocks(student, rng, pieces, 4, 2, 8, 3, torch.float64, scale)
    q = torch.zeros(1, 1, 1, dtype=torch.float32) - 1e4
    k = torch.full((1, 4, 1, 1), 1e4)  # all keys 1e4, but the last, which is nobody's
    v = torch.arange(4.0).view(1, 4, 1, 1)
    out = student.attend(q, k, v, [("a", 2, 1)], {"a": [0]})
    assert isinstance(out, torch.Tensor) and out.shape == (1, 1, 1), "another shape"
    expect_close(out, torch.ones(1, 1, 1), what="equal scores", atol=1e-5)
    out = student.attend(q.expand(3, 1, 1).clone(), k, v, [("a", 0, 3)], {"a": [0]})
    assert isinstance(out, torch.Tensor) and out.shape == (3, 1, 1), "another shape"
    right = torch.tensor([0.0, 0.5, 1.0]).view(3, 1, 1)
    expect_close(out, right, what="scores of -10^8, later keys", atol=1e-5)
    # two requests whose first block is one, then the same pass over other numbers; all large
    pieces, tables = [("a", 5, 2), ("b", 4, 3)], {"b": [2, 4], "a": [2, 0, 1]}
    calls, rights = [], []
    for factor in (1e6, -1e7):
        k, v = (torch.randn(5, 4, 2, 8, generator=rng).double() for _ in range(2))
        k, v, q = 1e5 * (k + 1), factor * v, 1e-5 * torch.randn(5, 4, 8, generator=rng).double()
        own = {}
        for name, cached, n in pieces:
            rows = [tables[name][p // 4] * 4 + p % 4 for p in range(cached + n)]
            own[name] = k.flatten(0, 1)[rows], v.flatten(0, 1)[rows]
        calls.append(("attend", (q, k, v, pieces, tables)))
        rights.append(plain_attention(q, pieces, own))
    other = [("a", 2, 2), ("b", 3, 3)]
    calls += [("slots", (pieces, tables, 4)), ("slots", (other, tables, 4))]
    seen = student.drive(drive_together, calls)
    for out, right in zip(seen, rights, strict=False):
        assert isinstance(out, torch.Tensor) and out.shape == right.shape, "another shape"
        size = float(right.abs().max())
        expect_close(out, right, what="attend, one of two passes", atol=1e-9 * size)
    slots = [s.tolist() for s in seen[2:]]
    assert slots == [[1, 2, 16, 17, 18], [10, 11, 11, 16, 17]], "slots of one of two passes"


def over_blocks(rng, count, heads, d, block, dtype, sizes, longest, bad, extra):
    """(arguments of attend, own keys and values): rows that are nobody's hold `bad`."""
    d = 8 if longest > 100 and heads == (32, 8) else d  # both at once are in another test
    names = torch.randperm(count, generator=rng).tolist()
    names = [("", 0, "0")[i] if i < 3 else i for i in names]
    pieces = [(name, draw(rng, 0, 2 * block), draw(rng, 1, 3)) for name in names]
    pieces[draw(rng, 0, count - 1)] = (names[0], longest, draw(rng, 1, 2))
    pieces = list({piece[0]: piece for piece in pieces}.values())
    need = {name: -(-(cached + n) // block) + extra for name, cached, n in pieces}
    order = torch.randperm(sum(need.values()) + 1, generator=rng).tolist()
    tables = {name: [order.pop() for _ in range(need[name])] for name in reversed(need)}
    if extra:
        tables["nobody"] = list(order)
    (h, kv), (q_size, k_size, v_size) = heads, sizes
    k, v = (torch.full(((sum(need.values()) + 1) * block, kv, d), x, dtype=dtype) for x in bad)
    own = {}
    for name, cached, n in pieces:
        at = [tables[name][p // block] * block + p % block for p in range(cached + n)]
        own[name] = [torch.randn(len(at), kv, d, generator=rng, dtype=dtype) for _ in "kv"]
        own[name] = [own[name][0] * k_size, own[name][1] * v_size]
        k[at], v[at] = own[name]
    q = q_size * torch.randn(sum(n for _, _, n in pieces), h, d, generator=rng, dtype=dtype)
    return (q, *(x.unflatten(0, (-1, block)) for x in (k, v)), pieces, tables), own


def drive_anywhere(student, calls):
    """Runs beside the student's code: rows and results of all calls, which are held to the end; of
    every second one q is a view."""
    seen = []
    for i, (q, *rest) in enumerate(calls):
        q = q.transpose(0, 1).contiguous().transpose(0, 1) if i % 2 else q
        rows = student.slots(rest[2], rest[3], rest[0].shape[1])
        seen.append((rows, student.attend(q, *rest)))
    return seen


@exercise(
    "ex2",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of blocks, heads, "
    "dtypes, magnitudes of q, k and v, lengths, and what lies in the rows of nobody",
    cause="a corner where two others meet, such as one request and large scores; memory used again",
)
def test_anywhere_over_blocks(student, rng):
    nan, inf = math.nan, math.inf
    cases = every_pair(
        rng,
        (1, 3, 9),
        ((1, 1), (4, 2), (32, 8), (3, 3)),
        (1, 8, 128),
        (1, 5, 16, 64),
        (torch.float32, torch.float64),
        ((0.0, 1.0, 1.0), (1e-7, 1e-7, 1e4), (1.0, 1.0, 1e-6), (2e4, 1e-7, 1.0), (2e4, 0.3, 1.0)),
        (0, 3, 66, 2001),
        ((0.0, 0.0), (nan, nan), (inf, -inf), (0.0, nan), (nan, inf)),
        (0, 3),
    )
    made = [over_blocks(rng, *case) for case in cases]
    seen = student.drive(drive_anywhere, [args for args, _ in made])
    for ((q, k, _, pieces, tables), own), (rows, out) in zip(made, seen, strict=True):
        block = k.shape[1]
        assert isinstance(rows, torch.Tensor) and rows.dtype == torch.int64, "slots are no int64"
        right = [
            tables[a][p // block] * block + p % block for a, c, n in pieces for p in range(c, c + n)
        ]
        assert rows.tolist() == right, "other slots"
        assert isinstance(out, torch.Tensor) and out.shape == q.shape, "another shape"
        assert out.dtype == q.dtype, "another dtype"
        # a score errs by sqrt(d) eps |q| |k|; a weight by as much, relatively; a sum by n eps
        size = float(q.double().norm(dim=-1).max())
        size *= max(float(x.double().norm(dim=-1).max()) for x, _ in own.values())
        most = max(float(x.double().abs().max()) for _, x in own.values())
        longest = max(c + n for _, c, n in pieces)
        bound = 4 * torch.finfo(q.dtype).eps * most * (longest + q.shape[2] ** 0.5 * (1 + size))
        expect_close(out.double(), plain_attention(q, pieces, own), what="attend", atol=bound)


# ---- exercise 3 --------------------------------------------------------------------------------


def drive_linear(student, weight, bias, group, inputs):
    """Runs beside the student's code: outputs, again after the arguments changed, and bytes.

    The arguments ask for gradients, as a model's do.
    """
    import gc

    import torch

    def alive():
        kinds = torch.Tensor, torch.UntypedStorage
        found = [t for t in gc.get_objects() if issubclass(type(t), kinds)]
        found = [t.untyped_storage() if hasattr(t, "untyped_storage") else t for t in found]
        return {t.data_ptr(): t.nbytes() for t in found}

    gc.collect()
    before = alive()
    for argument in (weight, bias):
        if argument is not None:
            argument.requires_grad_(True)
    module = student.Packed(weight, bias, group)
    after = weight.detach().clone(), None if bias is None else bias.detach().clone()
    places = {t.untyped_storage().data_ptr() for t in after if t is not None}
    gc.collect()
    first = [n for p, n in alive().items() if p not in before and p not in places]
    other = student.Packed(
        torch.ones(3, weight.shape[1] + 2), None, group + 1
    )  # none of its matters
    other(torch.ones(weight.shape[1] + 2))
    del other
    outputs = [module(x).detach() for x in inputs]
    gc.collect()
    given = {t.untyped_storage().data_ptr() for t in outputs} | places
    later = [n for place, n in alive().items() if place not in before and place not in given]
    buffers = [t for t in [*module.buffers(), *module.parameters()]]
    graphs = [t.grad_fn is not None for t in buffers]
    sizes = sum(t.numel() * t.element_size() for t in buffers)
    shown = sum(t.numel() * t.element_size() for t in module.state_dict().values())
    for argument in (weight, bias):
        if argument is not None:
            argument.data.zero_()
    again = module(inputs[0]).detach()
    floats = [t.dtype for t in buffers if t.dtype not in (torch.uint8, torch.float16)]
    return outputs, again, sum(first), sum(later), (sizes, shown), floats, after, any(graphs)


def step_of(weight, group):
    """The scale of each weight [N, K], in float64: column by column of groups."""
    w = weight.float()
    scale = torch.empty(w.shape, dtype=torch.float64)
    for row in range(w.shape[0]):
        for start in range(0, w.shape[1], group):
            some = w[row, start : start + group]
            span = some.max().clamp(min=0) - some.min().clamp(max=0)
            scale[row, start : start + group] = float((span / 15).clamp(min=2.0**-14).half())
    return scale


def by_the_card(weight, step, group):
    """(w_hat [N, K], where it is sure: not next to a half, which may be rounded either way)."""
    w, right, sure = weight.double(), torch.empty(weight.shape).double(), []
    for j in range(w.shape[1]):
        start = j - j % group
        some, scale = w[:, start : start + group], step[:, j]
        lo, hi = some.amin(1).clamp(max=0), some.amax(1).clamp(min=0)
        zero, code = -lo / scale, w[:, j] / scale
        right[:, j] = ((code.round() + zero.round()).clamp(0, 15) - zero.round()) * scale
        halves = [((x - x.floor()) - 0.5).abs() > 1e-3 for x in (zero, code)]
        least, most = (((hi - lo) / 15 * (1 + d)).clamp(min=2.0**-14).half() for d in (-1e-6, 1e-6))
        sure.append(halves[0] & halves[1] & (least == most))
    return right, torch.stack(sure, 1)


def check_linear(student, rng, weight, group, bias=None):
    n, k = weight.shape
    dtype = weight.dtype
    unit = torch.eye(k, dtype=dtype)
    inputs = [unit, torch.zeros(0, k, dtype=dtype), torch.randn(k, generator=rng).to(dtype)]
    inputs += [torch.randn(2, 1, 3, k, generator=rng).to(dtype) for _ in range(2)]
    inputs.append(torch.randn(k, 5, generator=rng).to(dtype).T)  # a view
    outputs, again, first, later, (sizes, shown), floats, after, graphs = student.drive(
        drive_linear, weight.clone(), None if bias is None else bias.clone(), group, inputs
    )
    assert torch.equal(after[0], weight), "the weight has changed"
    assert bias is None or torch.equal(after[1], bias), "the bias has changed"
    assert graphs is False, "a graph of the arguments is kept"
    b = torch.zeros(n, dtype=dtype) if bias is None else bias
    eps, step = torch.finfo(dtype).eps, step_of(weight, group)
    assert all(y.dtype == dtype for y in outputs), "another dtype"
    assert torch.equal(again, outputs[0]), "the module changes with what it was made of"
    w_hat = (outputs[0].double() - b.double()).T
    assert w_hat.shape == (n, k), "another shape"
    slack = eps * (weight.double().abs() + step + 2 * b.double().abs()[:, None])
    bound = step * (0.5 + 15 * 2.0**-11 + 1e-6) + 2 * slack
    expect_at_most((w_hat - weight.double()).abs(), bound, "|w_hat - w|")
    right, sure = by_the_card(weight, step, group)
    far = torch.where(sure, w_hat - right, 0 * w_hat).abs()
    expect_at_most(far, 16 * 1e-6 * step + 2 * slack, "distance of w_hat from what the card says")
    whole = (w_hat / step - (w_hat / step).round()).abs() * step
    expect_at_most(whole, 16 * 1e-6 * step + 2 * slack, "distance of w_hat from the grid")
    for x, y in zip(inputs[1:], outputs[1:], strict=True):
        right = x.double() @ w_hat.T + b.double()
        assert y.shape == right.shape, "another shape"
        size = x.double().abs() @ (w_hat.abs() + 2 * slack).T + b.double().abs()
        limit = (k + 8) * eps * size + x.double().abs() @ (2 * slack).T
        expect_at_most((y.double() - right).abs(), limit + 1e-30, "|forward - x W_hat^T - b|")
    groups = -(-k // group)
    most = n * (-(-k // 2) + 2 * groups + -(-groups // 2))
    most += 0 if bias is None else bias.numel() * bias.element_size()
    for what, count in (
        ("kept at first", first),
        ("kept after calls", later),
        ("in buffers", sizes),
    ):
        expect_at_most(float(count), float(most), f"bytes {what}")
    expect_at_most(float(n * -(-k // 2)), float(sizes), "bytes of codes in buffers")
    assert bias is not None or not floats, "buffers of other dtypes"
    assert shown == sizes, "state_dict shows something else than the buffers"


@exercise(
    "ex3",
    points=2,
    invariant="every weight on the grid of its group within half a step, in any shape; bytes exact",
    cause="the last group filled up, an odd number of codes, groups across rows, a byte for each",
)
def test_shapes_and_groups(student, rng):
    for n, k, group in ((1, 1, 1), (1, 1, 9), (3, 7, 4), (5, 9, 1), (4, 33, 16), (16, 128, 128)):
        weight = torch.randn(n, k, generator=rng)
        bias = torch.randn(n, generator=rng) if draw(rng, 0, 1) or k == 7 else None
        check_linear(student, rng, weight, group, bias)
    check_linear(student, rng, torch.randn(40, 300, generator=rng), 32)
    check_linear(student, rng, torch.randn(1, 300, generator=rng), 1)
    check_linear(student, rng, torch.randn(300, 2, generator=rng), 2)
    check_linear(student, rng, torch.randn(2, 700, generator=rng), 600)
    check_linear(student, rng, torch.randn(6, 12, generator=rng).T, 5)
    odd = torch.randn(7, 3, generator=rng)
    check_linear(student, rng, odd.bfloat16().T, 2, torch.randn(3, generator=rng).bfloat16())
    check_linear(student, rng, odd.double().T, 9)
    scale = 1 + 2.0**-11 * 0.99  # as float16 it is 1, and 14.5035 is code 15
    row = torch.full((20,), 14.5035)
    row[0], row[7] = 0, 15 * scale
    check_linear(student, rng, torch.stack([row, -row]), 20)


@exercise(
    "ex3",
    points=2,
    invariant="tiny, large, equal and one-sided weights, in three dtypes",
    cause="a scale of 0, one that float16 cannot hold, or a range that begins at the least weight",
)
def test_magnitudes(student, rng):
    base = torch.randn(4, 24, generator=rng)
    for weight in (1e-8 * base, 1e4 * base / base.abs().max(), base.abs(), -base.abs(), 0 * base):
        check_linear(student, rng, weight, 8)
    for scale in (0.3, 0.9, 1.1, 1.9, 4):  # the least scale is 2^-14
        span = 2.0**-14 * 15 * scale
        check_linear(student, rng, torch.rand(4, 24, generator=rng) * span - span / 3, 24)
        weight = torch.rand(4, 24, generator=rng) * span
        weight[:, 0], weight[:, 1] = 0, span
        check_linear(student, rng, weight - span / 3, 24)
    check_linear(student, rng, base.abs() + 5, 8, torch.randn(4, generator=rng))
    check_linear(student, rng, torch.full((2, 6), -3.0), 4)
    check_linear(student, rng, base.bfloat16(), 8, torch.randn(4, generator=rng).bfloat16())
    check_linear(student, rng, (1e3 * base).bfloat16(), 5)
    check_linear(student, rng, torch.randn(16, 80, generator=rng).bfloat16(), 40)
    check_linear(student, rng, base.double(), 8, torch.randn(4, generator=rng).double())
    check_linear(student, rng, torch.randn(8, 40, generator=rng).bfloat16(), 20)
    check_linear(student, rng, torch.tensor([[-1.0, 1.0], [3.0, -3.0]]), 2)  # 8 + 8 is no code
    base[:, 3] *= 1000
    check_linear(student, rng, base, 8)


def drive_names(student, biased, tied, group, x, seed):
    """Runs beside the student's code: kinds by name, what is shared, and the linears' outputs."""
    import torch
    from torch import nn

    torch.manual_seed(seed)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 10, bias=biased), nn.Linear(10, 4, bias=biased)
            self.norm = nn.LayerNorm(4)

    class Reader(nn.Module):
        def __init__(self, table):
            super().__init__()
            self.scale, self.table = nn.Parameter(torch.ones(4)), table

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.layers = nn.ModuleList(Layer() for _ in range(12))
            self.twin, self.other = nn.Linear(4, 6, bias=True), nn.Linear(4, 6, bias=False)
            self.lm_head = nn.Linear(4, 6, bias=False)
            self.third, self.fourth = nn.Linear(4, 6), nn.Linear(4, 6)
            self.fourth.bias = self.twin.bias  # a bias alone is no matter
            self.fourth.weight.data.copy_(self.third.weight)  # nor are equal values
            self.read = nn.Linear(4, 6)
            self.reader = Reader(self.read.weight if tied else nn.Parameter(torch.ones(6, 4)))
            if tied:
                self.lm_head.weight = self.embed.weight
                self.other.weight = self.twin.weight

        def forward(self, x):
            for layer in self.layers:
                x = x + layer.down(layer.up(layer.norm(x)).relu())
            return self.lm_head(x)

    model = Model().eval()
    model.layers[3].train()
    model.layers[4].norm.weight.requires_grad_(False)
    kinds_before = [type(m).__name__ for m in model.modules()]
    before = [p.detach().clone() for p in model.parameters()]
    copy = student.quantized(model, group)
    with torch.no_grad():
        right = model(x)
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    same += [p.grad is None for p in model.parameters()]
    kept = [type(m).__name__ for m in model.modules()] == kinds_before
    kinds = {name: type(m).__name__ for name, m in copy.named_modules() if name}
    asks = {name: p.requires_grad for name, p in copy.named_parameters()}
    rest = [
        asks.get(name) == p.requires_grad
        for name, p in model.named_parameters()
        if "norm" in name or "embed" in name or "reader" in name
    ]
    rest += [
        m.training == copy.get_submodule(name).training
        for name, m in model.named_modules()
        if type(copy.get_submodule(name)).__name__ != "Packed"
    ]
    places = {p.data_ptr() for p in model.parameters()}
    apart = all(p.data_ptr() not in places for p in [*copy.parameters(), *copy.buffers()])
    shared = (
        getattr(copy.lm_head, "weight", None) is copy.embed.weight,
        getattr(copy.other, "weight", 0) is getattr(copy.twin, "weight", 1),
        getattr(copy.read, "weight", 0) is copy.reader.table,
    )
    pairs = []
    for (name, ours), theirs in zip(model.named_modules(), copy.modules(), strict=True):
        if isinstance(ours, nn.Linear) and type(theirs).__name__ == "Packed":
            direct = student.Packed(ours.weight, ours.bias, group)
            probe = torch.eye(ours.in_features)
            pairs.append((name, theirs(probe).detach(), direct(probe).detach()))
    with torch.no_grad():
        copy.embed.weight.zero_()
    return kinds, same, kept, apart, shared, pairs, right, copy(x).detach(), all(rest)


@exercise(
    "ex3",
    points=2,
    invariant="in any model: each linear with a weight of its own is packed, all else stays",
    cause="only direct children, only lm_head by its name, a bias lost, the model's weights kept",
)
def test_any_model(student, rng):
    x = torch.randn(3, 4, generator=rng)
    for biased, tied, group in ((True, True, 4), (False, False, 3), (True, True, 4)):
        seed = draw(rng, 0, 10**6)
        kinds, same, kept, apart, shared, pairs, _, zeroed, rest = student.drive(
            drive_names, biased, tied, group, x, seed
        )
        assert rest is True, "what is no linear has another mode, or asks for other gradients"
        assert all(same) and kept is True, "the model has changed"
        assert apart is True, "the copy holds tensors of the model"
        plain = {"twin", "other", "lm_head", "read"} if tied else set()
        others = ("twin", "other", "lm_head", "third", "fourth", "read")
        for name, kind in kinds.items():
            linear = name.endswith(("up", "down")) or name in others
            right = "Linear" if name in plain else "Packed"
            assert not linear or kind == right, "another kind of module"
            known = ("Embedding", "ModuleList", "Layer", "LayerNorm", "Reader")
            assert linear or kind in known, "replaced"
        assert len(kinds) == 57, "modules are missing"
        assert tuple(shared) == (tied, tied, tied), "sharing has changed"
        assert len(pairs) == (26 if tied else 30), "linears are missing"
        for _, own, direct in pairs:
            expect_close(own, direct, what="a linear of the copy", atol=1e-6, rtol=1e-6)
        if tied:
            expect_close(
                zeroed, torch.zeros(3, 6), what="lm_head after the table became 0", atol=0.0
            )


def drive_rest(student, dtype, group, x, seed):
    """Runs beside the student's code: what has changed of a model with buffers, and what in its
    copy is another; whether the copy holds memory of the model; a linear of both.

    Names of what is wrong, so nothing in them is right.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)

    class Angles(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("angles", torch.randn(4))
            self.register_buffer("mask", torch.ones(4, 4), persistent=False)
            self.register_buffer("nothing", None)
            self.plain, self.rate, self.words = torch.randn(3), 0.25, ["a", "b"]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.angles, self.drop = nn.BatchNorm1d(4), Angles(), nn.Dropout(0.3)
            self.layers = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 4, bias=False))
            self.again = Angles()
            self.own, self.tied = nn.Parameter(torch.randn(3, 2)), nn.Linear(2, 3)
            self.tied.weight = self.own  # used by the model itself
            self.still = nn.Parameter(torch.randn(2), requires_grad=False)

    model = Model().to(dtype)
    model.again.angles = model.angles.angles  # one buffer of two modules
    model.norm(torch.randn(9, 4, dtype=dtype))
    model.layers[0].weight.requires_grad_(False)
    model.layers[2].eval()
    model.angles.eval()
    model.own.grad = torch.ones_like(model.own)

    def held(some):
        tensors = {**dict(some.named_parameters()), **dict(some.named_buffers())}
        for name, module in some.named_modules():
            plain = {k: v for k, v in vars(module).items() if isinstance(v, torch.Tensor)}
            tensors |= {f"{name}.{k}": v for k, v in plain.items()}
        return tensors

    def kinds(some):
        return {
            name: (type(m), m.training, sorted(m._buffers), sorted(m._non_persistent_buffers_set))
            for name, m in some.named_modules()
            if type(m).__name__ not in ("Linear", "Packed")
        }

    def same(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())

    modules, tensors, modes = dict(model.named_modules()), held(model), kinds(model)
    training = [m.training for m in modules.values()]
    values = {k: (t.detach().clone(), t.requires_grad, t.data_ptr()) for k, t in tensors.items()}
    copy = student.quantized(model, group)
    after, theirs = held(model), held(copy)
    changed = [k for k, m in model.named_modules() if m is not modules.get(k)]
    changed += [k for k in {*tensors, *after} if after.get(k) is not tensors.get(k)]
    for k, (value, asks, place) in values.items():
        t = tensors[k]
        if not same(value, t.detach()) or t.requires_grad != asks or t.data_ptr() != place:
            changed.append(k)
    if kinds(model) != modes or [m.training for m in modules.values()] != training:
        changed.append("modes")
    if model.own.grad is None or not same(model.own.grad, torch.ones_like(model.own)):
        changed.append("a gradient")
    other = [] if kinds(copy) == modes else ["modes, kinds or names of buffers"]
    for k, t in tensors.items():
        if k.startswith("layers"):
            continue
        if k not in theirs or not same(theirs[k].detach(), t.detach()):
            other.append(k)
        elif theirs[k].requires_grad != t.requires_grad or type(theirs[k]) is not type(t):
            other.append(k)
    if getattr(copy.tied, "weight", None) is not copy.own:
        other.append("a linear whose weight the model itself uses")
    if copy.angles.angles is not copy.again.angles:
        other.append("a buffer of two modules")
    if (copy.angles.rate, copy.angles.words) != (0.25, ["a", "b"]) or copy.drop.p != 0.3:
        other.append("an attribute")
    places = {t.untyped_storage().data_ptr() for t in tensors.values()}
    common = [k for k, t in theirs.items() if t.untyped_storage().data_ptr() in places]
    linears = []
    for i in (0, 2):
        ours, packed = model.layers[i], copy.layers[i]
        direct = student.Packed(ours.weight, ours.bias, group)
        unit = x if i == 0 else torch.eye(7, dtype=dtype)
        both = packed(unit).detach(), direct(unit).detach()
        bias = torch.zeros(len(ours.weight)) if ours.bias is None else ours.bias.detach()
        linears.append((type(packed).__name__, *both, unit, ours.weight.detach(), bias))
    return changed, other, common, linears


@exercise(
    "ex3",
    points=2,
    invariant="the model stays in all that it is; all of the copy but its linears is as in the "
    "model, and shares no memory with it",
    cause="gradients switched off, modes changed, buffers or attributes shared or lost, or a copy "
    "in float32",
)
def test_all_else(student, rng):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(3, 4, generator=rng).to(dtype)
        group = draw(rng, 1, 6)
        changed, other, common, linears = student.drive(
            drive_rest, dtype, group, x, draw(rng, 0, 10**6)
        )
        assert changed == [], "the model has changed"
        assert other == [], "what is no linear is another in the copy"
        assert common == [], "the copy holds memory of the model"
        for kind, own, direct, unit, weight, bias in linears:
            assert kind == "Packed" and own.dtype == dtype, "another kind of module, or dtype"
            expect_close(own, direct, what="a linear of the copy", atol=1e-6, rtol=1e-6)
            unit, weight, step = unit.double(), weight.double(), step_of(weight, group)
            size = unit.abs() @ (weight.abs() + step).T + bias.double().abs()
            bound = unit.abs() @ (0.51 * step).T + 32 * torch.finfo(dtype).eps * size
            far = (own.double() - unit @ weight.T - bias.double()).abs()
            expect_at_most(far, bound, "distance of the copy's linear from the model's")


def drive_packed(student, cases):
    """Runs beside the student's code: outputs of each linear, all of which are made before; and
    again, when others have written into the first and into what the linears were made of.

    How w, bias and x lie is the case's way: 0 as they came, 1 the first two dimensions exchanged,
    2 each second number of some that are larger in every dimension, 3 one number read again and
    again where all rows are one.
    """

    def lay(x, way):
        if x is None:
            return None
        if way == 1 and x.dim() > 1:
            return x.clone().transpose(0, 1).contiguous().transpose(0, 1)
        if way == 2:
            larger = x
            for d in range(x.dim()):
                larger = larger.repeat_interleave(2, d)
            return larger[(slice(None, None, 2),) * x.dim()]
        if way == 3 and x.dim() > 1 and x.shape[0] > 1:
            return x[:1].expand(x.shape)
        return x.clone()

    given = [[lay(some, way) for some in (w, b)] for w, b, _, _, way in cases]
    modules = [
        student.Packed(*some, group) for some, (_, _, group, _, _) in zip(given, cases, strict=True)
    ]
    seen = []
    for _ in range(2):
        held = [
            [module(lay(x, way if i else 0)) for i, x in enumerate(inputs)]
            for module, (_, _, _, inputs, way) in zip(modules, cases, strict=True)
        ]
        seen.append([[y.detach().clone() for y in outputs] for outputs in held])
        for x in [x for some in (*held, *given) for x in some if x is not None]:
            if 0 not in x.stride():
                x.detach().zero_()
    return seen


def drive_memory(student, n, k, x):
    """Runs beside the student's code: bytes of Python's own that stay behind the calls of a linear,
    when another was made and called before.

    Those of numpy, lists and bytes; tracemalloc does not see torch's.
    """
    import gc
    import tracemalloc

    import torch

    weight = torch.sin(torch.arange(n * k).float()).view(n, k)
    linear = student.Packed(weight, None, 32)
    linear(x), linear(x)
    linear = student.Packed(weight + 1, None, 32)
    tracemalloc.start()
    for _ in range(2):
        linear(x)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept


def grid(weight, group):
    """(w_hat by the card, step, where it is sure) of [N, K], in float64."""
    (n, k), g = weight.shape, min(group, weight.shape[1])
    w = torch.nn.functional.pad(weight.float(), (0, -k % g)).view(n, -1, g).double()
    lo, hi = w.amin(-1, True).clamp(max=0), w.amax(-1, True).clamp(min=0)
    least, step, most = (
        ((hi - lo) / 15 * (1 + d)).clamp(min=2.0**-14).float().half().double()
        for d in (-1e-6, 0, 1e-6)
    )
    zero, code = -lo / step, w / step
    right = ((code.round() + zero.round()).clamp(0, 15) - zero.round().clamp(0, 15)) * step
    halves = [((x - x.floor()) - 0.5).abs() > 1e-3 for x in (zero, code)]
    sure = halves[0] & halves[1] & (least == most)
    return [x.expand(n, -1, g).reshape(n, -1)[:, :k] for x in (right, step, sure)]


FOUR_BIT_SIZES = (
    *((0, 0), (2e-8, 0), (1, 0), (1, 4), (1, -4), (2e-4, 0), (1000, 0), (1000, 6000)),
    *(("one", 1e4), ("unlike", 0)),
)


def weights_of(rng, n, k, group, size, shift, dtype):
    """[n, k] of the dtype; "one" is another in one place, and a group before it is 0; of "unlike"
    each group has a magnitude of its own."""
    w = torch.randn(n, k, generator=rng).clamp(-3.5, 3.5)
    place = draw(rng, 0, n - 1), draw(rng, 0, k - 1)
    if size == "one":
        w[0, :group] = 0
        w[place] = shift
    elif size == "unlike":
        w *= 10.0 ** (torch.arange(k) // group % 7 - 4)
    else:
        w = size * w + shift
        if size == 1000 and not shift:
            w[place] = 1e4
    w = w.to(dtype)
    return w.clamp(-9984, 9984) if dtype == torch.bfloat16 else w


def check_four_bits(w, bias, group, inputs, outputs, later):
    assert all(y.dtype == w.dtype for y in outputs), "another dtype"
    for one, two in zip(outputs, later, strict=True):
        assert one.shape == two.shape and torch.equal(one, two), "another result when asked again"
    b = torch.zeros(len(w)).double() if bias is None else bias.double()
    right, step, sure = grid(w, group)
    eps = torch.finfo(w.dtype).eps
    w_hat = outputs[0].double().T - b[:, None]
    assert w_hat.shape == w.shape, "another shape"
    slack = 2 * eps * (w.double().abs() + step + 2 * b.abs()[:, None])
    bound = step * (0.5 + 15 * 2.0**-11 + 1e-6) + slack
    expect_at_most((w_hat - w.double()).abs(), bound, "|w_hat - w|")
    far = torch.where(sure, w_hat - right, 0 * w_hat).abs()
    expect_at_most(far, 16e-6 * step + slack, "distance of w_hat from what the card says")
    x, y = inputs[1].double(), outputs[1].double()
    assert y.shape == (*x.shape[:-1], len(w)), "another shape"
    size = x.abs() @ (w_hat.abs() + slack).T + b.abs()
    limit = (x.shape[-1] + 8) * eps * size + x.abs() @ slack.T + 1e-30
    expect_at_most((y - x @ w_hat.T - b).abs(), limit, "|forward - x W_hat^T - b|")


@exercise(
    "ex3",
    points=1,
    invariant="linears anywhere in what the card admits: every two of sizes, group, dtype, "
    "magnitude, bias and layout, all made before the first is called; asked again, and memory",
    cause="a corner where two others meet, such as one column and bfloat16; an x whose first two "
    "dimensions are exchanged; memory used again, or W_hat kept as numbers of any kind",
)
def test_anywhere_in_four_bits(student, rng):
    cases = []
    for n, columns, group, dtype, (size, shift), biased, way, lead in every_pair(
        rng,
        (1, 3, 40),
        (1, 5, 301, "group - 1", "group", "group + 1", "3 groups", "3 groups + 1"),
        (1, 2, 5, 32, 128),
        (torch.float32, torch.float64, torch.bfloat16),
        FOUR_BIT_SIZES,
        (None, 1e-6, 1.0, 1e4),
        (0, 1, 2, 3),
        ((), (0,), (2, 3), (2, 1, 3), (2, 0), (1, 2, 1, 2)),
    ):
        k = {"group - 1": group - 1, "group": group, "group + 1": group + 1}.get(columns, columns)
        k = {"3 groups": 3 * group, "3 groups + 1": 3 * group + 1}.get(k, k)
        w = weights_of(rng, n, max(k, 1), group, size, shift, dtype)
        bias = None if biased is None else (biased * torch.randn(n, generator=rng)).to(dtype)
        x = torch.randn(*lead, w.shape[1], generator=rng).to(dtype)
        if way == 3 and n > 1:
            w[:] = w[0].clone()
        if way == 3 and len(lead) and lead[0] > 1:
            x[:] = x[0].clone()
        cases.append((w, bias, group, [torch.eye(w.shape[1], dtype=dtype), x], way))
    for group in (1, 5, 32, 128):  # a bias of one number, with weights of 0 and of 10^4
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            for top in (0, 9984 if dtype == torch.bfloat16 else 10**4):
                w = (top * torch.rand(1, 7, generator=rng)).to(dtype)
                w[0, draw(rng, 0, 6)] = top
                inputs = [torch.eye(7, dtype=dtype), torch.randn(7, generator=rng).to(dtype)]
                cases.append((w, torch.randn(1, generator=rng).to(dtype), group, inputs, 0))
    for n, k in ((1, 1030), (1030, 3)):
        inputs = [torch.eye(k), torch.randn(2, 1030 // n, k, generator=rng)]
        cases.append((torch.randn(n, k, generator=rng), None, draw(rng, 2, 40), inputs, 1))
    kept = student.drive(drive_memory, 40, 200, torch.ones(2, 200))
    expect_at_most(float(kept), 40.0 * 200, "bytes that stay behind a call, of numbers of any kind")
    for case, *outputs in zip(cases, *student.drive(drive_packed, cases), strict=True):
        check_four_bits(*case[:4], *outputs)


# ---- exercise 4 --------------------------------------------------------------------------------


class Shelf:
    """The model: tables, the line, and for each block the tokens it holds; nothing is indexed."""

    def __init__(self, blocks, block):
        self.block, self.line, self.tables, self.holds = block, list(range(blocks)), {}, {}

    def named(self, number):
        return any(number in table for table in self.tables.values())

    def cut(self, name, length):
        while len(self.tables[name]) * self.block >= length + self.block:
            number = self.tables[name].pop()
            if not self.named(number):
                self.line.append(number)

    def fits(self, text, own):
        """What is wrong with a table that `start` gave, or None."""
        for i, number in enumerate(own):
            if self.holds.get(number) != list(text[: (i + 1) * self.block]):
                return "a block in the table does not hold this beginning"
        if len(own) * self.block >= len(text):
            return "nothing is left to compute"
        longer = (len(own) + 1) * self.block
        if longer < len(text) and list(text[:longer]) in self.holds.values():
            return "a longer beginning is held"
        return None


def long_walk(rng, length, names, letters, longest, block):
    walk, there = [], set()
    for _ in range(length):
        name = names[draw(rng, 0, len(names) - 1)]
        if name not in there:
            size = draw(rng, 1, longest)
            walk.append(("start", name, [draw(rng, 0, letters - 1) for _ in range(size)]))
            there.add(name)
            continue
        kind = ("grow", "grow", "grow", "settle", "settle", "roll_back", "end")[draw(rng, 0, 6)]
        if kind == "end":
            there.discard(name)
        walk.append((kind, name, draw(rng, 0, 2 * block + 1)))
    return walk


def drive_blocks(student, walks, blocks, block):
    """Runs beside the student's code: what was asked, what it gave, tables and free after it.

    A text goes on behind what `start` was given: a request has written something.
    """

    def asked(pool, kind, name, what, texts, room, sure):
        """(what was said, what was given back)."""
        if kind == "start":
            given = list(what)
            value = pool.start(name, given).__index__()
            given[:] = [-1] * len(given)  # the list is the caller's
            top = max(what) + 1
            written = [i % top for i in range(2 * block)]
            texts[name], room[name], sure[name] = [*what, *written], value, value
            return what, value
        if kind == "grow":
            return min(room[name] + what, len(texts[name])), None
        if kind == "fill":  # all that is free, and so many blocks more
            return (len(pool.tables[name]) + pool.free + what) * block, None
        if kind == "settle":
            said = min(sure[name] + what, room[name], len(texts[name]))
            given = texts[name][: said if said % 3 == 1 else None]
            pool.settle(name, given, said)
            given[:] = [-1] * len(given)  # the list is the caller's
            sure[name] = said
            return said, None
        if kind == "roll_back":
            said = room[name] = max(room[name] - what, sure[name])
            pool.roll_back(name, said)
            return said, None
        pool.end(name)
        return what, None

    def walked(walk):
        pool, texts, room, sure, rows = student.Blocks(blocks, block), {}, {}, {}, []
        other = student.Blocks(blocks + 3, block)  # which is none of this one's business
        other.start("a", [0] * (2 * block + 1))
        other.grow("a", 2 * block)
        other.settle("a", [0] * (2 * block + 1), 2 * block)
        for kind, name, what in walk:
            value, said = None, what
            try:
                said, value = asked(pool, kind, name, what, texts, room, sure)
                if kind in ("grow", "fill"):
                    pool.grow(name, said)
                    room[name] = max(room[name], said)
            except MemoryError:
                value = "MemoryError"
            except NotImplementedError:
                raise
            except Exception as fault:
                value = type(fault).__name__
            try:
                tables = {who: [n.__index__() for n in row] for who, row in pool.tables.items()}
                rows.append((said, value, tables, pool.free.__index__()))
            except Exception as fault:
                rows.append((said, value, type(fault).__name__, -1))
        return rows

    return [walked(walk) for walk in walks]


def judge_of(blocks, block):
    def judge(walk, seen):
        shelf, texts = Shelf(blocks, block), {}
        for i, ((kind, name, _), (said, value, tables, free)) in enumerate(
            zip(walk, seen, strict=True)
        ):
            if not isinstance(tables, dict):
                return i, "tables cannot be read"
            if kind == "start":
                own, top = tables.get(name), max(said) + 1
                written = [j % top for j in range(2 * block)]
                texts[name] = [*said, *written]
                if own is None or value != len(own) * block:
                    return i, "a table, and the number of its tokens"
                if wrong := shelf.fits(said, own):
                    return i, wrong
                shelf.line = [n for n in shelf.line if n not in own]
                shelf.tables[name], value = list(own), None
            elif kind in ("grow", "fill"):
                needs = max(-(-said // block) - len(shelf.tables[name]), 0)
                if (needs > len(shelf.line)) != (value == "MemoryError"):
                    return i, "MemoryError where there is room, or none where there is not"
                if value == "MemoryError":
                    needs, value = 0, None
                for _ in range(needs):
                    number = shelf.line.pop(0)
                    shelf.holds.pop(number, None)
                    shelf.tables[name].append(number)
            elif kind == "settle":
                for j in range(said // block):
                    shelf.holds[shelf.tables[name][j]] = texts[name][: (j + 1) * block]
            else:
                shelf.cut(name, said if kind == "roll_back" else 0)
                if kind == "end":
                    del shelf.tables[name]
            if value is not None:
                return i, "it raised, or returned something"
            if tables != shelf.tables or free != len(shelf.line):
                return i, "other tables, or another number of free blocks"
        return None

    return judge


def check_walks(student, walks, blocks, block):
    expect_walks(
        lambda walks: student.drive(drive_blocks, walks, blocks, block),
        walks,
        judge_of(blocks, block),
        lambda walk: walk,
        str,
        shorten=False,
    )


@exercise(
    "ex4",
    points=2,
    invariant="over long random walks every table, and what is found, is as it must be",
    cause="the order in which blocks come free, blocks of two tables, or forgotten too early",
)
def test_long_walks_of_blocks(student, rng):
    for blocks, block, letters in ((6, 2, 2), (9, 3, 2), (12, 1, 2), (30, 4, 1), (1, 2, 3)):
        names = ["a", "b", 0, 7, "7", ""]
        walks = [long_walk(rng, 120, names, letters, 4 * block + 1, block) for _ in range(4)]
        check_walks(student, walks, blocks, block)


@exercise(
    "ex4",
    points=2,
    invariant="several with the same beginning, of few blocks or of many, each with its own table",
    cause='one list for two tables, 7 and "7" taken for one name, or a block counted once for two',
)
def test_same_beginnings(student, rng):
    names = [7, "7", "a", 0, "0"]
    for block in (1, 2, 3):
        walks = []
        for depth in (1, 2, 3, 4, 7, 12):
            text = [draw(rng, 0, 4) for _ in range(depth * block + 1)]
            order = [names[i] for i in torch.randperm(len(names), generator=rng).tolist()]
            walk = [("start", "first", text), ("grow", "first", 99), ("settle", "first", 99)]
            walk += [("end", "first", 0)] * draw(rng, 0, 1)
            walk += [("start", name, text) for name in order]
            for name in order:  # one after the other goes on, is cut and goes
                walk += [("grow", name, draw(rng, 1, 2 * block)), ("settle", name, block)]
                walk += [("roll_back", name, draw(rng, 0, block))]
            for name in reversed(order):
                walk += [("end", name, 0), ("start", "new", text), ("grow", "new", 1)]
                walk += [("end", "new", 0), ("start", name, text), ("grow", name, block)]
            walks.append(walk)
        check_walks(student, walks, 60, block)


@exercise(
    "ex4",
    points=2,
    invariant="two that compute the same text hold it twice; found while either block holds it",
    cause="only the first or the last block of a text remembered, all forgotten with one, or by a "
    "settle of fewer tokens or a MemoryError; the caller's list kept",
)
def test_held_twice(student, rng):
    text = [draw(rng, 0, 5) for _ in range(7)]
    twice = [("start", "a", text), ("start", "b", text), ("grow", "a", 4), ("grow", "b", 4)]
    twice += [("settle", "a", 4), ("settle", "b", 4)]
    for first, second in (("a", "b"), ("b", "a")):
        walk = [*twice, ("end", first, 0), ("start", "c", [9, 9, 9, 9, 9, 9]), ("grow", "c", 5)]
        walk += [("start", "d", text), ("end", second, 0), ("start", "e", text), ("end", "d", 0)]
        walk += [("end", "e", 0), ("start", "f", text), ("end", "c", 0), ("start", "g", text)]
        check_walks(student, [walk], 6, 2)
    other = [text[0] + 1, *text[1:]]  # the second block has the same tokens, behind another start
    walk = [("start", "a", text), ("grow", "a", 6), ("settle", "a", 6), ("end", "a", 0)]
    walk += [("start", "b", other), ("grow", "b", 2), ("settle", "b", 2), ("end", "b", 0)]
    check_walks(student, [[*walk, ("start", "c", other)]], 8, 2)
    walk = [("start", "a", text), ("grow", "a", 7), ("settle", "a", 6), ("settle", "a", -4)]
    walk += [("grow", "a", -5), ("roll_back", "a", -3), ("start", "b", text), ("end", "a", 0)]
    check_walks(student, [[*walk, ("start", "c", text)]], 8, 2)  # less than there is: nothing
    walk = [("start", "a", text), ("grow", "a", 7), ("settle", "a", 6), ("end", "a", 0)]
    walk += [("start", "b", [9] * 15), ("grow", "b", 14), ("start", "c", text)]
    check_walks(student, [walk], 6, 2)  # what could not be taken is still held
    walk = [("start", "a", [1, 12, 3, 4, 5]), ("grow", "a", 4), ("settle", "a", 4)]
    others = [[11, 2, 3, 4, 5], [12, 1, 3, 4, 5], [1, 12, 34, 0, 5], [112, 3, 4, 5, 6], [1, 123, 4]]
    others += [[1, 12 + 2**bits, 3, 4, 5] for bits in (8, 16, 17, 24)]
    walk += [("start", name, other) for name, other in enumerate(others)]
    check_walks(student, [walk], 6, 2)  # tokens, not their digits, and in their order
    walk = [("start", "a", [2**24, 3, 4]), ("grow", "a", 2), ("settle", "a", 2)]
    walk += [("start", i, [2**24 + i, 3, 4]) for i in (1, 2, 0)]
    check_walks(student, [walk], 6, 2)


@exercise(
    "ex4",
    points=2,
    invariant="texts of thousands of tokens, blocks by the thousand, large tokens",
    cause="a limit that nobody asked for, or a name that counts as nobody",
)
def test_long_texts_of_blocks(student, rng):
    text = row_of(rng, 150000, 3000)
    walk = [("start", 0, text), *[("grow", 0, 33)] * 100, ("settle", 0, 3001)]
    check_walks(student, [[*walk, ("end", 0, 0), ("start", "", text)]], 400, 16)
    walk = [("start", 0, text[:1300]), *[("grow", 0, 33)] * 40]
    walk += [*[("settle", 0, 33)] * 8, *[("settle", 0, 130)] * 8]
    walk += [("end", 0, 0), ("start", "", text), ("start", 1, text[:1100]), ("grow", "", 31)]
    walk += [("grow", 1, 17), ("end", "", 0), ("start", 2, text), ("roll_back", 1, 9)]
    back = [("start", 0, text), ("grow", 0, 2900), ("settle", 0, 100), ("roll_back", 0, 2000)]
    back += [("start", 1, text), ("grow", 1, 1500), ("roll_back", 1, 1500), ("grow", 0, 700)]
    check_walks(student, [walk, back], 400, 16)


@exercise(
    "ex4",
    points=1,
    invariant="pools anywhere in what the card admits: every two of blocks, their size, the name, "
    "lengths of texts, tokens, and what is settled, rolled back and refused",
    cause="a corner where two others meet, such as a single block of one token, or a name that "
    "counts as nobody where nothing is settled yet",
)
def test_anywhere_in_blocks(student, rng):
    sizes = {}
    for blocks, block, name, length, token, done, back in every_pair(
        rng,
        (1, 5, 410, 1100),
        (1, 3, 16, 70),
        (0, "", "a", 7),
        ("one", "block", "block + 1", "2 blocks", "2 blocks + 1", "3 blocks - 1", 65, 200),
        (0, 150000),
        (0, 1, 300),
        (0, 1, 17, 300),
    ):
        length = {
            "one": 1, "block": block, "block + 1": block + 1, "2 blocks": 2 * block,
            "2 blocks + 1": 2 * block + 1, "3 blocks - 1": 3 * block - 1,
        }.get(length, length)  # fmt: skip
        text = [token + step for step in row_of(rng, 1, length)]
        walk = [("start", name, text), ("settle", name, 0), ("roll_back", name, 0)]
        walk += [("grow", name, draw(rng, 1, 2 * block)), ("grow", name, 3201)]
        walk += [
            ("settle", name, done),
            ("roll_back", name, back),
            ("start", "b", text[:-1] or [1]),
        ]
        walk += [("grow", "b", 1), ("settle", "b", block), ("grow", name, block)]
        walk += [("end", name, 0), ("start", name, text), ("grow", name, block), ("end", "b", 0)]
        walk += [("roll_back", name, 3201), ("start", 8, [token] * (block + 1)), ("end", name, 0)]
        sizes.setdefault((blocks, block), []).append(walk)
    for name in (0, "", "a"):  # all of a long text certain, and more taken back
        text = row_of(rng, 150000, 3201)
        walk = [("start", name, text), ("settle", name, 0), ("grow", name, 3201)]
        walk += [("settle", name, 3201), ("grow", name, 30), ("roll_back", name, 40)]
        walk += [("end", name, 0), ("start", name, text[:1]), ("settle", name, 0)]
        sizes[410, 16].append([*walk, ("start", "b", text[:49])])
    for blocks, block in sizes:  # to the last block, and one more than there are
        walk = [("start", 0, [1] * (2 * block)), ("grow", 0, block), ("start", "", [1])]
        sizes[blocks, block].append([*walk, *[("fill", 0, step) for step in (-1, 1, 0, 1)]])
    for (blocks, block), walks in sizes.items():
        check_walks(student, walks, blocks, block)
    text = row_of(rng, 1, 401)
    long = [("start", 0, text), ("grow", 0, 400), ("settle", 0, 400), ("end", 0, 0)]
    long += [("start", "", text), ("roll_back", "", 0), ("start", 1, text), ("end", 1, 0)]
    check_walks(student, [[*long, ("grow", "", 2)]], 420, 1)


# ---- exercise 5 --------------------------------------------------------------------------------


def could_become(rest, stops):
    """Whether some text that begins with this one begins with a stop word, and is not one yet."""
    return any(len(rest) < len(stop) and stop[: len(rest)] == rest for stop in stops)


def slow_stream(stops, texts, last):
    """(piece, stopped) after each call, by trying every end."""
    told, stopped, rows = 0, False, []
    for i, text in enumerate(texts):
        if stopped:
            rows.append(("", True))
            continue
        end = None
        for at in range(len(text)):
            if any(text[at : at + len(stop)] == stop for stop in stops):
                end, stopped = at, True
                break
        if end is None:
            end = len(text)
            if not (last and i == len(texts) - 1):
                while end and text[end - 1] == "\ufffd":
                    end -= 1
                whole = text[:end]
                for at in range(end):
                    if could_become(whole[at:], stops):
                        end = at
                        break
        rows.append((text[told:end], stopped))
        told = max(told, end)
    return rows


def drive_streams(student, streams):
    """Runs beside the student's code: (piece, stopped) after each call, streams in turn."""
    made = [student.Told(list(stops)) for stops, _, _ in streams]
    seen = [[] for _ in streams]
    for i in range(max(len(texts) for _, texts, _ in streams)):
        for told, rows, (_, texts, last) in zip(made, seen, streams, strict=True):
            if i < len(texts):
                piece = told.add(texts[i], bool(last and i == len(texts) - 1))
                rows.append((piece, bool(told.stopped)))
    return seen


def random_stream(rng, letters, count, longest):
    alphabet = "abcdeé\n .*[(?\\"[-letters if letters > 8 else 0 :][:letters]
    letter = lambda: alphabet[draw(rng, 0, letters - 1)]  # noqa: E731
    stops = ["".join(letter() for _ in range(draw(rng, 1, longest))) for _ in range(count)]
    text, texts = "", []
    for _ in range(draw(rng, 1, 12)):
        text += "".join(letter() for _ in range(draw(rng, 0, 3)))
        texts.append(text + "\ufffd" * max(0, draw(rng, -3, 2)))
    return stops, texts, bool(draw(rng, 0, 1))


def check_streams(student, streams):
    for stream, seen in zip(streams, student.drive(drive_streams, streams), strict=True):
        assert [tuple(row) for row in seen] == slow_stream(*stream), "another piece, or stopped"


@exercise(
    "ex5",
    points=2,
    invariant="streams of random letters: told as soon as it is certain, and never before",
    cause="held back for the longest word only or for too long, or a word taken for a pattern",
)
def test_streams_letter_by_letter(student, rng):
    for letters, count, longest in (
        (2, 1, 4),
        (2, 3, 5),
        (3, 2, 3),
        (8, 4, 2),
        (9, 3, 2),
        (2, 0, 1),
    ):
        check_streams(student, [random_stream(rng, letters, count, longest) for _ in range(60)])


@exercise(
    "ex5",
    points=2,
    invariant="texts that come in leaps: of words inside of words the one that begins first counts",
    cause="the word that ends first, the longest, or the first of the list, in place of the one "
    "that begins first",
)
def test_leaps(student, rng):
    streams = []
    for _ in range(12):
        order = torch.randperm(12, generator=rng).tolist()
        word = "".join("abcdefghijkl"[i] for i in order[: draw(rng, 3, 8)])
        begin = draw(rng, 1, len(word) - 2)
        inner = word[begin : draw(rng, begin + 1, len(word) - 1)]  # ends first, begins later
        behind = word[begin:] + "yz"  # begins in the word, ends behind it
        text = "xyx" + word + "yz"
        for stops in ([word, inner], [inner, word], [word, behind], [behind, word, inner]):
            cut = draw(rng, 1, 3 + begin)
            for texts in ([text], [text[:cut], text], [text[:3], text, text + "x"]):
                streams.append((stops, texts, bool(draw(rng, 0, 1))))
        streams.append(([inner, behind], [text], False))
        streams.append(([word + "q", inner], [text], False))
    check_streams(student, streams)


@exercise(
    "ex5",
    points=2,
    invariant="long texts, many and long stop words, half characters in between",
    cause="a limit that nobody asked for, or half a character that hides a beginning",
)
def test_long_streams(student, rng):
    word = "ab" * 40 + "c"
    text = "x" * 3000 + "ab" * 60
    check_streams(student, [([word], [text[:n] for n in range(2900, 3121, 13)], False)])
    check_streams(
        student, [([word, "q" * 200], [text, text + "ab", text + "abc", text + "abcd"], True)]
    )
    many = [f"<{i}>" for i in range(60)]
    texts = [
        "a<5",
        "a<5\ufffd\ufffd",
        "a<5é",
        "a<5é<59",
        "a<5é<59\ufffd",
        "a<5é<59>tail",
        "a<5é<59>tails",
    ]
    check_streams(student, [(many, texts, True), (many, texts[:5], True), (many, texts[:5], False)])
    check_streams(student, [(["\n"], ["", "", "\ufffd", "a\n"], True), ([], [""], True)])
    plain = ["an eND", "an eND e\u0301 ", "an eND e\u0301 \r\n", "an eND e\u0301 \r\nEnd"]
    check_streams(student, [(["End", "\u00e9"], plain, True), (["\r\nE"], plain, False)])
    halves = ["a\ufffd\ufffd\ufffd\ufffd", "a\ufffd\ufffd\ufffd\ufffd"]  # as many as there may be
    check_streams(student, [(["ab"], halves[:1], True), ([], halves, True), ([], halves, False)])
    inside = [
        "a\ufffd",
        "a\ufffdb",
        "a\ufffdbc\ufffd",
        "a\ufffdbcd\ufffd",
    ]  # no half character any more
    check_streams(student, [([], inside, True), (["bcde"], inside, True), (["cd"], inside, False)])


def drive_out(student, running, waiting, name, again):
    """Runs beside the student's code: whether a passed dict is returned, and both afterwards."""
    seen = student.take_out(running, waiting, name, again)
    return any(one is two for one in seen for two in (running, waiting)), running, waiting


@exercise(
    "ex5",
    points=2,
    invariant="of any number that run and wait one goes; all others stay in their order",
    cause="a name that is 0 or empty, an order that changes, put back without the answer, or the "
    "dicts that were passed",
)
def test_who_goes(student, rng):
    for count in (1, 2, 5, 40):
        names = [f"n{i}" if draw(rng, 0, 1) else i + 10**6 for i in range(count)]
        names += [0, "", "0", 10**6 + count, str(10**6 + count)]  # 0 and "0" are two
        order = [names[i] for i in torch.randperm(len(names), generator=rng).tolist()]
        cut = draw(rng, len(order) // 3, len(order))
        state = {}
        for name in order:
            text = [draw(rng, 0, 150000) for _ in range(draw(rng, 1, 30))]
            less = draw(rng, 1, len(text)) if draw(rng, 0, 1) else 1  # who answers lacks one
            state[name] = [text, len(text) - less]
        run = {name: state[name] for name in order[:cut]}
        line = {name: list(state[name]) for name in order[cut:]}
        for name in (*order, "gone"):
            for again in (False, True):
                if again and name not in run:
                    continue
                same, *after = student.drive(drive_out, run, line, name, again)
                assert same is False, "a dict that was passed is returned"
                assert after == [run, line], "a dict that was passed has changed"
                seen = parts(student.take_out(run, line, name, again), 2)
                assert all(isinstance(one, dict) for one in seen), "no dicts"
                own = [[(k, ints(v[0]), ints([v[1]])[0]) for k, v in one.items()] for one in seen]
                stay = [(k, v[0], v[1]) for k, v in run.items() if k != name]
                wait = [(k, v[0], v[1]) for k, v in line.items() if k != name]
                head = [(name, state[name][0], 0)] if again else []
                assert own == [stay, head + wait], "another order, text or number"


def quick_stream(stops, texts, last):
    """As slow_stream; only ends as long as the longest word are tried."""
    told, stopped, rows = 0, False, []
    for i, text in enumerate(texts):
        found = [text.index(stop) for stop in stops if stop in text]
        if stopped or found:
            rows.append(("" if stopped else text[told : min(found)], True))
            stopped = True
            continue
        end = len(text)
        if not (last and i == len(texts) - 1):
            whole = text.rstrip("\ufffd")
            ends = range(max(0, len(whole) - max(map(len, stops), default=0)), len(whole))
            end = next((at for at in ends if could_become(whole[at:], stops)), len(whole))
        rows.append((text[told:end], False))
        told = max(told, end)
    return rows


def stream_of(rng, count, word, start, halves, last, ending):
    """A text of `start` letters that goes on with a part of a stop word, or all of it."""
    stops = ["".join("ab"[i] for i in row_of(rng, 1, word - 1)) + "c" for _ in range(count)]
    text = "".join("xab\n"[i] for i in row_of(rng, 3, start))
    stop = stops[draw(rng, 0, count - 1)] if count else "ab"
    cut = {"none": 0, "one": 1, "most": len(stop) - 1, "word": len(stop)}[ending]
    texts = ["", text[: start // 2], text, text + stop[:cut] + "\ufffd" * halves]
    texts = texts[draw(rng, 0, 3) :]  # a first call with nothing, with all, or between
    if halves and draw(rng, 0, 1):
        texts.append(text + stop[:cut] + stop[cut:])
    return stops, texts, last


def drive_taken(student, calls):
    """Runs beside the student's code: results of all calls and whether each is two new dicts; and
    again, when others have put requests into those.

    The dicts that are passed are the same two in each call, with other requests.
    """

    def all_of(calls):
        found, apart, running, waiting = [], True, {}, {}
        for run, wait, name, again in calls:
            for box, some in ((running, run), (waiting, wait)):
                box.clear()
                box.update({key: [list(text), n] for key, (text, n) in some.items()})
            one, two = student.take_out(running, waiting, name, again)
            apart = apart and len({id(box) for box in (one, two, running, waiting)}) == 4
            found.append((one, two))
        return found, apart

    def copied(found):
        return [[{k: [*v] for k, v in one.items()} for one in two] for two in found]

    found, apart = all_of(calls)
    first = copied(found), apart
    for two in found:
        for i, one in enumerate(two):
            one[f"another {i}"] = [[7], 0]
    found, apart = all_of(calls[::-1])
    return first, (copied(found[::-1]), apart)


def state(token, length):
    """Who answers lacks one; who begins all."""
    return [[token] * length, 0 if length % 2 else length - 1]


@exercise(
    "ex5",
    points=1,
    invariant="streams and requests anywhere in what the card admits: every two of stop words, "
    "lengths, half characters and ends; of names, tokens, who runs and who waits; new dicts always",
    cause="a corner where two others meet, such as many long words and a text that is empty; one "
    "empty dict that is returned again and again",
)
def test_anywhere_in_streams(student, rng):
    streams = [
        stream_of(rng, *case)
        for case in every_pair(
            rng,
            (0, 1, 3, 65),
            (1, 2, 9, 90),
            (0, 4, 3100),
            (0, 1, 5, 70),
            (False, True),
            ("none", "one", "most", "word"),
        )
    ]
    texts = [("ab" * 12 + "c")[: n // 40] for n in range(1040)]  # more calls than a thousand
    word, many = "ab" * 520 + "c", [f"<{i}>" for i in range(310)]
    streams += [(["ababc"] * 2, texts, True), ([word], [word[:-1], word + "d"], True)]
    streams += [(many, ["a<30", "a<30\ufffd", "a<30é<309", "a<30é<309>"], True)]
    for stream, seen in zip(streams, student.drive(drive_streams, streams), strict=True):
        assert [tuple(row) for row in seen] == quick_stream(*stream), "another piece, or stopped"
    calls, rights = [], []
    for run, wait, name, where, again, token, length in every_pair(
        rng,
        (1, 2, 12),
        (0, 1, 12),
        (0, "", "gone", 2**40),
        ("runs", "waits", "neither"),
        (False, True),
        (0, 150000),
        (1, 1100),
    ):
        length = 1 if run + wait > 4 else length
        where = "runs" if again else where
        running = {
            i + 1 if i % 2 else str(i): state(token, length + i)
            for i in range(run - (where == "runs"))
        }
        waiting = {
            i + 50 if i % 2 else f"w{i}": state(token, length + i)
            for i in range(wait - (where == "waits"))
        }
        for some, here in ((running, "runs"), (waiting, "waits")):
            if where == here:
                rest, at = list(some.items()), draw(rng, 0, len(some))
                some.clear()
                some.update([*rest[:at], (name, state(token, length + 2)), *rest[at:]])
        calls.append((running, waiting, name, again))
        stay, line = (
            [(k, v[0], v[1]) for k, v in some.items() if k != name] for some in (running, waiting)
        )
        rights.append([stay, ([(name, running[name][0], 0)] if again else []) + line])
    many, more = ({i + own: state(7, 1) for i in range(310)} for own in (0, 500))
    calls.append((many, more, 9, True))
    rights.append(
        [
            [(k, *v) for k, v in many.items() if k != 9],
            [(9, [7], 0), *((k, *v) for k, v in more.items())],
        ]
    )
    for seen, kept in student.drive(drive_taken, calls):
        assert kept is True, "a dict that was passed is returned, or one dict twice"
        for two, right in zip(seen, rights, strict=True):
            own = [[(k, ints(v[0]), ints([v[1]])[0]) for k, v in one.items()] for one in two]
            assert own == right, "another order, text or number"


# ---- exercise 6 --------------------------------------------------------------------------------

H100 = {"weights": 15009316864.0, "row": 131072.0, "token": 13958643712.0, "pair": 524288.0}
H100 |= {"head": 1050673152.0, "bandwidth": 3.35e12, "peak": 989.4e12, "fixed": 0.0}


def counted(machine, pieces, logits):
    """Key by key."""
    moved, flops = machine["weights"], machine["head"] * logits
    for _, cached, n in pieces:
        moved += machine["row"] * cached
        for i in range(n):
            moved += machine["row"]
            flops += machine["token"] + machine["pair"] * (cached + i + 1)
    return machine["fixed"] + max(moved / machine["bandwidth"], flops / machine["peak"])


def check_seconds(student, machine, pieces, logits):
    seen = student.seconds(machine, pieces, logits)
    assert isinstance(seen, (int, float)) and not isinstance(seen, bool), "no number"
    right = torch.tensor(counted(machine, pieces, logits)).double()
    expect_close(torch.tensor(float(seen)).double(), right, what="seconds", atol=0.0, rtol=1e-6)


def random_machine(rng):
    part = lambda top: float(torch.rand((), generator=rng)) * top  # noqa: E731
    machine = {"weights": part(200), "row": part(4), "token": part(20), "pair": part(2)}
    return machine | {
        "head": part(9),
        "bandwidth": 1 + part(20),
        "peak": 1 + part(60),
        "fixed": part(3),
    }


def whole_machine(rng, size, computes):
    """(machine of ints, logits): steps of some `size` seconds, a quarter to three quarters more."""
    rate = draw(rng, 20, 99)
    whole, rest = (rate * draw(rng, size, 2 * size), draw(rng, rate // 4 + 1, 3 * rate // 4))
    machine = dict.fromkeys(("weights", "row", "token", "pair", "head"), 0)
    machine |= {"bandwidth": rate, "peak": rate, "fixed": draw(rng, 0, 3)}
    if computes:
        return machine | {"token": rate, "pair": rate, "head": whole + rest}, 1
    return machine | {"weights": whole + rest, "row": rate}, 0


@exercise(
    "ex6",
    points=3,
    invariant="any step on any machine takes what is counted key by key",
    cause="a count of another piece, pairs by n squared, logits by requests, rows only once, or "
    "whole seconds where all numbers are whole",
)
def test_steps_key_by_key(student, rng):
    for machine in (
        H100,
        H100 | {"fixed": 0.005, "peak": 1e12},
        {key: int(value) for key, value in H100.items()},
        {key: 10**6 + int(value) for key, value in random_machine(rng).items()},
        *(random_machine(rng) for _ in range(6)),
    ):
        for count in (0, 1, 2, 30):
            pieces = [  # 0 and "0" are two
                (str(i - 1) if i % 2 else i, draw(rng, 0, 400), draw(rng, 1, 60))
                for i in range(count)
            ]
            check_seconds(student, machine, pieces, draw(rng, 0, 3 * count))
    check_seconds(student, H100, [("a", 100000, 60000)], 1)
    for size in (1, 10, 100, 1000, 10**4, 5 * 10**4):
        for computes in (False, True):
            machine, logits = whole_machine(rng, size, computes)
            pieces = [("a", draw(rng, 0, 9), draw(rng, 1, 3)), (0, draw(rng, 0, 9), 1)]
            for some in (machine, {key: float(value) for key, value in machine.items()}):
                check_seconds(student, some, pieces, logits)


def speeds(machine, requests, cached, acceptance, most):
    made, rows = 0.0, []
    for g in range(most + 1):
        made += acceptance**g
        pieces = [(i, cached, g + 1) for i in range(requests)]
        rows.append(requests * made / counted(machine, pieces, requests * (g + 1)))
    return rows


@exercise(
    "ex6",
    points=3,
    invariant="no number of proposals makes more tokens per second, in batches of 1 to 512",
    cause="the bill of one request for all, keys left out, or a rate that is not per second",
)
def test_best_of_all(student, rng):
    cases = [
        (H100, requests, 500, share / 10, 12) for requests in (1, 64, 128, 512) for share in (2, 7)
    ]
    cases += [(H100 | {"fixed": 0.01}, 200, 4000, 0.8, 9), (H100, 300, 0, 0.95, 5)]
    cases += [({key: int(value) for key, value in H100.items()}, 128, 500, 0.7, 12)]
    dear = dict.fromkeys(H100, 0) | {"token": 7, "bandwidth": 1, "peak": 1000, "fixed": 0.993}
    cases += [(dear | {"token": t}, 1, 9, a, 3) for t, a in ((7, 0.005), (7, 0.009), (1, 0.002))]
    for _ in range(25):
        machine, share = random_machine(rng), float(torch.rand((), generator=rng))
        cases.append((machine, draw(rng, 1, 20), draw(rng, 0, 60), share, draw(rng, 0, 10)))
        machine = {key: draw(rng, 0, 40) for key in machine}  # whole numbers, and many are 0
        machine |= {"bandwidth": draw(rng, 1, 30), "peak": draw(rng, 1, 99), "fixed": 1}
        cases.append((machine, draw(rng, 1, 20), draw(rng, 0, 60), share, draw(rng, 0, 10)))
    for case in cases:
        seen, rows = student.best_gamma(*case), speeds(*case)
        assert type(seen) is int and 0 <= seen <= case[-1], "no int from 0 to most"
        expect_at_most(
            max(rows), rows[seen] * (1 + 1e-9), "the best rate, beside that of best_gamma"
        )


@exercise(
    "ex6",
    points=2,
    invariant="acceptance 0 and 1, most 0, and of equal ones the smallest",
    cause="a closed form that divides by 1 - a, or the last of equal ones",
)
def test_ends_of_gamma(student, rng):
    flat = {"weights": 64, "row": 0, "token": 0, "pair": 0, "head": 0}
    flat |= {"bandwidth": 8, "peak": 8, "fixed": 0}
    for machine, requests, cached, share, most, right in (
        (flat, 5, 3, 0.0, 7, 0),
        (flat, 5, 3, 1.0, 7, 7),
        (flat, 2, 3, 1.0, 300, 300),
        (flat, 1, 0, 1, 0, 0),
        (flat | {"weights": 0, "token": 8}, 4, 0, 1.0, 7, 0),
        (flat | {"weights": 0, "token": 8}, 5, 3, 1.0, 7, 0),
        (flat | {"token": 8, "weights": 0}, 2, 50, 0.5, 3, 0),
        (flat | {"token": 16, "fixed": 0}, 1, 0, 1.0, 9, 3),
        # each is better than the one before, by a few parts in 10^11 at last
        (flat | {"weights": 0, "token": 8, "fixed": 2.0**-30}, 4, 0, 1.0, 7, 7),
        (flat | {"weights": 128, "token": 10**6, "peak": 2 * 10**6}, 1, 0, 1.0, 300, 31),
        (H100 | {"pair": 0, "token": 0, "head": 0}, 1, 5, 1.0, 700, 700),
        (H100, 1, 500, 1.0, 8, 8),
        (H100, 64, 500, 0.0, 8, 0),
    ):
        seen = student.best_gamma(machine, requests, cached, share, most)
        assert type(seen) is int and seen == right, "another number"


def exact_seconds(machine, pieces, logits):
    """In fractions; pieces are (how many of them, cached, n)."""
    m = {key: Fraction(value) for key, value in machine.items()}
    rows = sum(i * (cached + n) for i, cached, n in pieces)
    new = sum(i * n for i, _, n in pieces)
    pairs = sum(i * (n * cached + n * (n + 1) // 2) for i, cached, n in pieces)
    flops = m["token"] * new + m["pair"] * pairs + m["head"] * logits
    return m["fixed"] + max((m["weights"] + m["row"] * rows) / m["bandwidth"], flops / m["peak"])


def machine_of(rng, kind, most, fixed):
    """`most` is what costs most: weights, rows, tokens, pairs or logits."""
    size = {"int": 1, "fraction": 0.37, "large": 10**10, "large float": 1e10, "tiny": 1e-9}
    size = size.get(kind, 1.0)
    names = ("weights", "row", "token", "pair", "head")
    machine = {name: draw(rng, 1, 9) * size for name in names}
    machine |= {most: machine[most] * 10**4} if most in names else dict.fromkeys(names, 0)
    machine |= {"bandwidth": draw(rng, 1, 9) * size, "peak": draw(rng, 1, 9) * size}
    least = 0 if most in names else 1  # a step takes some time
    machine |= {"fixed": max(fixed, least) * (1 if isinstance(size, int) else 1.0)}
    if kind == "mixed":  # whole numbers, of which every second one is an int
        for i in torch.randperm(7, generator=rng).tolist()[:4]:
            name = [*names, "bandwidth", "peak"][i]
            machine[name] = int(machine[name])
    return machine


def rates_of(machine, requests, cached, share, most):
    """Tokens per second of 0 .. most proposals: seconds exact, tokens by a sum of falling terms."""
    tokens, rates = [], []
    for g in range(most + 1):
        tokens.append(float(share) ** g)
        cost = exact_seconds(machine, [(requests, cached, g + 1)], requests * (g + 1))
        rates.append(requests * math.fsum(tokens) / float(cost))
    return rates


def fixed_at(share, g, step):
    """Seconds that are fixed, for which g and g + 1 proposals are worth the same, if a token more
    takes `step` seconds and nothing else costs."""
    made, then = (math.fsum(share**i for i in range(n + 1)) for n in (g, g + 1))
    return step * (made * (g + 2) - then * (g + 1)) / share ** (g + 1)


def at_a_threshold(rng):
    """Cases of best_gamma next to where one proposal more begins to be worth it, on both sides."""
    cases = []
    for share, g in (
        *((share, 0) for share in (1e-9, 1e-3, 0.02, 0.5, 0.995, 1 - 1e-6)),
        *((share, 1) for share in (0.01, 0.3, 0.9, 0.999)),
        *((share, 7) for share in (0.4, 0.97, 0.99, 0.991, 0.9999, 1.0)),
        *((share, draw(rng, 60, 90)) for share in (0.95, 0.992, 0.999, 1 - 1e-4)),
        (draw(rng, 9901, 9999) / 10**4, draw(rng, 20, 60)),
    ):
        rate, requests = draw(rng, 1, 9), draw(rng, 1, 4)
        for near in (1 - 1e-3, 1 + 1e-3):
            what = ("token", "head", "weights")[draw(rng, 0, 2)]
            machine = dict.fromkeys(H100, 0) | {"bandwidth": rate, "peak": rate}
            # one token more of each request takes requests / rate seconds
            machine |= {"head" if what == "head" else "token": 1}
            fixed = near * fixed_at(share, g, requests / rate)
            # as weights that are read: no longer than computing, and so of no account
            machine |= {"fixed": fixed, "weights": rate if what == "weights" else 0}
            machine["weights"] *= requests / rate
            cases.append((machine, requests, 0, share, g + draw(rng, 1, 40)))
    return cases


def drive_one_machine(student, machines, pieces, case):
    """Runs beside the student's code: both functions, of one dict that holds one machine after the
    other, and of one list."""
    one, row, seen = {}, [], []
    for i, machine in enumerate(machines):
        one.clear()
        one.update(machine)
        row[:] = pieces[i:]
        seen.append((student.seconds(one, row, i), student.best_gamma(one, *case)))
    return seen


def check_best(seen, machine, requests, cached, share, top):
    rates = rates_of(machine, requests, cached, share, top)
    assert type(seen) is int and 0 <= seen <= top, "no int from 0 to most"
    expect_at_most(max(rates) / rates[seen], 1 + 1e-9, "the best rate, beside best_gamma's")


@exercise(
    "ex6",
    points=1,
    invariant="both functions, anywhere in what the card admits: every two of machines, what costs "
    "most, pieces, lengths, logits, requests, acceptance and most, against fractions; and next to "
    "where one proposal more begins to be worth it",
    cause="a corner where two others meet, such as whole numbers and many requests; an acceptance "
    "near 0 or 1 that counts as 0 or 1",
)
def test_anywhere_on_machines(student, rng):
    kinds = ("int", "whole", "fraction", "large", "large float", "tiny", "mixed")
    dear = ("weights", "row", "token", "pair", "head", "nothing")
    for kind, most, fixed, count, cached, n, logits in every_pair(
        rng,
        kinds,
        dear,
        (0, 2, 0.25),
        (0, 1, 40, 300),
        (0, 7, 10**5),
        (1, 2, 300),
        (0, 1, 50, 1030),
    ):
        machine = machine_of(rng, kind, most, fixed)
        each = [(1, cached + draw(rng, 0, 3), max(1, n - draw(rng, 0, 3))) for _ in range(count)]
        pieces = [(i if i % 2 else str(i), *row[1:]) for i, row in enumerate(each)]
        logits = logits if count else 0
        seen = student.seconds(machine, pieces, logits)
        assert isinstance(seen, (int, float)) and not isinstance(seen, bool), "no number"
        right = float(exact_seconds(machine, each, logits))
        assert math.isclose(seen, right, rel_tol=1e-9), "other seconds"
    each = [(1, 10**5, 3000) for _ in range(300)]
    for most in ("token", "pair"):  # FLOPs that no 64 bits hold
        machine = machine_of(rng, "large", most, 0)
        seen = student.seconds(machine, [(i, *row[1:]) for i, row in enumerate(each)], 3)
        right = float(exact_seconds(machine, each, 3))
        assert math.isclose(seen, right, rel_tol=1e-9), "other seconds"
    shares = (0, 1, 0.0, 1.0, 0.5, 0.97, 1e-6, 0.995, 1 - 1e-5)
    for kind, most, fixed, requests, cached, share, top in every_pair(
        rng, kinds, dear, (0, 2), (1, 2, 520, 1030), (0, 7, 4100), shares, (0, 1, 14)
    ):
        machine = machine_of(rng, kind, most, fixed)
        seen = student.best_gamma(machine, requests, cached, share, top)
        check_best(seen, machine, requests, cached, share, top)
        if share == 0 and most == "nothing":  # all are the same, in any arithmetic
            assert seen == 0, "of equal ones not the smallest"
    for case in at_a_threshold(rng):
        check_best(student.best_gamma(*case), *case)
    machines = [machine_of(rng, kind, "token", 2) for kind in kinds]
    pieces = [(str(i), i, 2) for i in range(len(kinds) + 1)]
    cases = student.drive(drive_one_machine, machines, pieces, (2, 5, 0.9, 12))
    for i, (machine, (cost, best)) in enumerate(zip(machines, cases, strict=True)):
        right = float(exact_seconds(machine, [(1, *row[1:]) for row in pieces[i:]], i))
        assert math.isclose(cost, right, rel_tol=1e-9), "other seconds, of a dict that changed"
        check_best(best, machine, 2, 5, 0.9, 12)
