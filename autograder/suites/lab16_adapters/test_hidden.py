"""Hidden tests of lab16: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.
"""

import itertools
import math

import torch
import torch.nn.functional as F

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
from efflib.lab.again import again, alike, held, held_results, refused
from efflib.lab.cases import every_pair
from efflib.models.cache import KVCache
from efflib.models.config import LlamaConfig
from efflib.models.embedded import logits_of_vectors
from efflib.models.llama import Llama

F64 = torch.float64
FLOAT32 = 2.0**-24  # relative error of one float32 rounding
BFLOAT16 = 2.0**-8
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


def whole(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


SHAPE_KEYS = ("layers", "hidden", "mlp", "heads", "kv_heads", "head_dim")


def spread(rng, options, count):
    """`count` of the options, each as often as the others to within one, in an order drawn."""
    order = []
    while len(order) < count:
        order += [options[i] for i in torch.randperm(len(options), generator=rng).tolist()]
    return order[:count]


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


def drive_left(student, config, name, args):
    """Runs beside the student's code: what is another thing in a model after name(model, *args)."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config))
    plain = model.model.layers[0].self_attn.attention
    model.set_attention(lambda q, k, v, mask: plain(q, k, v, mask))  # not the one of every model
    for i, module in enumerate(model.modules()):
        module.training = i % 2 == 0
    for i, p in enumerate(model.parameters()):
        p.requires_grad_(i % 3 > 0)
        p.grad = torch.ones_like(p) if i % 4 > 0 else None

    def facts():
        modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
        hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in modules.values()]
        return {
            "modules": [(n, id(m)) for n, m in modules.items()],
            "modes": [m.training for m in modules.values()],
            "attention functions": [id(b.self_attn.attention) for b in model.model.layers],
            "hooks": [len(h) for pair in hooks for h in pair],
            "parameters": [(n, id(p)) for n, p in parameters.items()],
            "what is frozen": [p.requires_grad for p in parameters.values()],
            "gradients": [p.grad is not None and p.grad.sum().item() for p in parameters.values()],
            "values": [t.tolist() for t in model.state_dict().values()],
        }

    before = facts()
    made = getattr(student, name)(model, *args)
    after = facts()
    changed = [what for what in before if before[what] != after[what]]
    if isinstance(made, torch.nn.Module):
        own, new = ({p.data_ptr() for p in m.parameters()} for m in (model, made))
        changed += ["a copy that is none"] * bool(own & new)
    return changed


def expect_left(student, name, *args):
    """A model of mixed modes, partly frozen, with its own attention function: as it was."""
    changed = student.drive(drive_left, SIZES, name, args)
    assert not changed, f"the model that {name} was given: {', '.join(changed)}"


def drive_reused(student, calls):
    """Runs beside the student's code: each call (name, *args) with the lists, dicts and tensors of
    the one before it, which hold other things by then."""
    import copy

    import torch

    def refill(old, new):
        if isinstance(old, torch.Tensor):
            return old.copy_(new)
        if isinstance(old, dict):
            old.clear()
            old.update(new)
        elif isinstance(old, list):
            old[:] = new
        else:
            return new
        return old

    (_, *given), found = copy.deepcopy(calls[0]), []
    for name, *args in calls:
        given = [refill(old, new) for old, new in zip(given, args, strict=True)]
        found.append(copy.deepcopy(getattr(student, name)(*given)))
    return found


def expect_reused(student, calls):
    """Nothing is kept of an argument that holds other things by then."""
    seen = student.drive(drive_reused, calls)
    for (name, *args), value in zip(calls, seen, strict=True):
        right = getattr(student, name)(*args)
        alike(value, right, f"{name} of arguments that held other things before: the result")


def shuffled(rng, d):
    """The same dict, its keys in an order drawn."""
    return {key: d[key] for key in spread(rng, list(d), len(d))}


def drive_rounds(student, kind, makes, rounds):
    """Runs beside the student's code: modules whose parameters change between calls; all results,
    held to the end, and what is left of the inputs."""
    import torch
    from torch import nn

    def sparse(w, b, places):
        base = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
        base.load_state_dict({"weight": w} if b is None else {"weight": w, "bias": b})
        return student.SparseLinear(base, places)

    made = [sparse(*make) if kind == "SparseLinear" else student.Adapter(*make) for make in makes]
    held, views = [], []
    for which, training, grad, parts, x in rounds:
        module = made[which].train(training)
        with torch.no_grad():
            for name, value in parts.items():
                getattr(module, name).copy_(value)
        views.append(x.transpose(0, 1).contiguous().transpose(0, 1))
        with torch.set_grad_enabled(grad):
            held.append(module(views[-1]))
    return [y.detach() for y in held], views


MODES = [  # (training, with gradients), as they follow upon one another
    (True, True), (False, False), (False, False), (False, True), (False, True), (True, False),
    (True, False), (True, True),
]  # fmt: skip


def expect_rounds(student, kind, makes, parts_of, x_of, check):
    """Two modules in all MODES, each call with other parameters and another x."""
    rounds = [(i, *mode, parts_of(), x_of()) for mode in MODES for i in range(len(makes))]
    results, left = student.drive(drive_rounds, kind, makes, rounds)
    for (i, training, grad, parts, x), y, after in zip(rounds, results, left, strict=True):
        mode = f"{'training' if training else 'eval'}, {'with' if grad else 'without'} gradients"
        expect_same(after, x, f"what {kind} was given, {mode}")
        check(i, parts, x, y, f"{kind} among other calls, {mode}: the error of the output")


# ---- exercise 1 ------------------------------------------------------------------------------


def drive_gradients(student, parts, y, dy):
    """Runs beside the student's code: an adapter's output and gradients."""
    adapter = student.Adapter(parts["up"].shape[0], parts["down"].shape[0])
    for name, value in parts.items():
        getattr(adapter, name).data = value
    y = y.requires_grad_()
    out = adapter(y)
    (out * dy).sum().backward()  # dy as an argument imports sympy: 0.3 s
    grads = {n: p.grad for n, p in adapter.named_parameters()}
    return out.detach(), grads, y.grad


def drawn_parts(rng, size, m):
    """Parameters of an adapter, all of them other than at the start."""
    shapes = ((m, size), (m,), (size, m), (size,))
    return {n: torch.randn(s, generator=rng) for n, s in zip(PARTS, shapes, strict=True)}


def without(name, parts):
    """The parameters, one of them zero."""
    return {n: torch.zeros_like(p) if n == name else p for n, p in parts.items()}


def exact_adapter(parts, y, dy):
    """(output, gradients by name, gradient of y) in float64."""
    leaves = {n: p.double().requires_grad_() for n, p in parts.items()}
    y = y.double().requires_grad_()
    low = F.gelu(y @ leaves["down"].T + leaves["down_bias"])
    out = y + low @ leaves["up"].T + leaves["up_bias"]
    (out * dy.double()).sum().backward()
    return out.detach(), {n: p.grad for n, p in leaves.items()}, y.grad


@exercise(
    "ex1",
    points=2,
    invariant="y + gelu(y down^T + down_bias) up^T + up_bias and its gradients, for widths and "
    "numbers of all sizes",
    cause="a matrix transposed that fits square ones only, a bias left out, y detached, or "
    "the approximation by tanh",
)
def test_outputs_and_gradients(student, rng):
    f32, half = torch.float32, torch.bfloat16
    for size, m, large, dtype in (
        (1, 1, 1.0, f32),
        (9, 4, 1e-8, f32),
        (5, 32, 1e4, f32),
        (5, 8, 1e12, f32),
        (64, 3, 1.0, f32),
        (7, 7, 30.0, f32),
        (6, 5, 1.0, half),
    ):
        parts = drawn_parts(rng, size, m)
        y, dy = (torch.randn(2, 3, size, generator=rng).to(dtype) for _ in (0, 1))
        y = y * large
        rounded = 4 * BFLOAT16 if dtype == half else 0.0  # what is added, and the sum
        out, grads, dx = student.drive(drive_gradients, parts, y, dy)
        right, exact, exact_dx = exact_adapter(parts, y, dy)
        # what sums of so many products may lose: all terms positive, gelu's slope at most 1.13
        a = {n: p.double().abs() for n, p in parts.items()}
        low = y.double().abs() @ a["down"].T + a["down_bias"]
        bound = 8 * (size + m + 8) * FLOAT32
        reach = y.double().abs() + low @ a["up"].T + a["up_bias"]
        expect_tensor(out, "the output", dtype, (2, 3, size))
        expect_at_most((out - right).abs(), (bound + rounded) * reach, "the error of the output")
        back = dy.double().abs() @ a["up"]  # on gelu's output, [2, 3, m]
        # the slope moves by at most 1 where its argument does: an error of the argument counts too
        moved = back * (1 + low)
        sizes = {
            "up": torch.einsum("btn,btm->nm", dy.double().abs(), low),
            "up_bias": dy.double().abs().sum((0, 1)),
            "down": torch.einsum("btm,btk->mk", moved, y.double().abs()),
            "down_bias": moved.sum((0, 1)),
        }
        assert sorted(grads) == sorted(PARTS), f"parameters {sorted(grads)}"
        for name in PARTS:
            expect_tensor(grads[name], f"the gradient of {name}", torch.float32)
            off = (grads[name] - exact[name]).abs()
            expect_at_most(off, 2 * bound * sizes[name], f"the error of the gradient of {name}")
        expect_tensor(dx, "the gradient of y", dtype, (2, 3, size))
        most = (2 * bound + rounded) * (dy.double().abs() + moved @ a["down"])
        expect_at_most((dx - exact_dx).abs(), most, "the error of the gradient of y")


def expect_adapted(out, parts, y, what="the error of the output"):
    """An output of an adapter with few and ordinary numbers."""
    expect_tensor(out, what, y.dtype, tuple(y.shape))
    if not y.numel():
        return
    right, _, _ = exact_adapter(parts, y, torch.zeros_like(y))
    added = (right - y.double()).abs()
    unit = BFLOAT16 if y.dtype == torch.bfloat16 else 400 * FLOAT32
    # two roundings: of what is added and of the sum (or one, of the sum)
    bound = unit * (added + right.abs()) + 1000 * FLOAT32
    expect_at_most((out.double() - right).abs(), bound, what)


def drive_forms(student, parts, y):
    """Runs beside the student's code: inputs that are views, and what is left of them."""
    adapter = student.Adapter(parts["up"].shape[0], parts["down"].shape[0])
    for name, value in parts.items():
        getattr(adapter, name).data = value
    size = parts["up"].shape[0]
    views = [y.mT, y[0, :, 0], y.mT[:0], y.mT[None], y.mT[0, :1]]
    given = y.mT.clone()
    adapter(given)
    assert all(v.shape[-1] == size for v in views)
    return [adapter(v).detach() for v in views], given


@exercise(
    "ex1",
    points=2,
    invariant="bfloat16 comes back as bfloat16, with the bottleneck in float32; views, one "
    "dimension, no row; y stays as it was",
    cause="the bottleneck in bfloat16, y itself rounded to float32 and back, view in place "
    "of reshape, or y += ...",
)
def test_dtypes_and_views(student, rng):
    for dtype in (torch.float32, torch.bfloat16):
        parts = drawn_parts(rng, 6, 3)
        y = torch.randn(2, 6, 5, generator=rng).to(dtype)
        outs, given = student.drive(drive_forms, parts, y)
        expect_same(given, y.mT, "y after a call")
        for out, view in zip(
            outs, [y.mT, y[0, :, 0], y.mT[:0], y.mT[None], y.mT[0, :1]], strict=True
        ):
            expect_adapted(out, parts, view)
        turn = itertools.cycle((*PARTS, "none"))  # which part is all zeros
        expect_rounds(
            student,
            "Adapter",
            [(6, 3), (6, 3)],
            lambda turn=turn: without(next(turn), drawn_parts(rng, 6, 3)),
            lambda dtype=dtype: torch.randn(2, 4, 6, generator=rng).to(dtype),
            lambda i, parts, x, y, what: expect_adapted(y, parts, x, what),
        )
    # the bottleneck in float32: 256 products that cancel to a small number
    size, m = 4, 2
    parts = {
        "down": torch.full((m, size), 100.0),
        "down_bias": torch.full((m,), -400.5),
        "up": torch.ones(size, m),
        "up_bias": torch.zeros(size),
    }
    y = torch.ones(1, size, dtype=torch.bfloat16)
    outs, _, _ = student.drive(drive_gradients, parts, y, torch.ones_like(y))
    right, _, _ = exact_adapter(parts, y, torch.ones_like(y))
    off = (outs.double() - right).abs()
    expect_at_most(off, 2 * BFLOAT16 * right.abs(), "the error where the bottleneck cancels")


def drive_starts(student, sizes, seed):
    """Runs beside the student's code: parameters of fresh adapters."""
    import torch

    torch.manual_seed(seed)
    drawn = []
    for size, m in sizes:
        adapter = student.Adapter(size, m)
        drawn.append({n: p.detach().clone() for n, p in adapter.named_parameters()})
    return drawn


def drive_identity(student, ys):
    """Runs beside the student's code: what fresh adapters put out, and the gradient of `up`."""
    found = []
    for y in ys:
        adapter = student.Adapter(y.shape[-1], 2)
        out = adapter(y)
        if out.requires_grad:
            out.float().sum().backward()
        found.append((out.detach(), adapter.up.grad))
    return found


@exercise(
    "ex1",
    points=2,
    invariant="at the start: y, bit by bit, also of 1e30 and 1e-30; what is drawn is uniform up "
    "to 1 / sqrt(size), drawn by torch, and two adapters do not begin alike",
    cause="a bound of 1 / size, normal numbers, a generator with a fixed seed, or all zeros",
)
def test_how_it_starts(student, rng):
    ys = [torch.randn(3, 8, generator=rng) * scale for scale in (1e-30, 1.0, 1e30)]
    ys += [torch.randn(2, 8, generator=rng).bfloat16(), torch.zeros(1, 1), torch.zeros(0, 4)]
    for y, (out, grad) in zip(ys, student.drive(drive_identity, ys), strict=True):
        expect_same(out, y, "the output at the start")
        if y.numel() and 0.01 < y.abs().max() < 100:  # gelu of ordinary numbers is not 0
            assert grad is not None and grad.any(), f"at the start up has no gradient, {y.dtype}"
    sizes = [(100, 50), (100, 50), (4, 2000), (400, 20), (1, 1), (4096, 2), (3, 512)]
    one, again, two = (student.drive(drive_starts, sizes, seed) for seed in (1, 1, 2))
    for (size, m), parts, same, others in zip(sizes, one, again, two, strict=True):
        for name in PARTS:
            expect_same(same[name], parts[name], f"{name} of the same seed of torch")
        shapes = [tuple(parts[name].shape) for name in PARTS]
        assert shapes == [(m, size), (m,), (size, m), (size,)], f"shapes of the four are {shapes}"
        moving = [n for n, p in parts.items() if p.abs().max() > 0]
        assert moving and set(moving) <= {"down", "down_bias"}, f"not zero at first are {moving}"
        for name in moving:
            part, bound = parts[name], 1 / math.sqrt(size)
            assert not torch.equal(part, others[name]), "other seeds of torch, the same adapter"
            expect_at_most(part.abs().max(), bound * (1 + 4 * FLOAT32), f"the largest of {name}")
            if part.numel() >= 2000:
                # of 2000 uniform numbers none above 0.99 of the bound: 2e-9
                expect_at_most(-part.abs().max(), -0.99 * bound, f"minus the largest of {name}")
                mean = part.double().abs().mean() / bound  # 1/2, with a deviation of 0.0065
                expect_close(mean, torch.tensor(0.5, dtype=F64), what=f"mean |{name}|", atol=0.04)
                share = (part > 0).double().mean()  # 1/2, with a deviation of 0.011
                expect_close(share, torch.tensor(0.5, dtype=F64), what="share above 0", atol=0.07)
            assert not torch.equal(one[0][name], one[1][name]), "two adapters begin alike"
    for size, m in ((0, 2), (2, 0), (-1, 1), (1, -3)):
        expect_error(
            ValueError, lambda s=size, m=m: student.drive(drive_starts, [(s, m)], 0), f"{size}, {m}"
        )


def drive_adapted(student, state, config, dtype, names, m, ids, fill, train):
    """Runs beside the student's code: a model whose adapters are filled, with gradients."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config)).to(dtype).train(train)
    model.load_state_dict(state)
    first = next(iter(model.parameters())).requires_grad_(False)
    made = student.add_adapters(model, names, m)
    left = [sorted({m.training for m in model.modules()})]
    left += [[p.requires_grad for p in model.parameters()]]
    dtypes = {str(p.dtype) for p in made.parameters() if p.requires_grad}
    first.requires_grad_()
    kept = {n: p.clone() for n, p in model.state_dict().items()}
    for p in model.parameters():  # a copy does not notice
        p.data = p.data.mul_(3.0)
    trained = [p for p in made.parameters() if p.requires_grad]
    for p in trained:
        p.data = torch.full_like(p, fill) * torch.arange(1, p.numel() + 1).view_as(p) / p.numel()
    logits = made(ids)
    logits.float().square().mean().backward()
    modes = {module.training for module in made.modules()}
    untouched = all(p.grad is None for p in model.parameters())
    shapes = sorted([*p.shape] for p in trained)
    moved = all(p.grad is not None for p in trained)
    return logits.detach(), shapes, sorted(modes), untouched, moved, kept, left, sorted(dtypes)


@exercise(
    "ex1",
    points=2,
    invariant="what a layer puts out goes through its adapter, before anything else; names that "
    "are given alone; the mode of the layer; bfloat16 models; another model the next time",
    cause="the adapter before the layer or beside it, adapters behind all linear layers, "
    "train() forgotten, or parameters shared with the given model's gradients",
)
def test_models(student, rng):
    every = [f"model.layers.{i}.{p}" for i in (0, 1) for p in ("self_attn.o_proj", "mlp.down_proj")]
    for names in (every, []):
        expect_left(student, "add_adapters", names, 3)
    for dtype, names, m, train in (
        (torch.float32, every, 5, True),
        (torch.float32, every, 5, True),  # another model of the same sizes
        (torch.float32, ["model.layers.1.self_attn.k_proj"], 1, False),
        (torch.float32, [*every, "model.layers.0.mlp.up_proj", "lm_head"], 2, False),
        (torch.bfloat16, every[:1], 2, False),
    ):
        config, model = a_llama(rng, dtype)
        ids, fill = torch.randint(20, (2, 5), generator=rng), 0.3
        state = state_of(model)
        args = (state, config, dtype, names, m, ids, fill, train)
        value = student.drive(drive_adapted, *args)
        logits, shapes, seen, untouched, moved, kept, left, dtypes = value
        sizes = [model.get_submodule(n).out_features for n in names]
        want = sorted(s for n in sizes for s in ([m, n], [m], [n, m], [n]))
        assert shapes == want, f"trained are {shapes}, expected {want}"
        assert seen == [train], "modules are not all in the mode of the layers"
        assert dtypes == ["torch.float32"], f"adapters hold {dtypes}"
        modes, free = left  # one parameter was frozen before
        assert modes == [train], "the model that was given is in another mode"
        assert free == [False] + [True] * (len(free) - 1), "the given model's parameters: frozen?"
        assert untouched, "gradients reached the parameters of the model that was given"
        assert moved, "a trained parameter has no gradient"
        for name, tensor in state.items():
            expect_same(kept[name], tensor, f"{name} of the model that was given")
        for name in names:
            model.get_submodule(name).register_forward_hook(filled_adapter(m, fill))
        with torch.no_grad():
            right = model(ids)
        size = right.abs().max().item()
        bound = (0.2 if dtype == torch.bfloat16 else 1e-4) * size
        expect_close(logits, right, what="a logit", atol=bound)


def filled_adapter(m, fill):
    """What the driver fills an adapter with, as a hook behind a layer."""

    def hook(module, args, y):
        size = y.shape[-1]
        shapes = ((m, size), (m,), (size, m), (size,))
        counts = [torch.arange(1, math.prod(s) + 1).view(s) / math.prod(s) for s in shapes]
        down, c, up, u = (fill * n for n in counts)
        return y + (F.gelu(y.float() @ down.T + c) @ up.T + u).to(y.dtype)

    return hook


def drive_anywhere(student, cases):
    """Runs beside the student's code: of each adapter output, gradients, and y as it is then."""

    found = []
    for parts, y, dy, layout, training in cases:
        adapter = student.Adapter(parts["up"].shape[0], parts["down"].shape[0]).train(training)
        for name, value in parts.items():
            getattr(adapter, name).data = value
        laid = y.clone()
        if layout == 1 and y.dim() > 1:
            laid = y.mT.contiguous().mT
        elif layout:  # part of one that is larger in every dimension
            laid = y.repeat_interleave(2, -1).repeat([2] * (y.dim() - 1) + [1])
            laid = laid[tuple(slice(n) for n in y.shape[:-1])][..., ::2]
        leaf = laid.requires_grad_()
        out = adapter(leaf)
        (out * dy).sum().backward()
        grads = {n: p.grad for n, p in adapter.named_parameters()}
        found.append((out.detach(), grads, leaf.grad, leaf.detach()))
    return found


def expect_adapter_anywhere(found, parts, y, dy, what):
    """Output and gradients of an adapter against float64, as far off as roundings can bring them:
    float32 in the bottleneck, then one rounding to the dtype of y, of what is added or the sum."""
    out, grads, dx, left = found
    expect_same(left, y, f"y of {what}, after the call")
    expect_tensor(out, f"the output of {what}", y.dtype, tuple(y.shape))
    expect_tensor(dx, f"the gradient of y, {what}", y.dtype, tuple(y.shape))
    assert sorted(grads) == sorted(PARTS), f"parameters {sorted(grads)}"
    (m, size), rounding = parts["down"].shape, BFLOAT16 if y.dtype == torch.bfloat16 else FLOAT32
    right, exact, exact_dx = exact_adapter(parts, y, dy)
    a = {n: p.double().abs() for n, p in parts.items()}
    flat, back = y.double().abs().reshape(-1, size), dy.double().abs().reshape(-1, size)
    low = flat @ a["down"].T + a["down_bias"]
    bound = 8 * (size + m + 8) * FLOAT32
    inner = bound * (low @ a["up"].T + a["up_bias"])  # what the bottleneck may be off by
    added, whole_ = (right - y.double()).abs().view_as(flat), right.abs().view_as(flat)
    most = inner + 2 * rounding * inner + 1.02 * rounding * (added + whole_) + bound * flat
    off = (out.double() - right).abs().view_as(flat)
    expect_at_most(off, most if y.dtype == torch.bfloat16 else inner + bound * flat,
                   f"the error of the output of {what}")  # fmt: skip
    moved = (back @ a["up"]) * (1 + low)  # the slope moves by at most 1 where its argument does
    bound *= 1 + len(flat) / (size + m + 8)  # sums over all rows
    sizes = {"up": back.T @ low, "up_bias": back.sum(0), "down": moved.T @ flat}
    sizes["down_bias"] = moved.sum(0)
    for name in PARTS:
        what_of = f"the gradient of {name}, {what}"
        if grads[name] is None and not len(flat):
            continue  # no vector went through
        expect_tensor(grads[name], what_of, torch.float32, tuple(parts[name].shape))
        off = (grads[name] - exact[name]).abs()
        expect_at_most(off, 2 * bound * sizes[name], f"the error of {what_of}")
    most = (2 * bound + 4 * rounding) * (back + moved @ a["down"])
    off = (dx.double() - exact_dx).abs().view_as(flat)
    expect_at_most(off, most, f"the error of the gradient of y, {what}")


def parts_of_kind(rng, kind, y, m):
    """Parameters: of one size; where what is added nearly cancels in the first row; where gelu is
    small and negative, and tells its forms apart; or with one of the four all zeros."""
    size = y.shape[-1]
    parts = drawn_parts(rng, size, m)
    if kind == "tail":
        parts["down"] *= 0.01 / max(1.0, float(y.float().abs().max()) if y.numel() else 1.0)
        parts["down_bias"] = -2.5 - torch.rand(m, generator=rng)
        parts["up"] = parts["up"].abs()
        parts["up_bias"] *= 0.0
    elif kind == "cancels" and y.numel():
        parts["up_bias"] *= 0.0
        right = exact_adapter(parts, y, torch.zeros_like(y))[0] - y.double()
        parts["up_bias"] = -right.reshape(-1, size)[0].float()
    return without(kind, parts) if kind in PARTS else parts


def drive_fan(student, kind, cases):
    """Runs beside the student's code: layers side by side, of which some get adapters or biases."""
    import torch
    from torch import nn

    class Fan(nn.Module):
        def __init__(self, k, widths, biased):
            super().__init__()
            made = [nn.Linear(k, n, bias=b) for n, b in zip(widths, biased, strict=True)]
            self.up, self.up_1 = made[0], made[-1]
            deep = nn.ModuleDict(dict(zip(("1", "10", "up"), made[2:-1], strict=True)))
            self.part = nn.ModuleDict({"up": made[1], "deep": deep})
            self.order = ["up", "part.up", *(f"part.deep.{n}" for n in deep), "up_1"]
            self.scale = nn.Parameter(torch.ones(1))  # of no layer, and of a name of its own
            self.part.register_parameter("gain", nn.Parameter(torch.ones(1)))

        def forward(self, x):
            y = torch.cat([self.get_submodule(n)(x) for n in self.order], -1)
            return y * self.scale * self.part.gain

    def fill(name, shape):
        at = torch.arange(shape[0])[:, None] + torch.arange(shape[-1])[None]
        rows, last = torch.arange(shape[0]), name.split(".")[-1]
        if last == "up":
            return (at % 7 == 0).float()
        if last == "down":
            return (torch.arange(shape[1]) == rows[:, None] % shape[1]).float()
        return 14.0 + rows % 3 if last == "down_bias" else rows % 4 - 1.0

    found = []
    for k, widths, weights, biases, dtype, modes, free, before, names, m, x in cases:
        model = Fan(k, widths, [b is not None for b in biases]).to(dtype)
        own = [model.train(modes[0]).get_submodule(n) for n in model.order]
        rest = (m,) if kind == "add_adapters" else ()
        if not found:  # the same model, when it held other numbers
            getattr(student, kind)(model, names, *rest)
        for layer, w, b, mode in zip(own, weights, biases, modes, strict=True):
            layer.weight.data = w.to(dtype)
            if b is not None:
                layer.bias.data = b.to(dtype)
            layer.train(mode)
        for i, p in enumerate(model.parameters()):
            p.requires_grad_(free or i % 3 == 0)
        kept = [(n, p.detach().clone(), p.requires_grad) for n, p in model.named_parameters()]
        was = [module.training for module in model.modules()]
        made = getattr(student, kind)(model, before, *rest) if before else model
        made = getattr(student, kind)(made, names, *rest)
        trained = {n: p for n, p in made.named_parameters() if p.requires_grad}
        start = {n: p.detach().clone() for n, p in trained.items()}
        first = made(x.to(dtype)).detach()
        for n, p in trained.items():
            value = fill(n, p.shape) if kind == "add_adapters" else p.data + 3
            p.data = value.to(p.dtype)
        y = made(x.to(dtype))
        if y.requires_grad:
            y.sum().backward()
        now = [(n, p.detach().clone(), p.requires_grad) for n, p in model.named_parameters()]
        changed = [[n for n, *_ in kept] != [n for n, *_ in now]]
        changed += [
            not torch.equal(a, b) or f != g for (_, a, f), (_, b, g) in zip(kept, now, strict=True)
        ]
        changed += [was != [module.training for module in model.modules()]]
        changed += [any(p.grad is not None for p in model.parameters())]
        modes_now = {"up": {}, "weight": {}}  # by the width of the layer
        for module in made.modules():
            for n, p in module.named_parameters(recurse=False):
                if n == "weight" or (p.requires_grad and n == "up"):
                    modes_now[n][p.shape[0]] = module.training
        for name in ("", "part", "part.deep"):
            modes_now["weight"][name] = made.get_submodule(name).training
        moved = all(p.grad is not None for p in trained.values())
        found.append((first, y.detach(), start, moved, any(changed), modes_now))
    return found


FAN = ("up", "part.up", "part.deep.1", "part.deep.10", "part.deep.up", "up_1")  # names alike


def fan_cases(rng, widths_of_adapters):
    """Whole numbers, so that all is exact in any dtype; every dtype with every number of names,
    mode and m; biases here and there; some layers were adapted before."""
    cases, lists = [], ("none", "one", "several", "all")
    alone = itertools.cycle(spread(rng, FAN[::2], 3))  # of names alike the shortest, or another
    for dtype, many, training, m, adapted, free in every_pair(
        rng, (torch.float32, torch.bfloat16), lists, (True, False, None), widths_of_adapters,
        (True, False), (True, False),
    ):  # fmt: skip
        k, widths = whole(rng, 1, 5), spread(rng, (1, 2, 3, 4, 5, 6), 6)
        if many == "all" and dtype not in [case[4] for case in cases if case[0] == 70]:  # wide
            k, widths = 70, [n + 64 for n in widths]
        weights = [torch.randint(-1, 2, (n, k), generator=rng).float() for n in widths]
        weights = [w * (torch.arange(k) < 5) for w in weights]
        some = spread(rng, (True, False), 6)
        biases = [torch.randint(-1, 2, (n,), generator=rng).float() if b else None
                  for n, b in zip(widths, some, strict=True)]  # fmt: skip
        names = spread(rng, FAN, 6)[: {"none": 0, "one": 1, "several": 4, "all": 6}[many]]
        names = [next(alone)] if many == "one" else names
        before = [n for n in FAN if n not in names][:2] if adapted else []
        modes = spread(rng, (True, False), 6) if training is None else [training] * 6
        x = torch.randint(-1, 2, (*([2] * whole(rng, 0, 2)), k), generator=rng).float()
        cases.append((k, widths, weights, biases, dtype, modes, free, before, names, m, x))
    return cases


def expect_fan(found, case, adapters):
    """Adapters (filled) or biases (3 more than they were) of a Fan: exact."""
    _, widths, weights, biases, dtype, modes, _, before, names, m, x = case
    first, y, start, moved, changed, modes_now = found
    what = f"a model in {dtype} with {len(names)} names"
    assert not changed, f"{what}: the model that was given is another one"
    assert moved or not start, f"{what}: a trained parameter has no gradient"
    plain, right, shapes = [], [], []
    for name, n, w, b in zip(FAN, widths, weights, biases, strict=True):
        plain.append(x @ w.T + (0.0 if b is None else b))
        out = plain[-1]
        if name in names:
            rows = torch.arange(n)
            if adapters:
                j = torch.arange(m)
                low = out[..., j % n] + 14.0 + j % 3
                up = ((rows[:, None] + j) % 7 == 0).float()
                out = out + low @ up.T + (rows % 4 - 1.0)
                shapes += [(m, n), (m,), (n, m), (n,)]
            else:
                out = out + 3
                shapes.append((n,))
        right.append(out)
    expect_same(first, torch.cat(plain, -1).to(dtype), f"{what}, at the start: what it puts out")
    expect_same(y, torch.cat(right, -1).to(dtype), f"{what}, filled: what it puts out")
    seen = sorted(tuple(p.shape) for p in start.values())
    assert seen == sorted(shapes), f"{what}: trained are {seen}, expected {sorted(shapes)}"
    want = dict(zip(widths, modes, strict=True)) | dict.fromkeys(
        ("", "part", "part.deep"), modes[0]
    )
    seen = modes_now["weight"]  # a layer of one's own may call its weight another name
    assert seen == {k: want[k] for k in seen}, f"{what}: layers of the copy in another mode"
    if adapters:
        kinds = {p.dtype for p in start.values()}
        assert kinds <= {torch.float32}, f"{what}: adapters hold {kinds}"
        want = {n: mode for name, n, mode in zip(FAN, widths, modes, strict=True) if name in names}
        assert modes_now["up"] == want, f"{what}: adapters in another mode than their layers"
        return
    for name, n, b in zip(FAN, widths, biases, strict=True):
        if name in names:
            old = torch.zeros(n) if b is None else b
            expect_same(start[f"{name}.bias"], old.to(dtype), f"{what}: the bias of {name}")


@exercise(
    "ex1",
    points=1,
    invariant="adapters and models with them, anywhere in what the card admits: every dtype with "
    "every number of dimensions, layout, size, width and mode, with gradients; adapters of before",
    cause="a corner where two others meet, such as bfloat16 in a view; gradients in training "
    "alone; or biases of the model that stay trainable",
)
def test_anywhere_behind_a_layer(student, rng):
    shapes = ((1, 1), (1, 70), (2, 3), (9, 65), (130, 1), (130, 70))
    types, layouts, modes = (torch.float32, torch.bfloat16), (0, 1, 2), (True, False)
    kinds = ("plain", "cancels", "tail", spread(rng, PARTS, 1)[0])
    scales = (2.0**-60, 1.0, 2.0**40)
    cases = every_pair(rng, (1, 2, 3, 4), scales, layouts, modes, types, kinds, shapes, (False,))
    cases += every_pair(
        rng, (2, 3, 4), (1.0,), layouts, modes, types, PARTS[:1], ((2, 3), (5, 1)), (True,)
    )
    rows = spread(rng, (1, 2, 5, 17, 70, 150), len(cases))
    calls, checks = [], []
    for n, (dims, scale, layout, training, dtype, kind, (size, m), empty) in zip(
        rows, cases, strict=True
    ):
        lead = [[], [n], [n, 1], [1, n // 2 + 1, 2]][dims - 1]
        lead = [0, *lead[1:]] if empty else lead
        y = (scale * torch.randn(*lead, size, generator=rng)).to(dtype)
        dy = torch.randn(y.shape, generator=rng).to(dtype)
        parts = parts_of_kind(rng, kind, y, m)
        calls.append((parts, y, dy, layout, training))
        mode = "training" if training else "eval"
        what = f"y {list(y.shape)} in {dtype}, layout {layout}, m = {m}, {kind}, {mode}"
        checks.append((parts, y, dy, what))
    for found, args in zip(student.drive(drive_anywhere, calls), checks, strict=True):
        expect_adapter_anywhere(found, *args)
    cases = fan_cases(rng, (1, 5, 33))
    for found, case in zip(student.drive(drive_fan, "add_adapters", cases), cases, strict=True):
        expect_fan(found, case, True)
    sizes = ((a, b) for a in (0, -1, 1, 130) for b in (0, -1, 1, 70) if min(a, b) < 1)
    seen = student.drive(drive_sizes_refused, list(sizes))
    assert seen == ["ValueError"] * len(seen), f"sizes and widths below 1 raised {seen}"


def drive_sizes_refused(student, sizes):
    """Runs beside the student's code: what Adapter(size, m) raises."""
    raised = []
    for size, m in sizes:
        try:
            student.Adapter(size, m)
            raised.append("nothing")
        except Exception as error:
            raised.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
    return raised


# ---- exercise 2 ------------------------------------------------------------------------------


def draw_rows(rng, lengths, d, dtype=F64, scale=1.0):
    """(prompts, texts), parts of one large tensor."""
    counts = [n for pair in lengths for n in pair]
    values = scale * torch.randn(sum(counts), d, generator=rng, dtype=F64)
    parts = values.to(dtype).split(counts)
    return list(parts[::2]), list(parts[1::2])


def expect_rows(value, prompts, texts, call="joined"):
    """Structure of a batch: x, positions, mask."""
    x, positions, mask = expect_tuple(value, (torch.Tensor,) * 3, call)
    lengths = torch.tensor([len(p) + len(t) for p, t in zip(prompts, texts, strict=True)])
    b, s = len(lengths), int(lengths.max())
    where = torch.arange(s) - (s - lengths)[:, None]  # [B, S], negative at fillings
    real = where >= 0
    right = torch.zeros(b, s, texts[0].shape[1], dtype=texts[0].dtype)
    right[real] = torch.cat([part for row in zip(prompts, texts, strict=True) for part in row])
    expect_same(x, right, f"x of {call}")
    expect_tensor(positions, f"positions of {call}", torch.int64, (b, s))
    expect_tensor(mask, f"mask of {call}", torch.bool, (b, 1, s, s))
    fill = positions[~real]
    assert ((fill >= 0) & (fill < s)).all(), f"positions of fillings: {fill.tolist()}"
    free = torch.where(real, positions, where)
    expect_same(free, where, f"positions of {call}, where there is no filling")
    sees = torch.ones(s, s, dtype=torch.bool).tril() & real[:, None]  # [B, S, S]
    seen = torch.where(real[:, :, None], mask[:, 0], sees)
    if not torch.equal(seen, sees):  # or the comparison takes 8 bytes for each
        expect_same(seen, sees, f"what rows of {call} see")
    assert mask.any(-1).all(), f"a filling of {call} sees nothing: NaN"
    return x, positions, mask


def drive_rows_of_views(student, wide):
    """Runs beside the student's code: prompts and texts that are views."""
    views = [w.T[::2] for w in wide]
    return student.joined(views[:2], views[2:])


@exercise(
    "ex2",
    points=2,
    invariant="rows on the right, positions from each row's first vector, masks without "
    "fillings: for any lengths, one row, no prompt at all, width 1, three dtypes, "
    "views",
    cause="lengths of prompts alone, the last row's length for all, float32 for every "
    "dtype, or fillings that are told by zeros in x",
)
def test_structure(student, rng):
    cases = [
        ([(0, 1)], 1),
        ([(5, 1), (0, 9), (2, 2), (6, 3), (1, 1)], 3),
        ([(0, 4), (0, 4), (0, 4)], 2),
        ([(3, 3), (3, 3)], 5),
        ([(300, 20), (0, 7)], 2),
        ([(40, 60), (1, 2), (7, 7), (0, 33), (90, 10), (0, 1)], 4),
    ]
    for dtype in (torch.float32, F64, torch.bfloat16):
        for lengths, d in cases:
            scale = spread(rng, (1e-8, 1e4), 1)[0]
            prompts, texts = draw_rows(rng, lengths, d, dtype, scale)
            expect_rows(student.joined(prompts, texts), prompts, texts)
    for _ in range(3):  # rows, prompts or texts of one length; the longest prompt, a short text
        n, t = whole(rng, 1, 6), whole(rng, 1, 6)
        one = [(n + t - i, i) for i in torch.randperm(n + t, generator=rng)[:4].add(1).tolist()]
        some = [whole(rng, 0, 6) for _ in range(4)]
        for lengths in (one, [(n, i + 1) for i in some], [(i, t) for i in some],
                        [(6 + n, 1), (0, 6 + n), (n, n)], [(i, i + 1) for i in some]):  # fmt: skip
            prompts, texts = draw_rows(rng, lengths, 2)
            expect_rows(student.joined(prompts, texts), prompts, texts, f"joined of {lengths}")
    prompts, texts = draw_rows(rng, [(3, 2), (4, 5)], 3)
    texts[0][0] = 0.0  # vectors that are zeros are no filling
    prompts[1][:2] = 0.0
    expect_rows(student.joined(prompts, texts), prompts, texts)
    wide = [torch.randn(3, 6, generator=rng) for _ in range(4)]
    views = [w.T[::2] for w in wide]
    expect_rows(student.drive(drive_rows_of_views, wide), views[:2], views[2:], "joined of views")
    calls = [draw_rows(rng, [(3, 2), (1, 5)], 3, torch.float32) for _ in range(3)]
    for args, value in zip(calls, held_results(student, "joined", calls), strict=True):
        expect_rows(value, *args, "joined, held while others came")
    again(student, [("joined", *args) for args in (*calls, calls[0])])
    value = student.joined(tuple(views[:2]), tuple(views[2:]))
    expect_rows(value, views[:2], views[2:], "joined of tuples")


@exercise(
    "ex2",
    points=3,
    invariant="logits of every row, now and for each token that follows, are those of the row "
    "alone",
    cause="a mask or a position that is right for the first step only",
)
def test_rows_alone_and_on(student, rng):
    _, model = a_llama(rng, num_hidden_layers=3)
    lengths = [(whole(rng, 0, 9), whole(rng, 1, 9)) for _ in range(5)] + [(0, 1), (12, 3)]
    prompts, texts = draw_rows(rng, lengths, 16)
    x, positions, mask = expect_rows(student.joined(prompts, texts), prompts, texts)
    news = torch.randn(6, len(texts), 1, 16, generator=rng, dtype=F64)
    cache = KVCache()
    with torch.no_grad():
        alone = [  # causal: what comes later changes no logit
            logits_of_vectors(model, torch.cat([p, t, *news[:, i]])[None])[0]
            for i, (p, t) in enumerate(zip(prompts, texts, strict=True))
        ]
        logits = logits_of_vectors(model, x, cache, positions, mask)
        for i, right in enumerate(alone):
            right = right[: -len(news)]
            expect_close(logits[i, -len(right) :], right, what=f"a logit of row {i}", atol=EXACT)
        for step, new in enumerate(news):
            value = student.go_on(positions, mask)
            positions, mask = expect_tuple(value, (torch.Tensor,) * 2, "go_on")
            expect_tensor(positions, "positions of go_on", torch.int64, (len(texts), 1))
            keys = x.shape[1] + step + 1
            expect_tensor(mask, "mask of go_on", torch.bool, (len(texts), 1, 1, keys))
            logits = logits_of_vectors(model, new, cache, positions, mask)
            right = torch.stack([row[step - len(news)] for row in alone])
            what = f"a logit, {step + 1} tokens on"
            expect_close(logits[:, -1], right, what=what, atol=EXACT)


def drawn_step(rng, b, t, s):
    """positions [B, T] and mask [B, 1, T, S] of a step whose rows begin with some fillings."""
    fill, keys = torch.randint(s, (b, 1), generator=rng), torch.arange(s)
    fill[1:][-1:] = s - 1  # the last of several rows: one vector behind fillings
    columns = keys[s - t :]  # of the queries
    anything = torch.randint(s, (b, t), generator=rng)  # what the card lets a filling's position be
    positions = torch.where(columns >= fill, columns - fill, anything)
    seen = (keys >= fill[:, :, None]) & (keys <= columns[:, None])  # [B, T, S]
    free = torch.randint(2, (b, t, s), generator=rng) > 0  # what a filling sees does not matter
    seen |= free & (columns < fill)[:, :, None]
    return positions, (seen | (keys == columns[:, None]))[:, None]


@exercise(
    "ex2",
    points=1,
    invariant="go_on of one row, of one token, and of a batch in which every row has all its "
    "columns",
    cause="a filling's position taken for the row's, or batch and columns exchanged",
)
def test_going_on(student, rng):
    # some of equal sizes: what was returned before is of no use, and stays as it was; nor does a
    # step of one token go on from the last call, whose rows are as many
    sizes = ((1, 1, 1), (3, 1, 4), (2, 5, 5), (4, 9, 12), (2, 3, 700), (2, 3, 700))
    sizes += ((2, 1, 9), (2, 1, 9), (2, 1, 10))
    calls = [drawn_step(rng, *size) for size in sizes]
    expect_reused(student, [("go_on", *drawn_step(rng, 3, 2, 5)) for _ in range(3)])
    values = held(student, rng, [("go_on", *call) for call in calls])
    for (b, _, _), (positions, mask), both in zip(sizes, calls, values, strict=True):
        right = torch.cat([mask[:, :, -1:], torch.ones(b, 1, 1, 1, dtype=torch.bool)], -1)
        for value in both:
            new, seen = expect_tuple(value, (torch.Tensor,) * 2, "go_on")
            expect_same(new, positions[:, -1:] + 1, "positions of go_on")
            expect_same(seen, right, "the mask of go_on")


def drive_one_prompt(student, prompt, texts, weights):
    """Runs beside the student's code: the gradient of a prompt that stands in every row."""
    prompt.requires_grad_()
    x, _, _ = student.joined([prompt] * len(texts), texts)
    (x * weights).sum().backward()
    return prompt.grad


def drive_row_gradients(student, prompts, texts, weights):
    """Runs beside the student's code: gradients of prompts and texts."""
    prompts = [p.requires_grad_() for p in prompts]
    texts = [t.requires_grad_() for t in texts]
    x, _, _ = student.joined(prompts, texts)
    (x * weights).sum().backward()
    return [p.grad for p in prompts], [t.grad for t in texts]


@exercise(
    "ex2",
    points=2,
    invariant="gradients reach every prompt and every text, each its own; too few or too many "
    "prompts, or no row: ValueError",
    cause="torch.tensor(...) of tensors, .data, detach, or an empty tensor written to in no_grad",
)
def test_gradients_of_rows(student, rng):
    for lengths in ([(0, 3)], [(2, 2)], [(0, 4), (1, 1)], [(2, 3), (4, 1), (1, 2)]):
        prompts, texts = draw_rows(rng, lengths, 3)
        if len(lengths) == 3:  # prompts that are alike are not the same one
            prompts[2] = prompts[0][:1].clone()
            prompts[1] = prompts[2].expand(4, -1).clone()
            lengths, prompts[0] = [(1, 3), (4, 1), (1, 2)], prompts[2].clone()
        s = max(map(sum, lengths))
        weights = torch.randn(len(lengths), s, 3, generator=rng, dtype=F64)
        of_prompts, of_texts = student.drive(drive_row_gradients, prompts, texts, weights)
        for i, (n, t) in enumerate(lengths):
            own = weights[i, s - n - t :]
            assert of_prompts[i] is not None or n == 0, f"prompt {i} has no gradient"
            assert of_texts[i] is not None, f"text {i} has no gradient"
            expect_close(of_texts[i], own[n:], what=f"the gradient of text {i}")
            if n:
                expect_close(of_prompts[i], own[:n], what=f"the gradient of prompt {i}")
    prompt, weights = torch.ones(2, 3, dtype=F64), torch.randint(99, (3, 6, 3), generator=rng)
    weights = weights.double()  # sums of whole numbers, exact in any order
    _, mixed = draw_rows(rng, [(2, 3), (2, 4), (2, 1)], 3)
    grad = student.drive(drive_one_prompt, prompt, mixed, weights)
    right = weights[0, 1:3] + weights[1, :2] + weights[2, 3:5]
    expect_close(grad, right, what="the gradient of a prompt that stands in three rows")
    for p, t, what in (
        (prompts, texts[:2], "3 prompts, 2 texts"),
        (prompts[:1], texts, "1 prompt, 3 texts"),
        ([prompts[0][:0], *prompts], texts, "4 prompts, the first without a vector, 3 texts"),
        ([], texts, "no prompt, 3 texts"),
        (prompts, [], "3 prompts, no text"),
        ([], [], "no row"),
    ):
        expect_error(ValueError, lambda p=p, t=t: student.joined(p, t), what)
        refused(student, [("joined", p, t)])


def drive_batches(student, cases):
    """Runs beside the student's code: batches of rows that lie in memory in several ways, and the
    gradients of all prompts and of all texts (NaN: none); or what was raised."""
    import itertools
    import math

    import torch

    def lay(x, way):
        if way == 1:
            return x.mT.contiguous().mT
        wide = x.repeat_interleave(2, -1).repeat(2, 1)
        return wide[: len(x), ::2] if way else x

    def grads(leaves):
        return torch.cat([torch.full_like(x, math.nan) if x.grad is None else x.grad
                          for x in leaves])  # fmt: skip

    found = []
    for (*sides, weights), ways in cases:
        turn, leaves, given = itertools.cycle(ways), [], []
        for values, counts, times in sides:  # times: one tensor in so many rows
            leaves.append([x.clone().requires_grad_() for x in values.split(counts) if counts])
            given.append([lay(x, next(turn)) for x in leaves[-1]] * times)
        try:
            for sign in (-1, -1) if ways == [0] else (1,):  # first, they hold other numbers
                for leaf in (*leaves[0], *leaves[1]):
                    leaf.data *= sign
                x, positions, mask = student.joined(*given)
        except ValueError:
            found.append("ValueError")
            continue
        (x * weights).sum().backward()
        found.append(((x.detach(), positions, mask), *map(grads, leaves)))
    return found


def drive_long(student, positions, mask, steps):
    """Runs beside the student's code: go_on of its own result, again and again."""
    for _ in range(steps):
        positions, mask = student.go_on(positions, mask)
    return positions, mask


def expect_batch(found, prompts, texts, shared, weights, what):
    """The rows, exactly; and the gradients: whole numbers, so that sums of them are exact."""
    assert found != "ValueError", f"{what}: refused"
    value, *grads = found
    expect_rows(value, prompts, texts, what)
    s, of, right = weights.shape[1], weights.double(), {"prompts": [], "texts": []}
    for row, p, t in zip(of, prompts, texts, strict=True):
        right["prompts"].append(row[s - len(p) - len(t) : s - len(t)])
        right["texts"].append(row[s - len(t) :])
    for (kind, own), grad in zip(right.items(), grads, strict=True):
        own = sum(own) if kind == shared else torch.cat(own)
        expect_tensor(grad, f"{what}: gradients of {kind}", weights.dtype, tuple(own.shape))
        expect_close(grad.double(), own, what=f"{what}: gradients of {kind}")


def batch_cases(rng, types):
    """[prompts, texts, which of both is one tensor in every row, ways to lie in memory]."""
    calls = []
    cases = every_pair(
        rng, types, (-1, 0, 1, 2), ("", "prompts", "texts"), (1, 2, 5), (0, 1, 2, 3), (1, 2, 7),
        ("any", "no prompt", "one token"),
    )  # fmt: skip
    cases += every_pair(rng, types, (0,), ("", "texts"), (1, 2), (1, 2), (2, 7), ("bare",))
    cases += every_pair(rng, types, (0, 2), ("",), (1, 3), (1, 2), (2,), ("both",))
    for dtype, power, shared, b, way, width, kind in cases:
        lengths = [(whole(rng, 0, 6), whole(rng, 1, 6)) for _ in range(b)]
        lengths = [(0, t) for _, t in lengths] if kind == "no prompt" else lengths
        lengths = [(0, t + 1) for _, t in lengths] if kind == "bare" else lengths
        lengths = [(n + 2, t + 1) for n, t in lengths] if kind == "both" else lengths
        lengths = [(n, 1) for n, _ in lengths] if kind == "one token" else lengths
        if shared == "prompts":
            lengths = [(max(1, lengths[0][0]), t) for _, t in lengths]
        if shared == "texts":
            lengths = [(n, lengths[0][1]) for n, _ in lengths]
        power = [power] * b if power < 2 else spread(rng, (-1, 0, 1), b)  # rows of unlike sizes
        prompts, texts = draw_rows(rng, lengths, width, dtype)
        for i, p in enumerate(power):
            scale = 2.0 ** ((900 if dtype == F64 else 120) * p)
            prompts[i], texts[i] = prompts[i] * scale, texts[i] * scale
        ways = [way] if way < 3 else spread(rng, (0, 1, 2), 3)
        calls.append([prompts, texts, shared, ways])
    powers, further = spread(rng, (-1, 0, 1), 3), spread(rng, (0, 1, 4), 3)
    for i, (dtype, b) in enumerate(zip(types, spread(rng, (65, 70, 130), 3), strict=True)):
        long = [(whole(rng, 505, 560), 40)] + [(3, 550)] * further[i]
        many = [(whole(rng, 0, 4), whole(rng, 1, 4)) for _ in range(b)]
        for lengths, power in ((long, powers[i]), (many, powers[i - 1])):
            scale = 2.0 ** (power * (900 if dtype == F64 else 120))
            calls.append([*draw_rows(rng, lengths, 1, dtype, scale), "", [0, 1, 2]])
    return calls


def a_batch(prompts, texts, shared, weights):
    """A case of drive_batches, without ways: rows as one tensor, or once what all share."""
    sides = []
    for kind, rows in (("prompts", prompts), ("texts", texts)):
        own = rows[:1] if kind == shared else rows
        values = torch.cat(own) if own else weights.new_zeros(0, 1)
        sides.append((values, [len(x) for x in own], len(rows) if kind == shared else 1))
    return (*sides, weights)


@exercise(
    "ex2",
    points=1,
    invariant="both functions, anywhere in what the card admits: every dtype with every number of "
    "rows, lengths, layouts and sizes, with gradients; one tensor in several rows; long rows",
    cause="a corner where two others meet, such as bfloat16 with gradients; a limit on rows or "
    "columns; or what is small taken for filling",
)
def test_anywhere_in_a_batch(student, rng):
    types = torch.float32, F64, torch.bfloat16
    calls, checks = [], []
    for prompts, texts, shared, ways in batch_cases(rng, types):
        prompts = prompts[:1] * len(prompts) if shared == "prompts" else prompts
        texts = texts[:1] * len(texts) if shared == "texts" else texts
        lengths = [(len(p), len(t)) for p, t in zip(prompts, texts, strict=True)]
        shape = (len(texts), max(map(sum, lengths)), texts[0].shape[1])
        weights = torch.randint(-9, 10, shape, generator=rng).to(texts[0].dtype)
        calls.append((a_batch(prompts, texts, shared, weights), ways))
        what = f"{len(texts)} rows in {weights.dtype}, {lengths[:5]}, one of all {shared or 'none'}"
        checks.append((prompts, texts, shared, weights, what))
    for found, check in zip(student.drive(drive_batches, calls), checks, strict=True):
        expect_batch(found, *check)
    wrong = []  # not one prompt for each text, of every kind
    unlike, further = ((0, 0), (0, 1), (2, 0), (5, 6), (6, 5)), ((-1, 0, 1), (0, 1, 2), (1, 3))
    cases = every_pair(rng, unlike, types, *further)
    for pair in ((0, 65), (65, 0), (1, 65), (65, 1)):
        cases.append((pair, *(spread(rng, options, 1)[0] for options in (types, *further))))
    for (n, m), dtype, power, way, width in cases:
        prompts, texts = draw_rows(rng, [(2, 3)] * max(n, m, 1), width, dtype, 2.0 ** (60 * power))
        prompts[-1] = prompts[-1][:0]  # the last of several
        wrong.append((a_batch(prompts[-n:][:n], texts[:m], "", texts[0]), [way]))
    seen = student.drive(drive_batches, wrong)
    for ((prompts, texts, _), _), found in zip(wrong, seen, strict=True):
        what = f"{len(prompts[1])} prompts for {len(texts[1])} texts"
        assert found == "ValueError", f"{what}: no error"
    # go_on: many rows, many columns, and many tokens on
    for b, t, s, steps in ((100, 2, 10_000, 1), (2, 1, 40_000, 1), (3, 5, 7, 130), (1, 2, 2, 1)):
        positions, mask = drawn_step(rng, b, t, s)
        if s > 1000:  # a row without filling stands at its column
            positions[0], mask[0] = s - 1, True
        new, seen = expect_tuple(
            student.drive(drive_long, positions, mask, steps), (torch.Tensor,) * 2, "go_on"
        )
        what = f"{b} rows of {s} columns, {steps} on"
        expect_same(new, positions[:, -1:] + steps, f"positions of go_on, {what}")
        right = torch.cat([mask[:, :, -1:], torch.ones(b, 1, 1, steps, dtype=torch.bool)], -1)
        expect_same(seen, right, f"the mask of go_on, {what}")


# ---- exercise 3 ------------------------------------------------------------------------------


def drive_cache(student, state, config, prefixes, chunks):
    """Runs beside the student's code: a model that reads ids with the cache, chunk by chunk."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config))
    model = model.to(state["lm_head.weight"].dtype).eval()
    model.load_state_dict(state)
    prefixes = [p.transpose(3, 4).contiguous().transpose(3, 4) for p in prefixes]  # views
    lengths, rounds = [], []
    for _ in range(2):  # twice: a cache is new, and prefixes are as they were
        cache = student.prefix_cache(prefixes)
        lengths.append(int(cache.length))
        with torch.no_grad():
            rounds.append(torch.cat([model(ids, cache=cache) for ids in chunks], 1))
    return lengths, rounds, list(prefixes), [p.requires_grad for p in prefixes]


def drive_written(student, prefixes, parts):
    """Runs beside the student's code: (whether a cache can be cut, keys and values after others
    were written over the last position or behind it, the prefixes then)."""
    import torch

    held = []
    if all(torch.equal(p, prefixes[0]) for p in prefixes):
        prefixes = prefixes[:1] * len(prefixes)  # one tensor in every row, as a caller may give it
    for _ in range(2):
        cache = student.prefix_cache(prefixes)
        cut = hasattr(cache, "truncate")  # a cache of one's own may lack it
        if cut:
            cache.truncate(cache.length - 1)
        held.append([cache.append(i, *both) for i, both in enumerate(parts)])
    return cut, held, prefixes


def with_prefixes(model, prefixes, ids):
    """Logits of ids [B, T] behind prefixes, each row for itself."""
    rows = []
    for prefix, row in zip(prefixes, ids, strict=True):
        cache = KVCache()
        for layer in range(len(prefix)):
            cache.append(layer, prefix[layer, 0][None], prefix[layer, 1][None])
        rows.append(model(row[None], cache=cache)[0])
    return torch.stack(rows)


@exercise(
    "ex3",
    points=2,
    invariant="2 n numbers for each block, key head and its size, whatever the width and the "
    "query heads are",
    cause="the width of the model, query heads, or a rule that holds where heads * head_dim "
    "= hidden",
)
def test_numbers(student, rng):
    known = {
        "layers": 32,
        "hidden": 4096,
        "mlp": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
    }
    seventy = known | {"layers": 80, "hidden": 8192, "mlp": 28672, "heads": 64}
    for shape, n, right in ((known, 100, 6_553_600), (seventy, 30, 4_915_200), (known, 0, 0)):
        seen = student.prefix_numbers(shape, n)
        assert isinstance(seen, int), f"prefix_numbers is {seen!r}, an int is asked for"
        assert seen == right, f"prefix_numbers is {seen}, expected {right}"
    for _ in range(8):
        kv = whole(rng, 1, 9)
        shape = {
            "layers": whole(rng, 1, 90),
            "hidden": whole(rng, 1, 9999),
            "mlp": whole(rng, 1, 99),
        }
        shape |= {"heads": kv * whole(rng, 1, 8), "kv_heads": kv, "head_dim": whole(rng, 1, 256)}
        n = whole(rng, 0, 300)
        right = 0
        for _ in range(shape["layers"]):
            right += torch.zeros(2, kv, n, shape["head_dim"], device="meta").numel()
        seen = expect_number(student.prefix_numbers(shape, n), "prefix_numbers")
        assert seen == right, "the number is another one than that of the tensors"
    odd = {"layers": 81, "hidden": 8192, "mlp": 28672, "heads": 63, "kv_heads": 7, "head_dim": 129}
    for low in (10**3, 10**6):  # 2 * 73143 n: no float32 holds it, above 2^31 no int32
        n = 2 * whole(rng, low, 2 * low) + 1
        seen = student.prefix_numbers(odd, n)
        assert seen == 2 * 81 * 7 * 129 * n, f"prefix_numbers is {seen} for {n} positions"
    shapes = [odd, *(odd | {key: odd[key] + 1} for key in odd)]
    again(student, [("prefix_numbers", shape, n) for shape in shapes for n in (5, 0, 6)])
    for shape in shapes:
        right = 2 * 6 * shape["layers"] * shape["kv_heads"] * shape["head_dim"]
        seen = student.prefix_numbers(shape, 6)
        assert seen == right, f"prefix_numbers is {seen} for 6 positions of {shape}"


@exercise(
    "ex3",
    points=2,
    invariant="each row behind its own prefix, also when the text goes on; a cache is new each "
    "time, and prefixes stay",
    cause="the first prefix for all rows, a cache that is kept, or text written into the prefixes",
)
def test_rows_of_prefixes(student, rng):
    for dtype, changes, n, b in (
        (F64, {}, 3, 4),
        (F64, {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}, 1, 1),
        (F64, {"num_hidden_layers": 4, "num_key_value_heads": 4}, 7, 2),
        (torch.float32, {}, 2, 3),
    ):
        config, model = a_llama(rng, dtype, **changes)
        shape = (config["num_hidden_layers"], 2, config["num_key_value_heads"], n, 8)
        drawn = torch.randn(b, *shape, generator=rng, dtype=F64).to(dtype)
        prefixes = list(drawn)
        ids = torch.randint(20, (b, 7), generator=rng)
        value = student.drive(
            drive_cache, state_of(model), config, prefixes, list(ids.split([4, 1, 2], 1))
        )
        lengths, rounds, after, free = expect_tuple(value, (list,) * 4, "a cache")
        assert not any(free), "prefix_cache made a prefix require a gradient that needed none"
        assert lengths == [n, n], f"lengths of two fresh caches are {lengths}, expected {n}"
        with torch.no_grad():
            right = with_prefixes(model, prefixes, ids)
        off = EXACT if dtype == F64 else 1e-4 * right.abs().max().item()
        for logits in rounds:
            expect_close(logits, right, what="a logit", atol=off)
        for seen, prefix in zip(after, prefixes, strict=True):
            expect_same(seen, prefix, "a prefix after its use")
        # one new position in place of the last; also of one prefix that stands in every row
        parts = torch.randn(shape[0], 2, b, shape[2], 1, 8, generator=rng, dtype=F64).to(dtype)
        for given in (prefixes, prefixes[:1] * b):
            cut, caches, after = student.drive(drive_written, given, parts)
            for seen, prefix in zip(after, given, strict=True):
                expect_same(seen, prefix, "a prefix after its cache was cut and written to")
            rows = torch.stack(given)[..., : n - cut, :].transpose(0, 1)  # [L, B, 2, Hkv, n, d]
            for seen in caches:
                for layer, both in enumerate(seen):
                    for i, what in enumerate(("keys", "values")):
                        right = torch.cat([rows[layer, :, i], parts[layer, i]], 2)
                        expect_same(
                            both[i], right, f"{what} of a cache that was cut and written to"
                        )


def drive_cache_gradients(student, state, config, prefixes, ids):
    """Runs beside the student's code: gradients of prefixes through a model."""
    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config)).to(prefixes[0].dtype).eval().requires_grad_(False)
    model.load_state_dict(state)
    prefixes = [p.requires_grad_() for p in prefixes]
    model(ids, cache=student.prefix_cache(prefixes)).square().sum().backward()
    return [p.grad for p in prefixes]


def drive_prompt(student, state, config, prompt, training):
    """Runs beside the student's code: a prompt's prefix and gradient, and the model afterwards."""
    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config)).to(prompt.dtype).train(training)
    model.load_state_dict(state)
    model.model.norm.weight.requires_grad_(False)
    plain = prompt.clone()
    student.prefix_of(model, plain)
    leaf = prompt.requires_grad_()
    prompt = leaf.T.contiguous().T  # a view
    prefix = student.prefix_of(model, prompt)
    left = [{n: p.requires_grad for n, p in model.named_parameters()}]
    left += [sorted({m.training for m in model.modules()})]
    left += [[p.grad is None for p in model.parameters()], plain.requires_grad]
    (prefix.square() * 0.5).sum().backward()
    return prefix.detach(), leaf.grad, left, model.state_dict()


@exercise(
    "ex3",
    points=2,
    invariant="the gradient reaches each row's prefix, as if that row were alone",
    cause="torch.no_grad(), detach, .data, or a tensor made of numbers",
)
def test_gradients_of_prefixes(student, rng):
    config, model = a_llama(rng)
    for b, equal in ((3, False), (1, False), (3, True)):
        prefixes = list(torch.randn(b, 2, 2, 2, 4, 8, generator=rng, dtype=F64))
        if equal:  # in numbers: each is a tensor of its own, as when training begins
            prefixes = [prefixes[0].clone() for _ in prefixes]
        ids = torch.randint(20, (b, 5), generator=rng)
        grads = student.drive(drive_cache_gradients, state_of(model), config, prefixes, ids)
        leaves = [p.clone().requires_grad_() for p in prefixes]
        with_prefixes(model, leaves, ids).square().sum().backward()
        for i, (seen, leaf) in enumerate(zip(grads, leaves, strict=True)):
            assert seen is not None, f"prefix {i} of {b} has no gradient"
            loose = EXACT * (1 + leaf.grad.abs().max().item())
            expect_close(seen, leaf.grad, what=f"the gradient of prefix {i}", atol=loose)


@exercise(
    "ex3",
    points=2,
    invariant="a prompt's prefix has the keys and values that its cache has, in every block, "
    "and its gradient; prefixes of unlike shapes, or none: ValueError",
    cause="keys before the rotary embedding, blocks exchanged, the prompt detached, or the "
    "shortest prefix deciding",
)
def test_prefixes_of_prompts(student, rng):
    for dtype, changes, n in (
        (F64, {}, 6),
        (F64, {"num_hidden_layers": 1, "num_key_value_heads": 4}, 1),
        (torch.float32, {"num_hidden_layers": 3, "num_key_value_heads": 1}, 9),
    ):
        config, model = a_llama(rng, dtype, **changes)
        layers, kv = config["num_hidden_layers"], config["num_key_value_heads"]
        prompt = torch.randn(n, 16, generator=rng, dtype=F64).to(dtype)
        training = n == 6
        value = student.drive(drive_prompt, state_of(model), config, prompt, training)
        prefix, grad, (free, modes, no_grads, of_prompt), kept = value
        assert not of_prompt, "prefix_of made a prompt require a gradient that needed none"
        frozen = [name for name, is_free in free.items() if not is_free]
        assert frozen == ["model.norm.weight"], f"frozen in the model are now {frozen}"
        assert modes == [training], "the model is in another mode now"
        assert all(no_grads), "parameters of the model have gradients now"
        for name, tensor in state_of(model).items():
            expect_same(kept[name], tensor, f"{name} of the model")
        expect_tensor(prefix, "prefix_of", dtype, (layers, 2, kv, n, 8))
        leaf, cache = prompt.clone().requires_grad_(), KVCache()
        logits_of_vectors(model, leaf[None], cache)
        right = torch.stack(
            [torch.stack([k[0], v[0]]) for k, v in zip(cache.keys, cache.values, strict=True)]
        )
        loose = EXACT if dtype == F64 else 1e-4
        size = right.abs().max().item()
        expect_close(prefix, right.detach(), what="prefix_of", atol=loose * (1 + size))
        (right.square() * 0.5).sum().backward()
        assert grad is not None, "the prompt has no gradient"
        size = leaf.grad.abs().max().item()
        expect_close(grad, leaf.grad, what="the prompt's gradient", atol=loose * (1 + size))
    expect_left(student, "prefix_of", torch.randn(3, 16, generator=rng))
    first = [2, 2, 3, 4, 5]
    shapes = [[n + (i == at) for i, n in enumerate(first)] for at in (0, 2, 3, 4)]
    shapes += [[n - (i == at) for i, n in enumerate(first)] for at in (0, 2, 3, 4)]
    for a, b in ((0, 3), (2, 3), (2, 4), (3, 4), (0, 4)):  # as many numbers, in another shape
        other = list(first)
        other[a], other[b] = other[b], other[a]
        shapes.append(other)
    shapes += [[1 if i == at else n for i, n in enumerate(first)] for at in (0, 2, 3, 4)]
    shapes += [[1, 2, 3, 4, 1], [2, 2, 1, 1, 5], [1, 2, 1, 1, 1]]  # what would spread over the rest
    a, *others = (torch.randn(s, generator=rng, dtype=F64) for s in (first, *shapes))
    calls = [
        [[a, a, x], [a, x, a], [x, a, a]][at % 3] for at, x in enumerate(others, whole(rng, 0, 2))
    ]
    refused(student, [("prefix_cache", p) for p in [*calls, *([x, a] for x in others), []]])


def drive_caches(student, cases):
    """Runs beside the student's code: what caches hold when a position more has been added, and
    the gradients of their prefixes [L, 2, B, Hkv, n, d] (NaN: none)."""
    import math

    import torch

    def lay(x, way):
        if way == 1:  # every dimension before the one that stands before it
            return x.permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
        wide = x.repeat_interleave(2, -1).repeat(1, 1, 1, 2, 1)
        return wide[..., : x.shape[3], ::2] if way else x

    found = []
    for prefixes, times, way, new, weights in cases:
        leaves = [p.clone().requires_grad_() for p in prefixes.unbind(2)]
        given = [lay(p, way) for p in leaves] * times
        if not way:  # the same tensors, when they held other numbers
            for p in leaves:
                p.data *= -1
            student.prefix_cache(given)
            for p in leaves:
                p.data *= -1
        cache = student.prefix_cache(given)
        length = int(cache.length)
        held = [cache.append(i, *both) for i, both in enumerate(new)]
        parts = zip([x for pair in held for x in pair], weights.flatten(0, 1), strict=True)
        sum((x * w).sum() for x, w in parts).backward()
        held = torch.stack([torch.stack([x.detach() for x in pair]) for pair in held])
        grads = [torch.full_like(p, math.nan) if p.grad is None else p.grad for p in leaves]
        found.append((length, held, torch.stack(grads, 2)))
    return found


def expect_cache(found, prefixes, times, way, new, weights, what):
    """Keys and values [L, 2, B, Hkv, n + 1, d] exactly, and sums of whole numbers as gradients."""
    length, held_, grads = found
    n = prefixes.shape[4]
    assert length == n, f"{what}: the length of the cache is {length}, expected {n}"
    rows = torch.cat([prefixes] * times, 2)
    expect_same(held_, torch.cat([rows, new], 4), f"{what}: what the cache holds")
    right = weights[..., :n, :]
    right = right.sum(2, keepdim=True) if times > 1 else right
    expect_same(grads, right, f"{what}: gradients of prefixes")


def drive_prompts(student, states, cases):
    """Runs beside the student's code: prefixes of prompts, with gradients."""

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    found, models = [], {}
    for which, prompt, way, training, free in cases:
        config, state = states[which]
        key = (config["num_hidden_layers"], prompt.dtype)
        if key not in models:
            models[key] = Llama(LlamaConfig(**config)).to(prompt.dtype)
            student.prefix_of(models[key], prompt)  # of other numbers
        model = models[key].train(training)  # one model, whose numbers change
        model.load_state_dict(state)
        model.requires_grad_(free)
        leaf = prompt.requires_grad_()
        given = leaf.mT.contiguous().mT if way == 1 else leaf
        if way == 2:
            given = leaf.repeat_interleave(2, -1).repeat(2, 1)[: len(leaf), ::2]
        prefix = student.prefix_of(model, given)
        if prefix.requires_grad:
            (prefix.square() * 0.5).sum().backward()
        found.append((prefix.detach(), leaf.grad))
    return found


@exercise(
    "ex3",
    points=1,
    invariant="all three functions, anywhere in what the card admits: every dtype with every "
    "number of rows, blocks, heads, positions, layouts and sizes; one prefix in several rows; "
    "frozen models",
    cause="a corner where two others meet, such as one position in float32; a limit on rows or "
    "positions; or float32 on the way",
)
def test_anywhere_in_a_cache(student, rng):
    types, calls, whats = (torch.float32, F64), [], []
    sizes = ((1, 1, 1), (1, 1, 8), (2, 5, 1), (6, 2, 3), (30, 1, 2), (1, 2, 70))
    cases = every_pair(
        rng, (-1, 0, 1), (0, 1, 2), (1, 5, 2), types, (False, True), (1, 3, 70), sizes
    )
    cases += [(0, 0, 70, types[0], False, 1, sizes[0]), (0, 1, 40, F64, False, 2, sizes[2])]
    cases.append((0, 2, 40, F64, True, 130, sizes[1]))
    for power, way, b, dtype, shared, n, (layers, kv, d) in cases:
        scale = 2.0 ** (power * (900 if dtype == F64 else 120))
        shape = (layers, 2, b, kv, n, d)
        prefixes = (scale * torch.randn(shape, generator=rng, dtype=F64)).to(dtype)
        prefixes = prefixes[:, :, :1] if shared else prefixes
        new = torch.randn(layers, 2, b, kv, 1, d, generator=rng, dtype=F64).to(dtype)
        weights = torch.randint(-9, 10, (*shape[:4], n + 1, d), generator=rng).to(dtype)
        calls.append((prefixes, b if shared else 1, way, new, weights))
        whats.append(f"{b} prefixes {[layers, 2, kv, n, d]} in {dtype}, one of all: {shared}")
    for found, call, what in zip(student.drive(drive_caches, calls), calls, whats, strict=True):
        expect_cache(found, *call, what)
    shapes = ((81, 8192, 28672, 63, 7, 129), (1, 3, 5, 6, 3, 1), (7, 9, 1, 5, 5, 3))
    shapes = [dict(zip(SHAPE_KEYS, s, strict=True)) for s in shapes]
    numbers_ = [(s, n) for s in shapes for n in (0, 1, 65, 101, 10**6 + 1, 2**40 + 1)]
    numbers_ = [(shuffled(rng, s), n) for s, n in numbers_]
    expect_reused(student, [("prefix_numbers", s, 65) for s in shapes])
    seen = held_results(student, "prefix_numbers", numbers_)
    for (s, n), value in zip(numbers_, seen, strict=True):  # the largest are no float64
        right = sum(2 * s["kv_heads"] * s["head_dim"] * n for _ in range(s["layers"]))
        same_number(value, right, f"prefix_numbers of {n} positions, {s}")
    expect_prompts(student, rng)


def expect_prompts(student, rng):
    """Prompts of one vector and of many, in both dtypes, before models that are frozen or not."""
    changes = {"num_hidden_layers": 1, "num_key_value_heads": 4}
    more = {"attention_bias": True, "rope_theta": 50.0}
    made = [a_llama(rng, F64, **kind) for kind in (more, more, changes)]
    states = [(config, state_of(model)) for config, model in made]
    further = (0, 20), (0, 1, 2), (True, False), (True, False)
    drawn = every_pair(rng, (torch.float32, F64), (1, 130), (0, 1, 2), *further)
    cases = [
        (which, torch.randn(n, 16, generator=rng, dtype=F64).to(dtype) * 2.0**power, *rest)
        for dtype, n, which, power, *rest in drawn
    ]
    seen = student.drive(drive_prompts, states, cases)
    for (which, prompt, _, _, free), (prefix, grad) in zip(cases, seen, strict=True):
        (_, model), dtype = made[which], prompt.dtype
        what = f"the prefix of a prompt [{len(prompt)}, 16] in {dtype}, model free: {free}"
        leaf, cache = prompt.double().requires_grad_(), KVCache()
        logits_of_vectors(model, leaf[None], cache)
        both = zip(cache.keys, cache.values, strict=True)
        right = torch.stack([torch.stack([k[0], v[0]]) for k, v in both])
        (right.square() * 0.5).sum().backward()
        expect_tensor(prefix, what, dtype, tuple(right.shape))
        loose = EXACT if dtype == F64 else 1e-4
        size = right.detach().abs().max().item()
        expect_close(prefix.double(), right.detach(), what=what, atol=loose * (1 + size))
        assert grad is not None, f"{what}: the prompt has no gradient"
        size = leaf.grad.abs().max().item()
        expect_close(grad.double(), leaf.grad, what=f"{what}: its gradient", atol=loose * size)


# ---- exercise 4 ------------------------------------------------------------------------------


def drive_biased(student, state, config, names, ids, fill, free):
    """Runs beside the student's code: a Llama with biases, which are then filled."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**config)).to(state["lm_head.weight"].dtype).train(free)
    model.load_state_dict(state)
    made = student.add_biases(model.requires_grad_(free), names)
    modes = [m.training for m in model.modules()]
    modes += [m.training for m in made.modules()]
    with torch.no_grad():
        start = made(ids)
    trained = {n: p for n, p in made.named_parameters() if p.requires_grad}
    first = {n: p.detach().clone() for n, p in trained.items()}
    made(ids).float().square().mean().backward()
    moved = [n for n, p in trained.items() if p.grad is not None]
    for p in trained.values():
        p.data += fill
    kept = {n: p.detach().clone() for n, p in model.named_parameters()}  # after the others moved
    with torch.no_grad():
        filled = made(ids)
    grads = [p.grad is None for p in model.parameters()]
    left = [sorted(set(modes)), sorted({p.requires_grad for p in model.parameters()}), all(grads)]
    return start, filled, first, moved, kept, left


@exercise(
    "ex4",
    points=1,
    invariant="a model begins as it was; only named layers get a trained bias, in their "
    "weight's dtype",
    cause="biases of layers that were not named, float32 in a bfloat16 model, weights that "
    "stay free, or the given model changed",
)
def test_models_with_biases(student, rng):
    f32, key = torch.float32, "model.layers.1.self_attn.k_proj"
    mlp = [f"model.layers.1.mlp.{p}_proj" for p in ("up", "gate", "down")]
    for dtype, biases, names, free in (
        (f32, False, ["model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"], False),
        (f32, True, [key], False),  # a bias that was there, and frozen
        (f32, True, [key], True),  # another model of its sizes
        (torch.bfloat16, False, mlp, True),
        (f32, True, [], True),
    ):
        config, model = a_llama(rng, dtype, attention_bias=biases)
        ids, state = torch.randint(20, (2, 5), generator=rng), state_of(model)
        if not names:
            for some in (mlp, []):
                expect_left(student, "add_biases", some)
            continue
        value = student.drive(drive_biased, state, config, names, ids, 0.5, free)
        start, filled, first, moved, kept, left = value
        with torch.no_grad():
            expect_close(start, model(ids), what="a logit at the start", atol=1e-6)
        assert sorted(first) == sorted(f"{n}.bias" for n in names), f"trained are {sorted(first)}"
        assert sorted(moved) == sorted(first), "a trained bias has no gradient"
        for name in names:
            old = state.get(f"{name}.bias", torch.zeros(model.get_submodule(name).out_features))
            expect_same(first[f"{name}.bias"], old.to(dtype), f"the bias of {name} at the start")
            shift = 0.5
            hook = lambda module, args, y, s=shift: y + s  # noqa: E731
            model.get_submodule(name).register_forward_hook(hook)
        assert kept.keys() == {n for n, _ in model.named_parameters()}, "names of the given model"
        for name, tensor in kept.items():
            expect_same(tensor, state[name], f"{name} of the model that was given")
        assert left == [[free], [free], True], "modes, or what is left of the given model"
        with torch.no_grad():
            right = model(ids)
        loose = 0.1 if dtype == torch.bfloat16 else 1e-4
        size = right.abs().max().item()
        expect_close(filled, right, what="a logit with biases", atol=loose * size)


def expect_places(value, sizes, n, call="draw"):
    assert isinstance(value, list | tuple), f"{call} returned {type(value).__name__}, not a list"
    assert len(value) == len(sizes), f"{call} returned {len(value)} tensors for {len(sizes)} layers"
    for own, size in zip(value, sizes, strict=True):
        expect_tensor(own, f"places of {call}", torch.int64)
        assert own.ndim == 1, f"places of shape {list(own.shape)}"
        assert bool((own[1:] > own[:-1]).all()), "places are not ascending, or one is there twice"
        if len(own):
            assert int(own[0]) >= 0 and int(own[-1]) < size, f"a place outside of {size} weights"
    drawn = sum(len(own) for own in value)
    assert drawn == n, f"{drawn} places, expected {n}"
    return list(value)


@exercise(
    "ex4",
    points=2,
    invariant="every weight is as likely, in small layers and in large ones, at the ends and in "
    "the middle",
    cause="as many from every layer, one end of the row more often, or neighbours together",
)
def test_every_weight_is_as_likely(student, rng):
    # 100,000 of 500,000: shares of 1/5; a share of a part of s weights has a deviation of
    # sqrt(0.16 / s), and seven of them is what no fair draw reaches (1e-11 for all of these)
    several = [200_000, 20_000, 5_000, 275_000]
    alike = [50_000, 150_000]  # none is smaller than its equal share
    for sizes, seed in ((several, 0), (several, 7), (several, 1_000_003), (alike, 1)):
        n = sum(sizes) // 5
        places = expect_places(student.draw(sizes, n, seed), sizes, n)
        for own, size in zip(places, sizes, strict=True):
            parts = {
                "first half": ((own < size // 2).sum(), size // 2),
                "all of it": (torch.tensor(len(own)), size),
                "even places": ((own % 2 == 0).sum(), size // 2),
                "last tenth": ((own >= size - size // 10).sum(), size // 10),
            }
            for name, (count, of) in parts.items():
                off = abs(count.item() / of - 0.2)
                what = f"{name} of a layer of {size}: distance of its share from 1/5"
                expect_at_most(off, 7 * math.sqrt(0.16 / of), what)
            gaps = own[1:] - own[:-1]  # neighbours: 1/5 of the gaps are 1
            off = abs((gaps == 1).double().mean().item() - 0.2)
            expect_at_most(off, 7 * math.sqrt(0.16 / len(gaps)), "share of neighbours, from 1/5")


def drive_draw(student, sizes, n, seed, torch_seed, drawn):
    """Runs beside the student's code: a draw when torch's own generator has drawn some numbers,
    and whether the generator is as it was."""
    import torch

    torch.manual_seed(torch_seed)
    for kind in drawn:
        getattr(torch, kind)(3)
    before = torch.get_rng_state()
    places = student.draw(sizes, n, seed)
    return list(places), torch.equal(before, torch.get_rng_state())


@exercise(
    "ex4",
    points=1,
    invariant="torch's own generator neither matters nor moves; all weights, none, layers of "
    "one weight; n outside of 0 to the sum: ValueError",
    cause="torch.manual_seed, randperm without a generator, or an n that is cut off",
)
def test_draws_at_the_edges(student, rng):
    first = None
    kinds = ("rand", "randn", "randperm")  # as it is at first, or not any more
    for torch_seed, drawn in ((0, ()), (1, spread(rng, kinds, 2)), (5, ("rand",)), (2, kinds)):
        args = [300, 20, 1000], 90, 5, torch_seed, list(drawn)
        places, stays = student.drive(drive_draw, *args)
        expect_places(places, [300, 20, 1000], 90)
        assert stays, f"torch's generator moved, which had drawn {list(drawn)} before"
        first = places if first is None else first
        for a, b in zip(first, places, strict=True):
            expect_same(a, b, "places of one seed under two seeds of torch")
    for sizes in ([1], [1, 1, 1, 1], [40_000, 3]):
        for n in (0, 1, sum(sizes)):
            places = expect_places(student.draw(sizes, n, 2), sizes, n)
            if n == sum(sizes):
                for own, size in zip(places, sizes, strict=True):
                    expect_same(own, torch.arange(size), "all places")
        for n in (-1, sum(sizes) + 1):
            expect_error(ValueError, lambda s=sizes, n=n: student.draw(s, n, 0), f"n = {n}")
    calls = [([40, 2, 60], 9, seed) for seed in range(4)]
    held = held_results(student, "draw", calls)
    for args, places in zip(calls, held, strict=True):
        for one, other in zip(places, student.draw(*args), strict=True):
            expect_same(one, other, "places, held while others were drawn")
    again(student, [*(("draw", *args) for args in calls), ("draw", [40, 60, 2], 9, 0),
                    ("draw", [102], 9, 0), ("draw", [40, 2, 60], 10, 0)])  # fmt: skip
    seen = {tuple(student.draw([50], 3, seed)[0].tolist()) for seed in range(30)}
    assert len(seen) >= 20, f"30 seeds gave {len(seen)} different draws of 3 from 50"
    left_out = set()  # of 5 weights 4 are drawn: each is left out under some of 120 seeds
    for seed in range(120):
        small, large = student.draw([2, 3], 4, seed)
        left_out |= {*range(5)} - {*small.tolist(), *(large + 2).tolist()}
    assert left_out == {*range(5)}, "a weight that is always drawn"
    seen = {tuple(student.draw([50], 3, s)[0].tolist()) for s in (0, 100, 4096, 10**6, 2**31)}
    assert len(seen) >= 4, f"5 large seeds gave {len(seen)} different draws of 3 from 50"
    for seed in (2**24, 2**31 - 2):  # neighbours that float32 does not know
        one, other = (student.draw([2000], 900, s)[0] for s in (seed, seed + 1))
        assert not torch.equal(one, other), f"seeds {seed} and {seed + 1} draw the same"


def drive_sparse(student, w, b, places, delta, x, dy):
    """Runs beside the student's code: a sparse layer's outputs, and its gradients."""
    import torch
    from torch import nn

    base = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
    base.weight.data = w.clone()
    if b is not None:
        base.bias.data = b.clone()
    layer = student.SparseLinear(base, places)
    free = {n: p for n, p in layer.named_parameters() if p.requires_grad}
    names = {n: [str(p.dtype), list(p.shape)] for n, p in free.items()}
    layer.delta.data = delta.clone()
    leaf = x.requires_grad_()
    x = torch.stack([leaf, leaf], -1)[..., 0]  # a view
    y = layer(x)
    (y * dy).sum().backward()
    again = layer(x).detach()
    grads = [p.grad is None for n, p in layer.named_parameters() if n != "delta"]
    return y.detach(), again, layer.delta.grad, leaf.grad, names, all(grads)


def expect_sparse_rounds(student, rng, dtype):
    """Two layers of one shape, with other places: calls that follow upon one another."""
    makes = [
        (torch.randn(4, 6, generator=rng).to(dtype), bias, torch.randperm(24, generator=rng)[:7])
        for bias in (None, torch.randn(4, generator=rng).to(dtype))
    ]

    def check(i, parts, x, y, what):
        w, b, places = makes[i]
        full = dense(w, places, parts["delta"]).to(dtype).double()
        bias = 0.0 if b is None else b.double()
        reach = x.double().abs() @ full.abs().T + (0.0 if b is None else bias.abs())
        unit = 2 * BFLOAT16 if dtype == torch.bfloat16 else 64 * FLOAT32
        expect_tensor(y, what, dtype, (*x.shape[:-1], 4))
        expect_at_most((y.double() - x.double() @ full.T - bias).abs(), unit * reach, what)

    expect_rounds(
        student,
        "SparseLinear",
        makes,
        lambda: {"delta": torch.randn(7, generator=rng)},
        lambda: torch.randn(2, 3, 6, generator=rng).to(dtype),
        check,
    )


def dense(w, places, delta):
    """W + S in float64."""
    s = torch.zeros(w.numel(), dtype=F64)
    s[places] = delta.double()
    return w.double() + s.view_as(w)


@exercise(
    "ex4",
    points=2,
    invariant="x (W + S)^T + b and its gradients, for any places, numbers of all sizes, views, "
    "any dimensions, and no place at all",
    cause="delta's order, rows and columns exchanged, S kept from the first call, or x detached",
)
def test_sparse_outputs_and_gradients(student, rng):
    expect_sparse_rounds(student, rng, torch.float32)
    for (n, k), count, biased, large, shape in (
        ((1, 1), 1, True, 1.0, (3,)),
        ((5, 9), 11, False, 1e-8, (2, 4)),
        ((9, 5), 45, True, 1e6, ()),
        ((6, 7), 0, True, 1.0, (2,)),
        ((4, 8), 3, False, 1.0, (0,)),
        ((16, 3), 20, False, 1.0, (5,)),
    ):
        w, x = torch.randn(n, k, generator=rng), large * torch.randn(*shape, k, generator=rng)
        b = torch.randn(n, generator=rng) if biased else None
        places = torch.randperm(n * k, generator=rng)[:count]
        places = places if n < k else places.sort().values  # "in the order of places"
        delta, dy = torch.randn(count, generator=rng), torch.randn(*shape, n, generator=rng)
        value = student.drive(drive_sparse, w, b, places, delta, x, dy)
        y, again, d_delta, dx, names, frozen = value
        assert names == {"delta": ["torch.float32", [count]]}, f"trained are {names}"
        assert frozen, "gradients reached parameters of the base"
        full = dense(w, places, delta)
        right = x.double() @ full.T + (0.0 if b is None else b.double())
        reach = x.double().abs() @ full.abs().T + (0.0 if b is None else b.double().abs())
        expect_tensor(y, "the output", torch.float32, (*shape, n))
        bound = 4 * (k + n + 8) * FLOAT32
        expect_at_most((y - right).abs(), bound * reach, "the error of the output")
        expect_same(again, y, "the output of a second call")
        flat_dy, flat_x = dy.double().reshape(-1, n), x.double().reshape(-1, k)
        dw, size = flat_dy.T @ flat_x, flat_dy.abs().T @ flat_x.abs()
        expect_tensor(d_delta, "the gradient of delta", torch.float32, (count,))
        off = (d_delta - dw.flatten()[places]).abs()
        expect_at_most(off, bound * size.flatten()[places], "the error of delta's gradient")
        expect_tensor(dx, "the gradient of x", torch.float32, tuple(x.shape))
        most = bound * (dy.double().abs() @ full.abs())
        expect_at_most((dx - dy.double() @ full).abs(), most, "the error of the gradient of x")


@exercise(
    "ex4",
    points=2,
    invariant="in bfloat16 W + S is summed in float32 and rounded once; delta stays float32, "
    "and small ones that round away have a gradient all the same",
    cause="delta rounded to bfloat16 before the sum, the output in float32, or W kept in float32",
)
def test_sparse_in_bfloat16(student, rng):
    bf16 = torch.bfloat16
    expect_sparse_rounds(student, rng, bf16)
    # 1 + 2^-8 is a tie and goes to 1; with 2^-9 more it is 1 + 2^-7; 256 + 1.0156 is 258, not 256
    w = torch.tensor([[1.0, 1.0, 256.0, 1.0]], dtype=bf16)
    places = torch.tensor([0, 1, 2])
    delta = torch.tensor([2.0**-8, 2.0**-8 + 2.0**-16, 1.0 + 2.0**-10])
    x = torch.eye(4, dtype=bf16)
    value = student.drive(drive_sparse, w, None, places, delta, x, torch.ones(4, 1, dtype=bf16))
    y, _, d_delta, _, names, _ = value
    assert names == {"delta": ["torch.float32", [3]]}, f"trained are {names}"
    right = torch.tensor([[1.0], [1.0 + 2.0**-7], [258.0], [1.0]], dtype=bf16)
    expect_same(y, right, "W + S, rounded once")
    expect_same(d_delta, torch.ones(3), "the gradient of delta")
    # 1 + 2^-8 is rounded to 1 before the product: 1 - 1 = 0, and not 2^-8
    w, x = torch.ones(1, 2, dtype=bf16), torch.tensor([[1.0, -1.0]], dtype=bf16)
    args = (w, None, torch.tensor([0]), torch.tensor([2.0**-8]), x, torch.ones(1, 1, dtype=bf16))
    y = student.drive(drive_sparse, *args)[0]
    expect_same(y, torch.zeros(1, 1, dtype=bf16), "W + S, rounded before the product")
    w, x = torch.randn(6, 32, generator=rng).to(bf16), torch.randn(3, 32, generator=rng).to(bf16)
    places, delta = torch.arange(0, 192, 5), torch.randn(39, generator=rng)
    b = torch.randn(6, generator=rng).to(bf16)
    dy = torch.randn(3, 6, generator=rng).to(bf16)
    value = student.drive(drive_sparse, w, b, places, delta, x, dy)
    full = dense(w, places, delta).to(bf16).double()
    right = x.double() @ full.T + b.double()
    reach = x.double().abs() @ full.abs().T + b.double().abs()
    expect_tensor(value[0], "the output", bf16, (3, 6))
    # the product's rounding, and that of the sum with the bias
    expect_at_most((value[0] - right).abs(), 2 * BFLOAT16 * reach, "the error of the output")
    dw, size = dy.double().T @ x.double(), dy.double().abs().T @ x.double().abs()
    expect_tensor(value[2], "the gradient of delta", torch.float32, (39,))
    off = (value[2] - dw.flatten()[places]).abs()
    most = 2 * BFLOAT16 * size.flatten()[places]  # it may come through a bfloat16 weight
    expect_at_most(off, most, "the error of delta's gradient")
    expect_tensor(value[3], "the gradient of x", bf16, (3, 32))
    most = 2 * BFLOAT16 * (dy.double().abs() @ full.abs())
    expect_at_most((value[3] - dy.double() @ full).abs(), most, "the error of the gradient of x")


def drive_sparse_anywhere(student, cases):
    """Runs beside the student's code: sparse layers in both modes, x in memory in several ways."""
    import torch
    from torch import nn

    found = []
    for w, b, places, delta, x, dy, way, training, free in cases:
        base = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
        base.weight.data = w.clone()
        if b is not None:
            base.bias.data = b.clone()
        layer = student.SparseLinear(base.requires_grad_(free), places).train(training)
        start = layer.delta.detach().clone()
        layer.delta.data = delta.clone()
        leaf = x.requires_grad_()
        given = leaf.mT.contiguous().mT if way == 1 and x.dim() > 1 else leaf
        given = torch.stack([leaf, -leaf], -1)[..., 0] if given is leaf and way else given
        y = layer(given)
        (y * dy).sum().backward()
        trained = {n: tuple(p.shape) for n, p in layer.named_parameters() if p.requires_grad}
        found.append((y.detach(), layer.delta.grad, leaf.grad, start, trained))
    return found


def expect_sparse(found, w, b, places, delta, x, dy, *rest):
    """x (W + S)^T + b and its gradients, W + S summed in float32 and rounded once."""
    y, d_delta, dx, start, trained = found
    (n, k), count, dtype = w.shape, len(places), w.dtype
    what = f"W [{n}, {k}] in {dtype}, {count} places, x {list(x.shape)}, size {rest[-1]}"
    assert trained == {"delta": (count,)}, f"{what}: trained are {trained}"
    expect_same(start, torch.zeros(count), f"{what}: delta at the start")
    s = torch.zeros(n * k)
    s[places] = delta
    full = (w.float() + s.view(n, k)).to(dtype).double()
    flat, back = x.double().reshape(-1, k), dy.double().reshape(-1, n)
    bias = torch.zeros(n, dtype=F64) if b is None else b.double()
    half = 2 * BFLOAT16 if dtype == torch.bfloat16 else 0.0  # of the product, and of the sum
    bound = 4 * (k + n + len(flat) + 8) * FLOAT32
    expect_tensor(y, f"{what}: the output", dtype, (*x.shape[:-1], n))
    reach = flat.abs() @ full.abs().T
    right, plain = flat @ full.T + bias, (flat @ full.T).abs()
    most = bound * (reach + bias.abs()) + half * (plain + bound * reach + bias.abs())
    expect_at_most((y.double().reshape(-1, n) - right).abs(), most, f"{what}: the output's error")
    dw, size = back.T @ flat, back.abs().T @ flat.abs()
    expect_tensor(d_delta, f"{what}: the gradient of delta", torch.float32, (count,))
    off = (d_delta.double() - dw.flatten()[places]).abs()
    # delta's gradient may come through a bfloat16 weight
    most = (bound + half) * size.flatten()[places]
    expect_at_most(off, most, f"{what}: the error of delta's gradient")
    expect_tensor(dx, f"{what}: the gradient of x", dtype, tuple(x.shape))
    off, most = (dx.double().reshape(-1, k) - back @ full).abs(), back.abs() @ full.abs()
    expect_at_most(off, (bound + half) * most, f"{what}: the error of the gradient of x")


def drive_counts(student, sizes, n, seeds):
    """Runs beside the student's code: how often each weight is drawn with each [W, W]."""
    import torch

    counts = torch.zeros(sum(sizes), sum(sizes), dtype=torch.int64)
    for seed in seeds:
        begin, drawn = 0, torch.zeros(sum(sizes), dtype=torch.int64)
        for own, size in zip(student.draw(sizes, n, seed), sizes, strict=True):
            drawn[begin + own] = 1
            begin += size
        counts += drawn[:, None] * drawn
    return counts


def expect_draws(student, rng):
    """Draws of every n and seed; each weight as likely when few are drawn, too."""
    first = whole(rng, 0, 99)
    for sizes, n, count in ((spread(rng, (1, 5), 2), 1, 150), ([2, 4], 2, 300),
                            (spread(rng, (1, 2, 3), 3), 5, 150)):  # fmt: skip
        counts = student.drive(drive_counts, sizes, n, list(range(first, first + count)))
        # each weight is in n of 6 draws: seven deviations of 150 are 1e-8, none of 150 are 1e-11
        share, what = counts.diag() / count, f"{n} of {sizes}"
        most = 7 * math.sqrt(n / 6 * (1 - n / 6) / count)
        expect_at_most((share - n / 6).abs(), most, f"{what}: distance of a share from {n}/6")
        assert (share > 0).all(), f"{what}: a weight that is never drawn"
        if n > 1:  # each two at least once in 300: of 15 pairs one is left out by 2e-8
            assert (counts > 0).all(), f"{what}: two weights that are never drawn together"
    base, last = whole(rng, 1, 900), 2**31 - 1
    seeds = [base, *(base + step for step in (100, 256, 1000, 1024, 10**4, 2**16, 10**6, 2**24))]
    seeds += [last - 2 * base, 0]
    for sizes, n in (([200], 5), ([1, 150, 1], 9)):
        seen = held_results(student, "draw", [(sizes, n, seed) for seed in seeds])
        seen = {tuple(torch.cat(list(places)).tolist()) for places in seen}
        assert len(seen) == len(seeds), f"draws of {n} from {sizes}: of unlike seeds the same"
    large = 10**6 + base
    calls = [(s, n, seed) for s in ([1], [1, 1200, 1, 40, 1], [1500]) for n in (0, 1, 1200)
             for seed in (0, base, large, last - base) if n <= sum(s)]  # fmt: skip
    calls += [([1_000_000, 1], n, seed) for n, seed in ((1200, last - base), (1, large), (0, 0))]
    for call, value in zip(calls, held_results(student, "draw", calls), strict=True):
        expect_places(value, call[0], call[1], f"draw{call}")
    refused(student, [("draw", s, n, seed) for s in ([1], [1, 1200, 1, 40, 1], [10**6])
                      for n in (-1, sum(s) + 1) for seed in (0, large, last - base)])  # fmt: skip


@exercise(
    "ex4",
    points=1,
    invariant="biases, draws and sparse layers, anywhere in what the card admits: every dtype with "
    "every mode, layout, size and number of places; few weights drawn, large seeds, many places",
    cause="a corner where two others meet, such as bfloat16 and one dimension; seeds or places cut "
    "to fewer digits; or gradients in training alone",
)
def test_anywhere_in_the_weights(student, rng):
    types = torch.float32, torch.bfloat16
    shapes, calls = ((1, 1), (1, 9), (7, 1), (5, 6), (12, 40)), []
    further = (True, False), (0, 1, 0.4, 2), shapes, (-45, 0, 20), (True, False), (True, False)
    cases = every_pair(rng, (1, 2, 3), (-1, 0, 1), (0, 1, 2), types, *further)
    cases += every_pair(rng, (0,), (0,), (0, 1), types, *further[:2], shapes[3:4], *further[3:])
    large, free = (whole(rng, 190, 200), 201), whole(rng, 0, 1) == 1
    cases += [(1, 0, 0, t, True, 0.4, large, 0, True, free is (t == types[0])) for t in types]
    for dims, power, way, dtype, training, share, (n, k), of_w, biased, free in cases:
        w = (2.0**of_w * torch.randn(n, k, generator=rng)).to(dtype)
        lead = [[0, 2], [], [whole(rng, 1, 90)], [3, whole(rng, 1, 3)]][dims]
        x = (2.0 ** (40 * power) * torch.randn(*lead, k, generator=rng)).to(dtype)
        dy = torch.randn(*lead, n, generator=rng).to(dtype)
        b = 2.0 ** (40 * power + of_w) * torch.randn(n, generator=rng)
        b = b.to(dtype) if biased else None
        count = min(1, n * k) if share == 1 else n * k if share == 2 else math.ceil(share * n * k)
        places = torch.randperm(n * k, generator=rng)[:count]
        delta = 2.0**of_w * torch.randn(count, generator=rng)
        calls.append((w, b, places, delta, x, dy, way, training, free))
    for found, call in zip(student.drive(drive_sparse_anywhere, calls), calls, strict=True):
        expect_sparse(found, *call)
    cases = [(*case[:7], [], *case[8:]) for case in fan_cases(rng, (1,))]
    for found, case in zip(student.drive(drive_fan, "add_biases", cases), cases, strict=True):
        expect_fan(found, case, False)
    expect_draws(student, rng)


# ---- exercise 5 ------------------------------------------------------------------------------

KEYS = ("trained", "optimizer_bytes", "flops", "read_bytes", "context")
FLAGS = ("mergeable", "batchable", "untouched")


def a_shape(rng):
    kv = whole(rng, 1, 6)
    shape = {"layers": whole(rng, 1, 60), "hidden": whole(rng, 1, 5000), "mlp": whole(rng, 1, 9000)}
    shape |= {"heads": kv * whole(rng, 1, 5), "kv_heads": kv, "head_dim": whole(rng, 1, 200)}
    return shape | {"biases": whole(rng, 0, 1) == 1}


def matrices(shape):
    """[N, K] of the seven linear layers of a block, and how many numbers q and k have."""
    d, f, e = shape["hidden"], shape["mlp"], shape["head_dim"]
    q, kv = shape["heads"] * e, shape["kv_heads"] * e
    return [(q, d), (kv, d), (kv, d), (d, q), (f, d), (f, d), (d, f)], q, kv


def numbers(way, size, shape):
    """Numbers that are trained, part by part."""
    linears, _, kv = matrices(shape)
    total, d = 0, shape["hidden"]
    for _ in range(shape["layers"]):
        if way == "lora":
            total += sum(size * k + n * size for n, k in linears)
        if way == "adapter":
            total += 2 * (d * size + size + size * d + d)
        if way == "prefix":
            total += size * kv + size * kv
        if way == "bitfit":
            total += sum(n for n, _ in linears)
    return total + {"prompt": size * d, "random": size}.get(way, 0)


def products(way, size, shape):
    """FLOPs of a token besides the base, product by product."""
    linears, q, _ = matrices(shape)
    total, d = 0, shape["hidden"]
    for _ in range(shape["layers"]):
        if way == "lora":
            total += sum(2 * size * k + 2 * n * size for n, k in linears)
        if way == "adapter":
            total += 2 * (2 * d * size + 2 * size * d)
        if way in ("prompt", "prefix"):
            total += 2 * q * size + 2 * q * size  # scores, and values weighted by them
    return total


def read(way, size, shape):
    """16-bit numbers of a token besides the base, in bytes."""
    if way in ("prompt", "prefix"):
        return 2 * numbers("prefix", size, shape)
    return 0 if way == "random" else 2 * numbers(way, size, shape)


WAYS = ("lora", "adapter", "prompt", "prefix", "bitfit", "random")


def of_bill(student, way, size, shape):
    value = student.bill(way, size, dict(shape))
    assert isinstance(value, dict), f"bill returned {type(value).__name__}, not a dict"
    odd = {*KEYS, *FLAGS} ^ value.keys()
    assert not odd, f"bill of {way}: keys {sorted(odd)} are missing or too many"
    return value


def same_number(seen, right, what):
    expect_number(seen, what)
    assert seen == right, f"{what} is another one than that of its parts"


def drive_spent_bill(student, way, shape):
    """Runs beside the student's code: a bill, which is emptied, and then the same once more."""
    first = student.bill(way, 7, dict(shape))
    kept = dict(first)
    first.clear()
    return kept, dict(student.bill(way, 7, dict(shape)))


def drive_long_bill(student, way, size, shape):
    """Runs beside the student's code: a bill whose numbers are too long to travel, as texts."""
    bill = student.bill(way, size, shape)
    names = ("trained", "optimizer_bytes", "flops", "read_bytes", "context")
    return {key: str(int(bill[key])) for key in names}


@exercise(
    "ex5",
    points=2,
    invariant="trained numbers are those of the matrices and vectors, for any shape; states are "
    "8 bytes for each",
    cause="a width where heads * head_dim is meant, one adapter in a block, biases left "
    "out, or states of a copy more",
)
def test_trained_numbers(student, rng):
    for _ in range(4):
        shape = a_shape(rng)
        for way, size in [(w, s) for w in WAYS for s in (whole(rng, 1, 90), 7000)]:
            value, right = of_bill(student, way, size, shape), numbers(way, size, shape)
            same_number(value["trained"], right, f"trained of {way}")
            same_number(value["optimizer_bytes"], 8 * right, f"optimizer_bytes of {way}")
            before = size if way in ("prompt", "prefix") else 0
            same_number(value["context"], before, f"context of {way}")
    for way in WAYS:
        first, second = student.drive(drive_spent_bill, way, a_shape(rng))
        assert first == second, f"a bill of {way} that was written into is given out again"
    layers, d = 5, 2**30 + 1  # beyond 63 bits
    shape = a_shape(rng) | {"layers": layers, "heads": 8, "kv_heads": 1, "head_dim": d}
    wide = shape
    for way in WAYS:
        size, shape = 2**30 - 1, wide if way == "prefix" else a_shape(rng)
        seen, trained = student.drive(drive_long_bill, way, size, shape), numbers(way, size, shape)
        right = {"trained": trained, "optimizer_bytes": 8 * trained}
        right |= {"flops": products(way, size, shape), "read_bytes": read(way, size, shape)}
        right["context"] = size if way in ("prompt", "prefix") else 0
        for key, number in right.items():
            assert seen[key] == str(number), f"{key} of {way}, {size}: {seen[key]}, not {number}"
    value = of_bill(student, "random", 1_000_000, a_shape(rng))
    same_number(value["trained"], 1_000_000, "trained of random")
    shape = a_shape(rng)
    one, *others = (of_bill(student, "bitfit", size, shape) for size in (1, 1_000_000, 0, 7))
    for other in others:
        assert other == one, "bitfit depends on the size"
    keys = [key for key in shape if key != "biases"]
    changed = [shape, *(shape | {key: 2 * shape[key]} for key in keys)]
    changed.append(shape | {"biases": not shape["biases"]})
    again(student, [("bill", way, size, s) for way in WAYS for s in changed for size in (3, 4)])
    for way in WAYS:  # nothing is kept of a shape that differs in one number
        for s in changed:
            value, what = of_bill(student, way, 3, s), f"of {way}, with another shape before it"
            same_number(value["trained"], numbers(way, 3, s), f"trained {what}")
            same_number(value["flops"], products(way, 3, s), f"flops {what}")
            same_number(value["read_bytes"], read(way, 3, s), f"read_bytes {what}")
            merges = way in ("lora", "random") or (way == "bitfit" and s["biases"])
            assert value["mergeable"] == merges, f"mergeable {what}"


@exercise(
    "ex5",
    points=3,
    invariant="a token's products and bytes besides the base, with grouped heads and heads that "
    "are not as wide as the model",
    cause="key heads in FLOPs, query heads in bytes, a prompt's own vectors, or 4 bytes a number",
)
def test_flops_and_bytes(student, rng):
    for _ in range(4):
        shape = a_shape(rng)
        for way, size in [(w, s) for w in WAYS for s in (whole(rng, 1, 90), 7000)]:
            value = of_bill(student, way, size, shape)
            same_number(value["flops"], products(way, size, shape), f"flops of {way}")
            same_number(value["read_bytes"], read(way, size, shape), f"read_bytes of {way}")
    known = {
        "layers": 32,
        "hidden": 4096,
        "mlp": 14336,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
    }
    known["biases"] = False
    for way, size, trained, flops, read_bytes in (
        ("prompt", 100, 409_600, 52_428_800, 13_107_200),
        ("lora", 8, 20_971_520, 41_943_040, 41_943_040),
        ("adapter", 64, 33_820_672, 67_108_864, 67_641_344),
        ("bitfit", 1, 1_376_256, 0, 2_752_512),
    ):
        value = of_bill(student, way, size, known)
        same_number(value["trained"], trained, f"trained of {way}, 8B")
        same_number(value["flops"], flops, f"flops of {way}, 8B")
        same_number(value["read_bytes"], read_bytes, f"read_bytes of {way}, 8B")


@exercise(
    "ex5",
    points=3,
    invariant="flags follow from the way, and for BitFit's merge from the model's biases alone",
    cause="flags that depend on sizes, numbers in place of bools, or another error for an "
    "unknown way",
)
def test_flags(student, rng):
    for _ in range(3):
        shape = a_shape(rng)
        for biases in (True, False):
            for way in WAYS:
                value = of_bill(student, way, whole(rng, 1, 9), shape | {"biases": biases})
                merge = way in ("lora", "random") or (way == "bitfit" and biases)
                flags = (merge, way != "random", way in ("prompt", "prefix"))
                for key, right in zip(FLAGS, flags, strict=True):
                    assert isinstance(value[key], bool), f"{key} of {way} is no bool"
                    assert value[key] == right, f"{key} of {way}"
    others = ["LoRA", "", "ia3", "all"]
    for way in WAYS:
        others += [f"{way}s", f"{way} ", f" {way}", f"{way}_2", f"my{way}", way[:-1], way[1:]]
        others += [way.upper(), way.capitalize(), f"{way}{way}", way[::-1]]
    refused(student, [("bill", way, size, shape) for way in others for size in (0, 1)])


SHAPES = [  # as SHAPE_KEYS says
    (1, 1, 1, 1, 1, 1), (125, 16383, 53250, 63, 7, 129), (3, 7, 5, 6, 3, 1), (1, 12, 9, 4, 4, 3),
    (2, 6, 700, 8, 1, 5), (80, 100, 3, 2, 2, 64),
]  # fmt: skip


@exercise(
    "ex5",
    points=1,
    invariant="every column of every way, anywhere in what the card admits: each size with each "
    "shape, with and without biases, up to numbers that no float64 holds",
    cause="a corner where two others meet, such as biases and one block; or numbers that are "
    "floats or of 32 bits on the way",
)
def test_anywhere_on_a_bill(student, rng):
    calls = []
    sizes = (1, 2, 65, 10**6 + 1, 2**30 + 1)
    cases = every_pair(rng, WAYS, sizes, SHAPES, (True, False))
    cases += [(w, 2**30 + 1, SHAPES[1], b) for w in WAYS for b in (True, False)]  # the largest
    cases += [(w, 9, SHAPES[0], b) for w in WAYS for b in (True, False)]  # and the smallest
    cases += [("bitfit", size, SHAPES[i], True) for i, size in enumerate((-1, 0, -(2**31)))]
    for way, size, shape, biases in cases:
        shape = dict(zip(SHAPE_KEYS, shape, strict=True)) | {"biases": biases}
        calls.append((way, size, shuffled(rng, shape)))
    expect_reused(student, [("bill", way, 65, a_shape(rng)) for way in WAYS for _ in range(3)])
    for call, value in zip(calls, held_results(student, "bill", calls), strict=True):
        (way, size, shape), what = call, f"of bill{call}"
        assert isinstance(value, dict), f"bill returned {type(value).__name__}, not a dict"
        assert value.keys() == {*KEYS, *FLAGS}, f"keys {what} are {sorted(value)}"
        before, trained = size if way in ("prompt", "prefix") else 0, numbers(way, size, shape)
        right = {"trained": trained, "optimizer_bytes": 8 * trained, "context": before}
        right |= {"flops": products(way, size, shape), "read_bytes": read(way, size, shape)}
        for key in KEYS:
            same_number(value[key], right[key], f"{key} {what}")
        merge = way in ("lora", "random") or (way == "bitfit" and shape["biases"])
        flags = (merge, way != "random", way in ("prompt", "prefix"))
        for key, flag in zip(FLAGS, flags, strict=True):
            assert isinstance(value[key], bool) and value[key] == flag, f"{key} {what}"


# ---- exercise 6 ------------------------------------------------------------------------------


def dyadic(rng, n, top=64):
    """n numbers whose sums and means of 1, 2 and 4 are exact."""
    return [v / 16 for v in torch.randint(top, (n,), generator=rng).tolist()]


def rule(a, b):
    spread = max(max(a) - min(a), max(b) - min(b))
    return abs(sum(a) / len(a) - sum(b) / len(b)) > spread


def meets(c, need):
    for key, limit in need.items():
        if limit is True and not c[key]:
            return False
        if limit is not True and limit is not False and not c[key] <= limit:
            return False
    return True


def walk(candidates, need):
    """The rule of the card, candidate by candidate."""
    fit = [n for n, c in candidates.items() if meets(c, need)]
    if not fit:
        return None
    best = fit[0]
    for name in fit:
        a, b = candidates[name]["losses"], candidates[best]["losses"]
        if sum(a) / len(a) < sum(b) / len(b):
            best = name
    chosen = None
    for name in fit:
        alike = not rule(candidates[name]["losses"], candidates[best]["losses"])
        if alike and (
            chosen is None or candidates[name]["trained"] < candidates[chosen]["trained"]
        ):
            chosen = name
    return chosen


def a_candidate(rng, runs, **changes):
    return a_bill(rng) | {"losses": dyadic(rng, runs)} | changes


def one_best_mean(candidates, need):
    """Whether the lowest mean belongs to one list of losses alone."""
    fit = [c["losses"] for c in candidates.values() if meets(c, need)]
    means = sorted(sum(a) / len(a) for a in fit)
    return len(means) < 2 or means[0] < means[1]


def a_bool(value, call):
    assert isinstance(value, bool), f"{call} returned {type(value).__name__}, not a bool"
    return value


def beside_the_limit(rng):
    """(a, b): losses whose distance is the larger spread, 2^-12 more, or less; exact in floats."""
    pairs = []
    for n, m in ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 1), (4, 2), (4, 4), (2, 1)):
        spread = whole(rng, 2, 8) / 16 if m > 1 else 0.0
        low = whole(rng, 32, 64) / 16
        b = [low, low + spread, low + spread / 2, low + spread / 2][:m]
        if n > 1 == m:  # the spread is then a's
            spread = whole(rng, 2, 8) / 16
        r = spread / (2 if m == 1 else 2 ** whole(rng, 1, 2)) if n > 1 else 0.0
        for more in (-(2.0**-12), 0.0, 2.0**-12):
            for sign in (-1, 1):
                middle = sum(b) / m + sign * max(0.0, spread + more)
                a = ([middle + r, middle - r] * 2)[:n]  # r is 0 for one run
                pairs += [(a, b), (b, a)]
    return pairs


@exercise(
    "ex6",
    points=2,
    invariant="more than the larger spread, in both orders, of any number of runs, also of "
    "large and of tiny losses",
    cause="standard deviations, the spread of the first alone, >=, or a fixed tolerance",
)
def test_differ(student, rng):
    both = set()
    for n, m in ((1, 1), (2, 2), (4, 2), (1, 4), (8, 8), (4, 4)) * 3:
        a, b = dyadic(rng, n), dyadic(rng, m)
        for scale in (1.0, 2.0**-27, 2.0**13):
            x, y = [v * scale for v in a], [v * scale for v in b]
            seen = a_bool(student.differ(x, y), "differ")
            assert seen == rule(x, y), "differ is not what the rule says"
            both.add(seen)
    for a, b in beside_the_limit(rng):
        for scale in (1.0, 2.0**-27, 2.0**13):
            x, y = [v * scale for v in a], [v * scale for v in b]
            what = f"differ({x}, {y})"
            assert a_bool(student.differ(x, y), what) == rule(a, b), f"{what}, beside the limit"
    calls = [(dyadic(rng, n), dyadic(rng, n)) for n in (1, 4, 4, 4)]
    again(student, [("differ", *pair) for pair in calls])
    for gap, right in ((0.5, False), (0.5625, True), (0.4375, False)):  # one spread is 0.5
        a, b = [1.0, 1.5, 1.25, 1.25], [1.25 + gap, 1.25 + gap]
        for x, y in ((a, b), (b, a)):
            assert a_bool(student.differ(x, y), "differ") == right, "differ at the limit"
    for a, b in (([1.0, 1.5], [1.75, 2.25]), ([1.0, 1.0, 1.0, 2.0], [0.125])):
        for x, y in ((a, b), (b, a)):  # less than both spreads together; means, not medians
            assert a_bool(student.differ(x, y), "differ") is True, "differ of two that are apart"
    assert student.differ([3.0], [3.0]) is False, "one run each, the same loss: apart"


@exercise(
    "ex6",
    points=1,
    invariant="every entry of a need counts, on both sides of its limit; large and zero limits; "
    "False asks for nothing",
    cause="the first or the last entry alone, < for <=, or a limit of 0 taken for none",
)
def test_fits(student, rng):
    for _ in range(60):
        c = a_candidate(rng, 1)
        keys = [*KEYS, *FLAGS]
        chosen = [keys[i] for i in torch.randperm(8, generator=rng)[: whole(rng, 0, 5)].tolist()]
        need = {k: whole(rng, 0, 1) == 1 if k in FLAGS else whole(rng, 0, 5) for k in chosen}
        seen = a_bool(student.fits(c, need), "fits")
        assert seen == meets(c, need), "fits is not what the need says"
    several = [a_candidate(rng, 1) for _ in range(4)]
    needs = [{"flops": 2, "mergeable": True}, {"context": 2}, {"flops": 4, "mergeable": True}]
    again(student, [("fits", c, need) for c in several for need in needs])
    c = a_candidate(rng, 1, flops=10**12, mergeable=True)
    for limit, right in (
        (10**12, True), (10**12 - 1, False), (0, False), (1e12, True), (1e12 - 0.5, False),
        (0.0, False), (math.inf, True),
    ):  # fmt: skip
        assert a_bool(student.fits(c, {"flops": limit}), "fits") == right, "fits at a limit"
    need = dict.fromkeys(FLAGS, True) | dict.fromkeys(KEYS, 0)
    free = dict.fromkeys(KEYS, 0) | dict.fromkeys(FLAGS, True) | {"losses": [1.0]}
    assert a_bool(student.fits(free, need), "fits") is True, "fits, all columns asked"
    for key in (*KEYS, *FLAGS):
        broken = free | {key: False if key in FLAGS else 1}
        assert a_bool(student.fits(broken, need), "fits") is False, "fits, one column broken"


@exercise(
    "ex6",
    points=2,
    invariant="of what fits, those not apart from the best mean, the fewest trained, the first "
    "of equals; None if nothing fits or nothing is there",
    cause="apart from the neighbour in place of the best, the last of equals, losses of "
    "those that do not fit, sums in place of means, or an error for none",
)
def test_choices(student, rng):
    tried = 0
    while tried < 24:
        count, runs = whole(rng, 1, 9), (1, 2, 4, 16)[whole(rng, 0, 3)]
        count += 12 if tried % 5 == 0 else 0
        each = [(1, 2, 4, 16)[whole(rng, 0, 3)] if tried % 2 else runs for _ in range(count)]
        candidates = {f"way {i}": a_candidate(rng, each[i]) for i in range(count)}
        need = {"mergeable": True} if tried % 3 == 0 else {}
        need |= {"flops": 3, "context": 4} if tried % 4 == 0 else {}
        if not one_best_mean(candidates, need):
            continue  # then it is not said which of them is the best
        tried += 1
        seen, right = student.choose(candidates, need), walk(candidates, need)
        assert seen == right, "chosen is another one than by the rule"
    pairs = beside_the_limit(rng)
    pairs += [([v * 2.0**-27 for v in a], [v * 2.0**-27 for v in b]) for a, b in pairs]
    for a, b in pairs:
        made = {
            "a": a_candidate(rng, 1, losses=a, trained=1),
            "b": a_candidate(rng, 1, losses=b, trained=2),
        }
        right = "b" if sum(b) / len(b) < sum(a) / len(a) and rule(a, b) else "a"
        assert student.choose(made, {}) == right, f"chosen of {a} and {b}, a with fewer numbers"
    several = [{f"way {i}": a_candidate(rng, 2) for i in range(3)} for _ in range(4)]
    several = [c for c in several if one_best_mean(c, {})]
    again(student, [("choose", c, need) for c in several for need in ({}, {"mergeable": True})])
    late = {f"way {i}": a_candidate(rng, 1, losses=[2.0]) for i in range(20)}
    late["last"] = a_candidate(rng, 1, losses=[1.0])
    assert student.choose(late, {}) == "last", "chosen is not the only good one, the last of 21"
    assert student.choose({}, {}) is None, "chosen from nothing"
    # b is alike to a, c to b, but c is apart from a: and c has the fewest
    chain = {"a": [1.0, 1.25], "b": [1.25, 1.5], "c": [1.5, 1.75]}
    trained = {"a": 30, "b": 20, "c": 10}
    made = {n: a_candidate(rng, 1, losses=v, trained=trained[n]) for n, v in chain.items()}
    assert student.choose(made, {}) == "b", "chosen in a chain of three"
    # a has the lowest single run, b the lowest mean; c is alike to a and apart from b
    lucky = {"a": [1.0, 3.0], "b": [1.5, 1.5625], "c": [1.75, 1.75]}
    made = {n: a_candidate(rng, 1, losses=v, trained=trained[n]) for n, v in lucky.items()}
    assert student.choose(made, {}) == "b", "chosen beside one lucky run"
    # a has the lower sum, b the lower mean: a was run once, b four times
    often = {"a": [2.0], "b": [1.0, 1.0, 1.25, 1.25]}
    made = {n: a_candidate(rng, 1, losses=v, trained=7) for n, v in often.items()}
    assert student.choose(made, {}) == "b", "chosen beside one of fewer runs"
    # the best of all does not fit: compared is with the best that does
    outside = {"a": [1.0], "b": [1.5], "c": [0.25]}
    made = {n: a_candidate(rng, 1, losses=v, trained=trained[n]) for n, v in outside.items()}
    made = {n: c | {"mergeable": n != "c"} for n, c in made.items()}
    assert student.choose(made, {"mergeable": True}) == "a", "chosen beside one that does not fit"
    for scale in (2.0**-27, 2.0**20):  # apart and alike at any size; numbers of large models
        near = {"a": [1.0, 1.5], "b": [1.25, 1.5], "c": [2.5, 2.5]}
        numbers_ = {"a": 2**32 + 5, "b": 7_000_000, "c": 2}
        made = {
            n: a_candidate(rng, 2, losses=[scale * x for x in v], trained=numbers_[n])
            for n, v in near.items()
        }
        assert student.choose(made, {}) == "b", "chosen of losses of another size"
    equal = {n: a_candidate(rng, 1, losses=[1.0, 1.5], trained=7) for n in ("z", "y", "a")}
    assert student.choose(equal, {}) == "z", "chosen of three that are equal"


NEXT = 2.0**-30  # beside a limit; all means and spreads below are exact in Python's floats


def runs_of(rng, n, mean, spread_):
    """n losses with exactly this mean and this spread (0 of one run), in an order drawn."""
    three = [mean + spread_ * part for part in (5 / 8, -1 / 4, -3 / 8)]  # no mean is the median
    made = [*three * (n // 3), *([mean] * (n % 3))]
    if n == 2:
        made = [mean + spread_ / 2, mean - spread_ / 2]
    return [made[i] for i in torch.randperm(n, generator=rng).tolist()]


def at_the_limit(rng, a, n, m, more):
    """(losses of n runs, of m runs): means apart by the larger spread and `more`."""
    spreads = [whole(rng, 1, 16) / 8 if count > 1 else 0.0 for count in (n, m)]
    gap = max(spreads) + more
    return runs_of(rng, n, a, spreads[0]), runs_of(rng, m, a + gap, spreads[1])


def a_bill(rng, **changes):
    """A bill, without losses, its keys in any order."""
    made = dict(zip(KEYS, torch.randint(6, (5,), generator=rng).tolist(), strict=True))
    made |= zip(FLAGS, torch.randint(2, (3,), generator=rng).bool().tolist(), strict=True)
    return shuffled(rng, made | changes)


def fits_cases(rng):
    """(bill, need, right): each column alone and all together, on both sides of each limit."""
    cases = []
    for base in (0, 1, 2, 100, 2**24 + 1, 2**53 + 1, 10**15):
        for key in KEYS:
            c = a_bill(rng, **{key: base})
            cases += [(c, {key: base + more}, more >= 0) for more in (-1, 0, 1) if base + more >= 0]
            cases += [(c, {key: 0.5}, base == 0), (c, {key: math.inf}, True)]
            if base < 2:  # 0.0 and 1.0 are False and True to Python
                cases += [(c, {key: 0.0}, base == 0), (c, {key: 1.0}, True)]
    for flag, limit in itertools.product((True, False), repeat=2):
        for key in FLAGS:
            cases.append((a_bill(rng, **{key: flag}), {key: limit}, flag or not limit))
    for count in (0, 1, 2, 4, 8):  # what is asked: all of it met, or all but one
        keys = spread(rng, (*KEYS, *FLAGS), 8)[:count]
        need = {key: whole(rng, 0, 1) == 1 if key in FLAGS else whole(rng, 0, 3) for key in keys}
        good = a_bill(rng, **{k: v if k in KEYS else (v or whole(rng, 0, 1) == 1)
                              for k, v in need.items()})  # fmt: skip
        cases.append((good, need, True))
        for key in keys:
            if need[key] is not False:
                broken = False if key in FLAGS else need[key] + 1
                cases.append((good | {key: broken}, need, False))
    return cases


def a_choice(rng, count, low, near):
    """{name: candidate}: the best mean is `low`, others lie at the limit and beside it."""
    names = ["", " ", "0", "None", "a", "A", "a ", "way", *(f"way {i}" for i in range(count))]
    names = spread(rng, names[: max(8, count)], count)
    n, large = spread(rng, (1, 2, 3, 5, 8, 16, 70), 1)[0], 2 ** whole(rng, 53, 60)
    own = whole(rng, 1, 16) / 8 if n > 1 else 0.0
    made = {}
    for i, name in enumerate(names):
        losses = runs_of(rng, n, low, own)
        if i:
            m = spread(rng, (1, 2, 3, 5, 8, 16, 70), 1)[0]
            other = whole(rng, 1, 16) / 8 if m > 1 else 0.0
            gap = max(own, other) + spread(rng, (-near, 0.0, near, 1.0), 1)[0]
            losses = runs_of(rng, m, low + max(gap, near), other)
        numbers_ = {"trained": large + whole(rng, 0, 2), "losses": losses}
        made[name] = a_bill(rng, **numbers_)
    if count > 100 or whole(rng, 0, 1):  # the best of all fits
        made[names[0]] |= dict.fromkeys(FLAGS, True) | dict.fromkeys(KEYS[1:], 0)
    order = torch.randperm(count, generator=rng).tolist()
    return {names[i]: made[names[i]] for i in order}


@exercise(
    "ex6",
    points=1,
    invariant="differ, fits and choose, anywhere in what the card admits: any number of runs with "
    "any other, at every limit and next to it, large numbers, many ways, any names",
    cause="a tolerance, a limit on runs or ways, a name that is empty, or numbers that are rounded",
)
def test_anywhere_in_a_choice(student, rng):
    counts, calls = (1, 2, 3, 4, 5, 7, 8, 9, 20, 100), []
    for n, m, more, power, turn in every_pair(
        rng, counts, counts, (-NEXT, 0.0, NEXT), (-27, 0, 13), (1, -1)
    ):
        pair = at_the_limit(rng, whole(rng, 16, 64) / 16, *(n, m)[::turn], more)
        calls.append([[v * 2.0**power for v in own] for own in pair][::turn])
    for (a, b), seen in zip(calls, held_results(student, "differ", calls), strict=True):
        what = f"differ of {len(a)} and {len(b)} runs, means {sum(a) / len(a)}, {sum(b) / len(b)}"
        assert a_bool(seen, what) == rule(a, b), f"{what}: {seen}, at the limit or beside it"
    cases = fits_cases(rng)
    seen = held_results(student, "fits", [(c, need) for c, need, _ in cases])
    for (c, need, right), value in zip(cases, seen, strict=True):
        assert a_bool(value, "fits") == right, f"fits is {value} for {need}, the bill is {c}"
    calls = [({}, {}), ({}, {"mergeable": True, "flops": 3}), ({}, {"untouched": False})]
    for i, (count, need) in enumerate(itertools.product(
        (1, 2, 3, 8, 9, 30, 130), ({}, {"mergeable": True}, {"flops": 3, "untouched": True},
                                   dict.fromkeys(KEYS[2:], 4) | dict.fromkeys(FLAGS, False)),
    )):  # fmt: skip
        scale = 2.0 ** (-27, 0, 13)[i % 3]
        made = a_choice(rng, count, whole(rng, 64, 99) / 16, NEXT)
        made = {k: c | {"losses": [v * scale for v in c["losses"]]} for k, c in made.items()}
        last = walk(made, need) if i % 2 else None  # whoever would be chosen stands last
        made |= {} if last is None else {last: made.pop(last)}
        if one_best_mean(made, need):
            calls.append((made, need))
    expect_reused(student, [("choose", *call) for call in calls[3:12]])
    some = [(a_bill(rng), {"flops": 2, "mergeable": True}) for _ in range(6)]
    expect_reused(student, [("fits", *call) for call in some])
    some = [(runs_of(rng, 4, 2.0, 0.5), runs_of(rng, 4, m, 0.25)) for m in (2.25, 3.0, 2.5)]
    expect_reused(student, [("differ", *call) for call in some])
    zero = [a_bill(rng, losses=[v], trained=n) for v, n in ((0.0, 2), (NEXT, 1))]
    calls += [({"": zero[0]}, {}), ({"a": zero[0], "b": zero[1]}, {})]
    few, many = (a_bill(rng, losses=[1.0], trained=n) for n in (1, 5))  # a name that is empty
    calls += [({"": few, "b": many}, {}), ({"b": many, "": few}, {}), ({"b": few, "": many}, {})]
    for (made, need), name in zip(calls, held_results(student, "choose", calls), strict=True):
        right = walk(made, need)
        what = f"chosen of {len(made)} ways with {need}"
        assert type(name) is type(right) and name == right, f"{what}: {name!r}, expected {right!r}"


def free_candidate(**changes):
    return dict.fromkeys(KEYS, 0) | dict.fromkeys(FLAGS, True) | {"losses": [1.0]} | changes


NEEDS = {
    "phone": {"mergeable": True, "optimizer_bytes": 100_000_000},
    "shop": {"batchable": True, "trained": 20_000_000, "context": 0},
    "engine": {"untouched": True, "batchable": True, "context": 32, "read_bytes": 4_000_000},
}


def expect_situation(student, name):
    """Each column of a bill: asked for as the text says, up to its limit, or left free."""
    need = student.situation(name)
    assert isinstance(need, dict), f"situation returned {type(need).__name__}, not a dict"
    odd = [k for k in need if k not in (*KEYS, *FLAGS)]
    assert not odd, f"situation asks for {odd}, which no bill has"
    asked = dict(NEEDS[name])
    if "optimizer_bytes" in asked:
        asked["trained"] = asked.pop("optimizer_bytes") // 8

    def verdict(**changes):
        if "trained" in changes:  # states are 8 bytes for each: a limit on either is the same
            changes["optimizer_bytes"] = 8 * changes["trained"]
        return student.choose({"x": free_candidate(**changes)}, need) == "x"

    assert verdict(), "what costs nothing and can do everything does not fit"
    for key in FLAGS:
        seen = verdict(**{key: False})
        assert seen != (key in asked), f"{key}: False {'fits' if seen else 'does not fit'}"
    for key in KEYS:
        if key == "optimizer_bytes":
            continue
        if key in asked:
            assert verdict(**{key: asked[key]}), f"{key}: what just fits is refused"
            assert not verdict(**{key: asked[key] + 1}), f"{key}: one too many fits"
        else:
            assert verdict(**{key: 10**15}), f"{key}: is asked for, and the text does not say so"


@exercise(
    "ex6",
    points=1,
    invariant="phone: the model's own arrays, and 100 MB of states",
    cause="a limit on FLOPs or bytes, which what is merged does not have, or MB of 2^20 bytes",
)
def test_the_phone(student, rng):
    expect_situation(student, "phone")


@exercise(
    "ex6",
    points=1,
    invariant="shop: rows of a batch, 2 bytes a number, 20 GB for 500 customers, no position",
    cause="bytes in place of numbers, or states counted where only numbers lie",
)
def test_the_shop(student, rng):
    expect_situation(student, "shop")


@exercise(
    "ex6",
    points=1,
    invariant="engine: layers as they are, rows of a batch, 32 positions, 4 MB a token",
    cause="mixed batches forgotten, one position less, or MB of 2^20 bytes",
)
def test_the_engine(student, rng):
    expect_situation(student, "engine")
