"""Public tests of lab16: what lab.check runs.  Properties, and numbers to check by hand."""

import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.models.cache import KVCache
from efflib.models.config import LlamaConfig
from efflib.models.embedded import logits_of_vectors
from efflib.models.llama import Llama

F64 = torch.float64
FLOAT32 = 2.0**-24  # relative error of one float32 rounding
EXACT = 1e-9  # float64 through a small model whose numbers are about 1
PARTS = ("down", "down_bias", "up", "up_bias")
SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def a_llama(rng, dtype=F64, **changes):
    """(config as a dict, a Llama with random parameters in eval mode)."""
    sizes = SIZES | changes
    model = Llama(LlamaConfig(**sizes)).to(dtype).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=rng, dtype=F64)
            p.copy_(1 + 0.1 * values if "norm" in name else 0.3 * values)
    return sizes, model


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


# ---- exercise 1: an adapter that begins as the identity ---------------------------------------


def drive_adapter(student, parts, y):
    """Runs beside the student's code: an adapter whose parameters are set, called twice."""
    adapter = student.Adapter(parts["up"].shape[0], parts["down"].shape[0])
    shapes = {n: [list(p.shape), str(p.dtype)] for n, p in adapter.named_parameters()}
    for name, value in parts.items():
        getattr(adapter, name).data = value
    return adapter(y).detach(), adapter(y).detach(), shapes


def drive_start(student, size, m, y):
    """Runs beside the student's code: what an adapter puts out at the start, and its gradients."""
    adapter = student.Adapter(size, m)
    out = adapter(y)
    (out.float() * 1.0).sum().backward()
    parts = {n: p.detach().clone() for n, p in adapter.named_parameters()}
    grads = {n: p.grad for n, p in adapter.named_parameters()}
    return out.detach(), parts, grads


@exercise(
    "ex1",
    points=2,
    invariant="y = 2, down 0.5, up 3: gelu(1) = 0.8413, so 4.5240; the biases add before gelu "
    "and after up",
    cause="the sum with y left out, gelu's approximation by tanh, relu, or a bias in the "
    "wrong place",
)
def test_an_adapter_by_hand(student, rng):
    def parts(down, down_bias, up, up_bias):
        return dict(zip(PARTS, map(torch.tensor, (down, down_bias, up, up_bias)), strict=True))

    for given, y, right in (
        (parts([[0.5]], [0.0], [[3.0]], [0.0]), [[2.0]], [[2.0 + 3 * 0.8413447]]),
        (parts([[0.5]], [1.0], [[3.0]], [0.25]), [[2.0]], [[2.25 + 3 * 1.9544997]]),
        (
            parts([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], [[0.0, 1.0], [2.0, 0.0]], [0.0, 0.0]),
            [[1.0, -1.0]],
            [[1.0 - 0.1586553, -1.0 + 2 * 0.8413447]],
        ),
    ):
        y = torch.tensor(y)
        out, again, shapes = student.drive(drive_adapter, given, y)
        want = {n: [list(t.shape), "torch.float32"] for n, t in given.items()}
        assert shapes == want, f"parameters {shapes}, expected {want}"
        expect_tensor(out, "the output", torch.float32)
        # a handful of float32 roundings of numbers up to 8, and gelu's seven digits here
        expect_close(out, torch.tensor(right), what="the output", atol=64 * FLOAT32)
        expect_same(again, out, "the output of a second call")


@exercise(
    "ex1",
    points=2,
    invariant="at the start the output is y, exactly, and yet up has a gradient that is not zero",
    cause="all parameters at zero (gelu(0) = 0 gives up no gradient), or up small in place of zero",
)
def test_the_start(student, rng):
    for size, m in ((6, 2), (1, 1), (12, 3)):
        y = torch.randn(5, size, generator=rng)
        out, parts, grads = student.drive(drive_start, size, m, y)
        assert sorted(parts) == sorted(PARTS), f"parameters {sorted(parts)}"
        expect_same(out, y, "the output at the start")
        assert all(g is not None for g in grads.values()), "a parameter has no gradient"
        low = torch.nn.functional.gelu(y @ parts["down"].T + parts["down_bias"])
        right = low.sum(0).expand(size, m)  # of the sum of all outputs
        expect_close(grads["up"], right, what="the gradient of up", atol=64 * FLOAT32 * size)
        expect_at_most(-grads["up"].abs().max(), -1e-6, "minus the largest gradient of up")


def drive_model(student, state, names, m, ids, config):
    """Runs beside the student's code: a model with adapters, and the one that was given."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config))
    model.load_state_dict(state)
    made = student.add_adapters(model.eval(), names, m)
    with torch.no_grad():
        logits = made(ids)
        kept = {n: p.clone() for n, p in model.state_dict().items()}
    trained = [p.numel() for p in made.parameters() if p.requires_grad]
    modes = [module.training for module in made.modules()]
    free = [p.requires_grad for p in model.parameters()]
    return logits, kept, trained, modes, free


@exercise(
    "ex1",
    points=2,
    invariant="the model begins as it was; trained is nothing but adapters behind the named "
    "layers; the model that was given is untouched",
    cause="only linear layers frozen, set_submodule on the given model, or adapters in "
    "training mode",
)
def test_adapters_in_a_model(student, rng):
    config, model = a_llama(rng, torch.float32)
    ids, state = torch.randint(20, (2, 7), generator=rng), state_of(model)
    names = [
        f"model.layers.{i}.{part}" for i in (0, 1) for part in ("self_attn.o_proj", "mlp.up_proj")
    ]
    value = student.drive(drive_model, state, names, 3, ids, config)
    logits, kept, trained, modes, free = value
    with torch.no_grad():
        expect_same(logits, model(ids), "logits at the start")
    want = sum(2 * 3 * n + 3 + n for n in (16, 12) for _ in (0, 1))
    assert sum(trained) == want, f"{sum(trained)} numbers are trained, expected {want}"
    assert not any(modes), "a module is in training mode, the model given is in eval mode"
    assert all(free), "parameters of the model that was given were frozen"
    for name, tensor in state.items():
        expect_same(kept[name], tensor, f"{name} of the model that was given")


# ---- exercise 2: prompts of unequal length in one batch ---------------------------------------


def expect_rows(value, prompts, texts, call="joined"):
    """Structure of a batch: x, positions, mask."""
    x, positions, mask = expect_tuple(value, (torch.Tensor,) * 3, call)
    lengths = [len(p) + len(t) for p, t in zip(prompts, texts, strict=True)]
    b, s = len(lengths), max(lengths)
    expect_tensor(x, f"x of {call}", texts[0].dtype, (b, s, texts[0].shape[1]))
    expect_tensor(positions, f"positions of {call}", torch.int64, (b, s))
    expect_tensor(mask, f"mask of {call}", torch.bool, (b, 1, s, s))
    for i, (p, t, n) in enumerate(zip(prompts, texts, lengths, strict=True)):
        row = torch.cat([p, t])
        expect_close(x[i, s - n :], row, what=f"row {i} of x")
        expect_close(x[i, : s - n], torch.zeros_like(x[i, : s - n]), what=f"the filling of row {i}")
        expect_same(positions[i, s - n :], torch.arange(n), f"positions of row {i}")
        fill = positions[i, : s - n]
        assert ((fill >= 0) & (fill < s)).all(), f"positions of fillings: {fill.tolist()}"
        right = torch.zeros(n, s, dtype=torch.bool)
        right[:, s - n :] = torch.ones(n, n, dtype=torch.bool).tril()
        expect_same(mask[i, 0, s - n :], right, f"what row {i} sees")
        assert mask[i, 0, : s - n].any(-1).all(), f"a filling of row {i} sees nothing: NaN"
    return x, positions, mask


def draw_rows(rng, lengths, d, dtype=F64):
    parts = [
        [torch.randn(n, d, generator=rng, dtype=F64).to(dtype) for n in pair] for pair in lengths
    ]
    return [p for p, _ in parts], [t for _, t in parts]


@exercise(
    "ex2",
    points=2,
    invariant="a prompt of 2 before a text of 3, no prompt before a text of 2: positions 0 to 4 "
    "and, on the right, 0 to 1; nobody sees a filling",
    cause="filled up on the right, positions from the rectangle's edge, or a causal mask alone",
)
def test_two_rows_by_hand(student, rng):
    prompts = [torch.tensor([[1.0], [2.0]]), torch.zeros(0, 1)]
    texts = [torch.tensor([[3.0], [4.0], [5.0]]), torch.tensor([[6.0], [7.0]])]
    x, positions, mask = expect_rows(student.joined(prompts, texts), prompts, texts)
    assert x[1, 3:, 0].tolist() == [6.0, 7.0]
    assert positions[1, 3:].tolist() == [0, 1]
    assert mask[1, 0, 3].tolist() == [False, False, False, True, False]


@exercise(
    "ex2",
    points=2,
    invariant="each row of the batch has the logits of that row alone",
    cause="positions, a filling that is seen, or NaN from a query that sees nothing",
)
def test_rows_equal_rows_alone(student, rng):
    _, model = a_llama(rng)
    prompts, texts = draw_rows(rng, [(0, 4), (3, 4), (6, 1), (2, 7)], 16)
    x, positions, mask = expect_rows(student.joined(prompts, texts), prompts, texts)
    with torch.no_grad():
        logits = logits_of_vectors(model, x, positions=positions, mask=mask)
        for i, (p, t) in enumerate(zip(prompts, texts, strict=True)):
            right = logits_of_vectors(model, torch.cat([p, t])[None])[0]
            seen = logits[i, -len(right) :]
            expect_close(seen, right, what=f"a logit of row {i}", atol=EXACT)


@exercise(
    "ex2",
    points=1,
    invariant="the next token stands one position on; it sees what the last one saw, and itself",
    cause="a row of ones, which shows the fillings, or the number of columns as position",
)
def test_going_on_by_hand(student, rng):
    positions = torch.tensor([[0, 1, 2], [0, 0, 0]])
    mask = torch.ones(3, 3, dtype=torch.bool).tril().repeat(2, 1, 1, 1)
    mask[1, 0] = torch.eye(3, dtype=torch.bool)
    for step in range(3):
        value = student.go_on(positions, mask)
        positions, mask = expect_tuple(value, (torch.Tensor,) * 2, "go_on")
        expect_same(positions, torch.tensor([[3 + step], [1 + step]]), "positions")
        right = torch.ones(2, 1, 1, 4 + step, dtype=torch.bool)
        right[1, 0, 0, :2] = False
        expect_same(mask, right, "the mask")


@exercise(
    "ex2",
    points=1,
    invariant="no row, or not one prompt for each text: ValueError; one row alone is a batch",
    cause="zip, which stops at the shorter list without a word",
)
def test_rows_that_do_not_fit(student, rng):
    prompts, texts = draw_rows(rng, [(2, 3), (1, 1)], 4)
    expect_rows(student.joined(prompts[:1], texts[:1]), prompts[:1], texts[:1])
    for p, t, what in (
        (prompts, texts[:1], "2 prompts, 1 text"),
        (prompts[:1], texts, "1 and 2"),
        ([], [], "none"),
    ):
        expect_error(ValueError, lambda p=p, t=t: student.joined(p, t), what)


# ---- exercise 3: prefixes ---------------------------------------------------------------------

SHAPE = {"layers": 2, "hidden": 16, "mlp": 12, "heads": 4, "kv_heads": 2, "head_dim": 8}
LLAMA3 = {"layers": 32, "hidden": 4096, "mlp": 14336, "heads": 32, "kv_heads": 8, "head_dim": 128}


def drive_cache(student, state, config, prefixes, chunks):
    """Runs beside the student's code: a model that reads ids with the cache, chunk by chunk."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config))
    model = model.to(state["lm_head.weight"].dtype).eval()
    model.load_state_dict(state)
    cache = student.prefix_cache(prefixes)
    length = int(cache.length)
    with torch.no_grad():
        logits = [model(ids, cache=cache) for ids in chunks]
    return length, torch.cat(logits, 1), list(prefixes)


def drive_prefix_of(student, state, config, prompt):
    """Runs beside the student's code: the prefix of a prompt."""
    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config)).to(prompt.dtype).eval()
    model.load_state_dict(state)
    return student.prefix_of(model, prompt).detach()


def with_prefixes(model, prefixes, ids):
    """Logits of ids [B, T] behind prefixes, each row for itself."""
    rows = []
    with torch.no_grad():
        for prefix, row in zip(prefixes, ids, strict=True):
            cache = KVCache()
            for layer in range(len(prefix)):
                cache.append(layer, prefix[layer, 0][None], prefix[layer, 1][None])
            rows.append(model(row[None], cache=cache)[0])
    return torch.stack(rows)


@exercise(
    "ex3",
    points=1,
    invariant="2 blocks, 4 heads that share 2 key heads of size 8: 64 numbers a position; Llama "
    "3 8B: 65,536",
    cause="heads or hidden in place of kv_heads and head_dim, or keys without values",
)
def test_numbers_by_hand(student, rng):
    for shape, n, right in ((SHAPE, 1, 64), (SHAPE, 5, 320), (LLAMA3, 1, 65_536), (SHAPE, 0, 0)):
        seen = expect_number(student.prefix_numbers(shape, n), "prefix_numbers")
        assert seen == right, f"{seen} numbers of {n} positions of {shape}, expected {right}"


@exercise(
    "ex3",
    points=2,
    invariant="the model reads text behind each row's own prefix, keys first, block by block",
    cause="keys and values exchanged, the first row's prefix for all, or one block's for all",
)
def test_a_cache_of_prefixes(student, rng):
    config, model = a_llama(rng)
    prefixes = [torch.randn(2, 2, 2, 3, 8, generator=rng, dtype=F64) for _ in range(3)]
    ids = torch.randint(20, (3, 6), generator=rng)
    value = student.drive(drive_cache, state_of(model), config, prefixes, [ids])
    length, logits, _ = expect_tuple(value, (int, torch.Tensor, list), "a cache")
    assert length == 3, f"the cache's length is {length} before the text, expected 3"
    right = with_prefixes(model, prefixes, ids)
    expect_close(logits, right, what="a logit behind prefixes", atol=EXACT)


@exercise(
    "ex3",
    points=2,
    invariant="behind prefix_of(model, prompt) the model has the logits that it has behind the "
    "prompt",
    cause="keys and values of the first block alone, before the rotary embedding, or exchanged",
)
def test_a_prompt_is_a_prefix(student, rng):
    config, model = a_llama(rng)
    prompt = torch.randn(5, 16, generator=rng, dtype=F64)
    ids = torch.randint(20, (1, 7), generator=rng)
    prefix = student.drive(drive_prefix_of, state_of(model), config, prompt)
    expect_tensor(prefix, "prefix_of", F64, (2, 2, 2, 5, 8))
    with torch.no_grad():
        x = torch.cat([prompt[None], model.model.embed_tokens(ids)], 1)
        right = logits_of_vectors(model, x)[:, 5:]
    seen = with_prefixes(model, [prefix], ids)
    expect_close(seen, right, what="a logit behind the prefix", atol=EXACT)


@exercise(
    "ex3",
    points=1,
    invariant="no prefix, or prefixes of unlike shapes: ValueError; one is enough",
    cause="an error of another kind from torch.stack, or the shorter ones filled up",
)
def test_prefixes_that_do_not_fit(student, rng):
    config, model = a_llama(rng)
    a, b = (torch.randn(2, 2, 2, n, 8, generator=rng, dtype=F64) for n in (3, 4))
    ids = torch.randint(20, (1, 2), generator=rng)
    value = student.drive(drive_cache, state_of(model), config, [b], [ids])
    expect_close(value[1], with_prefixes(model, [b], ids), what="a logit", atol=EXACT)
    two = torch.randint(20, (2, 2), generator=rng)
    for prefixes, what in (([a, b], "3 and 4 positions"), ([], "no prefix")):
        expect_error(
            ValueError,
            lambda p=prefixes: student.drive(drive_cache, state_of(model), config, p, [two]),
            what,
        )


# ---- exercise 4: biases and random weights ----------------------------------------------------


def drive_biases(student, layers, names, x):
    """Runs beside the student's code: layers (w, b or None) behind one another, biases added."""
    import torch
    from torch import nn

    model = nn.Sequential()
    for i, (w, b) in enumerate(layers):
        linear = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
        linear.weight.data = w.clone()
        if b is not None:
            linear.bias.data = b.clone()
        model.add_module(f"l{i}", linear)
    model.add_module("norm", nn.LayerNorm(layers[-1][0].shape[0], dtype=layers[-1][0].dtype))
    made = student.add_biases(model, names)
    with torch.no_grad():
        y = made(x)
    trained = {n: p.detach().clone() for n, p in made.named_parameters() if p.requires_grad}
    given = {n: [p.detach().clone(), p.requires_grad] for n, p in model.named_parameters()}
    return y, trained, given


@exercise(
    "ex4",
    points=2,
    invariant="zeros where there was no bias, the old values where there was one, nothing else "
    "trained, the model that was given as it was",
    cause="a bias set anew where there was one, all biases of the model trained, or no copy",
)
def test_biases_by_hand(student, rng):
    w0, w1, w2 = (torch.randn(n, k, generator=rng) for n, k in ((4, 3), (5, 4), (2, 5)))
    b1, x = torch.randn(5, generator=rng), torch.randn(6, 3, generator=rng)
    layers = [(w0, None), (w1, b1), (w2, None)]
    y, trained, given = student.drive(drive_biases, layers, ["l0", "l1"], x)
    h = torch.nn.functional.layer_norm(((x @ w0.T) @ w1.T + b1) @ w2.T, (2,))
    expect_close(y, h, what="the output", atol=1e-3)  # a norm of two numbers can magnify
    assert sorted(trained) == ["l0.bias", "l1.bias"], f"trained are {sorted(trained)}"
    expect_same(trained["l0.bias"], torch.zeros(4), "the bias of l0")
    expect_same(trained["l1.bias"], b1, "the bias of l1")
    assert "l0.bias" not in given, "the model that was given has a bias more"
    expect_same(given["l1.bias"][0], b1, "the bias of l1 in the model that was given")
    assert all(free for _, free in given.values()), "the model that was given was frozen"


def expect_places(value, sizes, n, call="draw"):
    assert isinstance(value, list | tuple), f"{call} returned {type(value).__name__}, not a list"
    assert len(value) == len(sizes), f"{call} returned {len(value)} tensors for {len(sizes)} layers"
    for own, size in zip(value, sizes, strict=True):
        expect_tensor(own, f"places of {call}", torch.int64)
        assert own.ndim == 1, f"places of shape {list(own.shape)}"
        assert bool((own[1:] > own[:-1]).all()), "places are not ascending, or one is there twice"
        if len(own):
            assert int(own[0]) >= 0 and int(own[-1]) < size, f"places of {size}: {own.tolist()[:9]}"
    drawn = sum(len(own) for own in value)
    assert drawn == n, f"{drawn} places, expected {n}"
    return list(value)


@exercise(
    "ex4",
    points=2,
    invariant="just n places, all different, ascending in each layer; the same seed, the same "
    "places; small layers as densely as large ones",
    cause="randint, which draws some twice, as many from every layer, or places that do not "
    "start at 0 in each layer",
)
def test_places(student, rng):
    for sizes, n in (([6], 6), ([10, 1, 40], 17), ([3, 3], 0), ([100, 100, 100], 1)):
        one, same, other = (expect_places(student.draw(sizes, n, s), sizes, n) for s in (3, 3, 4))
        for a, b in zip(one, same, strict=True):
            expect_same(a, b, "the places of seed 3, a second time")
    sizes = [500, 300]
    one, other = (expect_places(student.draw(sizes, 100, s), sizes, 100) for s in (3, 4))
    assert any(a.tolist() != b.tolist() for a, b in zip(one, other, strict=True)), (
        "two seeds, one draw"
    )
    for n in (-1, 801):
        expect_error(ValueError, lambda n=n: student.draw(sizes, n, 0), f"n = {n} of 800")
    sizes = [2000, 6000]  # a fifth of all is 400 of the first, with a deviation of 15.5
    count = len(expect_places(student.draw(sizes, 1600, 5), sizes, 1600)[0])
    assert abs(count - 400) <= 112, f"a fifth of all: {count} of the first 2000, expected about 400"


def drive_sparse(student, w, b, places, delta, x, dy):
    """Runs beside the student's code: a sparse layer's outputs, and its gradients."""
    import torch
    from torch import nn

    base = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
    base.weight.data = w.clone()
    if b is not None:
        base.bias.data = b.clone()
    layer = student.SparseLinear(base, places)
    with torch.no_grad():
        start = layer(x)
    names = {n: list(p.shape) for n, p in layer.named_parameters() if p.requires_grad}
    kind = str(layer.delta.dtype)
    first = layer.delta.detach().clone()
    layer.delta.data = delta.clone()
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * dy).sum().backward()
    return start, y.detach(), layer.delta.grad, x.grad, [names, kind], first


@exercise(
    "ex4",
    points=2,
    invariant="W = (1, 2 | 3, 4), places 1 and 2, delta 10 and 20: W + S = (1, 12 | 23, 4); "
    "delta is all that is trained",
    cause="delta as large as W, W itself trained, or places counted by columns",
)
def test_a_sparse_layer_by_hand(student, rng):
    w, x = (
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]),
    )
    places, delta = torch.tensor([1, 2]), torch.tensor([10.0, 20.0])
    dy = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for b in (None, torch.tensor([100.0, 200.0])):
        more = 0.0 if b is None else b
        value = student.drive(drive_sparse, w, b, places, delta, x, dy)
        start, y, d_delta, dx, (names, kind), first = value
        assert names == {"delta": [2]}, f"trained are {names}, expected delta with 2 numbers"
        assert kind == "torch.float32", f"delta has {kind}"
        expect_same(first, torch.zeros(2), "delta at the start")
        expect_close(start, x @ w.T + more, what="the output at the start")
        new = torch.tensor([[1.0, 12.0], [23.0, 4.0]])
        expect_close(y, x @ new.T + more, what="the output")
        dw = dy.T @ x
        expect_close(d_delta, dw.flatten()[[1, 2]], what="the gradient of delta")
        expect_close(dx, dy @ new, what="the gradient of x")


# ---- exercise 5: the bill ---------------------------------------------------------------------

KEYS = ("trained", "optimizer_bytes", "flops", "read_bytes", "context")
FLAGS = ("mergeable", "batchable", "untouched")
TINY = {
    "layers": 2,
    "hidden": 4,
    "mlp": 3,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 2,
    "biases": False,
}


def expect_bill(value, right, what):
    """right: numbers by KEYS and bools by FLAGS; those that are named are looked at."""
    assert isinstance(value, dict), f"{what} returned {type(value).__name__}, not a dict"
    missing = {*KEYS, *FLAGS} ^ value.keys()
    assert not missing, f"{what}: keys {sorted(missing)} are missing or too many"
    for key, number in right.items():
        seen = value[key]
        if key in FLAGS:
            assert isinstance(seen, bool), f"{key} of {what} is {seen!r}, not a bool"
        else:
            expect_number(seen, f"{key} of {what}")
        assert seen == number, f"{key} of {what} is {seen}, expected {number}"


@exercise(
    "ex5",
    points=4,
    invariant="two blocks, D = 4, 2 heads of size 2 that share a key head, F = 3: a prompt of 5 "
    "is 20 numbers, 80 bytes and 160 FLOPs a token",
    cause="a prompt that reads its own vectors, key heads where query heads compute, "
    "products that count 1, or biases of adapters",
)
def test_bills_by_hand(student, rng):
    # linears [N, K]: q 4 x 4, k and v 2 x 4, o 4 x 4, gate and up 3 x 4, down 4 x 3
    lora = 2 * 2 * (8 + 6 + 6 + 8 + 7 + 7 + 7)
    for way, size, trained, flops, read, context in (
        ("lora", 2, lora, 2 * lora, 2 * lora, 0),
        ("adapter", 1, 52, 64, 104, 0),
        ("prompt", 5, 20, 160, 80, 5),
        ("prefix", 5, 40, 160, 80, 5),
        ("bitfit", 1, 2 * (4 + 2 + 2 + 4 + 3 + 3 + 4), 0, 88, 0),
        ("random", 7, 7, 0, 0, 0),
    ):
        right = dict(zip(KEYS, (trained, 8 * trained, flops, read, context), strict=True))
        expect_bill(student.bill(way, size, TINY), right, f"{way} of {size}")


@exercise(
    "ex5",
    points=2,
    invariant="LoRA and random weights merge, biases only where the model has some; all but "
    "random weights share a batch; prompts and prefixes touch no layer",
    cause="an adapter merged in spite of its gelu, or BitFit merged into a Llama",
)
def test_what_merges(student, rng):
    for biases in (False, True):
        for way, merge in (
            ("lora", True),
            ("adapter", False),
            ("prompt", False),
            ("prefix", False),
            ("bitfit", biases),
            ("random", True),
        ):
            flags = {"mergeable": merge, "batchable": way != "random"}
            flags["untouched"] = way in ("prompt", "prefix")
            what = f"{way}, biases {biases}"
            expect_bill(student.bill(way, 2, TINY | {"biases": biases}), flags, what)
    expect_error(ValueError, lambda: student.bill("dora", 2, TINY), "the way 'dora'")


# ---- exercise 6: choose -----------------------------------------------------------------------


def a_bool(value, call):
    assert isinstance(value, bool), f"{call} returned {value!r}, not a bool"
    return value


def candidate(**changes):
    numbers = dict.fromkeys(KEYS, 0)
    return numbers | dict.fromkeys(FLAGS, True) | {"losses": [1.0]} | changes


@exercise(
    "ex6",
    points=1,
    invariant="means 1.125 and 1.375, spreads 0.25 and 0.25: not apart; 1.125 and 1.5: apart",
    cause="the smaller or the sum of the spreads, or >= in place of >",
)
def test_differ_by_hand(student, rng):
    for a, b, right in (
        ([1.0, 1.25], [1.25, 1.5], False),
        ([1.0, 1.25], [1.375, 1.625], True),
        ([1.0, 1.25], [1.5], True),
        ([1.0], [1.0], False),
        ([1.0], [1.5], True),
        ([1.0, 3.0], [3.5], False),
    ):
        for x, y in ((a, b), (b, a)):
            seen = a_bool(student.differ(x, y), f"differ({x}, {y})")
            assert seen is right, f"differ({x}, {y}) is {seen}"


@exercise(
    "ex6",
    points=1,
    invariant="True asks, False does not, a number is the most that is allowed, an empty need "
    "asks nothing",
    cause="True compared as the number 1, False taken for a demand, or < in place of <=",
)
def test_fits_by_hand(student, rng):
    c = candidate(flops=10, trained=5, mergeable=False)
    for need, right in (
        ({}, True),
        ({"mergeable": True}, False),
        ({"mergeable": False}, True),
        ({"batchable": True}, True),
        ({"batchable": False}, True),
        ({"flops": 10, "trained": 5}, True),
        ({"flops": 9}, False),
        ({"flops": 11, "trained": 4}, False),
    ):
        seen = a_bool(student.fits(c, need), f"fits with {need}")
        assert seen is right, f"fits is {seen} for flops 10, trained 5, not mergeable and {need}"


@exercise(
    "ex6",
    points=2,
    invariant="first what fits, then what is not apart from the best of these, then the fewest "
    "trained",
    cause="the lowest mean alone, the fewest of all, or the best of those that do not fit",
)
def test_choices_by_hand(student, rng):
    candidates = {
        "a": candidate(losses=[1.0, 1.25], trained=100, flops=5),
        "b": candidate(losses=[1.125, 1.25], trained=10, flops=0, mergeable=False),
        "c": candidate(losses=[2.0, 2.125], trained=1, flops=0),
        "d": candidate(losses=[1.125, 1.25], trained=10, flops=0, mergeable=False),
    }
    for need, right in (
        ({}, "b"),
        ({"mergeable": True}, "a"),
        ({"mergeable": True, "flops": 4}, "c"),
        ({"trained": 0}, None),
        ({"trained": 1}, "c"),
    ):
        seen = student.choose(candidates, need)
        assert seen == right, f"chosen is {seen!r} for {need}, expected {right!r}"


def verdict(student, need, **changes):
    """Whether a candidate with these columns, and all others harmless, meets the need."""
    return student.choose({"x": candidate(**changes)}, need) == "x"


def expect_need(student, name):
    need = student.situation(name)
    assert isinstance(need, dict), f"situation({name!r}) returned {type(need).__name__}"
    strange = [k for k in need if k not in (*KEYS, *FLAGS)]
    assert not strange, f"situation({name!r}) asks for {strange}, which no bill has"
    assert verdict(student, need), f"{name}: what costs nothing and can do everything must fit"
    return need


@exercise(
    "ex6",
    points=2,
    invariant="phone: what cannot be merged does not fit; shop: no position is free; engine: "
    "layers stay as they are",
    cause="a need that lacks a sentence of the situation",
)
def test_situations(student, rng):
    for name, wrong in (
        ("phone", {"mergeable": False}),
        ("shop", {"batchable": False}),
        ("shop", {"context": 1}),
        ("engine", {"untouched": False}),
    ):
        need = expect_need(student, name)
        seen = verdict(student, need, **wrong)
        assert not seen, f"{name}: a way with {wrong} fits, and must not"
    need = expect_need(student, "phone")
    assert verdict(student, need, context=math.inf), "phone says nothing of positions"
