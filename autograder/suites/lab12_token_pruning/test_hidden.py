"""Hidden tests of lab12: brute force in float64, long streams, and the inputs that break real code.

Inputs are drawn anew for each submission, until no choice is nearly a tie.
"""

import itertools
import math
from functools import partial

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.again import held, held_results, refused
from efflib.lab.cases import every_pair

F32, F64, I64, HALF = torch.float32, torch.float64, torch.int64, torch.bfloat16
CLOSE = 2e-5  # of float32: products of some tens of terms, and a softmax


def tensor(values, dtype=F64):
    return torch.tensor(values, dtype=dtype)


def draw(rng, *shape, dtype=F64):
    return torch.randn(*shape, generator=rng, dtype=F64).to(dtype)


def exact(q, k, v):
    """(out, p) in float64, head by head and query by query."""
    q, k, v = (x.double() for x in (q, k, v))
    (B, H, T, d), S = q.shape, k.shape[2]
    p, out = torch.zeros(B, H, T, S, dtype=F64), torch.zeros(B, H, T, v.shape[3], dtype=F64)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            for t in range(T):
                seen = S - T + t + 1
                row = (k[b, g, :seen] @ q[b, h, t] / math.sqrt(d)).softmax(0)
                p[b, h, t, :seen] = row
                out[b, h, t] = row @ v[b, g, :seen]
    return out, p


def stay(scores, positions, size, sinks, recent):
    """(places of one row that stay, how far the choice is from a tie)."""
    n = len(scores)
    guarded = [i for i in range(n) if positions[i] < sinks or i >= n - recent]
    others = sorted((i for i in range(n) if i not in guarded), key=lambda i: (-scores[i], -i))
    room = size - len(guarded)
    chosen, left = others[:room], others[room:]
    clear = scores[chosen[-1]] - scores[left[0]] if chosen and left else math.inf
    return sorted(guarded + chosen), clear


def simulated(steps, size, sinks=0, recent=0, decay=1.0):
    """What a cache does with steps (q, k, v): after each (out, positions, mass, keys, values)."""
    B, heads = steps[0][1].shape[:2]
    clear, seen = math.inf, 0
    kept = {(b, g): ([], []) for b in range(B) for g in range(heads)}  # positions, mass
    all_k = torch.cat([k for _, k, _ in steps], 2)
    all_v = torch.cat([v for _, _, v in steps], 2)
    told = []
    for q, k, _ in steps:
        T, group = k.shape[2], q.shape[1] // heads
        outs = torch.zeros(*q.shape[:3], all_v.shape[3], dtype=F64)
        for (b, g), (at, mass) in kept.items():
            at = at + list(range(seen, seen + T))
            mine = slice(g * group, (g + 1) * group)
            rows = all_k[b, g, at][None, None], all_v[b, g, at][None, None]
            out, p = exact(q[b : b + 1, mine], *rows)
            outs[b, mine] = out[0]
            weights = [decay ** (T - 1 - t) if t < T - 1 else 1.0 for t in range(T)]
            got = (p[0] * tensor(weights)[:, None]).sum((0, 1))
            old = tensor([*mass, *[0.0] * T])
            mass = old * decay**T + got
            places, far = stay(mass.tolist(), at, size, sinks, recent)
            clear = min(clear, far)
            kept[b, g] = [at[i] for i in places], mass[places].tolist()
        seen += T
        table = [[kept[b, g][0] for g in range(heads)] for b in range(B)]
        masses = [[kept[b, g][1] for g in range(heads)] for b in range(B)]
        at = torch.tensor(table)
        rows = at[..., None].expand(-1, -1, -1, all_k.shape[3])
        told.append((outs, at, tensor(masses), all_k.gather(2, rows), all_v.gather(2, rows)))
    return told, clear


def clear_case(make, least=1e-3):
    """The first drawn case whose choices nothing but a real mistake changes."""
    for _ in range(300):
        case, far = make()
        if far > least:
            return case
    raise RuntimeError("no case without a tie was drawn")


def drive_kept(student, steps, options):
    """Runs beside the student's code: what the cache gives and is after each step."""
    cache, told = student.KeptTokens(**options), []
    for step in steps:  # as a model's projections give them: views
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in step)
        out = cache.step(q, k, v)
        now = (out, cache.positions, cache.mass, cache.keys, cache.values)
        told.append([out, *(x.clone() for x in now[1:])])
        for x in (q, k, v):  # the caller's memory serves for something else
            x.fill_(7)
    return told


def expect_steps(student, steps, options, right, atol=1e-9):
    seen = student.drive(drive_kept, steps, options)
    names = ("out", "positions", "mass", "keys", "values")
    for i, (now, then) in enumerate(zip(seen, right, strict=True)):
        for name, x, y in zip(names, now, then, strict=True):
            what = f"{name} after step {i} of KeptTokens({options})"
            if name == "positions":
                expect_same(x, y, what)
            else:
                expect_close(x, y, what=what, atol=atol)


def expect_held(student, name, calls):
    """Results that are held while others come are those of each call by itself."""
    held = held_results(student, name, calls)
    for args, value in zip(calls, held, strict=True):
        alone = getattr(student, name)(*args)
        pairs = zip(value, alone, strict=True) if isinstance(value, tuple) else [(value, alone)]
        for seen, right in pairs:
            what = f"a result of {name}, held while others came"
            assert not right.is_complex() and right.isfinite().all(), f"{name} gave no real numbers"
            expect_close(seen, right, what=what, rtol=1e-5, atol=1e-6)


# ---- anywhere in what a card admits ----------------------------------------------------------


def spread(rng, options, count):
    """`count` of the options, each as often as the others to within one, in an order drawn."""
    order = []
    while len(order) < count:
        order += [options[i] for i in torch.randperm(len(options), generator=rng).tolist()]
    return order[:count]


def crossed(rng, *lists):
    """Cases, one value of each list: any two values of two lists meet in one of them.

    p p cases for a prime p: lists are repeated to p values in a drawn order, and case (i, j) has of
    list c the value number i + c j modulo p, of list p number j.
    """
    p = next(p for p in (3, 5, 7) if p >= max(*map(len, lists), len(lists) - 1))
    columns = [spread(rng, values, p) for values in lists]
    return [
        [x[(i + c * j) % p] if c < p else x[j] for c, x in enumerate(columns)]
        for i, j in spread(rng, [(i, j) for i in range(p) for j in range(p)], p * p)
    ]


def whole_numbers(rng, shape, dtype, power=0, spot=False, most=8):
    """Whole numbers times 2^power, exact in every dtype; with spot one row is 2^10 times larger."""
    x = torch.randint(-most, most + 1, shape, generator=rng).double() * 2.0**power
    if spot:
        rows = x.view(-1, x.shape[-1])
        rows[int(torch.randint(len(rows), (), generator=rng))] *= 2**10
    return x.to(dtype)


def eps(dtype):
    return torch.finfo(dtype).eps


def expect_each(checks, found):
    """The results of each call pass the check (function, *args) of that call."""
    for (check, *args), results in zip(checks, found, strict=True):
        check(results, *args)


def listed(n):
    """Sizes of a choice among n: what is in between, at the end and beyond."""
    return max(1, n // 2), max(1, n // 3), 1, max(1, n - 1), n, n + 1, n + 1000


LENGTHS = (1, 2, 3, 10, 40, 70, 300)
KINDS = ("drawn", "ties", "zeros", "huge", "wide", "near", "tiny")


def ranked(rng, kind, shape, dtype):
    """Numbers to choose by: of one kind, of either sign or of one, exact in the dtype."""
    steps = torch.randint(-1, 3, shape, generator=rng).double()
    sign = 1 - 2.0 * torch.randint(0, 2, (), generator=rng)
    wide = 2.0 ** torch.randint(-120, 121, shape, generator=rng).double()
    far = 1 if dtype == F32 else 2.0**800
    largest = torch.finfo(dtype).max  # among the scores, too
    x = {
        "drawn": draw(rng, *shape),
        "ties": steps,
        "zeros": torch.where(steps > 0, 0.0, -0.0),
        "huge": sign * (largest * 2.0 ** -(steps + 1)),
        "wide": sign * wide,
        "near": sign * (1 + eps(dtype) * (steps + 1)),
        "tiny": sign * (steps + 2) * 2.0**-120 / far,
    }[kind]
    return x.to(dtype)


# ---- exercise 1 ------------------------------------------------------------------------------


def drive_views(student, q, k, v):
    """Runs beside the student's code: arguments that are not contiguous."""
    return student.attend(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))


@exercise(
    "ex1",
    points=2,
    invariant="attention of any shape, size and dtype; p in float32 at least, out like v",
    cause="bfloat16 products, a p that is rounded before it meets v, or H = Hkv assumed",
)
def test_attention_of_any_kind(student, rng):
    shapes = (
        (1, 1, 1, 1, 1, 1),
        (1, 1, 1, 1, 1, 2),
        (2, 6, 3, 4, 9, 4),
        (1, 4, 4, 5, 5, 8),
        (3, 8, 2, 1, 130, 16),
    )
    for B, H, heads, T, S, d in shapes:
        for of_q, of_k, of_v in (
            (F32, F32, F32), (F64, F64, F64), (HALF, HALF, HALF), (F64, F64, F32), (F32, F32, HALF),
            (F32, F64, F32), (F64, HALF, HALF), (HALF, HALF, F64), (F32, F32, F64),
        ):  # fmt: skip
            q, k = draw(rng, B, H, T, d, dtype=of_q), draw(rng, B, heads, S, d, dtype=of_k)
            v = draw(rng, B, heads, S, d, dtype=of_v)
            value = student.attend(q, k, v)
            out, p = expect_tuple(value, (torch.Tensor, torch.Tensor), "attend")
            right_out, right_p = exact(q, k, v)
            of_p = F64 if F64 in (of_q, of_k) else F32
            expect_tensor(p, "p", of_p, (B, H, T, S))
            expect_close(p, right_p, what="p", atol=1e-12 if of_p == F64 else CLOSE)
            expect_tensor(out, "out", of_v, (B, H, T, d))
            atol, rtol = (1e-12 if of_v == of_p == F64 else 1e-4), (2.0**-8 if of_v == HALF else 0)
            expect_close(out, right_out, what="out", atol=atol, rtol=rtol)
    q, k, v = draw(rng, 1, 2, 3, 4), draw(rng, 1, 1, 5, 4), draw(rng, 1, 1, 5, 4)
    for scale in (1e-8, 1e4):
        out, p = student.attend(q * scale, k, v * scale)
        right_out, right_p = exact(q * scale, k, v * scale)
        expect_close(p, right_p, what="p of large or small scores", atol=1e-9)
        expect_close(out, right_out, what="out of large or small numbers", atol=1e-9 * scale)
    out, p = student.attend(q * 1e6, k * 1e-6, v)  # large ones that meet small ones
    expect_close(p, exact(q * 1e6, k * 1e-6, v)[1], what="p of large queries", atol=1e-9)
    low = -1e3 * q.abs()  # what a query sees is far below 0, what it must not see is not
    k = k.abs() * tensor([100.0, 100, 100, 1e-3, 1e-3])[:, None]
    out, p = student.attend(low, k, v)
    expect_close(p, exact(low, k, v)[1], what="p of scores far below 0", atol=1e-9)
    for of_q, of_k in ((F32, F32), (F64, F64), (HALF, HALF), (F64, HALF)):
        x = -(2.0**36) * torch.randint(1, 5, (2, 4, 3, 4), generator=rng)
        y = (1 + torch.randperm(6, generator=rng))[:, None].expand(2, 2, 6, 4)  # no two are near
        z = draw(rng, 2, 2, 6, 4)
        out, p = student.attend(x.to(of_q), y.to(of_k), z)
        right_out, right_p = exact(x, y, z)
        expect_close(p, right_p, what="p of scores below -1e10", atol=CLOSE)
        expect_close(out, right_out, what="out of scores below -1e10", atol=1e-4)
    out, p = student.drive(drive_views, q, k, v)
    expect_close(p, exact(q, k, v)[1], what="p of views", atol=1e-12)


@exercise(
    "ex1",
    points=2,
    invariant="mass of every decay and group, in the dtype of p",
    cause="powers that begin at the other end, 0^0, heads mixed up, or float32 throughout",
)
def test_mass_of_any_p(student, rng):
    for B, H, heads, T, S in (
        (1, 1, 1, 1, 1),
        (2, 6, 2, 5, 7),
        (2, 6, 2, 5, 7),  # another p of the same shape
        (1, 4, 4, 40, 40),
        (2, 4, 1, 3, 3),
    ):
        p = (3 * draw(rng, B, H, T, S)).softmax(-1)
        for decay in (0.0, 0.25, 0.99, 1.0, 0, 1):
            right = torch.zeros(B, heads, S, dtype=F64)
            for h in range(H):
                for t in range(T):
                    factor = 1.0 if t == T - 1 else decay ** (T - 1 - t)
                    right[:, h // (H // heads)] += factor * p[:, h, t]
            for dtype, atol in ((F64, 1e-11), (F32, 1e-4)):
                mass = student.mass_of(p.to(dtype), heads, decay)
                expect_tensor(mass, "mass", dtype, (B, heads, S))
                expect_close(mass, right, what=f"mass, decay {decay}", atol=atol)


@exercise(
    "ex1",
    points=3,
    invariant="rows of every kind against a sort of pairs; ties, guards, positions of real texts",
    cause="the earlier of equal ones, guards that take room twice, sinks by place, [-0:], an order",
)
def test_survivors_of_any_row(student, rng):
    calls = []
    for n, size, sinks, recent in (
        (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 0, 1), (9, 4, 2, 2), (9, 4, 0, 3), (9, 1, 0, 0),
        (9, 8, 3, 0), (7, 7, 2, 2), (5, 30, 4, 9), (40, 16, 4, 8), (9, 1, 0, 1), (9, 1, 1, 0),
    ):  # fmt: skip
        for kind in ("drawn", "ties", "equal", "negative", "close", "huge", "below"):
            shape = (*spread(rng, [(1, 2), (2, 1)], 1)[0], n)
            huge = 1e8 * 10.0 ** (11 * torch.randint(0, 3, (1,), generator=rng).double())
            huge = huge * torch.randint(1, 4, shape, generator=rng)
            huge[..., n // 2] = 4 * huge.max()  # larger than all that are guarded
            score = {
                "huge": huge,
                "below": -huge,
                "drawn": draw(rng, *shape),
                "ties": torch.randint(0, 3, shape, generator=rng).double(),
                "equal": torch.zeros(shape, dtype=F64),
                "negative": -3e4 * torch.rand(shape, generator=rng, dtype=F64) - 1e-8,
                "close": 1e4 + 1e-10 * torch.randint(0, 3, shape, generator=rng).double(),
            }[kind]
            gaps = torch.randint(1, 4, shape, generator=rng)
            at = gaps.cumsum(2) - torch.randint(0, 2, (*shape[:2], 1), generator=rng)
            at = at.clamp(min=0) if kind != "drawn" else torch.arange(n).expand(shape).clone()
            at[..., 1:] += 10**6 * (n > 20)
            for dtype in (F64, F32):
                if dtype == F32 and kind in ("drawn", "negative", "close"):
                    continue
                calls.append((score.to(dtype), at, size, sinks, recent))
    for places, args in zip(
        student.many("survivors", [(args, {}) for args in calls]), calls, strict=True
    ):
        expect_left([places], *args)
    score, at = draw(rng, 1, 1, 3), torch.arange(3)[None, None]
    for size, sinks, recent in (
        (0, 0, 0),
        (-1, 0, 0),
        (2, 1, 2),
        (2, 3, 0),
        (5, -1, 0),
        (5, 0, -2),
    ):
        refused(student, [("survivors", score, at, size, sinks, recent)])
    one = torch.full((1, 1, 1), -5e4, dtype=F64)
    score, far = tensor([[[0.0, 0, 0, 5, 4]]]), torch.tensor([[[0, 65537, 65538, 65540, 65541]]])
    places = student.survivors(score, far, 3, 3, 0)
    expect_same(places, torch.tensor([[[0, 3, 4]]]), "places of a long text")
    score = draw(rng, 1, 1, 3)
    at = torch.arange(30).expand(2, 3, 30)
    rows = [(draw(rng, 2, 3, 30), at, 9, 2, 3) for _ in range(3)]
    expect_held(student, "survivors", rows)
    for dtype in (F32, F64):
        several = [draw(rng, 2, 4, 3, 3, dtype=dtype).softmax(-1) for _ in range(3)]
        expect_held(student, "mass_of", [(p, 2, 0.5) for p in several])
        three = [[draw(rng, 1, 2, 3, 4, dtype=dtype) for _ in range(3)] for _ in range(3)]
        expect_held(student, "attend", three)
    at = torch.arange(3)[None, None]
    places = student.survivors(one, one.long() * 0, 1, 1, 0)
    expect_same(places, torch.tensor([[[0]]]), "the place of a single token")
    expect_same(student.survivors(score, at, 4, 2, 2), torch.tensor([[[0, 1, 2]]]), "places")


def attended(q, k, v):
    """(out, p) in float64, key head by key head."""
    group, (T, S) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    later, q, out, p = torch.arange(S) > S - T + torch.arange(T)[:, None], q.double(), [], []
    for g in range(k.shape[1]):
        keys, values = k[:, g, None].double(), v[:, g, None].double()
        scores = q[:, g * group : (g + 1) * group] @ keys.mT / math.sqrt(q.shape[3])
        p.append(scores.masked_fill(later, -math.inf).softmax(-1))
        out.append(p[-1] @ values)
    return torch.cat(out, 1), torch.cat(p, 1)


def expect_attended(results, q, k, v):
    """By counted roundings; scores are exact in every dtype."""
    what = f"of q {list(q.shape)} in {q.dtype}, k {list(k.shape)} in {k.dtype}, v in {v.dtype}"
    right, right_p = attended(q, k, v)
    wide = F64 if F64 in (q.dtype, k.dtype) else F32
    S, d = k.shape[2:]
    most = float(q.double().abs().max() * k.double().abs().max()) * math.sqrt(d)
    rtol = (S + 16 + 8 * min(most, 1024)) * eps(wide)  # a sum, exp, and scores less a logarithm
    least = 2.0 ** (-120 if wide == F32 else -1000)
    # of large scores a logarithm of a sum says nothing more: of those, rows that one key has
    sure = (right_p.amax(-1, keepdim=True) > 1 - 1e-9) | torch.tensor(most <= 1024)
    rest = (S + 16 + 8 * min(most, 2**20)) * eps(wide)
    allowed = torch.where(right_p > 0.5, rtol, max(rest, rtol)) * right_p + least
    group = q.shape[1] // k.shape[1]
    sizes = right_p @ v.double().abs().repeat_interleave(group, 1)
    small = (right_p * (right_p <= 0.5)) @ v.double().abs().repeat_interleave(group, 1)
    bound = (rtol + (S + 4) * eps(wide)) * sizes + rest * small
    bound += 0.51 * eps(v.dtype) * right.abs()  # what comes out is rounded once
    bound += S * least * float(v.double().abs().max()) + torch.finfo(v.dtype).tiny
    for found in results:
        out, p = expect_tuple(found, (torch.Tensor,) * 2, "attend")
        expect_tensor(p, f"p {what}", wide, right_p.shape)
        expect_tensor(out, f"out {what}", v.dtype, right.shape)
        expect_at_most((p.double() - right_p).abs() * sure, allowed, f"the error of p {what}")
        expect_at_most((out.double() - right).abs() * sure, bound, f"the error of out {what}")


def attend_calls(rng):
    shapes = (  # B, Hkv, group, T, S, d: roots are exact
        (1, 1, 1, 1, 1, 1), (2, 1, 3, 2, 2, 4), (1, 3, 1, 1, 9, 16), (3, 2, 2, 3, 5, 1),
        (1, 1, 66, 2, 5, 4), (1, 1, 1, 70, 131, 1), (1, 2, 1, 2, 1030, 4),
    )  # fmt: skip
    dtypes, powers = (F32, F64, HALF), (-45, -12, 0, 12, 45)
    for of_q, of_k, of_v, to_q, to_k, to_v, shape, spot in crossed(
        rng, dtypes, dtypes, dtypes, powers, powers, powers, shapes, (False, True, "below")
    ):
        B, heads, group, T, S, d = shape
        q = whole_numbers(rng, (B, heads * group, T, d), of_q, to_q, spot is True)
        k = whole_numbers(rng, (B, heads, S, d), of_k, to_k, spot is True)
        if spot == "below":  # all that a query sees is far below 0
            q, k = -(2**10) * (q.abs() + 2.0**to_q), k.abs() + 2.0**to_k
        yield q, k, whole_numbers(rng, (B, heads, S, d), of_v, to_v, spot is True)
    for of_q, of_k in itertools.product(dtypes, dtypes):  # as far below 0 as float32 goes
        q = -(2.0**55) * (1 + whole_numbers(rng, (1, 2, 3, 4), of_q).abs())
        k = 2.0**45 * (1 + whole_numbers(rng, (1, 1, 5, 4), of_k).abs())
        yield q, k, whole_numbers(rng, (1, 1, 5, 4), F32)


def expect_mass(results, p, heads, decay):
    B, H, T, S = p.shape
    weights = tensor([1.0 if t == T - 1 else float(decay) ** (T - 1 - t) for t in range(T)])
    right = (weights[:, None] * p.double().view(B, heads, -1, T, S)).sum((2, 3))
    what = f"mass of p {list(p.shape)} in {p.dtype} for {heads} heads, decay {decay}"
    # a sum over queries and heads, and a power that may be multiplied up
    rtol, least = (T * H // heads + 2 * T + 16) * eps(p.dtype), 2.0**-120 * T * H
    for mass in results:
        expect_tensor(mass, what, p.dtype, right.shape)
        expect_close(mass, right, what=what, rtol=rtol, atol=least)


def mass_calls(rng):
    for dtype, heads, group, T, more, decay, B in crossed(
        rng, (F32, F64), (1, 2, 3, 5, 9), (1, 2, 3, 5), (1, 2, 3, 5, 9, 20, 70), (0, 1, 4, 130),
        (0, 0.0, 1, 1.0, 0.5, 0.999, 1e-6), (1, 2, 3),
    ):  # fmt: skip
        B, group = (B, group) if T < 20 else (1, min(group, 2))
        p = torch.rand(B, heads * group, T, T + more, generator=rng, dtype=F64).to(dtype)
        yield p, heads, decay
    yield torch.rand(1, 1, 300, 300, generator=rng), 1, 0.99
    for decay in (0, 1, 0.0, 0.5, 1.0):
        yield torch.ones(1, 1, 1, 1), 1, decay
        yield torch.ones(1, 1, 1, 1, dtype=F64), 1, decay
    yield torch.ones(1, 130, 1, 1, dtype=F64), 65, 0.5


def left_over(score, positions, size, sinks, recent):
    """Places of one row that stay."""
    n = len(score)
    guarded = {i for i in range(n) if positions[i] < sinks or i >= n - recent}
    others = sorted((i for i in range(n) if i not in guarded), key=lambda i: (-score[i], -i))
    return sorted([*guarded, *others[: max(0, size - len(guarded))]])


def expect_left(results, score, at, size, sinks, recent):
    n = score.shape[-1]
    rows = zip(score.view(-1, n).tolist(), at.view(-1, n).tolist(), strict=True)
    right = torch.tensor([left_over(*row, size, sinks, recent) for row in rows])
    what = f"places of {n} tokens, size {size}, sinks {sinks}, recent {recent}, score {score.dtype}"
    for places in results:
        expect_same(places, right.view(*score.shape[:2], -1), what)


def placed(rng, kind, shape):
    """Positions [B, Hkv, S] that ascend."""
    if kind == "all":
        return torch.arange(shape[-1]).expand(shape).clone()
    at = torch.randint(1, 4, shape, generator=rng).cumsum(-1) - 1
    at = at - torch.randint(0, 2, (*shape[:2], 1), generator=rng).clamp(max=at[..., :1])
    if kind == "far":
        return at + 2**40
    if kind == "some far":
        at[..., (shape[-1] + 1) // 2 :] += 2**33
    return at


def survivor_calls(rng):
    guards = ("none", "sinks", "recent", "one sink", "one recent", "both", "some")
    for n, room, guard, kind, positions, dtype, lead in crossed(
        rng, LENGTHS, range(7), guards, KINDS, ("all", "gaps", "far", "some far"), (F32, F64),
        ((1, 1), (2, 1), (1, 3), (2, 2)),
    ):  # fmt: skip
        size = listed(n)[room]
        sinks, recent = {
            "none": (0, 0), "sinks": (size, 0), "recent": (0, size), "one sink": (1, 0),
            "one recent": (0, 1), "both": (size // 2, size - size // 2),
            "some": (size // 3, size // 3),
        }[guard]  # fmt: skip
        yield (
            ranked(rng, kind, (*lead, n), dtype),
            placed(rng, positions, (*lead, n)),
            size,
            sinks,
            recent,
        )
    kinds = list(itertools.product(KINDS, (F32, F64)))
    for (kind, dtype), n in zip(kinds, spread(rng, (10, 130), len(kinds)), strict=True):
        yield ranked(rng, kind, (1, 2, n), dtype), placed(rng, "gaps", (1, 2, n)), n // 2, 1, 1
    for dtype, n in itertools.product((F32, F64), (6, 40)):  # as large as a score may be
        score, place = torch.full((1, 2, n), torch.finfo(dtype).max, dtype=dtype), torch.arange(n)
        for sinks, recent in ((2, 0), (1, 1), (0, 2)):
            yield score, place.expand(1, 2, n), 2, sinks, recent
        yield -score, place.expand(1, 2, n), 3, 2, 0
    for n, far in itertools.product((3, 10, 70), (2**31, 2**32, 2**40)):
        yield (
            ranked(rng, "drawn", (1, 1, n), F64),
            torch.arange(n)[None, None] + far,
            n // 2,
            n // 4,
            0,
        )


def wrong_survivor_calls(rng):
    """Also calls that are right."""
    for size, sinks, recent, kind, n, dtype in crossed(
        rng, (-1, 0, 1, 3, 40), (-1, 0, 1, 4, 45), (-1, 0, 1, 9, 40), KINDS[:1] + KINDS[2:5],
        (1, 3, 50), (F32, F64),
    ):  # fmt: skip
        score = ranked(rng, kind, (1, 2 if n > 1 else 1, n), dtype)
        yield score, placed(rng, "far" if size % 2 else "gaps", score.shape), size, sinks, recent


@exercise(
    "ex1",
    points=2,
    invariant="all three functions anywhere in what the card admits: each argument in a dtype and "
    "of a size of its own, any numbers of heads and tokens, any guards and scores, in views",
    cause="a corner where two others meet, such as one token and bfloat16; a limit that nobody "
    "named; or memory that is used again",
)
def test_anywhere_in_what_tokens_get(student, rng):
    calls, checks, wrong = [], [], []
    for name, check, drawn in (
        ("attend", expect_attended, attend_calls(rng)),
        ("mass_of", expect_mass, mass_calls(rng)),
        ("survivors", expect_left, survivor_calls(rng)),
        ("survivors", expect_left, wrong_survivor_calls(rng)),
    ):
        for args in drawn:
            if name == "survivors":
                size, sinks, recent = args[2:]
                if size < 1 or min(sinks, recent) < 0 or sinks + recent > size:
                    wrong.append((name, *args))
                    continue
            calls.append((name, *args))
            checks.append((check, *args))
    expect_each(checks, held(student, rng, calls))
    refused(student, wrong)


# ---- exercise 2 ------------------------------------------------------------------------------


def pair(rng, *shape, dtype):
    """Keys and values."""
    return [draw(rng, *shape, dtype=dtype) for _ in range(2)]


def tokens(rng, sizes, B=1, H=1, heads=1, d=4, dtype=F64):
    """Steps (q, k, v) of so many tokens each."""
    return [
        (2 * draw(rng, B, H, T, d, dtype=dtype), *pair(rng, B, heads, T, d, dtype=dtype))
        for T in sizes
    ]  # fmt: skip


@exercise(
    "ex2",
    points=3,
    invariant="prompts and single tokens, shared keys, decays and guards, against a simulation",
    cause="a decay once a step, a prompt that drops while it is read, or one choice for all",
)
def test_streams_of_any_kind(student, rng):
    for sizes, options, H, heads in (
        ([7, 1, 1, 3, 1], {"size": 4, "sinks": 1, "recent": 1}, 4, 2),
        ([1] * 9, {"size": 1}, 1, 1),
        ([5, 1, 1, 1], {"size": 2, "recent": 1, "decay": 0.5}, 6, 2),
        ([2, 2, 2, 2], {"size": 3, "decay": 0.0}, 2, 2),
        ([12, 1, 6], {"size": 8, "sinks": 4, "recent": 4}, 3, 1),
        ([1, 1, 1], {"size": 3, "sinks": 3}, 2, 1),
        ([4, 4, 1], {"size": 5, "decay": 0.9}, 2, 2),
    ):

        def make(sizes=sizes, options=options, H=H, heads=heads):
            steps = tokens(rng, sizes, B=2, H=H, heads=heads)
            told, clear = simulated(steps, **options)
            return (steps, told), clear

        steps, right = clear_case(make, 1e-6)
        expect_steps(student, steps, options, right)


def drive_scored(student, steps, kind, size, recent, sinks=0):
    """Runs beside the student's code: a cache whose rule is a function of its two arguments."""
    told, outs = [], []

    def score(mass, positions):
        told.append([mass.clone(), positions.clone()])
        if kind in ("huge", "near"):
            return any_rule(positions, kind)
        return -positions.to(mass.dtype) if kind == "old" else -mass

    def any_rule(positions, kind):
        rank = (positions * 7 % 5).double()
        return (rank - 2) * 1e30 if kind == "huge" else 1e8 + 1e-3 * rank

    cache = student.KeptTokens(size, recent=recent, sinks=sinks, score=score)
    for q, k, v in steps:
        outs.append(cache.step(q, k, v).clone())
    return cache.positions.clone(), cache.mass.clone(), told, outs[0]


@exercise(
    "ex2",
    points=1,
    invariant="a rule of one's own is given mass and positions, and who has most of it stays",
    cause="a rule that is ignored, given other things, or taken for the mass from then on",
)
def test_a_rule_of_ones_own(student, rng):
    steps = tokens(rng, [3, 1, 1], H=2, heads=2)
    at, mass, told, out = student.drive(drive_scored, steps, "old", 3, 1)
    expect_close(out, exact(*steps[0])[0], what="out of the prompt, which all looks", atol=1e-9)
    expect_same(at, torch.tensor([[[0, 1, 4], [0, 1, 4]]]), "positions when the oldest stay")
    expect_at_most(0.0, mass, "minus the mass")
    masses, places = told[-1]
    expect_same(
        places, torch.tensor([[[0, 1, 3, 4], [0, 1, 3, 4]]]), "positions that a rule is given"
    )
    expect_close(mass, masses[..., [0, 1, 3]], what="mass after a rule", atol=1e-12)
    steps = tokens(rng, [4], H=2, heads=2)
    at, mass, told, out = student.drive(drive_scored, steps, "least", 2, 0)
    right, p = exact(*steps[0])
    expect_close(out, right, what="out before anybody leaves", atol=1e-9)
    right = p.sum(2).argsort(-1)[..., :2].sort(-1).values
    expect_same(at, right, "positions when those with the least mass stay")
    sizes = [6, 1, 1, 3, 1]
    steps = tokens(rng, sizes, H=2, heads=2, dtype=F32)
    for kind in ("huge", "near"):  # in float64, beside a mass of float32
        for size, recent, sinks in ((4, 1, 2), (3, 0, 1), (3, 0, 0)):
            kept, seen = [], 0
            for T in sizes:
                kept, seen = [*kept, *range(seen, seen + T)], seen + T
                ranks = [float(at * 7 % 5) for at in kept]
                kept = [kept[i] for i in stay(ranks, kept, size, sinks, recent)[0]]
            at, mass, *_ = student.drive(drive_scored, steps, kind, size, recent, sinks)
            expect_same(at, torch.tensor([[kept, kept]]), f"positions by {kind} scores")
            expect_tensor(mass, "mass beside a rule of float64", F32)


def drive_alive(student, size, cases):
    """Runs beside the student's code: for each (sizes, shape, options) a cache, and behind steps of
    so many tokens [bytes of all tensors it keeps alive, shape of positions, out's dtype, out].
    """
    import gc

    import torch

    def weight():
        gc.collect()
        found = (x for x in gc.get_objects() if type(x) is torch.Tensor)
        held = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in found}
        return sum(held.values())

    generator, caches, told, before = torch.Generator().manual_seed(size), [], [], weight()
    for sizes, (B, H, heads, d), options in cases:
        caches.append(student.KeptTokens(size, **options))
        for T in sizes:
            q = torch.randn(B, H, T, d, generator=generator)
            # views of something longer
            k, v = (
                torch.randn(B, heads, T + 99, d, generator=generator)[:, :, 9 : T + 9] for _ in "kv"
            )
            out = caches[-1].step(q, k, v)
        told.append([list(caches[-1].positions.shape), str(out.dtype), out.tolist()])
        del q, k, v, out
        after = weight()
        told[-1].insert(0, after - before)
        before = after
    return told


@exercise(
    "ex2",
    points=2,
    invariant="after a long prompt and a long text no more is alive than three times `size` tokens",
    cause="slices of what was long, a mask in place of dropping, or a list of all that came",
)
def test_memory_is_gone(student, rng):
    size, small, large = 6, (1, 1, 1, 1), (2, 4, 2, 16)
    all_options = ({"recent": 2}, {"sinks": 2, "decay": 0.5}, {"recent": 6})
    # 63 tokens: of what is cleared every 16, 32 or 64 steps much is there
    long, short = ([300], [1] * 63, [200, 1, 1]), ([4], [6], [1], [3, 1])
    # of tokens of one number each one number more would show that is kept of all that came
    cases = [(sizes, small, given) for sizes in long for given in all_options]
    cases += zip(long, [large] * 3, spread(rng, all_options, 3), strict=True)
    cases += zip(short, spread(rng, [small, large], 4), spread(rng, all_options, 4), strict=True)
    found = student.drive(drive_alive, size, cases)
    for (sizes, (B, _, heads, d), _), (alive, there, dtype, out) in zip(cases, found, strict=True):
        kept = min(size, sum(sizes))
        assert there == [B, heads, kept], f"positions have shape {there}"
        assert dtype == "torch.float32", f"out of float32 tokens has dtype {dtype}"
        # means of values that were drawn from a normal distribution
        expect_at_most(torch.tensor(out).abs(), 10.0, "the size of out")
        expect_at_most(alive, 3 * size * B * heads * (2 * d * 4 + 4 + 8), "bytes that are alive")


def drive_two(student, steps):
    """Runs beside the student's code: two caches in turns, and the dtypes of what they keep."""
    a, b, told = student.KeptTokens(3, recent=1), student.KeptTokens(size=3, recent=1), []
    for i, (q, k, v) in enumerate(steps):
        out = a.step(q, k, v)
        if i % 2:
            b.step(q * 0, k + 1, v)
        told.append(out.clone())
    return told, a.positions.clone(), a.mass.clone(), a.keys.clone(), b.positions.clone()


@exercise(
    "ex2",
    points=1,
    invariant="two caches know nothing of each other; bfloat16 keys stay what they are; errors",
    cause="lists of the class, keys made float32, or a mass in bfloat16",
)
def test_two_caches_and_dtypes(student, rng):
    def make():
        steps = tokens(rng, [2, 1, 1, 1, 1], H=2, heads=1, dtype=HALF)
        return (steps, simulated(steps, 3, recent=1)[0]), simulated(steps, 3, recent=1)[1]

    steps, right = clear_case(make, 1e-3)
    outs, at, mass, kept, other = student.drive(drive_two, steps)
    expect_same(at, right[-1][1], "positions of bfloat16 tokens")
    expect_tensor(mass, "mass", F32)
    expect_close(mass, right[-1][2], what="mass of bfloat16 tokens", atol=1e-4)
    expect_same(kept, right[-1][3], "bfloat16 keys")
    for out, then in zip(outs, right, strict=True):
        expect_tensor(out, "out", HALF)
        expect_close(out, then[0], what="out of bfloat16", atol=1e-2)
    expect_same(other[..., -1], torch.tensor([[1]]), "the last position of the other cache")
    for dtypes in ((F64, HALF, F32), (F32, F64, HALF), (HALF, HALF, F64), (F64, F32, F32)):

        def make_mixed(dtypes=dtypes):
            drawn = tokens(rng, [2, 1, 3, 1], B=2, H=4, heads=2)
            steps = [[x.to(of) for x, of in zip(step, dtypes, strict=True)] for step in drawn]
            told, clear = simulated(steps, 3, recent=1)
            return (steps, told), clear

        steps, right = clear_case(make_mixed)
        of_p = F64 if F64 in dtypes[:2] else F32
        for now, then in zip(
            student.drive(drive_kept, steps, {"size": 3, "recent": 1}), right, strict=True
        ):
            out, at, mass, kept, values = now
            expect_same(at, then[1], f"positions of {dtypes}")
            expect_tensor(mass, f"mass of {dtypes}", of_p)
            expect_close(mass, then[2], what="mass", atol=1e-9 if of_p == F64 else 1e-4)
            expect_same(kept, then[3], f"keys of {dtypes}")
            expect_same(values, then[4], f"values of {dtypes}")
            expect_tensor(out, f"out of {dtypes}", dtypes[2])
            expect_close(out, then[0], what="out", atol=1e-2 if dtypes[2] == HALF else 1e-4)
    for options in (
        {"size": 0}, {"size": 3, "sinks": -1}, {"size": 3, "recent": 4}, {"size": 3, "decay": -0.1},
        {"size": 3, "decay": math.nan}, {"size": 3, "decay": 1.001},
    ):  # fmt: skip
        call = partial(student.drive, drive_kept, [], options)
        expect_error(ValueError, call, f"KeptTokens({options})")


def drive_caches(student, cases):
    """Runs beside the student's code: caches (options, rule, steps) that take turns.

    Of each after every step (out, positions, mass, keys, values); what was given and came out is
    written over.
    """
    import torch

    def ruled(name):
        def rule(mass, positions):
            rank = (positions * 7 % 5).double()
            return {
                "itself": mass,
                "oldest": -positions.to(mass.dtype),
                "huge": (rank - 2) * 1e30,
                "near": 1e8 + 1e-3 * rank,
                "equal": torch.zeros(()).expand(positions.shape),
                "least": torch.stack([-mass, mass], -1)[..., 0],
            }[name]

        return rule

    caches = []
    for (size, sinks, recent, decay), rule, _ in cases:
        given = {"sinks": sinks, "recent": recent, "decay": decay}
        given = {name: value for name, value in given.items() if value != (name == "decay")}
        if rule:
            given["score"] = ruled(rule)
        caches.append(student.KeptTokens(size, **given))
    told = [[] for _ in cases]
    for i in range(max(len(steps) for *_, steps in cases)):
        for cache, (*_, steps), heard in zip(caches, cases, told, strict=True):
            if i >= len(steps):
                continue
            given = [x.clone() for x in steps[i]]
            if i % 2:  # views: of what is turned, of every second number, of a slice
                q, k, v = given
                k = torch.stack([k, k - 9], -1)[..., 0]
                v = torch.cat([v + 9, v, v], 2)[:, :, v.shape[2] : 2 * v.shape[2]]
                given = [q.transpose(1, 2).contiguous().transpose(1, 2), k, v]
            out = cache.step(*given)
            now = (out, cache.positions, cache.mass, cache.keys, cache.values)
            heard.append([x.clone() for x in now])
            for x in (out, *given):
                x.fill_(7)
    return told


RANKS = {  # of a position, what rules of drive_caches say
    "oldest": lambda at: -at, "huge": lambda at: at * 7 % 5, "near": lambda at: at * 7 % 5,
    "equal": lambda at: 0,
}  # fmt: skip


def by_hand(options, rule, steps):
    """(of every step (out, positions, mass, keys, values), how far choices are from a tie)."""
    size, sinks, recent, decay = options
    k, v = (torch.cat([step[i] for step in steps], 2) for i in (1, 2))
    B, heads = k.shape[:2]
    kept = {(b, g): ([], torch.zeros(0, dtype=F64)) for b in range(B) for g in range(heads)}
    told, seen, clear = [], 0, math.inf
    for q, *_ in steps:
        (_, H, T, d), outs = q.shape, torch.zeros(*q.shape[:3], v.shape[3], dtype=F64)
        weights = tensor([decay ** (T - 1 - t) if t < T - 1 else 1.0 for t in range(T)])
        for (b, g), (at, mass) in kept.items():
            at = [*at, *range(seen, seen + T)]
            mine = slice(g * (H // heads), (g + 1) * (H // heads))
            scores = q[b, mine].double() @ k[b, g, at].double().T / math.sqrt(d)
            later = torch.arange(len(at)) > len(at) - T + torch.arange(T)[:, None]
            p = scores.masked_fill(later, -math.inf).softmax(-1)
            outs[b, mine] = p @ v[b, g, at].double()
            got = (p * weights[:, None]).sum((0, 1))
            got[: len(mass)] += mass * decay**T
            ranks = list(map(RANKS[rule], at)) if rule in RANKS else got.tolist()
            ranks = [-x for x in ranks] if rule == "least" else ranks
            stays = left_over(ranks, at, size, sinks, recent)
            if rule not in RANKS:
                clear = min(clear, apart(ranks, at, stays, sinks, recent))
            kept[b, g] = [at[i] for i in stays], got[stays]
        seen += T
        at = torch.tensor([[kept[b, g][0] for g in range(heads)] for b in range(B)])
        mass = torch.stack([m for _, m in kept.values()]).view(at.shape)
        rows = at[..., None].expand(*at.shape, d)
        told.append((outs, at, mass, k.gather(2, rows), v.gather(2, rows)))
    return told, clear


def apart(ranks, at, stays, sinks, recent):
    """By how much of itself the least mass that was chosen exceeds the largest that was not."""
    left = [m for i, m in enumerate(ranks) if i not in stays]
    free = [ranks[i] for i in stays if at[i] >= sinks and i < len(at) - recent]
    return (min(free) - max(left)) / max(abs(min(free)), 1e-30) if free and left else math.inf


def drawn_stream(rng, options, rule, pattern, shape, dtypes):
    """((case, what is right), how far from a tie): steps of as many tokens as pattern says."""
    (B, heads, group, d), steps = shape, []
    for T in pattern:  # 64ths up to 2: scores are exact in every dtype
        shapes = [(B, heads * group, T, d), (B, heads, T, d), (B, heads, T, d)]
        parts = [whole_numbers(rng, one, F64, -6, most=128) for one in shapes]
        steps.append([x.to(of) for x, of in zip(parts, dtypes, strict=True)])
    told, clear = by_hand(options, rule, steps)
    return ((options, rule, steps), told), clear


def stream_cases(rng):
    dtypes, rules = (F32, F64, HALF), (None, "itself", "oldest", "huge", "near", "equal", "least")
    options = ((1, 0, 0), (1, 1, 0), (1, 0, 1), (9, 4, 0), (9, 0, 4), (9, 4, 4), (4, 1, 1))
    decays = (0.0, 0, 1.0, 1, 0.5, 1e-3, 0.999)
    patterns = ([1] * 6, [7, 1, 1], [3, 1, 2], [1], [12, 1, 4], [2] * 5, [20])
    shapes = ((1, 1, 1, 1), (2, 1, 2, 4), (1, 3, 1, 4), (1, 2, 3, 1), (3, 1, 1, 4))
    drawn = crossed(rng, options, decays, dtypes, dtypes, dtypes, rules, patterns, shapes)
    for rule, size, of_q in ((None, 130, F64), ("near", 70, F32), ("huge", 9, HALF)):
        drawn.append([(size, 2, 3), 0.5, of_q, of_q, of_q, rule, [301, 1, 30], (1, 1, 1, 1)])
    for pattern in ([20], [3, 20], [1, 20, 1]):  # most stay, by their mass: the newest, too
        drawn.append([(18, 0, 0), 0.0, F64, F32, F32, None, pattern, (2, 3, 1, 4)])
    for sizes, decay, of_q, of_k, of_v, rule, pattern, shape in drawn:
        make = partial(drawn_stream, rng, (*sizes, decay), rule, pattern, shape, (of_q, of_k, of_v))
        yield clear_case(make, 1e-9 if F64 in (of_q, of_k) else 1e-3)


def expect_stream(heard, case, told):
    options, rule, steps = case
    dtypes = [x.dtype for x in steps[0]]
    wide = F64 if F64 in dtypes[:2] else F32
    group, tokens = steps[0][0].shape[1] // steps[0][1].shape[1], 0
    for i, (found, right) in enumerate(zip(heard, told, strict=True)):
        tokens += steps[i][0].shape[2]
        what = f"after step {i} of {(*options, rule)} (size, sinks, recent, decay, score), {dtypes}"
        expect_same(found[1], right[1], f"positions {what}")
        expect_same(found[3], right[3], f"keys {what}")
        expect_same(found[4], right[4], f"values {what}")
        expect_tensor(found[0], f"out {what}", dtypes[2], right[0].shape)
        expect_tensor(found[2], f"mass {what}", wide)
        # softmax of scores up to 8, a sum over queries, and powers that are multiplied up
        rtol = ((3 + group) * (tokens + 16) + 64) * eps(wide)
        expect_close(found[2], right[2], what=f"mass {what}", rtol=rtol, atol=1e-30)
        atol = 2 * (rtol + eps(dtypes[2]))  # no value exceeds 2
        expect_close(found[0], right[0], what=f"out {what}", atol=atol)


def drive_options(student, all_options):
    """Runs beside the student's code: what the constructor raises."""
    said = []
    for options in all_options:
        try:
            student.KeptTokens(**options)
            said.append("nothing")
        except ValueError:
            said.append("ValueError")
        except Exception as error:
            said.append(type(error).__name__)
    return said


@exercise(
    "ex2",
    points=2,
    invariant="caches anywhere in what the card admits, in turns: every pair of options, dtypes, "
    "rules, steps and shapes, with what was given and what came out written over",
    cause="a corner where two others meet, such as a prompt longer than the size and a decay of 0; "
    "a rule's answer that is the mass itself; or memory that is the caller's",
)
def test_anywhere_in_a_cache(student, rng):
    cases = list(stream_cases(rng))
    heard = student.drive(drive_caches, [case for case, _ in cases])
    for found, (case, told) in zip(heard, cases, strict=True):
        expect_stream(found, case, told)
    names = ("size", "sinks", "recent", "decay")
    options = crossed(
        rng, (-1, 0, 1, 9, 70), (-1, 0, 1, 4, 60), (-1, 0, 1, 4, 60),
        (-0.1, 0.0, 0, 1, 0.5, math.nan, 1.001),
    )  # fmt: skip
    options += [(9, 0, 0, math.inf), (9, 0, 0, -math.inf), (9, 10, -1, 1.0), (9, -1, 10, 1.0)]
    given = [dict(zip(names, values, strict=True)) for values in options]
    for one, said in zip(given, student.drive(drive_options, given), strict=True):
        size, sinks, recent, decay = one.values()
        fits = size >= 1 and min(sinks, recent) >= 0 and sinks + recent <= size and 0 <= decay <= 1
        right = "nothing" if fits else "ValueError"
        assert said == right, f"KeptTokens({one}) raised {said}, expected {right}"


# ---- exercise 3 ------------------------------------------------------------------------------


def count(tokens, dim, size=None, page=None, pages=None):
    """By walking over the tokens."""
    if size is not None:
        kept, before = [], []
        for t in range(tokens):
            before = list(kept)
            kept = [*kept, t][-size:]
        return len(kept) * (2 * dim + 1), (len(before) + 1) * (2 * dim + 1)
    if page is None:
        return (2 * dim * tokens,) * 2
    held = [list(range(i, min(i + page, tokens))) for i in range(0, tokens, page)]
    read = [held[-1], *held[:-1][: pages - 1]]
    return 2 * dim * (tokens + len(held)), 2 * dim * (sum(map(len, read)) + len(held))


@exercise(
    "ex3",
    points=2,
    invariant="numbers against a walk over the tokens, of real sizes too; what is refused",
    cause="a page that is full or not begun, min and max, size + 1 kept, or 0 let through",
)
def test_numbers_counted(student, rng):
    for tokens in (1, 2, 3, 7, 8, 9, 64, 65, 200):
        for given in (
            {}, {"size": 1}, {"size": 7}, {"size": 8}, {"size": 500}, {"page": 1, "pages": 1},
            {"page": 4, "pages": 1}, {"page": 4, "pages": 2}, {"page": 8, "pages": 3},
            {"page": 300, "pages": 2}, {"page": 16, "pages": 99},
        ):  # fmt: skip
            for dim in (1, 128):
                value = expect_tuple(student.numbers(tokens, dim, **given), (int, int), "numbers")
                right = count(tokens, dim, **given)
                assert tuple(value) == right, (
                    f"numbers({tokens}, {dim}, {given}) is {value}, not {right}"
                )
    value = student.numbers(10**6 + 1, 128, page=16, pages=256)
    right = (256 * (10**6 + 1 + 62501), 256 * (255 * 16 + 1 + 62501))
    assert tuple(value) == right, f"numbers of a long text are {value}, not {right}"
    for bad in (
        {"size": 2, "page": 2}, {"size": 2, "pages": 2}, {"page": 0, "pages": 1}, {"size": -1},
        {"page": 1, "pages": 0}, {"page": 3}, {"pages": 3}, {"size": 0, "page": 2, "pages": 2},
    ):  # fmt: skip
        expect_error(ValueError, lambda b=bad: student.numbers(5, 2, **b), f"numbers(5, 2, {bad})")
    expect_error(ValueError, lambda: student.numbers(0, 2), "0 tokens")
    expect_error(ValueError, lambda: student.numbers(5, 0), "dim 0")


def variance(values):
    """With N - 1."""
    mean = math.fsum(values) / len(values)
    return math.fsum((u - mean) ** 2 for u in values) / (len(values) - 1)


@exercise(
    "ex3",
    points=2,
    invariant="differences of any sign and size, float32 losses added up in float64",
    cause="abs, float32, tokens as N, N for N - 1, or the mean of errors",
)
def test_pairs_of_any_losses(student, rng):
    for N, T, scale in ((2, 1, 1.0), (5, 30, 1e-8), (9, 7, 1e4), (3, 200, 1.0)):
        text = 3 * torch.rand(N, 1, generator=rng, dtype=F64)
        a, b = (scale * (text + torch.rand(N, T, generator=rng, dtype=F64)) for _ in range(2))
        for x, y, rtol in ((a, b, 1e-7), (b, a, 1e-7), (a.float(), b.float(), 1e-7)):
            seen = expect_tuple(student.paired(x, y), (float,) * 3, "paired")
            mx, my = ([math.fsum(row) / T for row in z.double().tolist()] for z in (x, y))
            d = [p - q for p, q in zip(mx, my, strict=True)]
            right = (
                math.fsum(d) / N,
                (variance(d) / N) ** 0.5,
                ((variance(mx) + variance(my)) / N) ** 0.5,
            )
            for name, value, expected in zip(
                ("difference", "error", "unpaired"), seen, right, strict=True
            ):
                expect_close(value, expected, what=name, rtol=rtol, atol=1e-9 * scale)
    one = torch.ones(3, 4)
    expect_close(student.paired(one, one)[1], 0.0, what="error of equal losses", atol=1e-12)
    for x, y in ((one[:1], one[:1]), (one, one[:, :3]), (one[0], one[0]), (one[..., None],) * 2):
        refused(student, [("paired", x.clone(), y.clone())])


@exercise(
    "ex3",
    points=3,
    invariant="every row of the future against a sum over queries; sums of the best keys",
    cause="row t, a horizon that is one off, the mean, heads in the wrong order, or float32 sums",
)
def test_futures(student, rng):
    for B, H, heads, T in ((1, 1, 1, 1), (2, 4, 2, 6), (2, 4, 2, 6), (1, 3, 1, 9), (1, 2, 2, 40)):
        p = (
            (4 * draw(rng, B, H, T, T))
            .masked_fill(torch.ones(T, T).triu(1) > 0, -math.inf)
            .softmax(-1)
        )
        for horizon in (None, 0, 1, 3, T - 1, T, 2**20 + 1):
            right = torch.zeros(B, heads, T, T, dtype=F64)
            for t in range(T):
                last = T if horizon is None else min(T, t + 1 + horizon)
                rows = p[:, :, t + 1 : last].sum(2).view(B, heads, -1, T).sum(2)
                right[:, :, t, : t + 1] = rows[..., : t + 1]
            for dtype, atol in ((F64, 1e-9), (F32, 1e-5)):
                future = student.future_mass(p.to(dtype), heads, horizon)
                expect_tensor(future, "future", dtype, (B, heads, T, T))
                expect_close(future, right, what=f"future, horizon {horizon}", atol=atol)
        for size in (1, 2, 5, T, 100):
            right = p.sort(-1, descending=True).values[..., :size].sum(-1)
            covered = student.best_mass(p, size)
            expect_tensor(covered, "best_mass", F64, (B, H, T))
            expect_close(covered, right, what=f"best_mass, size {size}", atol=1e-12)
            covered = student.best_mass(p.float(), size)
            expect_tensor(covered, "best_mass", F32, (B, H, T))
            # rounding of p, and of a sum of at most 100 numbers that are 1 together
            expect_close(covered, right, what=f"best_mass of float32, size {size}", atol=1e-5)
    several = [draw(rng, 1, 2, 5, 5).softmax(-1).tril() for _ in range(3)]
    expect_held(student, "future_mass", [(p, 1, 2) for p in several])
    expect_held(student, "best_mass", [(p, 2) for p in several])
    p = draw(rng, 1, 2, 2, 9).softmax(-1)  # two queries, nine keys
    right = p.sort(-1, descending=True).values[..., :5].sum(-1)
    expect_close(student.best_mass(p, 5), right, what="best_mass of two queries", atol=1e-12)
    # many large ones and then small ones: differences of running sums in float32 would lose them
    p = torch.zeros(1, 1, 400, 400)
    p[0, 0, 0, 0], p[0, 0, 1:200, 1] = 1.0, 1.0
    p[0, 0, 200:, 0], p[0, 0, 200:, 1] = 1 - 2.0**-20, 2.0**-20
    future = student.future_mass(p, 1, 1)
    small = torch.full((200,), 2.0**-20)
    expect_close(future[0, 0, 199:-1, 1], small, what="a small mass", rtol=1e-6)


def counted_numbers(tokens, dim, size=None, page=None, pages=None):
    """By whole numbers; None where the card asks for a ValueError."""
    if (page is None) != (pages is None) or (size is not None and page is not None):
        return None
    if min(n for n in (tokens, dim, size, page, pages) if n is not None) < 1:
        return None
    if page is None:
        token = 2 * dim + (size is not None)
        there = size or tokens
        return min(tokens, there) * token, min(tokens, there + (size is not None)) * token
    full, rest = divmod(tokens, page)
    started, newest = full + (rest > 0), rest or page
    older = min(started - 1, pages - 1)
    return 2 * dim * (tokens + started), 2 * dim * (newest + older * page + started)


def number_calls(rng):
    tokens, dims = (1, 2, 9, 65, 300, 1025, 10**6 + 1), (1, 2, 3, 64, 128, 129, 1025)
    for n, dim, size in crossed(rng, tokens, dims, (1, 2, 9, 65, 500, 10**6, 10**13)):
        yield n, dim, size
    for n, dim, page, pages in crossed(
        rng,
        tokens,
        dims,
        (1, 2, 16, 300, 10**9 + 7, 9 * 10**11 + 7, "tokens"),
        (1, 2, 3, 65, 256, 10**7),
    ):
        at = {"tokens": n}.get(page, page)
        yield n, dim, None, at, pages
        if n < 2000:  # a page that is full, and one of which one token has come
            yield n * at, dim, None, at, pages
            yield n * at + 1, dim, None, at, pages
    small = (None, -1, 0, 1, 500)
    for n, dim, size, page, pages in crossed(
        rng, (-1, 0, 1, 9, 10**6 + 1), (-1, 0, 1, 2, 128), small, (None, -1, 0, 1, 300),
        (None, -1, 0, 1, 256),
    ):  # fmt: skip
        yield n, dim, size, page, pages
        yield n, dim, None, page, pages
        yield n, dim, size
    for page, pages in itertools.product((None, -1, 0, 1), (None, -1, 0, 1)):  # all else is right
        yield 9, 2, None, page, pages
        yield 9, 2, 0, page, pages


def expect_numbers(results, *args):
    right = counted_numbers(*args)
    for value in results:
        found = tuple(expect_tuple(value, (int, int), f"numbers{args}"))
        assert found == right, f"numbers{args} is {found}, expected {right}"


def pair_calls(rng):
    for N, T, (of_a, of_b), power, sign, kind in every_pair(
        rng, (2, 3, 9, 65, 257), (1, 2, 7, 33, 70),
        ((F32, F32), (F32, F64), (F64, F32), (F64, F64)), (-60, -20, 0, 20, 60), (1, 1, -1),
        ("apart", "near", "equal", "less", "small", "large", "alike", "shifted"),
    ):  # fmt: skip
        a, b = (
            sign * (1 + torch.rand(N, T, generator=rng, dtype=F64)) * 2.0**power for _ in range(2)
        )
        if kind == "alike":  # all texts, to the last digits or all of them
            a, b = (x[0, 0] * (1 + 2.0**-40 * x / 2.0**power) for x in (a, b))
        b = {
            "apart": b, "near": a + 2.0**-20 * b, "equal": a, "small": b * 2.0**-90,
            "less": b * 2.0**-10,  # no difference is a float32
            "large": b * 2.0**60,  # times 2^60 at most, which float32 holds
            "alike": b, "shifted": a + b[0, 0],
        }[kind]  # fmt: skip
        a, b = a.to(of_a), b.to(of_b)
        yield (a, a.clone()) if kind == "equal" else (a, b)


def expect_paired(results, a, b):
    (N, T), kind = a.shape, f"of losses {list(a.shape)} in {a.dtype} and {b.dtype}"
    x, y = ([math.fsum(row) / T for row in z.double().tolist()] for z in (a, b))
    d = [p - q for p, q in zip(x, y, strict=True)]
    errors = [(variance(z) / N) ** 0.5 for z in (d, x, y)]
    right = (math.fsum(d) / N, errors[0], math.hypot(*errors[1:]))
    # how far means over T are off, differences of them, and deviations from their mean
    slack = 2 * (T + N + 8) * eps(F64) * max(map(abs, [*x, *y]))
    for value in results:
        found = expect_tuple(value, (float,) * 3, "paired")
        for name, one, other in zip(("difference", "error", "unpaired"), found, right, strict=True):
            atol = slack + (N + 16) * eps(F64) * abs(other)
            expect_close(one, other, what=f"{name} {kind}", atol=atol)


def wrong_pairs(rng):
    shapes = ((3,), (3, 4), (3, 4, 2), (1, 4), (4, 3))
    for one, other, of_a, of_b, power in crossed(
        rng, shapes, shapes, (F32, F64), (F32, F64), (-60, 0, 60)
    ):
        if one != other or len(one) != 2 or one[0] == 1:
            yield [
                (2.0**power * (1 + torch.rand(*shape, generator=rng, dtype=F64))).to(of)
                for shape, of in ((one, of_a), (other, of_b))
            ]
    yield [torch.tensor(1.0), torch.tensor(2.0)]
    for one, other in (((3, 1), (3, 4)), ((3, 4), (3, 1)), ((3, 4), (4,)), ((1, 4), (3, 4))):
        yield [torch.ones(one), torch.ones(other)]
        yield [torch.ones(one, dtype=F64), torch.ones(other, dtype=F64)]
    for shape in ((4,), (1, 1), (2, 3, 1), (1, 5, 2)):
        yield [torch.ones(shape), torch.ones(shape, dtype=F64)]


def future_calls(rng):
    for dtype, heads, group, T, horizon, B, kind in crossed(
        rng, (F32, F64), (1, 2, 3, 5), (1, 2, 3), (1, 2, 3, 9, 20, 70, 131),
        (None, 0, 1, 2, "T - 1", "T", 2**20 + 1), (1, 2, 3), ("drawn", "small later", "sparse"),
    ):  # fmt: skip
        B, heads, group = (B, heads, group) if T < 70 else (1, min(heads, 2), 1)
        p = torch.rand(B, heads * group, T, T, generator=rng, dtype=F64).tril()
        if kind == "sparse":
            p[torch.rand(p.shape, generator=rng) < 0.7] = 0.0
        if kind == "small later":
            p[:, :, (T + 1) // 2 :] *= 2.0**-30
        horizon = {"T - 1": T - 1, "T": T}.get(horizon, horizon)
        yield p.to(dtype), heads, horizon
    for dtype, heads, horizon in ((F64, 2, 2**20 + 1), (F32, 1, 0), (F64, 1, None), (F32, 1, 299)):
        p = torch.rand(1, heads, 401, 401, generator=rng, dtype=F64).tril()
        yield p.to(dtype), heads, horizon


def expect_future(results, p, heads, horizon):
    B, H, T, _ = p.shape
    what = f"future of p {list(p.shape)} in {p.dtype}, {heads} heads, horizon {horizon}"
    t, i = torch.arange(T)[:, None], torch.arange(T)
    ahead = (i > t) & (i <= t + (T if horizon is None else horizon))
    rows = p.double().view(B, heads, -1, T, T).sum(2)
    right = (ahead.double() @ rows).tril()
    n = T * H // heads
    for future in results:
        expect_tensor(future, what, p.dtype, right.shape)
        # differences of running sums in float64, or a sum in the dtype of p
        rtol, atol = (n + 4) * eps(p.dtype), 2 * n * n * eps(F64)
        expect_close(future, right, what=what, rtol=rtol, atol=atol)


def best_calls(rng):
    for dtype, S, room, T, kind, lead in crossed(
        rng, (F32, F64), (1, 2, 3, 9, 70, 300, 1100), range(7), (1, 2, 3),
        ("drawn", "ties", "small", "zeros"), ((1, 1), (1, 3), (2, 2)),
    ):  # fmt: skip
        p = torch.rand(*lead, T, S, generator=rng, dtype=F64)
        if kind == "ties":
            p = (4 * p).floor() / 4
        elif kind != "drawn":
            p = p * 2.0 ** torch.randint(-80, 0, p.shape, generator=rng) * (kind == "small")
        yield p.to(dtype), listed(S)[room]
    for dtype in (F32, F64):
        yield torch.ones(1, 1, 1, 1, dtype=dtype), 1
        yield torch.ones(1, 1, 1, 1, dtype=dtype), 101
        for size in (1099, 1100, 1101):
            yield 1 + torch.rand(1, 1, 1, 1100, generator=rng, dtype=F64).to(dtype), size


def expect_best(results, p, size):
    rows = p.double().flatten(0, -2).tolist()
    right = tensor([math.fsum(sorted(row)[-size:]) for row in rows]).view(p.shape[:-1])
    what = f"best_mass of p {list(p.shape)} in {p.dtype}, size {size}"
    for covered in results:
        expect_tensor(covered, what, p.dtype, right.shape)
        expect_close(covered, right, what=what, rtol=(min(size, p.shape[-1]) + 2) * eps(p.dtype))


@exercise(
    "ex3",
    points=2,
    invariant="all four functions anywhere in what the card admits: any two arguments at once, "
    "numbers of any size, losses of any size and dtype, every horizon, in views",
    cause="a corner where two others meet, such as a single token and no mass; a division that "
    "rounds; or memory that is used again",
)
def test_anywhere_in_numbers(student, rng):
    calls, checks, wrong = [], [], [("paired", *args) for args in wrong_pairs(rng)]
    for name, check, drawn in (
        ("numbers", expect_numbers, number_calls(rng)),
        ("paired", expect_paired, pair_calls(rng)),
        ("future_mass", expect_future, future_calls(rng)),
        ("best_mass", expect_best, best_calls(rng)),
    ):
        for args in drawn:
            if name == "numbers" and counted_numbers(*args) is None:
                wrong.append((name, *args))
                continue
            calls.append((name, *args))
            checks.append((check, *args))
    expect_each(checks, held(student, rng, calls))
    refused(student, wrong)


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=2,
    invariant="a box holds its keys, and the bound is the product with the box's worst corner",
    cause="zeros in a ragged page, one sign of q, a looser or a false bound, or heads mixed up",
)
def test_bounds_of_any_box(student, rng):
    for B, H, heads, T, S, d, page in (
        (1, 1, 1, 1, 1, 1, 4),
        (2, 4, 2, 3, 13, 4, 4),
        (1, 6, 6, 2, 9, 3, 3),
        (1, 2, 1, 5, 40, 8, 16),
        (1, 3, 1, 2, 5, 2, 1),
    ):
        for scale, shift in ((1.0, 0.0), (1e4, 5e4), (1e-8, -1e-7)):
            q, k = draw(rng, B, H, T, d), draw(rng, B, heads, S, d) * scale + shift
            low, high = student.page_boxes(k, page)
            pages = math.ceil(S / page)
            for i in range(pages):
                mine = k[:, :, i * page : (i + 1) * page]
                expect_same(low[:, :, i], mine.amin(2), "low")
                expect_same(high[:, :, i], mine.amax(2), "high")
            u = student.page_bounds(q, low, high)
            expect_tensor(u, "u", F64, (B, H, T, pages))
            for h in range(H):
                g = h // (H // heads)
                corners = torch.maximum(
                    q[:, h, :, None] * low[:, g, None], q[:, h, :, None] * high[:, g, None]
                )
                expect_close(
                    u[:, h],
                    corners.sum(-1) / math.sqrt(d),
                    what="u",
                    atol=1e-10 * (scale + abs(shift)),
                )
    several = [draw(rng, 1, 2, 7, 4) for _ in range(3)]
    expect_held(student, "page_boxes", [(k, 3) for k in several])
    boxes = [(k, k - 1, k + 1) for k in several]
    expect_held(student, "page_bounds", boxes)
    for dtype in (F32, HALF):
        q, k = draw(rng, 1, 2, 2, 4, dtype=dtype), draw(rng, 1, 1, 7, 4, dtype=dtype)
        low, high = student.page_boxes(k, 3)
        expect_tensor(low, "low", dtype, (1, 1, 3, 4))
        u = expect_tensor(student.page_bounds(q, low, high), "u", None, (1, 2, 2, 3))
        assert u.dtype in (F32, F64), f"u has dtype {u.dtype}, at least float32 is asked for"
        products = exact_products(q, k)
        most = torch.stack([x.amax(-1) for x in products.split(3, -1)], -1)
        expect_at_most(most, u.double() + 1e-5, "a product above the bound")
    for of_q in (F32, F64, HALF):
        for of_k in (F32, F64, HALF):
            for shift in (0.0, 30.0):
                q = draw(rng, 2, 4, 3, 8, dtype=of_q)
                k = (draw(rng, 2, 2, 13, 8) + shift).to(of_k)
                low, high = student.page_boxes(k, 4)
                u = student.page_bounds(q, low, high)
                ends = [
                    x.double().repeat_interleave(2, 1)[:, :, None] * q.double()[:, :, :, None]
                    for x in (low, high)
                ]
                right = torch.maximum(*ends).sum(-1) / math.sqrt(8)
                wide = F64 in (of_q, of_k)
                if wide:
                    expect_tensor(u, "u", F64)
                assert u.dtype in (F32, F64), f"u has dtype {u.dtype}"
                # rounding of eight products, whose terms are up to 100 or 10
                atol = (1e-14 if wide else 1e-6) * (10 + 10 * shift)
                expect_close(u, right, what=f"u of {of_q} and {of_k}", atol=atol)


def exact_products(q, k):
    q, k = q.double(), k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


@exercise(
    "ex4",
    points=2,
    invariant="pages of every query against a sort of pairs: ties, one page, fewer than asked",
    cause="the earlier of equal ones, the newest besides, the future, or one choice for all heads",
)
def test_chosen_of_any_bounds(student, rng):
    calls = []
    for P, T, pages in (
        (1, 1, 1),
        (1, 3, 5),
        (6, 6, 1),
        (6, 4, 2),
        (6, 6, 3),
        (9, 5, 40),
        (40, 3, 7),
    ):
        for kind in ("drawn", "ties", "equal", "close", "huge", "below", "float32", "far32"):
            shape = (*spread(rng, [(1, 2), (2, 1)], 1)[0], T, P)
            steps = torch.randint(0, 3, shape, generator=rng).double()
            huge = 10.0 ** (8 + 11 * torch.randint(0, 3, (1,), generator=rng).double())
            u = {
                "huge": huge * (steps + 1),
                "below": -huge * (steps + 1),
                "float32": draw(rng, *shape, dtype=F32),
                "far32": (huge * (steps - 1.5)).float(),
                "drawn": draw(rng, *shape),
                "ties": steps - 1,
                "equal": 0 * steps - 1,
                "close": 1e4 + 1e-10 * steps,
            }[kind]
            newest = torch.randint(0, P, (T,), generator=rng)
            calls.append((u, pages, newest))
    for chosen, args in zip(
        student.many("chosen_pages", [(args, {}) for args in calls]), calls, strict=True
    ):
        expect_chosen([chosen], *args)
    several = [(draw(rng, 2, 3, 5, 20), 6, torch.full((5,), 19)) for _ in range(3)]
    expect_held(student, "chosen_pages", several)
    for dtype in (F32, F64):  # what must be read is far below, what is not there far above
        for size in (1e8, 1e19, 1e30):
            u = size * torch.tensor([-3.0, -2, 9, -4, 9, 9], dtype=dtype).expand(1, 2, 2, 6)
            for sign, pages, right in (
                (1, 1, [[0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]),
                (1, 2, [[0, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]),
                (-1, 3, [[1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]),
                (1, 6, [[1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]),
            ):
                chosen = student.chosen_pages(sign * u, pages, torch.tensor([3, 0]))
                right = (torch.tensor(right) > 0).expand(1, 2, 2, 6)
                expect_same(chosen, right, f"chosen, bounds of {size}, {pages} pages")
    for pages in (1, 3):
        chosen = student.chosen_pages(torch.zeros(1, 1, 1, 1), pages, torch.tensor([0]))
        expect_same(chosen, torch.ones(1, 1, 1, 1) > 0, "the only page")
    u = torch.tensor([[[[-1e4, 1e4, 1e4]]]])
    expect_same(
        student.chosen_pages(u, 2, torch.tensor([0])),
        torch.tensor([[[[True, False, False]]]]),
        "chosen",
    )


def near_keys(rng, far=1):
    """(q [3], k [32, 3]): of eight keys products differ by 1 in 2^14 or more, the rest is smaller.

    All are exact in bfloat16. With far > 1 they differ by less than float32 tells apart.
    """
    q = torch.randint(64, 128, (3,), generator=rng).double() * far
    q[0] = 1
    others = torch.randint(1, 60, (24, 3), generator=rng).double()
    near = torch.randint(100, 120, (1, 3), generator=rng).double().repeat(8, 1)
    others[:, 1:], near[:, 1:] = others[:, 1:] * far, near[:, 1:] * far
    near[:, 0] = torch.arange(8)  # the largest product is that of the last
    k = torch.cat([others[:8], near, others[8:]])
    return q, k


@exercise(
    "ex4",
    points=3,
    invariant="the largest of all keys, the first of equal ones, and no page read that is excluded",
    cause="an index within the page, a tie that is not looked at, or a page that is read twice",
)
def test_largest_of_any_keys(student, rng):
    cases = []
    for S, d, page, high in (
        (1, 1, 1, 3),
        (1, 2, 8, 3),
        (23, 3, 4, 1),
        (40, 2, 8, 2),
        (64, 6, 16, 9),
        (17, 4, 1, 2),
        (200, 2, 16, 30),
    ):
        for _ in range(3):
            q, k = (
                torch.randint(-high, high + 1, s, generator=rng).double() / 4
                for s in ((d,), (S, d))
            )
            cases.append((q, k, page))
            cases.append((q, k.flip(0), page))
    for dtype in (F64, F32, HALF):  # whole numbers, of which float32 rounds the products
        high = 200 if dtype == HALF else 2**20
        for _ in range(4):
            q, k = (
                torch.randint(high // 2, high, s, generator=rng).to(dtype) for s in ((3,), (30, 3))
            )
            near = k[:1] + torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]).to(dtype)
            k = torch.cat([k, near + (0 if dtype == HALF else high)])
            cases.append((q, k, 4))
            cases.append((-q, k, 4))
    for of_q, of_k in ((HALF, HALF), (F32, HALF), (HALF, F32), (F32, F32), (F64, HALF)):
        for far in (1, 2**6):
            q, k = near_keys(rng, far)
            for x, y in ((q, k), (-q, -k), (q, k[torch.randperm(32, generator=rng)]), (q, -k)):
                cases.append((x.to(of_q), y.to(of_k), 4))
                cases.append((x.to(of_q) * 2**20, y.to(of_k) * 2**20, 5))
    for q in (tensor([2.0**19 + 1, 2.0**19 + 2, 2.0**19 + 3]), tensor([2049.0, 2050, 2051])):
        for x in (q, q.flip(0)):  # one digit more than 16 bits hold
            cases.append((x, torch.eye(3, dtype=F64), 2))
    k = 1 + 2.0**-40 * torch.arange(20, dtype=F64)[:, None]  # bounds that float32 makes equal
    for keys_ in (k, k.flip(0), k[torch.randperm(20, generator=rng)]):
        cases.append((tensor([1.0]), keys_, 1))
    i = torch.arange(20, dtype=F64)[:, None]  # what float32 or 16 bits make larger
    for k in (1 + 2.0**-23 - 2.0**-40 * i, 1 + 2.0**-7 - 2.0**-20 * i):
        for keys_ in (k, k.flip(0), k[torch.randperm(20, generator=rng)]):
            cases.append((tensor([1.0]), keys_, 1))
    k = torch.cat([torch.full((5, 2), -3.0), torch.full((3, 2), -1.0)]).double()
    cases.append((tensor([1.0, 1.0]), k, 4))
    k = tensor([[4.0, 5], [4, 5], [5, 4], [4, 5]])  # the first page is as good as the second seems
    cases += [(tensor([1.0, 1.0]), k, 2), (tensor([1.0, 1.0]), torch.cat([k - 3, k]), 2)]
    cases.append((tensor([0.0, 0.0]), k, 4))
    cases.append((tensor([-1024.0, -1.0]), k, 2))
    for (value, asked), case in zip(student.drive(drive_largest, cases), cases, strict=True):
        expect_found(value, asked, *case)


def box_calls(rng):
    for dtype, page, pages, more, power, lead, d in crossed(
        rng, (F32, F64, HALF), (1, 2, 3, 16, 70, 300), (1, 2, 3, 9), (0, 1, -1),
        (-110, -20, 0, 20, 110), ((1, 1), (1, 3), (2, 2)), (1, 2, 5, 130),
    ):  # fmt: skip
        if page >= 70:
            pages, d = min(pages, 2), min(d, 5)
        S = max(1, page * pages + more)
        k = draw(rng, *lead, S, d) * 2.0**power
        k = k - 3.0 * 2.0**power if more else k  # far from 0 as well
        yield k.to(dtype), page
    for dtype, page in itertools.product((F32, F64, HALF), (1, 17)):
        yield draw(rng, 1, 1, 1, 1).to(dtype), page


def expect_boxes(results, k, page):
    parts = [k[:, :, i : i + page] for i in range(0, k.shape[2], page)]
    what = f"of k {list(k.shape)} in {k.dtype}, page {page}"
    right = [torch.stack([f(x, 2) for x in parts], 2) for f in (torch.amin, torch.amax)]
    for found in results:
        low, high = expect_tuple(found, (torch.Tensor,) * 2, "page_boxes")
        expect_same(low, right[0], f"low {what}")
        expect_same(high, right[1], f"high {what}")


def bound_calls(rng):
    powers = (-50, -20, 0, 20, 50)
    shapes = (  # B, Hkv, group, T, P, d
        (1, 1, 1, 1, 1, 1), (2, 1, 3, 2, 2, 3), (1, 3, 1, 1, 9, 130), (2, 2, 2, 3, 5, 1),
        (1, 1, 66, 1, 2, 4), (1, 1, 2, 70, 3, 2), (1, 2, 1, 2, 300, 3),
    )  # fmt: skip
    for of_q, of_k, to_q, to_low, to_high, kind, shape in crossed(
        rng, (F32, F64, HALF), (F32, F64, HALF), powers, powers, powers,
        ("around 0", "above", "below", "points"), shapes,
    ):  # fmt: skip
        B, heads, group, T, P, d = shape
        q = whole_numbers(rng, (B, heads * group, T, d), F64, to_q)
        least = -(1 + torch.rand(B, heads, P, d, generator=rng, dtype=F64)) * 2.0**to_low
        most = (1 + torch.rand(B, heads, P, d, generator=rng, dtype=F64)) * 2.0**to_high
        low, high = {
            "around 0": (least, most), "above": (-least, most - least), "points": (least, least),
            "below": (least - most, least),
        }[kind]  # fmt: skip
        yield q.to(of_q), low.to(of_k), high.to(of_k)
    for of_q, of_k in itertools.product((F32, F64, HALF), (F32, F64, HALF)):
        for powers in ((-50, 50), (50, -50)):
            q, low, high = (
                draw(rng, *shape) for shape in ((1, 2, 2, 3), (1, 1, 2, 3), (1, 1, 2, 3))
            )
            low, high = (x.abs() * 2.0**e for x, e in zip((low, high), powers, strict=True))
            yield q.to(of_q), -low.to(of_k), high.to(of_k)


def expect_bounds(results, q, low, high):
    B, H, T, d = q.shape
    wide = F64 if F64 in (q.dtype, low.dtype) else F32
    what = f"u of q {list(q.shape)} in {q.dtype}, boxes {list(low.shape)} in {low.dtype}"
    q = q.double()
    low, high = (x.double().repeat_interleave(H // x.shape[1], 1) for x in (low, high))
    ends = [q[:, :, :, None] * x[:, :, None] for x in (low, high)]
    right = torch.maximum(*ends).sum(-1) / math.sqrt(d)
    reach = q.abs() @ (low.abs() + high.abs()).transpose(-1, -2) / math.sqrt(d)
    for u in results:
        expect_tensor(u, what, wide if wide == F64 else None, right.shape)
        assert u.dtype in (F32, F64), f"{what} is {u.dtype}"
        # sums of d products, of which a way by centre and radius has two
        bound = 4 * (d + 4) * eps(wide) * reach
        expect_at_most((u.double() - right).abs(), bound, f"the error of {what}")


def chosen_calls(rng):
    for P, room, T, kind, newest, dtype, lead in crossed(
        rng, LENGTHS, range(7), (1, 2, 3, 5), KINDS, ("first", "last", "any", "one more", "middle"),
        (F32, F64), ((1, 1), (1, 3), (2, 2), (2, 1)),
    ):  # fmt: skip
        at = {
            "first": torch.zeros(T).long(), "last": torch.full((T,), P - 1),
            "any": torch.randint(0, P, (T,), generator=rng), "middle": torch.full((T,), P // 2),
            "one more": torch.arange(T).clamp(max=P - 1),
        }[newest]  # fmt: skip
        yield ranked(rng, kind, (*lead, T, P), dtype), listed(P)[room], at
    kinds = list(itertools.product(KINDS, (F32, F64)))
    for (kind, dtype), P in zip(kinds, spread(rng, (10, 130), len(kinds)), strict=True):
        yield ranked(rng, kind, (1, 2, 2, P), dtype), P // 2, torch.tensor([P - 2, P // 2])
    for dtype, P in itertools.product((F32, F64), (6, 40)):  # as small as a bound may be
        least = torch.full((1, 1, 2, P), torch.finfo(dtype).min, dtype=dtype)
        yield least, 3, torch.tensor([3, P - 2])
        yield -least, 2, torch.tensor([P // 2, P - 1])
    for dtype, value in itertools.product((F32, F64), (0.0, -1e30)):
        yield torch.full((1, 1, 1, 1), value, dtype=dtype), 41, torch.tensor([0])
        yield torch.full((1, 2, 1, 50), value, dtype=dtype), 41, torch.tensor([49])


def expect_chosen(results, u, pages, newest):
    B, H, T, P = u.shape
    rows, right = u.view(-1, P).tolist(), torch.zeros(B * H * T, P, dtype=torch.bool)
    for n, row in enumerate(rows):
        last = int(newest[n % T])
        order = sorted(range(last), key=lambda i: (-row[i], -i))
        right[n, [last, *order[: pages - 1]]] = True
    what = f"chosen, u {list(u.shape)} in {u.dtype}, {pages} pages"
    for chosen in results:
        expect_same(chosen, right.view(u.shape), what)


def drive_largest(student, cases):
    """Runs beside the student's code: find_largest of (q, k, page), and which pages were read."""
    import torch

    told = []
    for n, (q, k, page) in enumerate(cases):
        parts, asked = k.split(page), []
        low, high = (torch.stack([f(x, 0) for x in parts]) for f in (torch.amin, torch.amax))

        def read(i, asked=asked, parts=parts, n=n):
            asked.append(int(i))
            x = parts[int(i)]
            return x.clone() if n % 2 else torch.stack([x, x - 9], -1)[..., 0]

        value = student.find_largest(q.clone(), low, high, page, read)
        told.append([value, asked])
    return told


def largest_cases(rng):
    for of_q, of_k, page, S, d, to_q, to_k, kind in crossed(
        rng, (F32, F64, HALF), (F32, F64, HALF), (1, 2, 3, 16, 70), (1, 2, 9, 33, 70, 130, 301),
        (1, 2, 3, 70), (-30, 0, 30), (-30, 0, 30),
        ("drawn", "ties", "zeros", "last digits", "negative", "one q"),
    ):  # fmt: skip
        q = whole_numbers(rng, (d,), F64, to_q)
        k = whole_numbers(rng, (S, d), F64, to_k, most=2 if kind == "ties" else 100)
        if kind == "zeros":
            q = 0 * q
        if kind == "last digits":  # products that differ by 1 in 2^10 of themselves and less
            q = torch.full((d,), 101.0 * 2.0**to_q, dtype=F64)
            k = torch.randint(248, 252, (S, d), generator=rng).double() * 2.0**to_k
        if kind == "negative":
            q, k = q.abs(), -k.abs() - 2.0**to_k
        if kind == "one q":
            q[1:] = 0
        yield q.to(of_q), k.to(of_k), page
    for (of_q, of_k), sign in zip(  # many pages
        itertools.product((F32, F64, HALF), (F32, F64, HALF)),
        spread(rng, (-1, 0, 1), 9),
        strict=True,
    ):
        k = whole_numbers(rng, (260, 1), of_k, 20 * sign, most=100)
        yield torch.tensor([3.0 * sign], dtype=of_q), k, 1
    yield whole_numbers(rng, (1,), F32), whole_numbers(rng, (4113, 1), F32, most=2**20), 16
    for _ in range(2):  # pages 1 and 4 have a bound of 9, page 2 of 10, and all three products of 9
        k = torch.randint(3, (13, 2), generator=rng).float()
        k[[2, 3, 8, 9]], k[[4, 5]] = (
            torch.tensor([4.0, 5.0]),
            torch.tensor([[5.0, 4.0], [4.0, 5.0]]),
        )
        yield torch.ones(2), k, 2


def expect_found(value, asked, q, k, page):
    what = f"of {len(k)} keys in {k.dtype}, q [{len(q)}] in {q.dtype}, page {page}"
    index, n = expect_tuple(value, (int, int), "find_largest")
    products = (k.double() * q.double()).sum(1).tolist()
    right = products.index(max(products))
    assert index == right, f"key {index} {what} was found, the largest product is that of {right}"
    assert n == len(asked), (
        f"{n} pages {what} are said to be read, read() was called {len(asked)} times"
    )
    assert len(set(asked)) == n, f"a page was read twice {what}: {asked}"
    parts = [x.double() * q.double() for x in k.split(page)]
    bounds = [float(x.amax(0).sum()) for x in parts]
    excluded = [i for i in asked if bounds[i] < max(products)]
    assert not excluded, f"pages {excluded} {what} were read, which the bounds exclude"
    unread = [i for i, u in enumerate(bounds) if u > max(products) and i not in asked]
    assert not unread, f"pages {unread} {what} were not read, and may hold a larger product"


@exercise(
    "ex4",
    points=2,
    invariant="all four functions anywhere in what the card admits: each argument in a dtype and "
    "of a size of its own, any numbers of pages, keys and heads, ties, in views",
    cause="a corner where two others meet, such as pages of one key and bfloat16; a limit that "
    "nobody named; or memory that is used again",
)
def test_anywhere_in_pages(student, rng):
    calls, checks = [], []
    for name, check, drawn in (
        ("page_boxes", expect_boxes, box_calls(rng)),
        ("page_bounds", expect_bounds, bound_calls(rng)),
        ("chosen_pages", expect_chosen, chosen_calls(rng)),
    ):
        for args in drawn:
            calls.append((name, *args))
            checks.append((check, *args))
    expect_each(checks, held(student, rng, calls))
    cases = list(largest_cases(rng))
    for (value, asked), case in zip(student.drive(drive_largest, cases), cases, strict=True):
        expect_found(value, asked, *case)


# ---- exercise 5 ------------------------------------------------------------------------------


def best(score, alive, keep):
    living = sorted((i for i in range(len(score)) if alive[i]), key=lambda i: (-score[i], -i))
    return [i in living[:keep] for i in range(len(score))]


def expect_any_score(student, rng, name, given):
    """Scores of any sign and size, some of the dead: who is alive, and scores that stay."""
    (B, N), none = given[1], torch.zeros(given[0])  # a layer in which nobody gets anything
    for size in (-1e30, -1e12, -1e5, -3.0, 3.0, 1e12, 1e30):
        steps = torch.randint(1, 4, (B, N), generator=rng).double()
        score = size * steps if abs(size) != 3 else 1e4 * size + 1e-10 * steps
        alive = torch.rand(B, N, generator=rng) < 0.6
        alive[:, :2], alive[:, -2:] = True, False  # alive ones are there, and later dead ones
        for keep in (1, 2, N // 2, N):
            now, there = getattr(student, name)(none, score, alive, keep)
            expect_same(now, score, "score of those who got nothing")
            rows = [best(score[b].tolist(), alive[b].tolist(), keep) for b in range(B)]
            expect_same(there, torch.tensor(rows), f"alive by {name}, scores of {size}")


@exercise(
    "ex5",
    points=3,
    invariant="cascades of layers against a loop: scores add up, nobody returns, ties, any dtype",
    cause="queries that are gone, all rows, the layer's own score, a score of the dead, or float32",
)
def test_cascades_of_layers(student, rng):
    for B, H, S, keeps in (
        (1, 1, 1, (1, 1)),
        (2, 3, 8, (6, 3, 3, 1)),
        (2, 2, 5, (9, 4, 4)),
        (1, 4, 30, (20, 25, 5)),
    ):
        for dtype in (F64, F32, HALF):
            score, alive = torch.zeros(B, S, dtype=F64), torch.ones(B, S) > 0
            for keep in keeps:
                p = (2 * draw(rng, B, H, S, S)).masked_fill(torch.ones(S, S).triu(1) > 0, -math.inf)
                p = (p.softmax(-1) * alive[:, None, None]).to(dtype)
                seen = student.cascade_tokens(p, score, alive, keep)
                now, there = expect_tuple(seen, (torch.Tensor,) * 2, "cascade_tokens")
                right = score.clone()
                for b in range(B):
                    for t in range(S):
                        if alive[b, t]:
                            right[b] += p[b, :, t].double().sum(0) * alive[b]
                expect_tensor(now, "score", F64, (B, S))
                expect_close(now, right, what="score", atol=1e-10)
                rows = [best(right[b].tolist(), alive[b].tolist(), keep) for b in range(B)]
                expect_same(there, torch.tensor(rows), f"alive, keep {keep}")
                score, alive = right, torch.tensor(rows)
    there, score = torch.ones(2, 30) > 0, torch.zeros(2, 30, dtype=F64)
    several = [draw(rng, 2, 2, 30, 30).softmax(-1) for _ in range(3)]
    expect_held(student, "cascade_tokens", [(p, score, there, 9) for p in several])
    p = torch.zeros(1, 1, 4, 4, dtype=F64)
    p[..., 0] = 1e-8
    score, alive = tensor([[0.0, 0, 0, 1e4]]), torch.tensor([[True, True, True, False]])
    score, alive = student.cascade_tokens(p, score, alive, 2)
    expect_same(alive, torch.tensor([[True, False, True, False]]), "alive, of equal ones the later")
    expect_close(score, tensor([[3e-8, 0, 0, 1e4]]), what="score of little", rtol=1e-12)
    for S in (9, 60):  # scores that differ in their last digits, and ties
        p = torch.zeros(2, 1, S, S, dtype=F64)
        near = 1e4 + 1e-10 * torch.randint(0, 3, (2, S), generator=rng).double()
        for keep in (2, 5, S // 2):
            score, alive = student.cascade_tokens(p, near, torch.ones(2, S) > 0, keep)
            expect_same(score, near, "score of those who got nothing")
            rows = [best(row.tolist(), [True] * S, keep) for row in near]
            expect_same(alive, torch.tensor(rows), f"alive of {S} near scores, keep {keep}")
    expect_any_score(student, rng, "cascade_tokens", ((2, 3, 9, 9), (2, 9)))
    p = torch.zeros(1, 2, 3, 3)  # nobody gets anything
    score, alive = student.cascade_tokens(p, tensor([[0.0, 0, 0]]), torch.ones(1, 3) > 0, 2)
    expect_close(score, tensor([[0.0, 0, 0]]), what="score of nothing")
    expect_same(alive, torch.tensor([[False, True, True]]), "alive when all have nothing")
    p = torch.ones(1, 1, 2, 2, dtype=F64)  # a test of the score of the dead, which stays
    score, _ = student.cascade_tokens(p, tensor([[3.0, 4.0]]), torch.tensor([[True, False]]), 1)
    expect_close(score, tensor([[4.0, 4.0]]), what="score beside one that is gone", atol=1e-12)


@exercise(
    "ex5",
    points=2,
    invariant="heads over layers, whatever sign and dtype their outputs have",
    cause="a sum without |.|, a mean, a maximum, heads that return, or sums in bfloat16",
)
def test_heads_over_layers(student, rng):
    for B, H, T, d, keeps in (
        (1, 1, 1, 1, (1,)),
        (2, 6, 5, 4, (5, 4, 2)),
        (1, 4, 300, 8, (3, 3, 9, 1)),
    ):
        for dtype in (F64, F32, HALF):
            score, alive = torch.zeros(B, H, dtype=F64), torch.ones(B, H) > 0
            for keep in keeps:
                out = draw(rng, B, H, T, d).to(dtype)
                seen = student.cascade_heads(out, score, alive, keep)
                now, there = expect_tuple(seen, (torch.Tensor,) * 2, "cascade_heads")
                right = score + out.double().abs().sum((2, 3)) * alive
                expect_tensor(now, "score", F64, (B, H))
                expect_close(now, right, what="score of heads", rtol=1e-10)
                rows = [best(right[b].tolist(), alive[b].tolist(), keep) for b in range(B)]
                expect_same(there, torch.tensor(rows), f"alive heads, keep {keep}")
                score, alive = right, torch.tensor(rows)
    there, score = torch.ones(3, 16) > 0, torch.zeros(3, 16, dtype=F64)
    several = [draw(rng, 3, 16, 2, 2) for _ in range(3)]
    expect_held(student, "cascade_heads", [(out, score, there, 5) for out in several])
    expect_any_score(student, rng, "cascade_heads", ((2, 9, 3, 4), (2, 9)))
    out = torch.zeros(1, 3, 2, 2)
    _, alive = student.cascade_heads(out, tensor([[1.0, 1, 1]]), torch.ones(1, 3) > 0, 2)
    expect_same(alive, torch.tensor([[False, True, True]]), "alive heads of equal scores")


@exercise(
    "ex5",
    points=2,
    invariant="only the largest probabilities of each query and head fetch a value, as they are",
    cause="what is left divided by its sum, a threshold with ties, the earlier of equal ones",
)
def test_values_of_any_rows(student, rng):
    v = draw(rng, 1, 1, 6, 3)
    several = [draw(rng, 1, 2, 4, 6).softmax(-1) for _ in range(3)]
    expect_held(student, "prune_values", [(p, v, 2) for p in several])
    shapes, calls = ((2, 4, 2, 3, 9, 4), (1, 6, 1, 2, 5, 3), (3, 4, 2, 2, 5, 3)), []
    dtypes, kinds = (F32, F64, HALF), ("drawn", "ties", "equal", "near")
    drawn = list(itertools.product(dtypes, dtypes, kinds)) * 2
    rest = spread(rng, list(itertools.product(shapes, (1, 2, 0, 7))), len(drawn))
    for (of_p, of_v, kind), ((B, H, heads, T, S, d), keep) in zip(drawn, rest, strict=True):
        steps = torch.randint(0, 9, (B, H, T, S), generator=rng).double()
        p = {
            "drawn": (3 * draw(rng, B, H, T, S)).softmax(-1), "ties": (1 + steps % 2) / 8,
            "equal": 0 * steps + 0.125, "near": 1 / 8 + 2.0**-20 * steps,  # ties in bfloat16
        }[kind]  # fmt: skip
        keep = keep if 0 < keep < S else S + keep
        calls.append((p.to(of_p), draw(rng, B, heads, S, d, dtype=of_v), keep))
    p = (1 / 8 + 2.0**-20 * torch.randperm(30, generator=rng)).float()[None, None, None]
    for of_v in dtypes:  # what no 16 bits tell apart
        calls.append((p, draw(rng, 1, 1, 30, 2, dtype=of_v), 10))
    outs = student.many("prune_values", [(args, {}) for args in calls])
    for out, args in zip(outs, calls, strict=True):
        expect_pruned([out], *args)


def living(rng, kind, B, N):
    """Who is alive [B, N]."""
    alive = torch.ones(B, N, dtype=torch.bool)
    if kind == "half":
        return torch.rand(B, N, generator=rng) < 0.5
    if kind == "one":
        return alive & (torch.arange(N) == torch.randint(0, N, (B, 1), generator=rng))
    if kind == "all but one":
        return alive & (torch.arange(N) != torch.randint(0, N, (B, 1), generator=rng))
    if kind == "early":
        return alive & (torch.arange(N) <= N // 2)
    return alive if kind == "all" else ~alive


ALIVE = ("all", "half", "one", "all but one", "early", "none")
SCORES = ("zeros", "ties", "drawn", "tiny", "huge", "far dead", "negative")


def earlier_score(rng, kind, alive):
    """Scores to which 64ths can be added exactly, but for the dead ones of any size."""
    steps = torch.randint(-2, 3, alive.shape, generator=rng).double()
    return {
        "zeros": torch.where(steps > 0, 0.0, -0.0).double(), "ties": steps,
        "drawn": (draw(rng, *alive.shape) * 2**20).round() / 2**20,
        "tiny": steps * 2.0**-38, "huge": (steps + 3) * 2.0**36,
        "far dead": torch.where(alive, steps, 2.0**400), "negative": steps * 2.0**-15 - 2.0**30,
        "least": torch.where(alive, torch.where(steps > 1, -0.5, -1.0), steps.sign())
        * torch.finfo(F64).max,
    }[kind]  # fmt: skip


def keep_of(room, alive):
    """How many may stay: among as many as are alive in the first row."""
    return max(1, listed(max(1, int(alive[0].sum())))[room])


def cascade_calls(rng):
    """p: whole 64ths, so that all sums are exact; rows of queries that are gone are there."""
    for dtype, S, room, kind, there, lead, of_p in crossed(
        rng, (F32, F64, HALF), (1, 2, 3, 10, 33, 70), range(7), SCORES, ALIVE,
        ((1, 1), (1, 3), (2, 2), (1, 9)), ("few", "many", "none"),
    ):  # fmt: skip
        (B, H), most = lead, {"few": 1, "many": 64, "none": 0}[of_p]
        alive = living(rng, there, B, S)
        p = torch.randint(0, most + 1, (B, H, S, S), generator=rng).double() / 64
        p = p * alive[:, None, None]  # keys that are gone have 0
        yield p.to(dtype), earlier_score(rng, kind, alive), alive, keep_of(room, alive)
    yield from lone_calls(rng)
    yield from near_calls(rng, lambda N: (1, 1, N, N))


def near_calls(rng, shape):
    """Scores next to one another, half of which stay; nobody gets anything."""
    for N, dtype, kind in itertools.product((10, 70), (F32, HALF), ("negative", "ties", "least")):
        alive = torch.rand(1, N, generator=rng) < 0.8
        yield torch.zeros(shape(N), dtype=dtype), earlier_score(rng, kind, alive), alive, N // 3


def lone_calls(rng):
    """Of one token, or one head of one channel."""
    for dtype, there, kind, keep, value in crossed(
        rng, (F32, F64, HALF), (True, False), SCORES[:1] + SCORES[2:], (1, 2, 41), (0.0, 1.0)
    ):
        alive = torch.tensor([[there]])
        x = torch.full((1, 1, 1, 1), value * there, dtype=dtype)
        yield x, earlier_score(rng, kind, alive), alive, keep


def head_calls(rng):
    for dtype, N, room, kind, there, shape, to in crossed(
        rng, (F32, F64, HALF), (1, 2, 3, 10, 33, 70), range(7), SCORES, ALIVE,
        ((1, 1, 1), (2, 3, 4), (1, 1, 130), (3, 40, 1), (1, 300, 2)),
        ("signs", "whole", "zeros", "negative", "6"),
    ):  # fmt: skip
        B, T, d = shape
        alive, out = living(rng, there, B, N), whole_numbers(rng, (B, N, T, d), F64, -6, most=128)
        out = {
            "signs": out.sign(), "whole": out * 64, "zeros": -0.0 * out, "negative": -out.abs(),
            "6": out,
        }[to]  # fmt: skip
        yield out.to(dtype), earlier_score(rng, kind, alive), alive, keep_of(room, alive)
    yield from lone_calls(rng)
    yield from near_calls(rng, lambda N: (1, N, 2, 3))


def expect_cascade(results, x, score, alive, keep):
    """Of tokens (x [B, H, S, S]) and of heads (x [B, H, T, d], as many as scores)."""
    what = f"of {list(x.shape)} in {x.dtype}, {int(alive.sum())} alive, keep {keep}"
    right, rows = score.clone(), []
    for b, who in enumerate(alive):
        right[b, who] += x[b, :, who].double().sum((0, 1))[who]
        rows.append(best(right[b].tolist(), who.tolist(), keep))
    for found in results:
        now, there = expect_tuple(found, (torch.Tensor,) * 2, "a cascade")
        expect_tensor(now, f"score {what}", F64)
        expect_same(now, right, f"score {what}")
        expect_same(there, torch.tensor(rows), f"alive {what}")


def expect_head_cascade(results, out, score, alive, keep):
    sums = out.double().abs().sum((2, 3))  # exact
    expect_cascade(results, torch.diag_embed(sums)[:, None], score, alive, keep)


def value_calls(rng):
    shapes = (  # B, Hkv, group, T, d
        (1, 1, 1, 1, 1), (2, 1, 3, 2, 4), (1, 3, 1, 1, 2), (1, 2, 2, 3, 5), (1, 1, 66, 1, 1),
        (1, 1, 1, 2, 130),
    )  # fmt: skip
    for of_p, of_v, S, room, kind, shape, to, spot in crossed(
        rng, (F32, F64, HALF), (F32, F64, HALF), (1, 2, 3, 10, 40, 70, 301), range(7),
        ("drawn", "ties", "zeros", "near", "equal"), shapes, (-90, -20, 0, 20, 90), (False, True),
    ):  # fmt: skip
        B, heads, group, T, d = shape
        size = (B, heads * group, T, S)
        steps = torch.randint(0, 3, size, generator=rng).double()
        p = {
            "drawn": torch.rand(size, generator=rng, dtype=F64), "ties": steps / 4,
            "zeros": 0 * steps, "equal": 0 * steps + 0.125, "near": (1 + steps * eps(of_p)) / 8,
        }[kind].to(of_p)  # fmt: skip
        yield p, whole_numbers(rng, (B, heads, S, d), of_v, to, spot), listed(S)[room]
    dtypes = list(itertools.product((F32, F64, HALF), (F32, F64, HALF)))
    for (of_p, of_v), power in zip(dtypes, spread(rng, (-3, -60), 9), strict=True):
        steps = torch.randint(0, 3, (1, 2, 1, 40), generator=rng).double()
        p = ((1 + steps * eps(of_p)) * 2.0**power).to(of_p)
        yield p, whole_numbers(rng, (1, 1, 40, 2), of_v), 20
    for (of_p, of_v), keep in zip(dtypes, spread(rng, (1, 2, 41), 9), strict=True):
        one = (1, 1, 1, 1)
        yield torch.ones(one, dtype=of_p), torch.full(one, -3.0, dtype=of_v), keep


def expect_pruned(results, p, v, keep):
    what = f"out of p {list(p.shape)} in {p.dtype}, v in {v.dtype}, keep {keep}"
    B, H, T, S = p.shape
    rows, kept = p.double().view(-1, S), torch.zeros(B * H * T, S, dtype=F64)
    for row, there in zip(rows.tolist(), kept, strict=True):
        there[sorted(range(S), key=lambda i: (-row[i], -i))[:keep]] = 1.0
    kept, v_ = (rows * kept).view(p.shape), v.double().repeat_interleave(H // v.shape[1], 1)
    wide = F64 if p.dtype == v.dtype == F64 else F32
    right = kept @ v_  # a sum, and what comes out is rounded once
    bound = (S + 4) * eps(wide) * (kept @ v_.abs()) + 0.51 * eps(v.dtype) * right.abs()
    for out in results:
        expect_tensor(out, what, v.dtype, right.shape)
        expect_at_most((out.double() - right).abs(), bound, f"the error of {what}")


@exercise(
    "ex5",
    points=2,
    invariant="all three functions anywhere in what the card admits: any scores, anybody alive, "
    "each argument in a dtype of its own, any keep, in views; sums exactly",
    cause="a corner where two others meet, such as nobody alive and bfloat16; a limit that nobody "
    "named; or memory that is used again",
)
def test_anywhere_in_cascades(student, rng):
    calls, checks = [], []
    for name, check, drawn in (
        ("cascade_tokens", expect_cascade, cascade_calls(rng)),
        ("cascade_heads", expect_head_cascade, head_calls(rng)),
        ("prune_values", expect_pruned, value_calls(rng)),
    ):
        for args in drawn:
            calls.append((name, *args))
            checks.append((check, *args))
    expect_each(checks, held(student, rng, calls))


# ---- exercise 6 ------------------------------------------------------------------------------


def keys(rng, bits, *shape, scale=1.0):
    """Keys whose codes of so many bits are not nearly a tie; their scale is `scale`."""
    most = 2 ** (bits - 1) - 1
    codes = torch.randint(-most, most + 1, shape, generator=rng).double()
    off = 0.6 * torch.rand(shape, generator=rng, dtype=F64) - 0.3
    off = torch.where(codes.abs() == most, 0.0, off)
    signs = 1 - 2 * (torch.arange(codes[..., 0].numel()) % 2)  # the largest may be negative
    codes[..., 0], off[..., 0] = most * signs.view(shape[:-1]), 0.0
    return (codes + off) * scale, codes.long()


@exercise(
    "ex6",
    points=2,
    invariant="codes of 2 to 16 bits in two pieces, keys of any size, zeros",
    cause="rounding to 0, a scale that is shared, an epsilon, or rest outside of its range",
)
def test_pieces_of_any_code(student, rng):
    for bits, low, scale in (
        (2, 0, 1.0),
        (2, 1, 0.5),
        (8, 4, 2.0**-26),
        (8, 7, 64.0),
        (12, 4, 1.0),
        (16, 8, 0.125),
        (8, 3, 0.3),
    ):
        for shape in ((1, 1, 1, 1), (2, 3, 5, 4), (2, 3, 5, 4)):  # two of a shape
            k, codes = keys(rng, bits, *shape, scale=scale)
            for dtype in (F64, F32):
                pieces = student.split_bits(k.to(dtype), bits, low)
                high, rest, found = expect_tuple(pieces, (torch.Tensor,) * 3, "split_bits")
                expect_tensor(high, "high", I64, shape)
                expect_tensor(rest, "rest", I64, shape)
                expect_same(high * 2**low + rest, codes, f"high 2^{low} + rest")
                expect_at_most(rest, 2**low - 1, "rest")
                expect_at_most(-rest, 0, "minus rest")
                expect_tensor(found, "scale", F64, (*shape[:3], 1))
                largest = k.to(dtype).double().abs().amax(-1, keepdim=True)
                expect_close(found, largest / (2 ** (bits - 1) - 1), what="scale", rtol=1e-12)
    high, rest, scale = student.split_bits(torch.zeros(1, 1, 2, 3), 8, 4)
    expect_same(high, torch.zeros(1, 1, 2, 3, dtype=I64), "high of zeros")
    expect_close(scale, torch.ones(1, 1, 2, 1, dtype=F64), what="scale of zeros")
    k, codes = keys(rng, 8, 1, 1, 4, 3, scale=2.0**-40)
    high, rest, _ = student.split_bits(k, 8, 4)
    expect_same(16 * high + rest, codes, "codes of keys of 1e-10")
    k = torch.zeros(1, 1, 2, 3, dtype=HALF)
    k[0, 0, 1] = torch.tensor([7.0, -3, 1]) * 2.0**-20
    high, rest, scale = student.split_bits(k, 4, 1)
    expect_same(2 * high + rest, torch.tensor([[[[0, 0, 0], [7, -3, 1]]]]), "codes beside zeros")
    expect_close(scale, tensor([[[[1.0], [2.0**-20]]]]), what="scale beside zeros", rtol=1e-12)
    for bits, low in ((8, 8), (8, 9), (1, 0), (8, -1), (0, 0)):
        refused(student, [("split_bits", k, bits, low)])
    several = [keys(rng, 8, 1, 2, 3, 4)[0] for _ in range(3)]
    expect_held(student, "split_bits", [(k, 8, 4) for k in several])


@exercise(
    "ex6",
    points=2,
    invariant="the error of a score is reached by the worst rest, and by no rest surpassed",
    cause="the error of a rest at 0, of another key's scale, of a signed sum, or without sqrt(d)",
)
def test_errors_are_reached(student, rng):
    for B, H, heads, T, S, d, low in (
        (1, 1, 1, 1, 1, 1, 1),
        (2, 4, 2, 3, 5, 4, 4),
        (2, 4, 2, 3, 5, 4, 4),  # others of the same shapes
        (1, 3, 1, 2, 7, 6, 2),
        (1, 2, 2, 2, 3, 4, 0),
    ):
        several = [torch.randint(-8, 8, (1, 1, 4, 8), generator=rng) for _ in range(3)]
        q, scale = draw(rng, 1, 2, 3, 8), torch.rand(1, 1, 4, 1, generator=rng, dtype=F64)
        expect_held(
            student, "rough_scores", [(q, x, scale * (i + 1), low) for i, x in enumerate(several)]
        )
        high = torch.randint(-8, 8, (B, heads, S, d), generator=rng)
        scale = 0.5 + torch.rand(B, heads, S, 1, generator=rng, dtype=F64)
        for dtype in (F64, F32, HALF):
            q = draw(rng, B, H, T, d, dtype=dtype)
            scores, error = student.rough_scores(q, high, scale, low)
            expect_tensor(scores, "scores", F64, (B, H, T, S))
            expect_tensor(error, "error", F64, (B, H, T, S))
            for b in range(B):
                for h in range(H):
                    g = h // (H // heads)
                    for t in range(T):
                        x = q[b, h, t].double() / math.sqrt(d)
                        rests = [(x > 0) * (2**low - 1), (x < 0) * (2**low - 1)]
                        most, least = (((high[b, g] * 2**low + r) * scale[b, g]) @ x for r in rests)
                        expect_close(
                            scores[b, h, t] + error[b, h, t], most, what="score + error", atol=1e-8
                        )
                        expect_close(
                            scores[b, h, t] - error[b, h, t], least, what="score - error", atol=1e-8
                        )


def gain_of(top, error):
    """By the formula, without a difference of two nearly equal numbers."""
    a = 1 - top
    if a == 0 or a >= 1 / (1 + math.exp(min(error, 700.0))):
        return math.tanh(error / 2) * (a > 0)
    return -a * (1 - a) * math.expm1(-2 * error) / (a + (1 - a) * math.exp(-2 * error))


def shift_of(top, error):
    """By a search over sets: g(a) for all a up to 1 - top."""
    a = (1 - top) * torch.linspace(0, 1, 20001, dtype=F64)
    shrink = math.exp(-2 * error)
    return (a / (a + (1 - a) * shrink).clamp(min=1e-300) - a).max().item()


@exercise(
    "ex6",
    points=2,
    invariant="the bound is the largest gain over all sets, for any top and error, and is reached",
    cause="a = 1 - top beyond the largest gain, e^error, powers that overflow, or a looser bound",
)
def test_shift_of_any_row(student, rng):
    tops = [1.0, 0.999, 0.9, 0.6, 0.5, 0.3, 0.01, 1e-6]
    for top in tops:
        for error in (0.0, 1e-8, 0.01, 0.5, 1.0, 3.0):
            shift = student.worst_shift(tensor(top), tensor(error))
            expect_tensor(shift, "worst_shift", F64, ())
            what = f"shift({top}, {error})"
            expect_close(shift, tensor(shift_of(top, error)), what=what, atol=2e-7)
            expect_close(shift, tensor(gain_of(top, error)), what=what, rtol=1e-9, atol=1e-14)
            top32, error32 = tensor([top], F32), tensor([error], F32)
            shift = expect_tensor(student.worst_shift(top32, error32), what, F64, (1,))
            right = tensor([gain_of(top32.item(), error32.item())])
            expect_close(shift, right, what=f"{what} of float32", rtol=1e-9, atol=1e-14)
    for error in (400.0, 1e4):
        shift = student.worst_shift(tensor([1.0, 0.9, 0.1]), tensor([error] * 3))
        right = tensor([0.0, 1.0, 1.0])  # a set of next to nothing has all to win, if there is one
        expect_close(shift, right, what=f"shift for an error of {error}", atol=1e-9)
    for _ in range(30):
        n = int(torch.randint(2, 9, (1,), generator=rng))
        p = (3 * draw(rng, n)).softmax(0)
        e = float(3 * torch.rand(1, generator=rng))
        most = 0.0
        for set_ in range(1, 2**n - 1):
            a = sum(float(p[i]) for i in range(n) if set_ >> i & 1)
            most = max(most, a / (a + (1 - a) * math.exp(-2 * e)) - a)
        shift = student.worst_shift(p.max()[None], tensor([e]))
        expect_at_most(most, shift + 1e-9, "what a set may gain")
    several = [tensor([top, 0.7]) for top in (0.9, 0.2, 0.5)]
    expect_held(student, "worst_shift", [(top, tensor([0.2, 1.0])) for top in several])
    two = student.worst_shift(tensor([[0.9, 0.5]]), tensor([[0.2, 0.2]]))
    expect_tensor(two, "worst_shift", F64, (1, 2))


@exercise(
    "ex6",
    points=1,
    invariant="each row by its own bound, against scores computed from codes; any shape and dtype",
    cause="one decision for all rows, errors of keys not seen, later keys, or float32",
)
def test_progressive_rows(student, rng):
    for B, H, heads, T, S, d, bits, low, of_q, of_k in (
        (1, 1, 1, 1, 1, 2, 8, 4, F32, F64),
        (2, 4, 2, 3, 6, 4, 8, 3, F32, F64),
        (2, 4, 2, 3, 6, 4, 8, 3, F32, F64),  # others of the same shapes
        (1, 2, 1, 5, 5, 8, 6, 2, F64, F32),
        (1, 2, 2, 4, 5, 4, 4, 2, HALF, HALF),
    ):
        k, codes = keys(rng, bits, B, heads, S, d, scale=2.0 ** -(bits - 2))
        k = (k * torch.linspace(0.2, 3, S, dtype=F64)[:, None]).to(of_k)  # later ones are larger
        step = k.double().abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
        q = (2 * draw(rng, B, H, T, d)).to(of_q)
        middle = (2**low * codes.div(2**low, rounding_mode="floor") + (2**low - 1) / 2) * step
        rough, all_bits = (exact(q, x, x)[1] for x in (middle, codes * step))
        x = q.double().abs().sum(-1) / math.sqrt(d)  # [B, H, T]
        last = step[:, :, S - T :, 0].repeat_interleave(H // heads, 1)
        error = x * (2**low - 1) / 2 * last  # the last key seen has the largest scale
        shift = torch.zeros(B, H, T, dtype=F64)
        for i in range(B * H * T):
            shift.view(-1)[i] = shift_of(
                float(rough.amax(-1).reshape(-1)[i]), float(error.reshape(-1)[i])
            )
        ranks = shift.flatten().sort().values
        gaps = (ranks[1:] - ranks[:-1]) if len(ranks) > 1 else ranks
        cut = int(gaps.argmax())
        between = float(ranks[cut] + ranks[cut + 1]) / 2 if len(ranks) > 1 else 0.3
        for tolerance in (between, 1.0):
            value = student.progressive(q, k, bits, low, tolerance)
            p, fetched = expect_tuple(value, (torch.Tensor, torch.Tensor), "progressive")
            right = shift > tolerance
            expect_tensor(p, "p", F64, (B, H, T, S))
            expect_same(fetched, right, f"fetched, tolerance {tolerance:.3f}")
            expect_close(p, torch.where(right[..., None], all_bits, rough), what="p", atol=1e-9)
    for low, size in ((0, 2.0**40), (1, 2.0**11)):  # what a query sees is far below 0
        q = -size * torch.randint(1, 5, (2, 4, 3, 4), generator=rng).double()
        codes = 20 + 20 * torch.randperm(5, generator=rng)[:, None].repeat(2, 2, 1, 4)
        codes[..., 0] = 127  # a scale of 1; no two scores are near
        middle = 2**low * codes.div(2**low, rounding_mode="floor") + (2**low - 1) / 2
        p, fetched = student.progressive(q, codes.double(), 8, low, 1.0)
        expect_close(p, exact(q, middle, middle)[1], what="p of scores far below 0", atol=1e-9)
        assert not fetched.any(), "no set gains more than 1"
    several = [keys(rng, 6, 1, 2, 5, 8, scale=0.25)[0] for _ in range(3)]
    q = draw(rng, 1, 2, 5, 8)
    expect_held(student, "progressive", [(q, k, 6, 2, 1.0) for k in several])
    k, q = keys(rng, 6, 1, 2, 5, 8, scale=0.25)[0], draw(rng, 1, 2, 5, 8)
    _, fetched = student.progressive(q, k, 6, 2, 0.0)
    assert not fetched[..., 0].any(), (
        "a query that sees one key has nothing to gain: 0 is at most 0"
    )


def off_ties(k, bits):
    """k, of whose codes none is nearly a tie: such numbers become 0."""
    exact_codes = k.double() / k.double().abs().amax(-1, keepdim=True) * (2 ** (bits - 1) - 1)
    near = ((exact_codes - exact_codes.floor()) - 0.5).abs() < 0.1
    return torch.where(near, torch.zeros((), dtype=k.dtype), k)


def coded(k, bits):
    """(codes, scale [..., 1]) of k."""
    scale = k.double().abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    return (k.double() / scale).round().long(), scale


def drawn_keys(rng, shape, dtype, bits, power, kind):
    """Keys of any sign and size, whose largest number may be the negative one."""
    k = draw(rng, *shape)
    if kind == "spread":  # every key of a size of its own
        k = k * 2.0 ** torch.randint(-12, 13, (*shape[:3], 1), generator=rng).double()
    if kind == "zeros beside":
        k[torch.rand(shape[:3], generator=rng) < 0.4] = -0.0
    if kind == "zeros":
        k = -0.0 * k
    if kind == "negative":
        k = -k.abs()
    return off_ties((k * 2.0**power).to(dtype), bits)


def split_calls(rng):
    shapes = (
        (1, 1, 1, 1),
        (2, 1, 1, 2),
        (1, 3, 5, 1),
        (2, 2, 3, 4),
        (1, 1, 130, 3),
        (1, 2, 2, 130),
    )
    for dtype, bits, low, power, kind, shape in crossed(
        rng, (F32, F64, HALF), (2, 3, 4, 8, 13, 16, 24), ("0", "1", "half", "most", "2", "8"),
        (-110, -40, 0, 40, 110), ("drawn", "spread", "zeros", "zeros beside", "negative"), shapes,
    ):  # fmt: skip
        low = {"half": bits // 2, "most": bits - 1}.get(low) or min(
            int(low) if low.isdigit() else 0, bits - 1
        )
        yield drawn_keys(rng, shape, dtype, bits, power, kind), bits, low


def wrong_split_calls(rng):
    """Also calls that are right."""
    for dtype, bits, low, power, kind, shape in crossed(
        rng, (F32, F64, HALF), (-1, 0, 1, 2, 16), (-1, 0, 1, 8, 17), (-40, 0, 40),
        ("drawn", "negative"), ((1, 1, 1, 1), (1, 2, 3, 4)),
    ):  # fmt: skip
        yield drawn_keys(rng, shape, dtype, max(2, bits), power, kind), bits, low
        yield torch.zeros(shape, dtype=dtype), bits, low


def expect_pieces(results, k, bits, low):
    what = f"of k {list(k.shape)} in {k.dtype}, bits {bits}, low {low}"
    codes, right = coded(k, bits)
    for found in results:
        high, rest, scale = expect_tuple(found, (torch.Tensor,) * 3, "split_bits")
        expect_tensor(scale, f"scale {what}", F64)
        expect_close(scale, right, what=f"scale {what}", rtol=4 * eps(F64))
        expect_same(high, codes >> low, f"high {what}")
        expect_same(rest, codes - ((codes >> low) << low), f"rest {what}")


GROUPS = (  # B, Hkv, group, T, S, d
    (1, 1, 1, 1, 1, 1), (2, 1, 3, 2, 2, 3), (1, 3, 1, 1, 9, 5), (2, 2, 2, 3, 5, 1),
    (1, 1, 66, 2, 3, 4), (1, 1, 2, 9, 70, 2), (1, 2, 1, 2, 3, 130),
)  # fmt: skip


def rough_calls(rng):
    for of_q, low, high, to_q, to_scale, shape, kind in crossed(
        rng, (F32, F64, HALF), (0, 1, 4, 7, 12, 16, 23), ("8", "2", "24", "negative", "zeros"),
        (-40, 0, 40), (-90, -20, 0, 20, 90), GROUPS, ("alike", "spread"),
    ):  # fmt: skip
        B, heads, group, T, S, d = shape
        most = 2 ** (int(high) - 1) - 1 if high.isdigit() else 127 * (high == "negative")
        codes = torch.randint(-most, most + 1, (B, heads, S, d), generator=rng) >> low
        scale = (1 + torch.rand(B, heads, S, 1, generator=rng, dtype=F64)) * 2.0**to_scale
        if kind == "spread":
            scale = scale * 2.0 ** torch.randint(-20, 21, scale.shape, generator=rng).double()
        q = (draw(rng, B, heads * group, T, d) * 2.0**to_q).to(of_q)
        yield q, -codes.abs() if high == "negative" else codes, scale, low


def expect_rough(results, q, high, scale, low):
    B, H, T, d = q.shape
    what = f"of q {list(q.shape)} in {q.dtype}, high {list(high.shape)}, low {low}"
    high, scale = (x.double().repeat_interleave(H // x.shape[1], 1) for x in (high, scale))
    middle, half = (high * 2**low + (2**low - 1) / 2) * scale, (2**low - 1) / 2 * scale
    q = q.double() / math.sqrt(d)
    right = (q[:, :, :, None] * middle[:, :, None]).sum(-1)
    reach = q.abs().sum(-1, keepdim=True) * half.transpose(-1, -2)
    size = (q.abs()[:, :, :, None] * (high.abs() * 2**low + 2**low)[:, :, None]).sum(-1)
    # of what a way by ends of the range adds up
    bound = 4 * (d + 8) * eps(F64) * size * scale.transpose(-1, -2)
    for found in results:
        scores, error = expect_tuple(found, (torch.Tensor,) * 2, "rough_scores")
        for name, x, y in (("scores", scores, right), ("error", error, reach)):
            expect_tensor(x, f"{name} {what}", F64, y.shape)
            expect_at_most((x - y).abs(), bound, f"how far {name} {what} are off")


def shift_calls(rng):
    """Every top with every error; tops at the widest set, next to it and far from it."""
    tops = (
        1.0,
        1 - 2.0**-24,
        0.999,
        0.75,
        0.5,
        "widest",
        "just above",
        "just below",
        0.25,
        1e-6,
        1e-12,
        1e-30,
    )
    errors = (
        0.0,
        1e-12,
        1e-8,
        1e-3,
        0.1,
        0.5,
        1.0,
        3.0,
        12.0,
        20.0,
        36.0,
        300.0,
        400.0,
        800.0,
        1e4,
    )
    grid = [(top, error) for top in tops for error in errors]
    at = tensor([
        1 / (1 + math.exp(-error)) * {"just above": 1 + 1e-7, "just below": 1 - 1e-7}.get(top, 1)
        if isinstance(top, str) else top for top, error in grid
    ]).clamp(max=1.0)  # fmt: skip
    by = tensor([error for _, error in grid])
    order = torch.randperm(len(grid), generator=rng)
    at, by = at[order], by[order]
    shapes = ((-1,), (6, -1), (2, 3, -1), (1, 180, 1), (2, 1, 2, -1))
    for of_top, of_error, shape in every_pair(rng, (F32, F64), (F32, F64), shapes):
        yield at.to(of_top).view(shape), by.to(of_error).view(shape)
    dtypes = itertools.product((F32, F64), (F32, F64))
    for (of_top, of_error), i in zip(list(dtypes) * 3, range(0, 180, 15), strict=True):
        yield at[i].to(of_top), by[i].to(of_error)
        yield at[i : i + 1].to(of_top), by[i : i + 1].to(of_error)
    for of_top, of_error in itertools.product((F32, F64), (F32, F64)):
        for top, error in ((1.0, 1e4), (1e-7, 1e4), (1.0, 0.0), (1e-7, 0.0)):
            yield torch.tensor(top, dtype=of_top), torch.tensor(error, dtype=of_error)


def expect_shift(results, top, error):
    what = f"worst_shift of {list(top.shape)}, top in {top.dtype}, error in {error.dtype}"
    given = zip(top.double().flatten().tolist(), error.double().flatten().tolist(), strict=True)
    right = tensor([gain_of(*one) for one in given]).view(top.shape)
    for shift in results:
        expect_tensor(shift, what, F64, top.shape)
        # differences of probabilities in float64, of which one is exp of a logit up to 100
        expect_close(shift, right, what=what, rtol=200 * eps(F64), atol=200 * eps(F64))


def progressive_calls(rng):
    for of_q, of_k, bits, low, to_q, tolerance, shape, kind in crossed(
        rng, (F32, F64, HALF), (F32, F64, HALF), (2, 3, 4, 6, 8, 12), (0, 1, 2, 4, 7),
        (-20, -2, 0, 6), (0.0, 0, 0.05, 0.3, 0.7, 1.0, 1.5), GROUPS,
        ("drawn", "spread", "zeros", "zeros beside", "negative"),
    ):  # fmt: skip
        B, heads, group, T, S, d = shape
        k = drawn_keys(rng, (B, heads, S, d), F64, bits, 0, kind)
        k = k * torch.linspace(0.2, 3, S, dtype=F64)[:, None]  # later ones are larger
        k = off_ties(k.to(of_k), bits)
        q = (draw(rng, B, heads * group, T, d) * 2.0**to_q).to(of_q)
        yield q, k, bits, min(low, bits - 1), tolerance


def many_heads(rng):
    """Of 66 heads, whose queries do not see the largest key."""
    for tolerance, kind in itertools.product((0.05, 0.2, 0.4), ("drawn", "negative")):
        k = drawn_keys(rng, (1, 1, 3, 4), F64, 8, 0, kind)
        k = k * tensor([1.0, 1.0, 8.0])[:, None]
        yield draw(rng, 1, 66, 2, 4), off_ties(k, 8), 8, 5, tolerance


def expect_progressive(results, q, k, bits, low, tolerance):
    """Rows whose bound is next to the tolerance may go either way."""
    what = (
        f"of q {list(q.shape)} in {q.dtype}, k {list(k.shape)} in {k.dtype}, bits {bits}, low {low}"
    )
    (B, H, T, d), S = q.shape, k.shape[2]
    codes, scale = coded(k, bits)
    middle = ((codes >> low) * 2**low + (2**low - 1) / 2) * scale
    later = torch.arange(S) > S - T + torch.arange(T)[:, None]
    rows = [
        (q.double() @ x.repeat_interleave(H // k.shape[1], 1).transpose(-1, -2) / math.sqrt(d))
        .masked_fill(later, -math.inf)
        .softmax(-1)
        for x in (middle, codes * scale)
    ]
    steps = scale[..., 0].repeat_interleave(H // k.shape[1], 1)[:, :, None].masked_fill(later, 0)
    error = q.double().abs().sum(-1) / math.sqrt(d) * (2**low - 1) / 2 * steps.amax(-1)
    longest = ((codes.abs() + 2**low) * scale).max()
    reach = float(q.double().abs().max() * longest) * 2 * math.sqrt(d)
    rtol = (8 * (d + 8) * reach + S + 16) * eps(F64)
    tops = [(rows[0].amax(-1) * (1 + by * rtol)).clamp(max=1.0) for by in (0, -1, 1)]
    shift, *sides = (
        tensor(list(map(gain_of, top.flatten().tolist(), error.flatten().tolist()))).view(B, H, T)
        for top in tops
    )
    one = (torch.arange(T) == 0) & (S == T)  # a query that sees one key: 0, which is at most 0
    clear = torch.stack([(x > tolerance + 1e-9) == (shift > tolerance - 1e-9) for x in sides]).all(
        0
    )
    clear |= one | torch.tensor(tolerance > 1 + 1e-9)  # nobody gains more than all
    what = f"{what}, tolerance {tolerance}"
    for found in results:
        p, fetched = expect_tuple(found, (torch.Tensor,) * 2, "progressive")
        expect_tensor(p, f"p {what}", F64, (B, H, T, S))
        expect_tensor(fetched, f"fetched {what}", torch.bool, (B, H, T))
        wrong = int((clear & (fetched != (shift > tolerance))).sum())
        assert not wrong, f"fetched {what}: {wrong} rows are wrong"
        right = torch.where(fetched[..., None], rows[1], rows[0])
        expect_close(p, right, what=f"p {what}", rtol=rtol, atol=1e-300)


@exercise(
    "ex6",
    points=2,
    invariant="all four functions anywhere in what the card admits: any bits, every top with every "
    "error, keys of any size and kind beside one another, each in a dtype of its own, in views",
    cause="a corner where two others meet, such as keys of zeros and two bits; a limit that nobody "
    "named; or memory that is used again",
)
def test_anywhere_in_bits(student, rng):
    calls, checks, wrong = [], [], []
    for name, check, drawn in (
        ("split_bits", expect_pieces, split_calls(rng)),
        ("split_bits", expect_pieces, wrong_split_calls(rng)),
        ("rough_scores", expect_rough, rough_calls(rng)),
        ("worst_shift", expect_shift, shift_calls(rng)),
        ("progressive", expect_progressive, progressive_calls(rng)),
        ("progressive", expect_progressive, many_heads(rng)),
    ):
        for args in drawn:
            if name == "split_bits" and not (args[1] >= 2 and 0 <= args[2] < args[1]):
                wrong.append((name, *args))
                continue
            calls.append((name, *args))
            checks.append((check, *args))
    expect_each(checks, held(student, rng, calls))
    refused(student, wrong)
