"""Public tests of lab15: what lab.check runs.  Properties, and numbers to check by hand."""

import copy
import itertools
import math

import torch
import torch.nn.functional as F

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import BEGIN_ID

F64 = torch.float64
FLOAT32 = 2.0**-24  # relative error of one float32 rounding
EXACT = 1e-9  # float64, numbers of about 1
SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}


def a_llama(rng):
    """A small Llama with opinions, float32, in eval mode."""
    model = Llama(LlamaConfig(**SIZES)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=rng)
            p.copy_(1 + 0.1 * values if "norm" in name else 0.5 * values)
    return model


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


# ---- exercise 1: scale and codes ---------------------------------------------------------------


def expect_pair(value, call, shape, scales):
    codes, scale = expect_tuple(value, (torch.Tensor,) * 2, call)
    expect_tensor(codes, f"codes of {call}", torch.int8, shape)
    expect_tensor(scale, f"scale of {call}", torch.float32, scales)
    assert (codes.abs() <= 1).all(), f"codes of {call} from {codes.min()} to {codes.max()}"
    return codes, scale


@exercise(
    "ex1",
    points=2,
    invariant="0.1, -0.4, 0.9, 2: s = 0.85 and codes 0, 0, 1, 1; a mean for each row, or for all",
    cause="the mean of w in place of |w|, of the columns, or no clamp",
)
def test_absmean_by_hand(student, rng):
    w = torch.tensor([[0.1, -0.4, 0.9, 2.0], [-3.0, 1.0, 0.0, 4.0]])
    codes, scale = expect_pair(student.absmean(w, True), "absmean", (2, 4), (2, 1))
    expect_close(scale, torch.tensor([[0.85], [2.0]]), what="scale", rtol=8 * FLOAT32)
    assert codes.tolist() == [[0, 0, 1, 1], [-1, 0, 0, 1]], f"codes {codes.tolist()}"
    codes, scale = expect_pair(student.absmean(w, False), "absmean", (2, 4), (1, 1))
    expect_close(scale, torch.tensor([[1.425]]), what="scale", rtol=8 * FLOAT32)
    assert codes.tolist() == [[0, 0, 1, 1], [-1, 1, 0, 1]], f"codes {codes.tolist()}"


@exercise(
    "ex1",
    points=1,
    invariant="a matrix of zeros has codes 0 and the scale 1e-5",
    cause="a division by 0, which gives NaN",
)
def test_zeros(student, rng):
    for rows, scales in ((True, (3, 1)), (False, (1, 1))):
        value = student.absmean(torch.zeros(3, 4), rows)
        codes, scale = expect_pair(value, "absmean", (3, 4), scales)
        assert not codes.any()
        expect_close(scale, torch.full(scales, 1e-5), what="scale", rtol=8 * FLOAT32)
    codes, scale = expect_pair(
        student.least_error(torch.tensor([[0.0, 0.0], [0.0, -3.0]])), "least_error", (2, 2), (2, 1)
    )
    assert codes.tolist() == [[0, 0], [0, -1]] and scale.tolist() == [[0.0], [3.0]]


@exercise(
    "ex1",
    points=3,
    invariant="no codes and no scale have a smaller squared error, of all 3^K there are",
    cause="the scale of absmean, a threshold that is fixed, or a scale that does not fit the codes",
)
def test_least_error_of_all(student, rng):
    w = torch.randn(5, 6, generator=rng)
    w[0] = torch.tensor([0.1, -0.4, 0.9, 2.0, 0.0, 0.0])
    codes, scale = expect_pair(student.least_error(w), "least_error", (5, 6), (5, 1))
    assert (scale >= 0).all(), "a negative scale"
    expect_close(scale[0], torch.tensor([1.45]), what="scale", rtol=8 * FLOAT32)
    every = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=6)), dtype=F64)
    for row, c, s in zip(w.double(), codes.double(), scale.double(), strict=True):
        fits = (every @ row).square() / every.square().sum(1).clamp(min=1)
        least = (row.square().sum() - fits.max()).item()
        seen = (row - s * c).square().sum().item()
        expect_at_most(seen, least + 1e-5 * row.square().sum().item(), "the squared error")


# ---- exercise 2: a linear layer that learns through its rounding -------------------------------


def drive_layer(student, w, b, x, g):
    """Runs beside the student's code: outputs and gradients; the layer's Parameters."""
    from torch import nn

    linear = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
    linear.weight.data = w.clone()
    if b is not None:
        linear.bias.data = b.clone()
    layer = student.BitLinear(linear)
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(g)
    grads = [x.grad, linear.weight.grad, None if b is None else linear.bias.grad]
    names = sorted(n for n, _ in layer.named_parameters())
    same = [layer.weight is linear.weight, layer.bias is linear.bias]
    return y.detach(), grads, names, same


def rounded_tokens(x):
    """x_hat in float64, from u in float32."""
    u = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x.float() * u).round().double() / u.double()


def off_ties(x, near=1e-3):
    """x with zeros where it is so near a tie of its token's grid that a last digit decides."""
    places = x.float() * (127 / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5))
    return x.masked_fill((places - places.floor() - 0.5).abs() < near, 0.0)


def rounded_weight(w):
    scale = w.float().abs().mean().clamp(min=1e-5)
    return (w.float() / scale).round().clamp(-1, 1).double() * scale.double()


@exercise(
    "ex2",
    points=1,
    invariant="each token has a grid of its own: its largest is kept, zeros stay, and a token does "
    "not depend on its neighbours",
    cause="one grid for the whole batch, 128 in place of 127, or NaN for a token of zeros",
)
def test_tokens_by_hand(student, rng):
    x = torch.tensor([[127.0, 1.4, -3.6], [0.0, 0.0, 0.0], [-1.27, 0.014, 0.5]])
    seen = student.round_tokens(x)
    right = torch.tensor([[127.0, 1.0, -4.0], [0.0, 0.0, 0.0], [-1.27, 0.01, 0.5]])
    expect_tensor(seen, "round_tokens", torch.float32, (3, 3))
    expect_close(seen, right, what="a rounded token", rtol=8 * FLOAT32, atol=8 * FLOAT32)
    expect_same(student.round_tokens(x[2]), seen[2], "the last token alone")


@exercise(
    "ex2",
    points=3,
    invariant="y = x_hat w_hat^T + b; the gradients of w, x and b are those at w_hat and x_hat, "
    "also where a code was clipped",
    cause="the derivative of rounding, 0, or a gradient through the scale",
)
def test_values_and_gradients(student, rng):
    for bias in (True, False):
        w, x = torch.randn(5, 7, generator=rng), off_ties(torch.randn(3, 7, generator=rng))
        b = torch.randn(5, generator=rng) if bias else None
        g = torch.randn(3, 5, generator=rng)
        y, (dx, dw, db), names, _ = student.drive(drive_layer, w, b, x, g)
        x_hat, w_hat = rounded_tokens(x), rounded_weight(w)
        right = x_hat @ w_hat.T + (0 if b is None else b.double())
        assert names == (["bias", "weight"] if bias else ["weight"]), f"parameters {names}"
        expect_tensor(y, "the output", torch.float32, (3, 5))
        expect_close(y, right, what="the output", atol=1e-5, rtol=1e-5)
        assert dw is not None and dx is not None, "no gradient came through"
        expect_close(dw, g.double().T @ x_hat, what="the gradient of w", atol=1e-5, rtol=1e-5)
        expect_close(dx, g.double() @ w_hat, what="the gradient of x", atol=1e-5, rtol=1e-5)
        if bias:
            expect_close(db, g.double().sum(0), what="the gradient of b", atol=1e-5, rtol=1e-5)


def drive_steps(student, w, x):
    """Runs beside the student's code: an optimizer that knows the linear, and two calls."""
    import torch
    from torch import nn

    linear = nn.Linear(w.shape[1], w.shape[0], bias=False)
    linear.weight.data = w.clone()
    layer, optimizer = student.BitLinear(linear), torch.optim.SGD(linear.parameters(), lr=1.0)
    first = layer(x)
    first.sum().backward()
    optimizer.step()
    return first.detach(), layer(x).detach(), linear.weight.detach().clone()


@exercise(
    "ex2",
    points=2,
    invariant="an optimizer that knows the linear's Parameters trains the layer: the next call "
    "rounds the new weight",
    cause="new Parameters, or codes that were made once",
)
def test_it_follows_the_optimizer(student, rng):
    w, x = torch.randn(4, 6, generator=rng), off_ties(0.3 * torch.randn(5, 6, generator=rng))
    first, second, after = student.drive(drive_steps, w, x)
    x_hat = rounded_tokens(x)
    moved = w.double() - x_hat.sum(0)
    expect_close(first, x_hat @ rounded_weight(w).T, what="the first output", atol=1e-5)
    expect_close(after, moved.expand(4, 6), what="the linear's weight after a step", atol=1e-5)
    right = x_hat @ rounded_weight(after).T
    expect_close(second, right, what="the output after a step", atol=1e-5)


# ---- exercise 3: bytes and sums ----------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="0, 1, -1, 0, 1 are 196; five zeros 121; six codes are two bytes, filled with zeros",
    cause="the highest digit first, or filled up with digits 0",
)
def test_bytes_by_hand(student, rng):
    codes = torch.tensor([[0, 1, -1, 0, 1, -1], [0, 0, 0, 0, 0, 0]], dtype=torch.int8)
    words = student.pack(codes)
    expect_tensor(words, "pack", torch.uint8, (2, 2))
    assert words.tolist() == [[196, 120], [121, 121]], f"bytes {words.tolist()}"
    expect_same(student.unpack(words, 6), codes, "unpack")


@exercise(
    "ex3",
    points=1,
    invariant="a code of 2, a byte of 243 and another number of bytes are refused with ValueError",
    cause="no check, so that what is packed comes back as something else",
)
def test_what_is_refused(student, rng):
    good = torch.tensor([[1, -1, 0]], dtype=torch.int8)
    words = student.pack(good)
    expect_same(student.unpack(words, 3), good, "unpack")
    for code in (2, -2):
        bad = torch.tensor([[0, code]], dtype=torch.int8)
        expect_error(ValueError, lambda c=bad: student.pack(c), f"a code {code}")
    high = torch.tensor([[243]], dtype=torch.uint8)
    expect_error(ValueError, lambda: student.unpack(high, 5), "a byte of 243")
    expect_error(ValueError, lambda: student.unpack(words, 6), "1 byte for 6 codes")


@exercise(
    "ex3",
    points=3,
    invariant="the product is that of floats, and what has the code 0 is not read: infinity there "
    "changes nothing",
    cause="codes as factors: infinity times 0 is NaN",
)
def test_a_product_by_additions(student, rng):
    codes = torch.randint(-1, 2, (4, 9), generator=rng, dtype=torch.int8)
    codes[:, 3] = 0
    x = torch.randn(2, 9, generator=rng, dtype=F64)
    right = 0.7 * (x @ codes.double().T)
    x[0, 3], x[1, 3] = math.inf, math.nan
    y = student.product(x, codes, 0.7)
    expect_tensor(y, "product", F64, (2, 4))
    expect_close(y, right, what="the product", atol=EXACT)


# ---- exercise 4: divergences -------------------------------------------------------------------

LN2 = math.log(2)


def drive_divergences(student, a, b):
    """Runs beside the student's code: both divergences of logits, and gradients by autograd."""
    import torch

    found = []
    for divergence in (student.forward_kl, student.reverse_kl):
        teacher, pupil = a.clone().requires_grad_(), b.clone().requires_grad_()
        value = divergence(teacher, pupil)
        torch.nan_to_num(value, posinf=0.0).sum().backward()
        found.append([value.detach(), teacher.grad is None, pupil.grad])
    return found


def exact_divergences(a, b):
    """(forward, reverse, gradients of both) in float64."""
    a, b = a.double(), b.double()
    log_p, log_q = a.log_softmax(-1), b.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    forward = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(-1)
    r = log_q - log_p
    reverse = (q * r).sum(-1)
    return forward, reverse, q - p, q * (r - reverse[..., None])


@exercise(
    "ex4",
    points=2,
    invariant="p = (1/2, 1/4, 1/4), q = (1/4, 3/8, 3/8): forward 0.1438, reverse 0.1308; the "
    "teacher gets no gradient",
    cause="the two exchanged, a mean in place of the sum, or logits taken for chances",
)
def test_divergences_by_hand(student, rng):
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.375, 0.375])
    a, b = p.log().double() + 3, q.log().double() - 1
    found = student.drive(drive_divergences, a, b)
    forward = 0.5 * LN2 + 0.5 * math.log(2 / 3)
    reverse = -0.25 * LN2 + 0.75 * math.log(1.5)
    for (value, untouched, _), right, name in zip(
        found, (forward, reverse), ("forward_kl", "reverse_kl"), strict=True
    ):
        expect_close(value, torch.tensor(right, dtype=F64), what=name, atol=1e-7)
        assert untouched, f"{name}: the teacher has a gradient"


@exercise(
    "ex4",
    points=3,
    invariant="by formula: q - p, and q (ln q/p - its mean); for p = (1/2, 1/4, 1/4), q = (1/4, "
    "1/2, 1/4): (-1/4, 1/4, 0) and (-5, 6, -1) ln 2 / 16",
    cause="the gradient to chances in place of logits, a sign, or the mean of the logarithm "
    "left out",
)
def test_gradients_by_hand(student, rng):
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])
    a, b = p.log().double(), q.log().double() + 2
    value = student.gradients(a, b)
    there, back = expect_tuple(value, (torch.Tensor,) * 2, "gradients")
    expect_close(there, torch.tensor([-0.25, 0.25, 0.0]), what="forward", atol=1e-6)
    expect_close(back, torch.tensor([-5.0, 6.0, -1.0]) * LN2 / 16, what="reverse", atol=1e-6)
    a, b = (2 * torch.randn(4, 5, generator=rng, dtype=F64) for _ in (0, 1))
    value = student.gradients(a, b)
    there, back = expect_tuple(value, (torch.Tensor,) * 2, "gradients")
    _, _, right, other = exact_divergences(a, b)
    expect_tensor(there, "gradients", F64, (4, 5))
    expect_close(there, right, what="the gradient of forward KL", atol=EXACT)
    expect_close(back, other, what="the gradient of reverse KL", atol=EXACT)


@exercise(
    "ex4",
    points=1,
    invariant="a token that the teacher never says: forward KL is finite, reverse KL infinite",
    cause="0 times infinity, which is NaN, in either of the two",
)
def test_a_token_never_said(student, rng):
    a = torch.tensor([[0.0, -math.inf, 1.0], [0.0, 0.0, 0.0]], dtype=F64)
    b = torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]], dtype=F64)
    (forward, _, grad), (reverse, _, _) = student.drive(drive_divergences, a, b)
    right, _, slope, _ = exact_divergences(a, b)
    expect_close(forward, right, what="forward_kl", atol=EXACT)
    expect_close(grad, slope, what="the gradient of forward_kl", atol=EXACT)
    assert reverse[0] == math.inf, f"reverse_kl is {reverse[0]}, expected infinity"
    far = torch.tensor([1e4, 0.0, 0.0], dtype=F64)  # the student's chance rounds to 0
    seen = student.drive(drive_divergences, a[0], far)[1][0]
    assert seen == math.inf, f"reverse_kl is {seen} beside a chance that rounds to 0"
    expect_close(reverse[1], torch.zeros((), dtype=F64), what="reverse_kl of equals", atol=EXACT)


# ---- exercise 5: on the student's own text -----------------------------------------------------


def drive_write(student, table, prompts, n, seed, torch_seed=0):
    """Runs beside the student's code: a model whose logits are a row of a table, token by token."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(table)

        def forward(self, ids):
            return self.table[ids]

    torch.manual_seed(torch_seed)
    return student.write(Table(), prompts, n, torch.Generator().manual_seed(seed))


@exercise(
    "ex5",
    points=2,
    invariant="what is certain is written; what is not comes from the generator alone, another "
    "draw for every row",
    cause="the likeliest token, one draw for all rows, logits of the first place, or torch's own "
    "generator",
)
def test_writing(student, rng):
    sure = torch.full((4, 4), -1e4)
    for i in range(4):
        sure[i, (i + 1) % 4] = 0.0  # after i comes i + 1
    prompts = torch.tensor([[3, 0], [1, 2]])
    ids = student.drive(drive_write, sure, prompts, 5, 0)
    assert ids.tolist() == [[3, 0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 1, 2, 3]], ids.tolist()
    even = torch.zeros(16, 16)
    prompts = torch.zeros(4, 1, dtype=torch.int64)
    ids = student.drive(drive_write, even, prompts, 40, 7)
    again = student.drive(drive_write, even, prompts, 40, 7, 1)
    other = student.drive(drive_write, even, prompts, 40, 8)
    expect_tensor(ids, "write", torch.int64, (4, 41))
    expect_same(again, ids, "a text of the same seed, under another seed of torch")
    assert not torch.equal(ids, other), "another seed wrote the same"
    assert len({tuple(row) for row in ids.tolist()}) == 4, "rows are alike"
    # of 16 equally likely tokens at least 8 in 160 draws: fewer has a chance below 1e-40
    assert len(set(ids[:, 1:].flatten().tolist())) >= 8, "hardly any token is ever drawn"


def drive_loss(student, a, b, ids):
    """Runs beside the student's code: the loss, and gradients to both logits."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    loss = student.minillm_loss(a, b, ids)
    loss.backward()
    return loss.detach(), a.grad is None, b.grad


@exercise(
    "ex5",
    points=1,
    invariant="nothing follows the last token: the gradient to its logits is that of its own "
    "step's KL(student || teacher) alone, on the mean over the texts; a loss is a scalar",
    cause="a return with its own step or with what came before, one with a gradient, or a sum over "
    "texts",
)
def test_nothing_follows_the_last_token(student, rng):
    for b, t in ((1, 1), (3, 1), (3, 4)):
        teacher, pupil = (torch.randn(b, t, 5, generator=rng, dtype=F64) for _ in (0, 1))
        ids = torch.randint(5, (b, t), generator=rng)
        loss, untouched, grad = student.drive(drive_loss, teacher, pupil, ids)
        assert loss.shape == (), f"the loss has shape {list(loss.shape)}, expected a scalar"
        _, _, _, single = exact_divergences(teacher, pupil)
        expect_close(grad[:, -1], single[:, -1] / b, what="the last step's gradient", atol=EXACT)


@exercise(
    "ex5",
    points=3,
    invariant="over all texts, each as likely as the student writes it, the mean gradient is that "
    "of KL(student || teacher) of the texts",
    cause="a return with its own step, from the front, or with a gradient; no single step",
)
def test_the_gradient_over_all_texts(student, rng):
    v, t = 3, 3
    p_table, q_table = (torch.randn(v, v, generator=rng, dtype=F64) for _ in (0, 1))
    texts = torch.tensor([(0, *text) for text in itertools.product(range(v), repeat=t)])
    table = q_table.clone().requires_grad_()
    log_p, log_q = p_table.log_softmax(-1), table.log_softmax(-1)
    pairs = texts[:, :-1], texts[:, 1:]
    whole_p, whole_q = log_p[pairs].sum(1), log_q[pairs].sum(1)  # ln of the texts' chances
    (whole_q.exp() * (whole_q - whole_p)).sum().backward()
    found = torch.zeros(v, v, dtype=F64)
    for text, chance in zip(texts, whole_q.detach().exp(), strict=True):
        a, b = p_table[text[:-1]][None], q_table[text[:-1]][None]
        _, untouched, grad = student.drive(drive_loss, a, b, text[None, 1:])
        assert untouched, "the teacher has a gradient"
        found.index_add_(0, text[:-1], chance * grad[0])
    expect_close(found, table.grad, what="the gradient", atol=EXACT)


# ---- exercise 6: a model's own text ------------------------------------------------------------


def drive_own(student, state, sizes, rows, length, greedy, seed):
    """Runs beside the student's code: what a Llama writes from nothing."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes)).eval()
    model.load_state_dict(state)
    return student.own_text(model, rows, length, greedy, torch.Generator().manual_seed(seed))


@exercise(
    "ex6",
    points=3,
    invariant="begin token, a token drawn evenly, the likeliest ones, then drawn ones; the same "
    "generator writes the same",
    cause="the first token drawn by the model, too many likeliest, or a length off by one",
)
def test_own_text(student, rng):
    model = a_llama(rng)
    state, rows = state_of(model), 40
    ids = student.drive(drive_own, state, SIZES, rows, 9, 3, 5)
    expect_tensor(ids, "own_text", torch.int64, (rows, 10))
    assert (ids[:, 0] == BEGIN_ID).all(), "a text does not start with the begin token"
    # of 20 tokens, at least 8 in 40 even draws: fewer has a chance below 1e-6
    assert len(set(ids[:, 1].tolist())) >= 8, "the first token is not drawn evenly"
    with torch.no_grad():
        likely = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]  # [rows, 9]
    assert likely[:, 1:4].all(), "the tokens behind the first are not the likeliest"
    assert not likely[:, 4:].all(), "nothing is drawn behind the likeliest"
    again = student.drive(drive_own, state, SIZES, rows, 9, 3, 5)
    expect_same(again, ids, "own_text of the same seed")
    for length, greedy in ((1, 4), (3, 7)):
        ids = student.drive(drive_own, state, SIZES, 2, length, greedy, 1)
        expect_tensor(ids, "own_text", torch.int64, (2, 1 + length))


def drive_qat(student, state, sizes, batches, lr):
    """Runs beside the student's code: training, and what is left of the model that was given."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes)).eval().requires_grad_(False)
    model.load_state_dict(state)
    made, losses = student.qat(model, batches, lr)
    with torch.no_grad():
        logits = made(batches[0] if batches else torch.arange(5)[None])
    kinds = [type(m).__name__ for m in made.modules()].count("BitLinear")
    after = {n: p.detach().clone() for n, p in model.state_dict().items()}
    grads = [p.grad is None for p in model.parameters()]
    trained = {n: p.detach().clone() for n, p in made.named_parameters()}
    return losses, logits, kinds, after, grads, trained, made.training


def rounded_logits(model, ids):
    """(Logits of the model with every linear but the head rounded, whether a last digit decides
    how an input of one is rounded)."""
    near, model = [], copy.deepcopy(model)

    def round_input(module, args):
        near.append(not torch.equal(off_ties(args[0], 1e-4), args[0]))
        return (rounded_tokens(args[0]).float(),)

    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            layer.weight.data = rounded_weight(layer.weight.data).float()
            layer.register_forward_pre_hook(round_input)
    with torch.no_grad():
        return model(ids), any(near)


def clear_model(rng, ids):
    """A model that is rounded over the ids in one way, and (its rounded logits)."""
    for _ in range(100):
        model = a_llama(rng)
        found = [rounded_logits(model, each) for each in ids]
        if not any(near for _, near in found):
            break
    return model, [logits for logits, _ in found]


@exercise(
    "ex6",
    points=3,
    invariant="without a batch the student is the rounded model; with one it learns from the model "
    "as it was, which stays so",
    cause="the head rounded, the student as its own teacher, or labels in place of the model",
)
def test_training(student, rng):
    ids = torch.randint(20, (4, 8), generator=rng)
    model, (right, found) = clear_model(rng, (torch.arange(5)[None], ids[:, :-1]))
    state = state_of(model)
    losses, logits, kinds, *_ = student.drive(drive_qat, state, SIZES, [], 1e-3)
    assert losses == [] and kinds == 7, f"{kinds} BitLinears, expected 7; losses {losses}"
    expect_close(logits, right, what="a logit of the rounded model", atol=1e-3)
    value = student.drive(drive_qat, state, SIZES, 40 * [ids], 1e-2)
    losses, _, _, after, grads, trained, mode = value
    with torch.no_grad():
        log_p = model(ids[:, :-1]).log_softmax(-1)
    log_q = found.log_softmax(-1)
    start = F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1).mean()
    assert len(losses) == 40 and all(isinstance(v, float) for v in losses), "losses are floats"
    expect_close(losses[0], start.item(), what="the first loss", rtol=1e-3)
    expect_at_most(losses[-1], 0.7 * losses[0], "the last loss on the same batch")
    for name, tensor in state.items():
        expect_same(after[name], tensor, f"{name} of the model that was given")
    assert all(grads), "the model that was given has gradients"
    still = [n for n, p in trained.items() if torch.equal(p, state[n])]
    assert not still, f"not trained: {still}"
    assert mode is False, "the student is not in eval mode"
