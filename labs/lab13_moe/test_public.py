"""Public tests of lab13: what lab.check runs.  Numbers by hand, properties, loops in float64."""

import math
from itertools import combinations, product

import torch

from efflib.lab import (
    exercise,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)

F64, I64 = torch.float64, torch.int64
FLOAT32 = 2.0**-24
CONVENTIONS = ("mixtral", "switch", "deepseek")


def distinct(rng, tokens, count, scale=1.0):
    """Logits [T, E] whose entries of a token differ: 0.1 to 1 apart, in random order, scaled."""
    steps = 0.1 + 0.9 * torch.rand(tokens, count, generator=rng)
    values = steps.cumsum(1) - 0.5 * steps.sum(1, keepdim=True)
    order = torch.rand(tokens, count, generator=rng).argsort(1)
    return scale * values.gather(1, order)


def choices(rng, tokens, count, k):
    """Experts [T, k], those of a token all different."""
    return torch.rand(tokens, count, generator=rng).argsort(1)[:, :k].contiguous()


def gates_of(logits, experts, convention):
    """The gates of the chosen experts, in float64."""
    s = logits.double()
    if convention == "mixtral":
        return s.gather(1, experts).softmax(1)
    if convention == "switch":
        return s.softmax(1).gather(1, experts)
    weights = s.sigmoid().gather(1, experts)
    return weights / weights.sum(1, keepdim=True)


def expect_routing(value, logits, k, convention, bias=None, what="route"):
    """Right experts in falling order, right gates; logits and biases without near ties."""
    experts, gates = expect_tuple(value, (torch.Tensor,) * 2, what)
    shape = (len(logits), k)
    expect_tensor(experts, f"experts of {what}", I64, shape)
    expect_tensor(gates, f"gates of {what}", torch.float32, shape)
    s = logits.double()
    compared = s.sigmoid() if convention == "deepseek" else s
    compared = compared if bias is None else compared + bias.double()
    right = compared.sort(1, descending=True).indices[:, :k]
    expect_same(experts, right, f"experts, {what}")
    # each gate is some ten roundings of numbers up to 1
    expect_close(
        gates, gates_of(logits, right, convention), what=f"gates, {what}", atol=64 * FLOAT32
    )


def walked(experts, places, order, real=None):
    """Who finds a place: one choice after the other."""
    tokens, k = experts.shape
    queue = [(t, j) for t in range(tokens) for j in range(k)]
    if order == "choices":
        queue.sort(key=lambda at: at[1])
    free, kept = {}, torch.zeros(tokens, k, dtype=torch.bool)
    for t, j in queue:
        expert = int(experts[t, j])
        if (real is None or bool(real[t])) and free.setdefault(expert, places) > 0:
            free[expert] -= 1
            kept[t, j] = True
    return kept


def drive_layer(student, x, experts, gates, kept, weights, dy):
    """Runs beside the student's code: expert e is tanh(rows @ weights[e]), each call is noted."""
    import torch

    leaves = [t.clone().requires_grad_() for t in (x, gates, weights)]
    calls = []

    def run(e, rows):
        calls.append((int(e), rows.detach().clone()))
        return torch.tanh(rows @ leaves[2][int(e)])

    y = student.dispatch_combine(leaves[0], experts, leaves[1], kept, run)
    if y.requires_grad:
        y.backward(dy)
    grads = [t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves]
    return y.detach(), calls, *grads


def looped(x, experts, gates, kept, weights, dy):
    """y and the gradients of x, gates, weights by a loop over tokens and choices, float64."""
    leaves = [t.double().requires_grad_() for t in (x, gates, weights)]
    rows = []
    for t in range(len(x)):
        y = 0.0 * leaves[0][t]
        for j in range(experts.shape[1]):
            if kept[t, j]:
                y = y + leaves[1][t, j] * torch.tanh(leaves[0][t] @ leaves[2][experts[t, j]])
        rows.append(y)
    y = torch.stack(rows)
    y.backward(dy.double())
    grads = [t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves]
    return y.detach(), *grads


def a_layer(rng, tokens, count, k, width=4, share=1.0):
    """(x, experts, gates, kept, weights, dy); a share of the choices is kept."""
    x, dy = (torch.randn(tokens, width, generator=rng) for _ in range(2))
    weights = torch.randn(count, width, width, generator=rng) / width**0.5
    gates = torch.rand(tokens, k, generator=rng)
    kept = torch.rand(tokens, k, generator=rng) < share
    return x, choices(rng, tokens, count, k), gates, kept, weights, dy


def expect_layer(student, x, experts, gates, kept, weights, dy, what):
    """Output, gradients and calls of a float32 layer."""
    value = student.drive(drive_layer, x, experts, gates, kept, weights, dy)
    y, calls, *grads = expect_tuple(value, (torch.Tensor, list, *(torch.Tensor,) * 3), what)
    right, *others = looped(x, experts, gates, kept, weights, dy)
    expect_tensor(y, f"y, {what}", torch.float32, tuple(x.shape))
    names = ("y", "the gradient of x", "of gates", "of the experts' weights")
    for name, a, b in zip(names, (y, *grads), (right, *others), strict=True):
        # sums of at most some hundred products, each a few roundings
        expect_close(a, b, what=f"{name}, {what}", atol=1e-4 * max(1.0, b.abs().max().item()))
    asked = sorted(set(experts[kept].tolist()))
    seen = [e for e, _ in calls]
    assert sorted(seen) == asked, f"{what}: calls of the experts {seen}, needed are {asked}"
    for e, rows in calls:
        own = x[((experts == e) & kept).any(1)]
        as_lists = [sorted(r.tolist()) for r in (rows, own)]
        assert as_lists[0] == as_lists[1], f"{what}: expert {e} got other rows than its tokens'"


# ---- exercise 1: the router ------------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="logits ln 4, ln 2, ln 1 with k = 2: gates 2/3, 1/3 (mixtral), 4/7, 2/7 (switch), "
    "6/11, 5/11 (deepseek)",
    cause="a softmax before the choice that is not renormalized, or one behind it that is; "
    "sigmoids left as they are",
)
def test_gates_by_hand(student, rng):
    logits = torch.tensor([[2.0, 4.0, 1.0]]).log()
    for convention, right in (
        ("mixtral", (2 / 3, 1 / 3)),
        ("switch", (4 / 7, 2 / 7)),
        ("deepseek", (6 / 11, 5 / 11)),
    ):
        value = student.route(logits, 2, convention)
        experts, gates = expect_tuple(value, (torch.Tensor,) * 2, "route")
        expect_same(experts, torch.tensor([[1, 0]]), f"experts, {convention}")
        expect_close(
            gates, torch.tensor([right], dtype=F64), what=f"gates, {convention}", atol=1e-6
        )


@exercise(
    "ex1",
    points=2,
    invariant="experts by falling score, gates in float32, for every token, k and convention",
    cause="softmax or sum over the tokens, unsorted choices, logits in bfloat16 to the end, or a "
    "choice by probabilities, which are 0 where logits still differ",
)
def test_routing_of_many_tokens(student, rng):
    for tokens, count, k in ((9, 5, 1), (9, 5, 3), (4, 6, 6), (1, 1, 1)):
        for convention in CONVENTIONS:
            for dtype in (torch.float32, torch.bfloat16):
                logits = distinct(rng, tokens, count).to(dtype)
                value = student.route(logits, k, convention)
                expect_routing(value, logits, k, convention, what=f"{convention}, k={k}, {dtype}")
    for convention in CONVENTIONS[:2]:  # far behind the first every softmax is 0
        logits = 3000 * distinct(rng, 4, 5)
        value = student.route(logits, 3, convention)
        expect_routing(value, logits, 3, convention, what=f"{convention}, logits of thousands")


@exercise(
    "ex1",
    points=1,
    invariant="a bias decides who is chosen, and gates are the sigmoids without it",
    cause="biased scores as gates, the bias added to the logits, or a bias in other conventions",
)
def test_a_bias_only_chooses(student, rng):
    logits = torch.tensor([[4.0, 2.0, 2.0]]).log() * torch.tensor([[1.0, 1.0, 0.0]])
    bias = torch.tensor([0.0, 0.0, 1.0])
    value = student.route(logits, 2, "deepseek", bias)
    expect_routing(value, logits, 2, "deepseek", bias, "bias 0, 0, 1")
    tame = torch.tensor([[3.0, 0.0]])  # sigmoids 0.95 and 0.5
    value = student.route(tame, 1, "deepseek", torch.tensor([0.0, 0.6]))
    expect_routing(value, tame, 1, "deepseek", torch.tensor([0.0, 0.6]), "bias 0, 0.6")
    for arguments in ((logits, 2, "mixtral", bias), (logits, 2, "switch", bias)):
        expect_error(ValueError, lambda a=arguments: student.route(*a), f"{arguments[2]}, a bias")


def drive_gates(student, logits, k, convention, dy):
    """Runs beside the student's code: the gradient of the gates' weighted sum."""
    logits = logits.clone().requires_grad_()
    gates = student.route(logits, k, convention)[1]
    if gates.requires_grad:
        gates.backward(dy)
    return logits.grad if logits.grad is not None else logits.detach() * 0


@exercise(
    "ex1",
    points=1,
    invariant="gradients reach the logits through the gates; k out of range and unknown "
    "conventions give a ValueError",
    cause="gates that are detached, numbers taken out with item() or tolist(), no check of k",
)
def test_gates_have_gradients(student, rng):
    logits, dy = distinct(rng, 5, 4), torch.randn(5, 2, generator=rng)
    for convention in CONVENTIONS:
        seen = student.drive(drive_gates, logits, 2, convention, dy)
        leaf = logits.double().requires_grad_()
        experts = leaf.sort(1, descending=True).indices[:, :2]
        gates_of(leaf, experts, convention).backward(dy.double())
        expect_close(seen, leaf.grad, what=f"gradient of the logits, {convention}", atol=1e-5)
    for k, convention in ((0, "mixtral"), (5, "switch"), (-1, "deepseek"), (1, "top-k")):
        expect_error(
            ValueError,
            lambda k=k, c=convention: student.route(logits, k, c),
            f"k={k} of 4, {convention!r}",
        )


# ---- exercise 2: capacity --------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="6 tokens, 3 experts: factor 1 gives 2 places and drops one, 1.5 gives 3 and none",
    cause="rounding down, k left out, or a position that is compared one too low",
)
def test_six_tokens(student, rng):
    experts = torch.tensor([[0], [1], [0], [2], [0], [1]])
    for factor, places, lost in ((1.0, 2, [4]), (1.5, 3, []), (0.5, 1, [2, 4, 5])):
        seen = student.capacity(6, 3, 1, factor)
        assert type(seen) is int, f"capacity is {seen!r}, a whole number (int) is asked for"
        assert seen == places, f"factor {factor}: {seen}, not {places}"
        for order in ("tokens", "choices"):
            kept = expect_tensor(
                student.admitted(experts, places, order), "admitted", torch.bool, (6, 1)
            )
            gone = (~kept[:, 0]).nonzero().flatten().tolist()
            assert gone == lost, f"{places} places, {order}: dropped {gone}, expected {lost}"
    for arguments, right in (((7, 3, 1, 1.0), 3), ((7, 3, 2, 1.25), 6), ((0, 4, 2, 1.0), 0)):
        seen = expect_number(student.capacity(*arguments), "capacity")
        assert seen == right, f"capacity{arguments} is {seen}, expected {right}"


@exercise(
    "ex2",
    points=2,
    invariant="first come, first served: token by token, or all first choices before all second",
    cause="orders exchanged, places counted for each choice apart, or a reshape in place of a "
    "transpose",
)
def test_two_orders(student, rng):
    two = torch.tensor([[0, 1], [1, 0]])
    for order, right in (
        ("tokens", [[True, True], [False, False]]),
        ("choices", [[True, False], [True, False]]),
    ):
        seen = student.admitted(two, 1, order)
        expect_same(seen, torch.tensor(right), f"admitted, one place, {order}")
    for tokens, count, k, places in ((12, 4, 2, 5), (20, 5, 3, 7), (9, 3, 3, 4)):
        experts = choices(rng, tokens, count, k)
        for order in ("tokens", "choices"):
            seen = student.admitted(experts, places, order)
            expect_same(seen, walked(experts, places, order), f"admitted, {places} places, {order}")


@exercise(
    "ex2",
    points=2,
    invariant="padding takes no place and is not kept; unknown orders and negative places give a "
    "ValueError",
    cause="padding that is counted and then removed, or kept although it takes no place",
)
def test_padding(student, rng):
    experts = torch.tensor([[0], [0], [0], [0]])
    real = torch.tensor([False, True, False, True])
    for places, right in ((1, [1]), (2, [1, 3]), (4, [1, 3]), (0, [])):
        kept = student.admitted(experts, places, "tokens", real)
        expect_tensor(kept, "admitted", torch.bool, (4, 1))
        seen = kept[:, 0].nonzero().flatten().tolist()
        assert seen == right, f"{places} places: kept {seen}, expected {right}"
    for arguments in ((experts, 1, "gates"), (experts, -1, "tokens")):
        expect_error(ValueError, lambda a=arguments: student.admitted(*a), f"{arguments[1:]}")
    for arguments in ((-1, 3, 1, 1.0), (6, 0, 1, 1.0), (6, 3, 0, 1.0), (6, 3, 1, -0.5)):
        expect_error(ValueError, lambda a=arguments: student.capacity(*a), f"capacity{arguments}")
    for arguments in ((6, 3, 1, math.inf), (6, 3, 1, math.nan)):
        expect_error(ValueError, lambda a=arguments: student.capacity(*a), f"capacity{arguments}")


# ---- exercise 3: dispatch and combine --------------------------------------------------------


def drive_plain(student, x, experts, gates, kept):
    """Runs beside the student's code: expert e multiplies by e + 1."""
    return student.dispatch_combine(x, experts, gates, kept, lambda e, rows: rows * (int(e) + 1))


@exercise(
    "ex3",
    points=2,
    invariant="x = 1, 10 with experts (0, 1), (1, 2) that multiply by e + 1: 1.25 and 15; gates of "
    "what is left are not renormalized",
    cause="the last expert overwrites, gates of the first choice for all, or a division by the sum "
    "of what is kept",
)
def test_two_tokens_by_hand(student, rng):
    x = torch.tensor([[1.0], [10.0]])
    experts = torch.tensor([[0, 1], [1, 2]])
    gates = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    for kept, right in (
        ([[True, True], [False, True]], [[1.25], [15.0]]),
        ([[True, True], [True, True]], [[1.25], [25.0]]),
        ([[False, False], [True, False]], [[0.0], [10.0]]),
        ([[False, False], [False, False]], [[0.0], [0.0]]),
    ):
        y = student.drive(drive_plain, x, experts, gates, torch.tensor(kept))
        expect_close(y, torch.tensor(right), what=f"y, kept {kept}", atol=1e-5)


@exercise(
    "ex3",
    points=2,
    invariant="by index equals the loop over tokens, and each expert is called once, with its own "
    "tokens",
    cause="all tokens sent to all experts, an expert called for each choice, or rows that come "
    "back to other tokens",
)
def test_equals_the_loop(student, rng):
    for tokens, count, k in ((7, 4, 2), (5, 6, 1), (6, 3, 3)):
        case = a_layer(rng, tokens, count, k)
        expect_layer(student, *case, f"{tokens} tokens, {k} of {count}")


@exercise(
    "ex3",
    points=2,
    invariant="what is dropped is not computed and adds nothing; gradients of x, gates and experts "
    "are the loop's",
    cause="dropped choices multiplied by 0 but computed, gates of dropped choices, or a detach",
)
def test_drops_and_gradients(student, rng):
    for share in (0.5, 0.2):
        case = a_layer(rng, 9, 4, 2, share=share)
        expect_layer(student, *case, f"{share:.0%} kept")


# ---- exercise 4: balance ---------------------------------------------------------------------


def loss_of(logits, experts):
    """E sum f P in float64, with the gradient of the logits."""
    leaf = logits.double().requires_grad_()
    tokens, count = logits.shape
    f = torch.tensor([(experts == e).sum().item() / experts.numel() for e in range(count)])
    loss = count * (f.double() * leaf.softmax(1).sum(0) / tokens).sum()
    loss.backward()
    return loss.detach(), leaf.grad


def drive_loss(student, logits, experts):
    """Runs beside the student's code: the loss and its gradient."""
    logits = logits.clone().requires_grad_()
    loss = student.balancing_loss(logits, experts)
    if loss.requires_grad:
        loss.backward()
    grad = logits.grad if logits.grad is not None else logits.detach() * 0
    return loss.detach(), grad.float()


@exercise(
    "ex4",
    points=2,
    invariant="even loads give 1, whatever k is; all tokens sure of one of E experts give E",
    cause="f summed over the k choices, E left out, softmax over the tokens, or experts that "
    "nobody chose forgotten",
)
def test_loss_by_hand(student, rng):
    sure = 20.0 * torch.eye(4)
    for what, logits, experts, right in (
        ("each to its own", sure, torch.tensor([[0], [1], [2], [3]]), 1.0),
        ("two each", torch.zeros(4, 4), torch.tensor([[0, 1], [2, 3], [1, 0], [3, 2]]), 1.0),
        ("all to one", sure[:1].repeat(3, 1), torch.zeros(3, 1, dtype=I64), 4.0),
        ("three of four, all sure", sure[[0, 0, 0, 1]], torch.tensor([[0], [0], [0], [1]]), 2.5),
    ):
        loss, _ = expect_tuple(
            student.drive(drive_loss, logits, experts), (torch.Tensor,) * 2, "balancing_loss"
        )
        expect_tensor(loss, "balancing_loss", torch.float32, ())
        expect_close(loss.item(), right, what=f"the loss, {what}", atol=1e-5)
    share = student.load(torch.tensor([[0, 3], [3, 1]]), 5)
    right = torch.tensor([0.25, 0.25, 0.0, 0.5, 0.0])
    expect_same(share, right, "load of 0, 3, 3, 1 of 5 experts")


@exercise(
    "ex4",
    points=2,
    invariant="the loss and its gradient are those of E sum f P, f a constant",
    cause="a detached P, probabilities of the chosen experts only, or f of the probabilities",
)
def test_loss_and_gradient(student, rng):
    for tokens, count, k in ((12, 5, 1), (8, 4, 2), (1, 3, 3)):
        logits = torch.randn(tokens, count, generator=rng)
        experts = choices(rng, tokens, count, k)
        value = student.drive(drive_loss, logits, experts)
        loss, grad = expect_tuple(value, (torch.Tensor,) * 2, "balancing_loss")
        right, slope = loss_of(logits, experts)
        expect_close(loss, right, what=f"the loss, k={k} of {count}", atol=1e-5)
        expect_close(grad, slope, what=f"its gradient, k={k} of {count}", atol=1e-5)


def judged(logits, tokens):
    """(loss, share of the busiest) of two experts and k = 1, in float64."""
    expect_tensor(logits, "fooled", torch.float32, (tokens, 2))
    s = logits.double()
    assert torch.isfinite(s).all(), "logits must be finite"
    clear = (s[:, 0] - s[:, 1]).abs().min().item()
    assert clear >= 0.99e-6, f"the logits of a row differ by {clear:.1e} only"
    experts = s.argmax(1, keepdim=True)
    loss, _ = loss_of(s, experts)
    return loss.item(), max((experts == e).double().mean().item() for e in (0, 1))


@exercise(
    "ex4",
    points=1,
    invariant="at least 70 % of the tokens go to one expert, and the balancing loss is below 0.9",
    cause="tokens that are all sure: then P is f and the loss above 1; or shares that are even",
)
def test_fooled(student, rng):
    for tokens in (4, 6, 7, 8, 100):
        loss, most = judged(student.fooled(tokens), tokens)
        assert most >= 0.7, f"{tokens} tokens: the busiest gets {most:.0%}"
        assert loss < 0.9, f"{tokens} tokens: the loss is {loss:.3f}"


@exercise(
    "ex4",
    points=1,
    invariant="more than the even share: the bias falls by speed, less: rises, exactly: stays",
    cause="the wrong sign, a step in proportion to the difference, or an even share of 1 / k",
)
def test_bias_moves(student, rng):
    bias = torch.tensor([0.5, -0.25, 0.0, 1.0])
    share = torch.tensor([0.5, 0.25, 0.0, 0.25])
    for speed in (0.001, 0.5):
        seen = student.moved_bias(bias, share, speed)
        right = bias.double() + speed * torch.tensor([-1.0, 0.0, 1.0, 0.0], dtype=F64)
        expect_tensor(seen, "moved_bias", torch.float32, (4,))
        expect_close(seen, right, what="the bias", atol=1e-6)
    even = student.load(torch.tensor([[0], [1], [2]]), 3)  # exactly the share, in float32
    seen = student.moved_bias(bias[:3], even, 0.5)
    expect_close(seen, bias[:3], what="the bias of three even experts", atol=1e-6)
    again = student.load(torch.tensor([[0], [1], [2]]), 3, torch.tensor([True, False, True]))
    expect_same(again, torch.tensor([0.5, 0.0, 0.5]), "load without the padding")


# ---- exercise 5: bytes -----------------------------------------------------------------------


@exercise(
    "ex5",
    points=3,
    invariant="the mean over all outcomes: 2 of 4 experts wake 2 with one token, 3 with two",
    cause="k times the batch, draws with replacement, or experts that wake for certain",
)
def test_woken(student, rng):
    for count, k, batch in ((4, 2, 1), (4, 2, 2), (5, 1, 3), (4, 3, 2), (3, 3, 2), (3, 2, 0)):
        draws = list(product(combinations(range(count), k), repeat=batch))
        mean = sum(len({e for token in d for e in token}) for d in draws) / len(draws)
        seen = expect_number(student.woken(count, k, batch), "woken")
        expect_close(float(seen), mean, what=f"woken({count}, {k}, {batch})", atol=1e-9)
    for bad in ((4, 0, 1), (4, 5, 1), (4, 2, -1)):
        expect_error(ValueError, lambda b=bad: student.woken(*b), f"woken{bad}")


@exercise(
    "ex5",
    points=1,
    invariant="an expert that several tokens chose is read once",
    cause="bytes of all choices, or of all experts up to the largest id",
)
def test_bytes_of_a_step(student, rng):
    for experts, right in (([[0, 5], [5, 0]], 2), ([[7, 1], [2, 7]], 3), ([[3, 2]], 2)):
        seen = expect_number(student.step_bytes(torch.tensor(experts), 100), "step_bytes")
        assert seen == 100 * right, f"experts {experts}: {seen} bytes, expected {100 * right}"
        assert isinstance(seen, int), f"step_bytes is {seen!r}, a whole number (int) is asked for"


@exercise(
    "ex5",
    points=2,
    invariant="a row for each choice on another device, or once for each device that is needed",
    cause="rows and columns exchanged, what stays at home counted, or once for each expert",
)
def test_sent_by_hand(student, rng):
    experts = torch.tensor([[0, 1], [2, 3], [0, 3], [1, 0]])
    home, place = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 1, 1])
    for once, right in (
        (False, [[0, 20, 0], [10, 0, 0], [20, 0, 0]]),
        (True, [[0, 10, 0], [10, 0, 0], [10, 0, 0]]),
    ):
        seen = student.sent(experts, home, place, 3, 10, once)
        expect_same(seen, torch.tensor(right), f"sent, once={once}")


# ---- exercise 6: skipped neurons -------------------------------------------------------------


def entropy(scores, active):
    """The weighted loss in float64, and the gradient of the scores."""
    leaf = scores.double().requires_grad_()
    sign = torch.where(active, 1.0, -1.0).double()
    each = torch.nn.functional.softplus(-sign * leaf)
    silent = active.double().mean() + 0.005
    loss = (each * torch.where(active, torch.ones_like(silent), silent)).mean()
    loss.backward()
    return loss.detach(), leaf.grad


def drive_entropy(student, scores, active):
    """Runs beside the student's code: the loss and its gradient."""
    scores = scores.clone().requires_grad_()
    loss = student.predictor_loss(scores, active)
    loss.backward()
    return loss.detach(), scores.grad


def expect_entropy(student, scores, active, what):
    value = student.drive(drive_entropy, scores, active)
    loss, grad = expect_tuple(value, (torch.Tensor,) * 2, "predictor_loss")
    right, slope = entropy(scores, active)
    expect_tensor(loss, "predictor_loss", torch.float32, ())
    rounding = 2.0**-23 * scores.abs().max().item()
    expect_close(loss, right, what=f"the loss, {what}", rtol=1e-5, atol=rounding)
    if scores.all():  # forms with max(s, 0) or |s| have a corner at 0, and the right value
        expect_close(grad, slope, what=f"its gradient, {what}", atol=1e-5 / scores.numel())


@exercise(
    "ex6",
    points=2,
    invariant="one of two neurons active, scores 0: (1 + 0.505) / 2 ln 2 = 0.522",
    cause="weights exchanged, a share of silent neurons, the 0.005 left out, or a sum",
)
def test_loss_of_a_predictor(student, rng):
    one = torch.tensor([[True, False]])
    expect_entropy(student, torch.zeros(1, 2), one, "scores 0")
    expect_entropy(student, torch.tensor([[1e-3, -1e-3]]), one, "scores near 0")
    scores = 2 * torch.randn(6, 5, generator=rng)
    active = (torch.randperm(30, generator=rng) < 9).reshape(6, 5)
    expect_entropy(student, scores, active, "30 % active")


@exercise(
    "ex6",
    points=1,
    invariant="recall: hits by active; bytes: the union of all tokens' neurons, three rows each",
    cause="precision for recall, neurons counted once for each token, or two matrices",
)
def test_recall_and_bytes(student, rng):
    active = torch.tensor([[True, True, False, True], [False, False, False, True]])
    chosen = torch.tensor([[True, False, True, True], [False, False, False, False]])
    seen = expect_number(student.recall(chosen, active), "recall")  # in the rows 2 of 3 and 0 of 1
    expect_close(float(seen), 0.5, what="recall of 2 of 4", atol=1e-6)
    chosen = torch.tensor([[True, False, True, True], [False, False, False, True]])
    for rows, right in ((chosen, 2 * (3 * 8 * 3 + 10)), (chosen[1:], 2 * (3 * 8 + 10))):
        seen = expect_number(student.bytes_read(rows, 8, 2, 10), "bytes_read")
        assert seen == right, f"bytes_read is {seen}, expected {right}"
        assert isinstance(seen, int), f"bytes_read is {seen!r}, a whole number (int) is asked for"
    empty = torch.zeros(2, 4, dtype=torch.bool)
    assert student.recall(chosen, empty) == 1.0, "recall is 1.0 where no neuron is active"


def an_mlp(rng, tokens, width, neurons, share):
    shapes = ((tokens, width), (neurons, width), (neurons, width), (width, neurons))
    x, gate, up, down = (torch.randn(s, generator=rng) for s in shapes)
    return x, gate, up, down, torch.rand(tokens, neurons, generator=rng) < share


def neuron_by_neuron(x, gate, up, down, chosen):
    """[T, D] float64: the sum over the neurons that a token chose."""
    y = torch.zeros(len(x), x.shape[1], dtype=F64)
    for n in range(len(gate)):
        for t in range(len(x)):
            if chosen[t, n]:
                row = x[t].double()
                inner = (row @ gate[n].double()).clamp(min=0) * (row @ up[n].double())
                y[t] += inner * down[:, n].double()
    return y


def expect_mlp(student, case, what, idle=()):
    """y against the sum; rows `idle`, which nobody chose, hold NaN."""
    x, gate, up, down, chosen = case
    chosen[:, list(idle)] = False
    right = neuron_by_neuron(x, gate, up, down, chosen)
    for matrix in (gate, up, down.T):
        matrix[list(idle)] = math.nan
    y = student.skipping_mlp(x, gate, up, down, chosen)
    expect_tensor(y, "skipping_mlp", torch.float32, tuple(x.shape))
    # products of three sums of some ten numbers each
    expect_close(y, right, what=f"y, {what}", atol=1e-5 * max(1.0, right.abs().max().item()))


@exercise(
    "ex6",
    points=3,
    invariant="each token gets its own chosen neurons, and rows that nobody chose may hold NaN",
    cause="the union used for all tokens, rows multiplied by 0 in place of left out, relu on the "
    "wrong factor",
)
def test_neurons_skipped(student, rng):
    for tokens, width, neurons, share in ((5, 4, 9, 0.5), (1, 3, 6, 0.3), (3, 2, 4, 1.0)):
        case = an_mlp(rng, tokens, width, neurons, share)
        expect_mlp(student, case, f"{share:.0%} chosen")
    expect_mlp(student, an_mlp(rng, 4, 3, 8, 0.6), "three rows hold NaN", idle=(0, 3, 7))
