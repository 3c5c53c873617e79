"""Public tests of lab18: what lab.check runs.  Examples by hand, bounds, and random walks.

Answers are made by a rule in place of a model: the next token follows from all tokens before it.
What a pass read is kept in rows like keys, so a wrong position or a stale row shows in the text.
"""

import math

import torch

from efflib.lab import exercise, expect_at_most, expect_close, expect_same
from efflib.lab.walks import expect_walks
from efflib.traffic.simulate import Machine, step_seconds


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def ints(values, what):
    """The list of ints that it is; fails for anything else."""
    assert isinstance(values, (list, tuple)), f"{what} is {values!r}, not a list"
    for value in values:
        right = not isinstance(value, bool) and hasattr(value, "__index__")
        assert right, f"{what} holds {value!r}, not an int"
    return [value.__index__() for value in values]


def parts(value, count, what):
    assert isinstance(value, (list, tuple)) and len(value) == count, f"{what} returned {value!r}"
    return value


# ---- exercise 1: a row of pieces ---------------------------------------------------------------

TEXTS = {"A": [5, 6, 7, 8], "B": [9, 4], 3: [1, 2, 3]}
PROPOSED = {"B": [3, 2], 3: []}


def check_layout(student, pieces, right, texts=TEXTS, proposed=PROPOSED):
    seen = parts(student.layout(pieces, texts, proposed), 3, "layout")
    names = ("ids", "positions", "wanted")
    wanted = [ints(some, "wanted of a piece") for some in parts(seen[2], len(pieces), "wanted")]
    seen = [ints(seen[0], "ids"), ints(seen[1], "positions"), wanted]
    for name, own, expected in zip(names, seen, right, strict=True):
        assert own == expected, f"{name} of {pieces} is {own}, expected {expected}"


def check_step(student, pieces, best, new, cached, texts=TEXTS, proposed=PROPOSED):
    seen = parts(student.step(pieces, texts, proposed, best), 2, "step")
    for name, own, right in zip(("new", "cached"), seen, (new, cached), strict=True):
        assert isinstance(own, dict), f"{name} is {own!r}, not a dict"
        own = {
            k: ints(v, "new tokens") if name == "new" else ints([v], name)[0]
            for k, v in own.items()
        }
        assert own == right, f"{name} of {pieces} with best {best} is {own}, expected {right}"


@exercise(
    "ex1",
    points=2,
    invariant="a piece inside of a prompt wants no logit, an answer with two proposals three",
    cause="the last proposal's logit forgotten, positions that begin at 0, or places in the piece "
    "taken for places in the pass",
)
def test_layout_by_hand(student, rng):
    A, B = ("A", 1, 2), ("B", 1, 3)
    check_layout(student, [A, B], [[6, 7, 4, 3, 2], [1, 2, 1, 2, 3], [[], [2, 3, 4]]])
    check_layout(student, [B, A], [[4, 3, 2, 6, 7], [1, 2, 3, 1, 2], [[0, 1, 2], []]])
    check_layout(student, [("A", 1, 3), (3, 2, 1)], [[6, 7, 8, 3], [1, 2, 3, 2], [[2], [3]]])
    check_layout(student, [("B", 0, 3)], [[9, 4, 3], [0, 1, 2], [[1, 2]]])
    check_layout(student, [("A", 0, 1)], [[5], [0], [[]]])


@exercise(
    "ex1",
    points=2,
    invariant="B was proposed 3 and 2; the model says 3, 8 and 1: B gets 3 and 8, and 3 have a key",
    cause="what stands behind a refusal taken as well, the model's own token left out, or cached "
    "counted with what was refused",
)
def test_step_by_hand(student, rng):
    A, B = ("A", 1, 2), ("B", 1, 3)
    for said, new, cached in (
        ([3, 8, 1], [3, 8], 3),
        ([3, 2, 1], [3, 2, 1], 4),
        ([8, 2, 1], [8], 2),
        ([8, 3, 2], [8], 2),
    ):
        check_step(student, [A, B], [-1, -1, *said], {"A": [], "B": new}, {"A": 3, "B": cached})
    check_step(student, [("B", 1, 2)], [3, 2], {"B": [3, 2]}, {"B": 3})
    check_step(student, [("B", 0, 3)], [-1, 8, 2], {"B": [8]}, {"B": 2})
    check_step(student, [("B", 0, 3)], [-1, 3, 8], {"B": [3, 8]}, {"B": 3})
    check_step(
        student, [(3, 2, 1), ("A", 0, 4)], [7, -1, -1, -1, 6], {3: [7], "A": [6]}, {3: 3, "A": 4}
    )


def behind(text):
    """The rule that stands in for a model."""
    value = 1
    for token in text:
        value = (value * 5 + token + 3) % 97
    return value % 7


def answer(prompt, tokens):
    text = list(prompt)
    for _ in range(tokens):
        text.append(behind(text))
    return text


def random_requests(rng, count, prompt, tokens):
    """[(name, prompt, how many tokens, guesses of the whole text, some of them wrong)]"""
    asked = []
    for i in range(count):
        start, n = [draw(rng, 0, 6) for _ in range(draw(rng, 1, prompt))], draw(rng, 1, tokens)
        share = draw(rng, 0, 3)
        guesses = [t if draw(rng, 0, 3) <= share else draw(rng, 0, 6) for t in answer(start, n)]
        asked.append((f"r{i}" if i % 2 else i, start, n, guesses))
    return asked


def drive_answers(student, asked, sizes, most):
    """Runs beside the student's code: the text and cached tokens of each after every pass.

    sizes: how many tokens who gets in each pass, 0 for none, at most so many as it lacks.
    """

    def behind(text):
        value = 1
        for token in text:
            value = (value * 5 + token + 3) % 97
        return value % 7

    state = {name: [list(prompt), 0, {}] for name, prompt, _, _ in asked}
    ends = {name: len(prompt) + n for name, prompt, n, _ in asked}
    guesses, seen = {name: all_of for name, _, _, all_of in asked}, []
    for row in sizes:
        texts = {name: list(s[0]) for name, s in state.items()}
        proposed, pieces = {}, []
        for (name, (text, cached, _)), n in zip(state.items(), row, strict=True):
            if len(text) < ends[name]:
                if len(text) - cached == 1:
                    room = min(most, ends[name] - len(text) - 1)
                    proposed[name] = guesses[name][len(text) : len(text) + room]
                n = min(n, len(text) + len(proposed.get(name, [])) - cached)
                if n:
                    pieces.append((name, cached, n))
        if not pieces:
            continue
        ids, positions, wanted = student.layout(list(pieces), texts, proposed)
        here, best = 0, [-1] * len(ids)
        for (name, _, n), places in zip(pieces, wanted, strict=True):
            rows = state[name][2]
            for i in range(here, here + n):
                rows[positions[i]] = ids[i]
                if i in places:
                    best[i] = behind([rows[p] for p in range(positions[i] + 1)])
            here += n
        new, after = student.step(list(pieces), texts, proposed, best)
        for name, _, _ in pieces:
            state[name][0] = texts[name] + list(new[name])
            state[name][1] = after[name]
        seen.append([(name, list(state[name][0]), int(state[name][1])) for name, _, _ in pieces])
    return seen


def check_answers(student, rng, count, passes, prompt=7, tokens=9, most=3, requests=4):
    for _ in range(count):
        asked = random_requests(rng, requests, prompt, tokens)
        sizes = [[draw(rng, 0, 6) for _ in asked] for _ in range(passes)]
        sizes += [[9] * len(asked)] * (prompt + tokens)
        texts = {name: list(start) for name, start, _, _ in asked}
        for at, seen in enumerate(student.drive(drive_answers, asked, sizes, most)):
            for name, text, cached in seen:
                [(start, n)] = [(s, n) for who, s, n, _ in asked if who == name]
                right = answer(start, n)[: len(text)]
                assert text == right and len(text) <= len(start) + n, (
                    f"pass {at + 1}: {name!r} has {text[len(start) :]}, alone it gets "
                    f"{answer(start, n)[len(start) :]}"
                )
                assert 0 < cached < len(text), f"pass {at + 1}: {cached} of {len(text)} are cached"
                texts[name] = text
        for name, start, n, _ in asked:
            assert texts[name] == answer(start, n), (
                f"{name!r} ends with {texts[name][len(start) :]}"
            )


@exercise(
    "ex1",
    points=2,
    invariant="prompts in pieces, proposals right and wrong: every text is as alone",
    cause="the key of a refused proposal counted as cached, or a piece that begins elsewhere",
)
def test_answers_in_pieces(student, rng):
    check_answers(student, rng, 6, 8)


# ---- exercise 2: attention over blocks ---------------------------------------------------------


def tables_for(rng, lengths, block, blocks):
    """Tables with a block to spare, of blocks in any order; the last request first, and others."""
    order = torch.randperm(blocks, generator=rng).tolist()
    own = {name: [order.pop() for _ in range(-(-n // block) + 1)] for name, n in lengths.items()}
    return {"others": [order.pop()]} | {name: own[name] for name in reversed(own)}


def random_pages(rng, pieces, heads, kv, d, block, dtype=torch.float64, scale=1.0):
    """(q, k_pages, v_pages, tables, keys and values of each); NaN and infinity everywhere else."""
    lengths = {name: cached + n for name, cached, n in pieces}
    blocks = sum(-(-n // block) + 1 for n in lengths.values()) + 2
    tables = tables_for(rng, lengths, block, blocks)
    pages = [torch.full((blocks, block, kv, d), bad, dtype=dtype) for bad in (math.nan, math.inf)]
    own = {}
    for name, n in lengths.items():
        own[name] = [scale * torch.randn(n, kv, d, generator=rng, dtype=dtype) for _ in pages]
        for page, rows in zip(pages, own[name], strict=True):
            for p in range(n):
                page[tables[name][p // block], p % block] = rows[p]
    total = sum(n for _, _, n in pieces)
    q = scale * torch.randn(total, heads, d, generator=rng, dtype=dtype)
    return q, *pages, tables, own


def slow_attention(q, pieces, own):
    """One query, one head after another, in float64."""
    out, here = torch.empty(q.shape, dtype=torch.float64), 0
    for name, cached, n in pieces:
        k, v = (x.double() for x in own[name])
        for i in range(n):
            for h in range(q.shape[1]):
                g = h // (q.shape[1] // k.shape[1])
                upto = cached + i + 1
                weights = (k[:upto, g] @ q[here + i, h].double() / q.shape[2] ** 0.5).softmax(0)
                out[here + i, h] = weights @ v[:upto, g]
        here += n
    return out


def check_attention(student, rng, pieces, heads, kv, d, block, dtype=torch.float64, scale=1.0):
    q, k, v, tables, own = random_pages(rng, pieces, heads, kv, d, block, dtype, scale)
    seen = student.attend(q, k, v, pieces, tables)
    assert isinstance(seen, torch.Tensor), f"attend returned {type(seen).__name__}"
    assert seen.dtype == dtype, f"attend returned {seen.dtype}, q is {dtype}"
    assert seen.shape == q.shape, f"attend returned {tuple(seen.shape)}, q is {tuple(q.shape)}"
    # each score is a sum of d products and errs by some d eps |q| |k|; weights and sums as much
    eps = torch.finfo(dtype).eps
    bound = 64 * eps * (1 + d**0.5 * scale**2) * max(scale, 1.0) * max(c + n for _, c, n in pieces)
    expect_close(seen.double(), slow_attention(q, pieces, own), what="attend", atol=bound)


def check_slots(student, pieces, tables, block, right):
    seen = student.slots(pieces, tables, block)
    assert isinstance(seen, torch.Tensor), f"slots returned {type(seen).__name__}"
    assert seen.dtype == torch.int64, f"slots are {seen.dtype}"
    assert seen.tolist() == right, f"slots of {pieces} are {seen.tolist()}, expected {right}"


@exercise(
    "ex2",
    points=2,
    invariant="blocks of 4, table 7, 2: positions 3, 4 and 5 are rows 31, 8 and 9",
    cause="positions counted from the piece's begin, or the table read by row",
)
def test_slots_by_hand(student, rng):
    tables = {"A": [7, 2, 5], 0: [3], "B": [0, 1]}
    check_slots(student, [("A", 3, 3)], tables, 4, [31, 8, 9])
    check_slots(student, [(0, 0, 2), ("A", 0, 1), ("B", 3, 2)], tables, 4, [12, 13, 28, 3, 4])
    check_slots(student, [("A", 1, 2)], {"A": [7, 2, 5]}, 1, [2, 5])


@exercise(
    "ex2",
    points=2,
    invariant="with keys of equal score a query gives the mean of the values up to its position",
    cause="a mask that forgets the cached tokens, or one position too far or too short",
)
def test_means_by_hand(student, rng):
    v = torch.full((3, 2, 1, 2), math.nan, dtype=torch.float64)
    v[2, 0, 0], v[2, 1, 0] = torch.tensor([1.0, 8.0]), torch.tensor([3.0, 8.0])
    v[0, 0, 0], v[1, 0, 0] = torch.tensor([8.0, 2.0]), torch.tensor([-5.0, 6.0])
    k = torch.where(v.isnan(), v, torch.ones(()).double())
    q = torch.ones(3, 2, 2, dtype=torch.float64)
    pieces, tables = [("A", 1, 2), ("B", 0, 1)], {"A": [2, 0], "B": [1]}
    seen = student.attend(q, k, v, pieces, tables)
    right = torch.tensor([[2.0, 8.0], [4.0, 6.0], [-5.0, 6.0]]).double()[:, None].expand(3, 2, 2)
    assert isinstance(seen, torch.Tensor) and seen.shape == (3, 2, 2), f"attend returned {seen!r}"
    expect_close(seen, right, what="attend", atol=1e-12)


@exercise(
    "ex2",
    points=2,
    invariant="every request attends as it does alone, whatever else lies in the blocks, NaN too",
    cause="another request's rows, key heads in another order, no division by sqrt(d), or whole "
    "blocks read and weighed by 0",
)
def test_attention_by_request(student, rng):
    check_attention(student, rng, [("A", 5, 3), ("B", 0, 4), (2, 9, 1)], 4, 2, 8, 4)
    check_attention(student, rng, [(0, 0, 1)], 2, 2, 4, 1)
    check_attention(student, rng, [("x", 3, 2), ("y", 7, 1)], 6, 1, 2, 3, torch.float32)


# ---- exercise 3: four bits ---------------------------------------------------------------------


def drive_packed(student, weight, bias, group, inputs, changed):
    """Runs beside the student's code: W_hat by unit vectors, outputs, and what the module keeps.

    changed: the weight that was passed is overwritten after the module was made.
    """
    import gc

    import torch

    def alive():
        found = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
        return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}

    gc.collect()
    before = alive()
    module = student.Packed(weight, bias, group)
    outputs = [module(x) for x in inputs]
    gc.collect()
    given = {t.untyped_storage().data_ptr() for t in outputs}
    kept = [n for place, n in alive().items() if place not in before and place not in given]
    if changed:
        weight.zero_()
    unit = torch.eye(weight.shape[1], dtype=weight.dtype)
    zero = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
    buffers = sum(t.numel() * t.element_size() for t in module.buffers())
    buffers += sum(t.numel() * t.element_size() for t in module.parameters())
    is_module = isinstance(module, torch.nn.Module)
    w_hat = module(unit) if bias is None else student.Packed(weight + 0, None, group)(unit)
    return w_hat.detach().T, module(zero).detach()[0], [y.detach() for y in outputs], (
        sum(kept), buffers, is_module,
    )  # fmt: skip


def grids(weight, group):
    """(scale, lo, hi) of each weight's group [N, K], by the card, in float64."""
    w, parts_of = weight.double(), []
    for start in range(0, w.shape[1], group):
        some = w[:, start : start + group]
        lo, hi = some.amin(1).clamp(max=0), some.amax(1).clamp(min=0)
        scale = ((hi - lo).float() / 15).clamp(min=2.0**-14).half().double()
        parts_of.append(scale[:, None].expand(some.shape))
    return torch.cat(parts_of, 1)


def by_the_card(weight, group):
    """(w_hat [N, K] in float64, of which weights it is sure: no rounding is near a half)."""
    w, scale, right, sure = weight.double(), grids(weight, group), [], []
    for start in range(0, w.shape[1], group):
        some, step = w[:, start : start + group], scale[:, start : start + group]
        lo = some.amin(1, keepdim=True).clamp(max=0)
        span = some.amax(1, keepdim=True).clamp(min=0) - lo
        zero, code = -lo / step[:, :1], some / step
        near = [(x - x.floor() - 0.5).abs() < 1e-3 for x in (zero, code)]
        both = [(span / 15 * (1 + d)).clamp(min=2.0**-14).half() for d in (-1e-6, 1e-6)]
        code = (code.round() + zero.round()).clamp(0, 15)
        right.append((code - zero.round()) * step)
        sure.append(~near[0] & ~near[1] & (both[0] == both[1]))
    return torch.cat(right, 1), torch.cat(sure, 1)


def bytes_of(n, k, group, bias):
    groups = -(-k // group)
    codes, zeros = n * -(-k // 2), n * -(-groups // 2)
    return (
        codes + 2 * n * groups + zeros + (0 if bias is None else bias.numel() * bias.element_size())
    )


def check_packed(student, rng, n, k, group, dtype=torch.float32, bias=True, scale=1.0, weight=None):
    if weight is None:
        weight = (scale * torch.randn(n, k, generator=rng)).to(dtype)
    bias = torch.randn(n, generator=rng).to(dtype) if bias else None
    inputs = [
        torch.randn(*shape, k, generator=rng).to(dtype) for shape in ((3,), (), (2, 0), (1, 2))
    ]
    w_hat, zero, outputs, kept = student.drive(drive_packed, weight, bias, group, inputs, False)
    where = f"[{n}, {k}] in groups of {group}"
    assert isinstance(w_hat, torch.Tensor) and w_hat.shape == (n, k), f"{where}: forward's shape"
    right, sure = by_the_card(weight, group)
    far = sure & ~((w_hat.double() - right).abs() <= 1e-5 * grids(weight, group))
    i, j = (far.nonzero().tolist() or [(0, 0)])[0]
    assert dtype != torch.float32 or not far.any(), (
        f"{where}: weight [{i}, {j}] = {float(weight[i, j]):.6g} came back as "
        f"{float(w_hat[i, j]):.8g}, expected {float(right[i, j]):.8g}"
    )
    step = grids(weight, group)
    # half a step, 15 times the scale's rounding to float16 (2^-11), and what the dtype cannot hold
    bound = step * (0.5 + 15 * 2.0**-11) + weight.double().abs() * 1.1 * torch.finfo(dtype).eps
    expect_at_most(
        (w_hat.double() - weight.double()).abs() - bound,
        1e-7 * step,
        f"{where}: |w_hat - w| - bound",
    )
    right = torch.zeros(n, dtype=dtype) if bias is None else bias
    expect_close(
        zero.double(),
        right.double(),
        what=f"{where}: forward(0)",
        atol=1e-6 if dtype != torch.bfloat16 else 0.02,
    )
    for x, y in zip(inputs, outputs, strict=True):
        assert y.dtype == dtype, f"forward of {dtype} returned {y.dtype}"
        expected = x.double() @ w_hat.double().T + right.double()
        assert y.shape == expected.shape, f"forward({tuple(x.shape)}) returned {tuple(y.shape)}"
        size = x.double().abs() @ w_hat.double().abs().T + right.double().abs()
        limit = (k + 4) * torch.finfo(dtype).eps * size + 1e-12
        expect_at_most(
            (y.double() - expected).abs() - limit,
            0 * limit,
            f"{where}: |forward - x W_hat^T - b| - rounding",
        )
    return w_hat, kept, bytes_of(n, k, group, bias)


@exercise(
    "ex3",
    points=2,
    invariant="-1, 0, 0.45, 2 become -1, 0, 0.4, 2; every weight comes back within half a step",
    cause="the range without 0, codes rounded down or made with the scale before it was float16, a "
    "scale for the wrong group, halves of a byte exchanged",
)
def test_codes_by_hand(student, rng):
    w_hat, _, _ = check_packed(
        student, rng, 2, 4, 4, weight=torch.tensor([[-1.0, 0, 0.45, 2], [0, 0, 0, 0]])
    )
    right = torch.tensor([[-1.0, 0, 0.4, 2], [0, 0, 0, 0]])
    expect_close(w_hat, right, what="w_hat", atol=2e-3)  # the scale is 0.2 in float16
    assert w_hat[0, 1] == 0, f"0 came back as {float(w_hat[0, 1])}"
    check_packed(student, rng, 2, 2, 2, weight=torch.tensor([[-1.0, 1], [2, -2]]))
    check_packed(student, rng, 3, 10, 4)
    check_packed(student, rng, 5, 7, 2, bias=False)
    check_packed(student, rng, 16, 60, 20, bias=False)


@exercise(
    "ex3",
    points=2,
    invariant="two codes in a byte, and no other tensor that stays",
    cause="a byte for a code, zero points not packed, scales in float32, or the weight kept",
)
def test_bytes_of_a_linear(student, rng):
    for n, k, group in ((8, 64, 32), (3, 20, 8), (2, 5, 5)):
        _, (kept, buffers, module), right = check_packed(student, rng, n, k, group)
        assert module is True, "Packed is no nn.Module"
        name = f"[{n}, {k}] in groups of {group}"
        expect_at_most(float(buffers), float(right), f"bytes of buffers of {name}")
        expect_at_most(float(kept), float(right), f"bytes that stay of {name}")


def drive_model(student, tied, group, biased, x):
    """Runs beside the student's code: a model and its copy, by name, and what both give."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    inner = nn.Sequential(nn.Linear(6, 8, bias=biased), nn.ReLU(), nn.Linear(8, 6, bias=biased))
    model = nn.ModuleDict(
        {"table": nn.Embedding(5, 6), "inner": inner, "lm_head": nn.Linear(6, 5, bias=False)}
    )
    if tied:
        model["lm_head"].weight = model["table"].weight
    before = [p.detach().clone() for p in model.parameters()]
    copy = student.quantized(model, group)
    kinds = {name: type(m).__name__ for name, m in copy.named_modules() if not list(m.children())}
    own = {name: type(m).__name__ for name, m in model.named_modules() if not list(m.children())}
    shared = getattr(copy["lm_head"], "weight", None) is copy["table"].weight
    apart = copy["table"].weight is not model["table"].weight and copy is not model
    outputs = copy["inner"](x).detach(), copy["table"].weight.detach()
    after = [p.detach() for p in model.parameters()]
    return kinds, own, shared, apart, before, after, outputs


def check_model(student, rng, tied, group, biased):
    x = torch.randn(3, 6, generator=rng)
    kinds, own, shared, apart, before, after, outputs = student.drive(
        drive_model, tied, group, biased, x
    )
    right = {"table": "Embedding", "inner.0": "Packed", "inner.1": "ReLU", "inner.2": "Packed"}
    right["lm_head"] = "Linear" if tied else "Packed"
    assert kinds == right, f"the copy's modules are {kinds}"
    plain = {name: "Linear" if kind == "Packed" else kind for name, kind in right.items()}
    assert own == plain, f"the model itself now has {own}"
    assert apart is True, "the copy is the model, or shares its weights"
    if tied:
        assert shared is True, "the copy's lm_head is no longer the token table"
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old, new), "the model's weights have changed"
    expect_same(outputs[1], before[0], "the copy's token table")
    layers = [p for p in before if p.ndim == 2 and p.shape != (5, 6)]
    biases = [p for p in before if p.ndim == 1] or [torch.zeros(8), torch.zeros(6)]
    hidden = (x @ layers[0].T + biases[0]).relu()
    expected = hidden @ layers[1].T + biases[1]
    step = [grids(w, group).float() for w in layers]
    slack = x.abs() @ (0.51 * step[0]).T
    slack = slack @ (layers[1].abs() + step[1]).T + (hidden + slack) @ (0.51 * step[1]).T
    expect_at_most(
        (outputs[0] - expected).abs() - slack, 1e-4 + 0 * slack, "outputs of the copy - bound"
    )


@exercise(
    "ex3",
    points=2,
    invariant="every linear of the copy is a Packed of its own weights; a tied lm_head stays tied",
    cause="the model itself changed, linears inside of others missed, or lm_head cut off from the "
    "token table",
)
def test_models_by_name(student, rng):
    check_model(student, rng, True, 4, True)
    check_model(student, rng, False, 3, False)


# ---- exercise 4: blocks ------------------------------------------------------------------------


class Line:
    """The model: whose blocks, the line of the free ones, and what each block holds."""

    def __init__(self, blocks, block):
        self.block, self.line, self.tables = block, list(range(blocks)), {}
        self.holds, self.texts, self.certain = {}, {}, {}

    def users(self, number):
        return sum(table.count(number) for table in self.tables.values())

    def begins(self, text):
        """For 1, 2, ... blocks the blocks that hold this beginning, as long as there are some."""
        rows = []
        for end in range(self.block, len(text), self.block):
            held = {b for b, tokens in self.holds.items() if tokens == tuple(text[:end])}
            if not held:
                break
            rows.append(held)
        return rows

    def shrink(self, name, kept):
        table = self.tables[name]
        while len(table) > kept:
            last = table.pop()
            if not self.users(last):
                self.line.append(last)


def pool_walk(rng, length, letters, longest):
    """Random operations; names A to D, of whom one is at work for a while."""
    walk, name = [], "A"
    for _ in range(length):
        if draw(rng, 0, 3) == 0:
            name = "ABCD"[draw(rng, 0, 3)]
        kind = ("start", "start", "grow", "grow", "settle", "settle", "roll_back", "end")[
            draw(rng, 0, 7)
        ]
        text = [draw(rng, 0, letters - 1) for _ in range(draw(rng, 2, longest))]
        walk.append((kind, name, text if kind == "start" else draw(rng, 1, 6)))
    return walk


def possible(walk, block=2):
    """Those operations that make sense, with lengths in place of steps."""
    texts, room, sure, kept = {}, {}, {}, []
    for kind, name, what in walk:
        if kind == "start" and name not in texts:
            texts[name], room[name], sure[name] = what, 0, 0
        elif kind == "start" or name not in texts:
            continue
        kept.append((kind, name, what))
        if kind == "end":
            del texts[name]
    return kept


def drive_pool(student, walks, blocks, block):
    """Runs beside the student's code: what each operation returned, tables and free after it.

    grow by so many tokens, settle all of so many more, roll back by so many; where it cannot be,
    nothing is called.
    """
    seen = []
    for walk in walks:
        pool, texts, room, sure, rows = student.Blocks(blocks, block), {}, {}, {}, []
        for kind, name, what in walk:
            value, said = None, None
            try:
                if kind == "start":
                    value = pool.start(name, list(what))
                    texts[name], room[name], sure[name] = list(what), int(value), int(value)
                elif kind == "grow":
                    said = room[name] + what
                    pool.grow(name, said)
                    room[name] = said
                elif kind == "settle":
                    said = min(sure[name] + what, room[name], len(texts[name]))
                    pool.settle(name, list(texts[name]), said)
                    sure[name] = max(said, sure[name])
                elif kind == "roll_back":
                    said = max(room[name] - what, sure[name])
                    pool.roll_back(name, said)
                    room[name] = said
                else:
                    pool.end(name)
                    del texts[name]
            except NotImplementedError:
                raise
            except MemoryError:
                value = "MemoryError"
            except Exception as fault:
                value = f"{type(fault).__name__}: {fault}"[:120]
            try:
                tables = {name: [b.__index__() for b in t] for name, t in pool.tables.items()}
                free = pool.free.__index__()
            except Exception as fault:
                tables, free = f"tables or free: {type(fault).__name__}", -1
            value = value if isinstance(value, str) or value is None else value.__index__()
            rows.append((said, value, tables, free))
        seen.append(rows)
    return seen


def judge_pool(blocks, block):
    def judge(walk, seen):
        model = Line(blocks, block)
        for i, ((kind, name, what), (said, value, tables, free)) in enumerate(
            zip(walk, seen, strict=True)
        ):
            right = None
            if kind == "start":
                rows = model.begins(what)
                right, own = (
                    len(rows) * block,
                    tables.get(name) if isinstance(tables, dict) else None,
                )
                if value != right:
                    return i, f"it returned {value!r}, expected {right}"
                if own is None or len(own) != len(rows):
                    return i, f"its table is {own}, with {right} tokens found"
                for number, held in zip(own, rows, strict=True):
                    if number not in held:
                        return i, f"block {number} does not hold that beginning"
                    if number in model.line:
                        model.line.remove(number)
                model.tables[name], model.texts[name] = list(own), list(what)
            elif kind == "grow":
                needs = max(-(-said // block) - len(model.tables[name]), 0)
                if needs > len(model.line):
                    right = "MemoryError"
                else:
                    for number in model.line[:needs]:
                        model.holds.pop(number, None)
                    model.tables[name] += model.line[:needs]
                    del model.line[:needs]
            elif kind == "settle":
                for j in range(said // block):
                    model.holds[model.tables[name][j]] = tuple(model.texts[name][: (j + 1) * block])
            elif kind == "roll_back":
                model.shrink(name, -(-said // block))
            else:
                model.shrink(name, 0)
                del model.tables[name]
            if value != right:
                return i, f"it gave {value!r}, expected {right!r}"
            if tables != model.tables:
                return i, f"tables are {tables}, expected {model.tables}"
            if free != len(model.line):
                return i, f"free is {free}, expected {len(model.line)}"
        return None

    return judge


def say_pool(op):
    kind, name, what = op
    tail = {
        "start": f" {what}",
        "grow": f" by {what}",
        "settle": f" {what} more",
        "roll_back": f" by {what}",
    }
    return f"{kind} {name}{tail.get(kind, '')}"


def check_pool(student, walks, blocks, block, shorten=True):
    expect_walks(
        lambda walks: student.drive(drive_pool, walks, blocks, block),
        [possible(walk) for walk in walks],
        judge_pool(blocks, block),
        possible,
        say_pool,
        shorten=shorten,
    )


BY_HAND = [
    ("start", "A", [5, 6, 7, 8, 9]), ("grow", "A", 3), ("settle", "A", 3), ("grow", "A", 2),
    ("roll_back", "A", 2), ("end", "A", 1), ("start", "B", [5, 6, 9]), ("grow", "B", 1),
    ("start", "C", [5, 6]), ("start", "D", [5, 6, 7]), ("end", "B", 1), ("end", "D", 1),
]  # fmt: skip


@exercise(
    "ex4",
    points=2,
    invariant="three blocks of two: A's settled block is found by B after A has ended",
    cause="a block forgotten when it is free, one found that is not full, or none left to compute",
)
def test_blocks_by_hand(student, rng):
    check_pool(student, [BY_HAND], 3, 2, shorten=False)


@exercise(
    "ex4",
    points=2,
    invariant="too much room is MemoryError, and then tables and free are as before",
    cause="blocks taken one by one until none is left",
)
def test_out_of_blocks(student, rng):
    walk = [("start", "A", [1, 2]), ("grow", "A", 5), ("start", "B", [3]), ("grow", "B", 4)]
    walk += [
        ("grow", "B", 2),
        ("grow", "B", 1),
        ("roll_back", "A", 3),
        ("grow", "B", 1),
        ("grow", "B", 2),
    ]
    check_pool(student, [walk], 4, 2, shorten=False)


@exercise(
    "ex4",
    points=2,
    invariant="over random operations: whose block is whose, which one is next, and what is found",
    cause="a rule that the examples do not show: read the shortest walk that breaks it",
)
def test_walks_of_blocks(student, rng):
    for blocks, block, letters in ((4, 2, 2), (7, 2, 1), (6, 3, 1), (9, 1, 2)):
        walks = [pool_walk(rng, 60, letters, 9) for _ in range(36)]
        check_pool(student, walks, blocks, block)


# ---- exercise 5: streams -----------------------------------------------------------------------


def drive_told(student, streams):
    """Runs beside the student's code: (piece, stopped) after each text of each stream."""
    seen = []
    for stops, texts, last in streams:
        told, rows = student.Told(list(stops)), []
        other = student.Told(["x"])  # which is none of this one's business
        rows.append(("", bool(told.stopped)))
        for i, text in enumerate(texts):
            other.add("abx", False)
            rows.append((told.add(text, last and i == len(texts) - 1), bool(told.stopped)))
        seen.append(rows)
    return seen


def check_told(student, streams):
    for (stops, texts, _, right), seen in zip(
        streams, student.drive(drive_told, [s[:3] for s in streams]), strict=True
    ):
        pieces, stopped = [piece for piece, _ in seen[1:]], [flag for _, flag in seen]
        assert pieces == right[0], (
            f"stops {stops}, texts {texts}: told {pieces}, expected {right[0]}"
        )
        at = right[1]
        flags = (
            [False] * (at + 1) + [True] * (len(texts) - at)
            if at is not None
            else [False] * (len(texts) + 1)
        )
        assert stopped == flags, f"stops {stops}, texts {texts}: stopped is {stopped[1:]}"


@exercise(
    "ex5",
    points=2,
    invariant="nothing is told that may still become a stop word or a character",
    cause="only the whole stop word looked for, told twice, or the rest never told at the end",
)
def test_held_back_by_hand(student, rng):
    check_told(
        student,
        [
            (["END", "\n\n"], ["ab", "abE", "abEx", "abExé\ufffd", "abExé\n"], False,
             (["ab", "", "Ex", "é", ""], None)),
            (["END"], ["ab", "abE"], True, (["ab", "E"], None)),
            ([], ["a\ufffd", "aé", "aé\ufffd"], True, (["a", "é", "\ufffd"], None)),
            (["aab"], ["aa", "aaa", "aaac"], False, (["", "a", "aac"], None)),
        ],
    )  # fmt: skip


@exercise(
    "ex5",
    points=2,
    invariant="what stands before the first stop word is told, and nothing behind it, ever",
    cause="the first word of the list in place of the first in the text, or calls after the stop",
)
def test_stops_by_hand(student, rng):
    check_told(
        student,
        [
            (["END"], ["abE", "abEND", "abENDc", "abENDcd"], True, (["ab", "", "", ""], 1)),
            (["zz", "b"], ["a", "a b zz", "a b zz"], False, (["a", " ", ""], 1)),
            (["cd", "bcde"], ["ab", "abcd"], False, (["a", "b"], 1)),
            (["a.c"], ["abc", "abca.", "abca.c"], False, (["abc", "", ""], 2)),
        ],
    )


RUN, WAIT = {"A": [[1, 2, 3], 2], 7: [[4, 5], 0], "B": [[6], 0]}, {"C": [[8, 9], 0], 2: [[3], 0]}


def check_out(student, running, waiting, name, again, right):
    seen = parts(student.take_out(running, waiting, name, again), 2, "take_out")
    for what, own, expected in zip(("running", "waiting"), seen, right, strict=True):
        assert isinstance(own, dict), f"{what} is {own!r}, not a dict"
        own = [
            (who, ints(state[0], "a text"), ints([state[1]], "cached")[0])
            for who, state in own.items()
        ]
        expected = [(who, list(text), n) for who, (text, n) in expected.items()]
        assert own == expected, (
            f"take_out({name!r}, again={again}): {what} is {own}, expected {expected}"
        )


@exercise(
    "ex5",
    points=2,
    invariant="who is put back is first in line with all of its text and nothing cached",
    cause="at the end of the line, its answer lost, cached as it was, or the others' order changed",
)
def test_take_out_by_hand(student, rng):
    rest = {k: v for k, v in RUN.items() if k != "A"}
    check_out(student, RUN, WAIT, "A", True, (rest, {"A": [[1, 2, 3], 0], **WAIT}))
    check_out(student, RUN, WAIT, "A", False, (rest, WAIT))
    check_out(student, RUN, WAIT, "C", False, (RUN, {2: [[3], 0]}))
    check_out(student, RUN, WAIT, "nobody", False, (RUN, WAIT))
    check_out(student, {7: [[1], 0]}, {}, 7, True, ({}, {7: [[1], 0]}))


# ---- exercise 6: the bill ----------------------------------------------------------------------

SMALL = {"weights": 100, "row": 2, "token": 10, "pair": 1, "head": 5}
SMALL |= {"bandwidth": 10, "peak": 20, "fixed": 1}


def check_seconds(student, machine, pieces, logits, right):
    seen = student.seconds(machine, pieces, logits)
    assert isinstance(seen, (int, float)) and not isinstance(seen, bool), (
        f"seconds returned {seen!r}"
    )
    expect_close(torch.tensor(float(seen)).double(), torch.tensor(float(right)).double(),
                 what=f"seconds of {pieces}, {logits} logits", atol=0.0, rtol=1e-6)  # fmt: skip


def simulated(machine, pieces, logits):
    """By lab 14's simulator, which counts a logit for each request."""
    machine = machine | {"head": machine["head"] * logits / len(pieces)}
    return step_seconds(Machine(**machine), [(name, n, cached) for name, cached, n in pieces])


def rate_of(machine, requests, cached, acceptance, gamma):
    """Tokens per second; a proposal's chance to count is that of all up to it."""
    made, chance = 0.0, 1.0
    for _ in range(gamma + 1):
        made, chance = made + chance, chance * acceptance
    pieces = [(i, cached, gamma + 1) for i in range(requests)]
    return requests * made / simulated(machine, pieces, requests * (gamma + 1))


def check_gamma(student, machine, requests, cached, acceptance, most):
    seen = student.best_gamma(machine, requests, cached, acceptance, most)
    assert type(seen) is int, f"best_gamma returned {seen!r}, not an int"
    assert 0 <= seen <= most, f"best_gamma returned {seen}, most is {most}"
    rates = [rate_of(machine, requests, cached, acceptance, g) for g in range(most + 1)]
    top = max(rates)
    near = [g for g, rate in enumerate(rates) if rate >= top * (1 - 1e-9)]
    assert seen in near, (
        f"{requests} requests, {cached} cached, {acceptance} hold: {seen} proposals make "
        f"{rates[seen]:.6g} tokens/s, {near[0]} make {top:.6g}"
    )


@exercise(
    "ex6",
    points=2,
    invariant="weights 100, rows 6 at 2 bytes and 10 bytes a second, and 1 s of any step: 12.2 s",
    cause="two times added, a query that does not meet itself, new rows not read, fixed forgotten",
)
def test_seconds_by_hand(student, rng):
    pieces = [("A", 3, 2), ("B", 0, 1)]
    check_seconds(student, SMALL, pieces, 3, 12.2)
    check_seconds(student, SMALL | {"peak": 4}, pieces, 3, 14.75)
    check_seconds(student, SMALL | {"peak": 4, "head": 50}, pieces, 3, 48.5)
    check_seconds(student, SMALL, [], 0, 11.0)


@exercise(
    "ex6",
    points=2,
    invariant="where only weights cost all proposals are worth it; if none holds, none is",
    cause="the rate per pass and not per second, g logits in place of g + 1, or the largest of "
    "equal ones",
)
def test_gamma_by_hand(student, rng):
    free = SMALL | {"row": 0, "token": 0, "pair": 0, "head": 0}
    for acceptance, right in ((0.5, 6), (1.0, 6), (0.0, 0)):
        seen = student.best_gamma(free, 3, 9, acceptance, 6)
        assert seen == right, f"{acceptance} hold: best_gamma is {seen}, expected {right}"
    logits = free | {"weights": 0, "head": 20, "fixed": 3}  # 3 s, and 1 s for each logit
    seen = student.best_gamma(logits, 1, 0, 0.9, 10)
    assert seen == 6, f"where only logits cost: best_gamma is {seen}, expected 6"
    costly = free | {"token": 400, "bandwidth": 1000, "fixed": 0}  # computing alone counts
    assert student.best_gamma(costly, 1, 0, 0.9, 6) == 0, "every token costs its time: expected 0"


@exercise(
    "ex6",
    points=2,
    invariant="no other number of proposals makes more tokens per second",
    cause="1 + g a tokens in place of 1 + a + ... + a^g, or g logits in place of g + 1",
)
def test_gamma_beside_all_others(student, rng):
    for _ in range(40):
        machine = {
            key: value * (0.2 + 2 * float(torch.rand((), generator=rng)))
            for key, value in SMALL.items()
        }
        machine["peak"] *= 10
        check_gamma(
            student,
            machine,
            draw(rng, 1, 6),
            draw(rng, 0, 30),
            draw(rng, 1, 19) / 20,
            draw(rng, 0, 8),
        )
