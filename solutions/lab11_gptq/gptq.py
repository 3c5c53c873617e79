# %% [markdown]
# # Lab 11: GPTQ, and rotation
#
# ![Two roundings of one model to 2 bits: the weights of B lie farther from the float weights than
# those of A, and the perplexity of B is much lower.](../../course/figures/lab11/opening.svg)
#
# **The question.** A and B are one model in 2 bits, on grids of the same kind. A takes for every
# weight the nearest value there is. B does not, its weights are farther off, and its model is far
# better. **Why does rounding one weight down make it right to change the others, and what does that
# cost you on another text?**
#
# Section 6 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about four hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | lab 1 (grids, groups, bits); matrices, their inverse, orthogonal ones |
# | Not covered | kernels for g_idx; lattices (QuIP#); rotations while the model runs |
#
# After this lab you can
# 1. derive the repair of one weight, and write GPTQ with blocks, groups and an order of columns;
# 2. say with controls what its gain is made of, and where it ends;
# 3. turn a whole model by an orthogonal matrix, and say what that buys beside simpler ways.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones. Answer predictions in
# their field; where no field is shown, by `lab.answer("2 bits", 50)`. Seconds that a cell
# announces are those of a quiet machine.
#
# ## Map and notation
#
# Section 1, what a layer's error is: exercises 1 and 2. Section 2, column by column: 3. Section 3,
# blocks, groups, order and bits: 4 and 5. Section 4, rotation: 6. Section 5: what is wrong.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | $W$ | [N, K] | `w` | weight of an `nn.Linear`: N outputs, K inputs |
# | $V$ | [N, K] | `v`, `w_new` | the weight in its place |
# | $x$ | [..., K] | `x` | inputs, a row per token; $y = x W^T$ |
# | $H$ | [K, K], float64 | `h` | mean of $x^T x$ over all tokens |
# | $e$ | [K] | `e` | $W_i - V_i$, the change of a row |
# | $U$ | [K, K] | `u` | upper triangular, $U^T U = H^{-1}$ |
# | $s, z$ | [N, G] | `scale`, `zero` | the grid of each group of a row: values $(code - z)\,s$ |
# | $Q$ | [n, n] | `q` | orthogonal: $Q^T Q = 1$ |
#
# ### Rules for all exercises
#
# No function changes its arguments, or what it returned before; a result may share memory with an
# argument. N and K are at least 1, numbers are finite, H is symmetric. Sizes may be very unlike, in
# one H, too: weights of 1e-8 or 1e4, so no epsilon anywhere. Tests draw inputs whose codes are not
# nearly a tie of rounding.

# %%
import copy
import dataclasses
import math

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, placements, style
from efflib.plots import gptq as figures

lab = Lab("lab11_gptq")


# %%
# given: the grid of a row, codes on it, and back (lab 1's asymmetric quantizer, 0 always in range)
def min_max(w: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """(scale, zero) [N, 1] float64 of the rows of w [N, K]: codes 0 to 2^bits - 1 over min, max."""
    w = w.double()
    low, high = w.amin(1, keepdim=True).clamp(max=0), w.amax(1, keepdim=True).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    scale = torch.where(scale == 0, 1.0, scale)  # a row of zeros
    return scale, torch.round(-low / scale)


def nearest(w: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """The codes [N, K] int64 of w [N, K]: rounding, each weight for itself."""
    return torch.round(w.double() / scale + zero).clamp(0, 2**bits - 1).long()


def values(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """What codes [N, K] stand for, float64 [N, K]."""
    return (codes - zero) * scale


# %% [markdown]
# ## Baseline
#
# The shipped model, its 42 linear layers inside blocks rounded to nearest: groups of 64 weights of
# a row share a scale of 16 bits and a zero point of as many bits as a code has. (Here scales are
# computed in float64; 16 bits are what they are counted as.) The embedding, which is also the
# output layer, stays. Perplexity is that of 2048 tokens of held-out code, and of prose.
#
# Calibration texts are pieces of the training text: two of code and two of prose, 4096 tokens each.
# Between two of one kind nothing differs but the piece: **a difference that is not larger than
# theirs says nothing.**

# %% tags=["demo"]
from efflib.zoo import corpus
from efflib.zoo.evaluation import held_out_segments

GROUP = 64
model = zoo.load("target")
names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
held_out = {kind: held_out_segments(kind, 2048) for kind in ("code", "prose")}
texts = {}  # "code A", "code B", "prose A", "prose B": ids [16, 256]
for kind in held_out:
    long = [d for d in corpus.documents(kind, held_out=False).values() if len(d) > 4000]
    rows = [zoo.load_tokenizer().encode(d[:4000]).ids for d in long[:: len(long) // 16][:16]]
    for piece, at in (("A", 0), ("B", 255)):
        texts[f"{kind} {piece}"] = torch.tensor([[zoo.BEGIN_ID, *r[at : at + 255]] for r in rows])


# %% tags=["demo", "fold"]
# helpers of the experiments: perplexity, what linear layers read, models with other weights, AWQ,
# bits of a model; for section 4 models of the same function, and inputs that are rounded
from efflib.models.groups import norm_groups
from efflib.models.llama import Llama
from efflib.zoo.evaluation import token_losses
from efflib.zoo.outliers import merged_twins


def perplexity(model: nn.Module, kind: str = "code") -> float:
    """On held-out text."""
    losses = token_losses(model, held_out[kind], context=128, stride=128)
    return losses.double().mean().exp().item()


@torch.no_grad()
def statistics(model: nn.Module, ids: Tensor, of) -> dict[str, Tensor]:
    """{linear layer: of(all that it reads [T, K])}."""
    seen, hooks, last = {}, [], (None, None)
    for name in names:

        def note(module, args, name=name):
            nonlocal last
            if args[0] is not last[0]:  # q, k and v read the same
                last = args[0], of(args[0].flatten(0, -2))
            seen[name] = last[1]

        hooks.append(model.get_submodule(name).register_forward_pre_hook(note))
    model(ids)
    for hook in hooks:
        hook.remove()
    return seen


def hessian(x: Tensor) -> Tensor:
    """Your H of x [T, K]."""
    k = x.shape[-1]
    return add_tokens(torch.zeros(k, k, dtype=torch.float64), 0, x)[0]


@torch.no_grad()
def with_weights(model: nn.Module, rule) -> nn.Module:
    """A copy whose weight `name` is rule(name, w)."""
    changed = copy.deepcopy(model)
    for name in names:
        weight = changed.get_submodule(name).weight
        weight.copy_(rule(name, weight.detach()))
    return changed


def group_grids(w: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """(scale, zero) of each weight [N, K]: static grids of groups."""
    parts = [(min_max(p, bits), p.shape[1]) for p in w.split(GROUP, 1)]
    return tuple(torch.cat([g[i].expand(-1, k) for g, k in parts], 1) for i in (0, 1))


def searched_grids(w: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The same, over the share of each group's range (of 15) that is nearest to its weights."""
    found = []
    for part in w.split(GROUP, 1):
        best = None
        for share in range(6, 21):
            scale, zero = min_max(part * share / 20, bits)
            off = values(nearest(part, scale, zero, bits), scale, zero) - part
            tried = off.square().sum(1, keepdim=True), scale, zero
            better = best is None or tried[0] < best[0]
            pairs = zip(tried, best or tried, strict=True)
            best = [torch.where(better, *p) if best else p[0] for p in pairs]
        found.append([t.expand(-1, part.shape[1]) for t in best[1:]])
    return tuple(torch.cat(parts, 1) for parts in zip(*found, strict=True))


def to_nearest(w: Tensor, bits: int, grids=group_grids) -> Tensor:
    """w on static grids, each weight for itself."""
    scale, zero = grids(w, bits)
    return values(nearest(w, scale, zero, bits), scale, zero).float()


def by_gptq(w: Tensor, h: Tensor, bits: int, damping: float = 0.01, grids=group_grids) -> Tensor:
    """w on the same static grids, by your exercise 3."""
    scale, zero = grids(w, bits)
    return values(gptq(w, h, scale, zero, bits, damping), scale, zero).float()


def gptq_model(hs: dict[str, Tensor], bits: int, *how) -> nn.Module:
    """The model by your exercise 3; how: damping, and the grids."""
    return with_weights(model, lambda n, w: by_gptq(w, hs[n], bits, *how))


def changed_by(rule, hs: dict[str, Tensor], *how) -> nn.Module:
    """The model with weights rule(w, h, *how)."""
    return with_weights(model, lambda n, w: rule(w, hs[n], *how))


@torch.no_grad()
def with_biases(rounded: nn.Module, means: dict[str, Tensor]) -> nn.Module:
    """A copy with a bias in every linear layer: the mean of what rounding changed."""
    changed = copy.deepcopy(rounded)
    for name in names:
        linear = changed.get_submodule(name)
        off = model.get_submodule(name).weight - linear.weight  # [N, K]
        linear.bias = nn.Parameter((off.double() @ means[name]).float())
    return changed


def on_both(model: nn.Module) -> dict[str, float]:
    return {kind: perplexity(model, kind) for kind in held_out}


def shown(pair: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f} on {kind}" for kind, value in pair.items())


@torch.no_grad()
def awq(model: nn.Module, hs: dict[str, Tensor], bits: int) -> nn.Module:
    """A copy: linears behind a norm are rounded as w s, with s^-1 in the inputs."""
    changed = with_weights(model, lambda n, w: to_nearest(w, bits))
    for group in norm_groups(model):
        size = hs[next(iter(group.linears))].diagonal().sqrt().float()
        tried = []
        for i in range(10):
            s = size ** (i / 10)
            s = s / (s.max() * s.min()).sqrt()
            made = {n: to_nearest(m.weight * s, bits) / s for n, m in group.linears.items()}
            errors = [
                output_error(group.linears[n].weight, v, hs[n]).sum() for n, v in made.items()
            ]
            tried.append((sum(errors).item(), i, made))
        for name, weight in min(tried, key=lambda t: t[:2])[2].items():
            changed.get_submodule(name).weight.copy_(weight)
    return changed


def total_bits(bits: int, indexed: bool = False, biases: bool = False) -> float:
    """All bits of the linear layers of blocks, per weight."""
    bill, weights = 0, 0
    for name in names:
        n, k = model.get_submodule(name).weight.shape
        known = torch.arange(k) // GROUP
        index = known.flip(0) if indexed else known
        bill += stored_bits((n, k), bits, GROUP, index, 16, bits, 32) + 32 * n * biases
        weights += n * k
    return bill / weights


def shuffle(x: Tensor, signs: bool) -> Tensor:
    """x [T, K] with every channel moved by another number of tokens; perhaps with random signs."""
    g = torch.Generator().manual_seed(0)
    by = torch.randint(len(x), (x.shape[1],), generator=g)
    x = x.gather(0, (torch.arange(len(x))[:, None] + by) % len(x))
    return x * (2 * torch.randint(2, x.shape, generator=g) - 1) if signs else x


def of_means(x: Tensor) -> Tensor:
    """H of inputs x [T, K] of which nothing is left but the mean and the variance of a channel."""
    mean = x.double().mean(0)
    return x.double().var(0, correction=0).diag() + torch.outer(mean, mean)


def in_order(w: Tensor, h: Tensor, bits: int, static: bool) -> Tensor:
    return dequantize(*gptq_ordered(w, h, bits, GROUP, static))


def with_grids(w: Tensor, h: Tensor, bits: int, grids: str) -> Tensor:
    """In blocks of two groups, with groups as they are stored."""
    known = torch.arange(w.shape[1]) // GROUP
    return dequantize(*gptq_blocked(w, h, bits, 2 * GROUP, GROUP, grids), known)


found = {}  # the numbers you find, for the takeaways at the end


def made_of(base: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """A Llama of these parameters, untied."""
    made = Llama(dataclasses.replace(base.config, tie_word_embeddings=False)).eval()
    made.load_state_dict(state)
    return made


def absorbed(base: nn.Module) -> nn.Module:
    return made_of(base, absorb_norms(base.state_dict()))


def turned(base: nn.Module, seed: int) -> nn.Module:
    """Your rotation; for 192 = 3 * 64 channels three Hadamard blocks, mixed by a 3 x 3 rotation."""
    width = base.config.hidden_size
    q = random_rotation(width & -width, seed)  # the power of two in it
    if len(q) < width:
        g = torch.Generator().manual_seed(seed)
        odd = torch.randn(width // len(q), width // len(q), dtype=torch.float64, generator=g)
        q = torch.kron(torch.linalg.qr(odd)[0].contiguous(), q.contiguous())
    return made_of(base, rotate(absorb_norms(base.state_dict()), q))


@torch.no_grad()
def smoothed(base: nn.Module, ids: Tensor, alpha: float = 0.8) -> nn.Module:
    """SmoothQuant: norms divided, linears multiplied, by input^alpha / weight^(1 - alpha)."""
    base, tops = copy.deepcopy(base), statistics(base, ids, lambda x: x.abs().amax(0))
    for group in norm_groups(base):
        weights = torch.cat([m.weight for m in group.linears.values()]).abs().amax(0)
        weights[weights == 0] = 1.0  # a column of zeros takes any factor
        s = tops[next(iter(group.linears))] ** alpha / weights ** (1 - alpha)
        group.norm.weight /= s
        for linear in group.linears.values():
            linear.weight *= s
    return base


def attention_input(model: nn.Module, way: str) -> Tensor:
    """What an attention reads; prints peaks of all inputs and weights behind norms."""
    seen = statistics(model, sample_text[:4], lambda x: x)
    behind = [n for n in names if n.endswith(("q_proj", "gate_proj"))]
    of_x = placements.mean([peaks(seen[n]).mean().item() for n in behind])
    weights = [model.get_submodule(n).weight.detach() for n in behind]
    of_w = placements.mean([peaks(w).mean().item() for w in weights])
    print(f"{way:9s} perplexity {perplexity(model):.3f}; max / rms: ", end="")
    print(f"a token {of_x:.1f}, a row of weights {of_w:.1f}")
    return seen["model.layers.2.self_attn.q_proj"]


def low_inputs(model: nn.Module, bits: int) -> nn.Module:
    """A copy whose linears in blocks read inputs in `bits` bits, a symmetric grid per token."""
    model = copy.deepcopy(model)

    def round_inputs(module, args):
        scale = args[0].abs().amax(-1, keepdim=True).clamp(min=1e-8) / (2 ** (bits - 1) - 1)
        return (torch.round(args[0] / scale) * scale,)

    for name in names:
        model.get_submodule(name).register_forward_pre_hook(round_inputs)
    return model


def low(model: nn.Module, weight_bits: int, input_bits: int) -> float:
    """Perplexity with weights to nearest in groups and inputs per token; 16: as they are."""
    if weight_bits < 16:
        model = with_weights(model, lambda n, w: to_nearest(w, weight_bits))
    return perplexity(low_inputs(model, input_bits) if input_bits < 16 else model)


WAYS = {"plain": lambda m: m, "smoothed": lambda m: smoothed(m, texts["code A"])}
WAYS |= {"absorbed": absorbed, "rotated": lambda m: turned(m, 0)}

# %% tags=["demo"]
found["float"] = on_both(model)
print("float:", shown(found["float"]))
nearest_model = {b: with_weights(model, lambda n, w, b=b: to_nearest(w, b)) for b in (4, 3, 2)}
for bits, rounded in nearest_model.items():
    found["nearest", bits] = on_both(rounded)
    print(f"{bits} bits to nearest, {bits + (16 + bits) / GROUP:.2f} in all:", end=" ")
    print(shown(found["nearest", bits]))
print("\n" + zoo.sample(nearest_model[2], zoo.PROMPTS[1], tokens=40))
lab.predict(
    "2 bits",
    f"2 bits to nearest: {found['nearest', 2]['code']:.0f} on code. Same bits, same grids, but the "
    "codes are chosen for the layers' outputs. Which perplexity?",
)

# %% [markdown]
# ## 1. What a layer's error is
#
# A layer is there for its outputs. When row $W_i$ becomes $V_i$, output $i$ changes by $x e^T$ for
# a token $x$, and squared and averaged over tokens:
#
# $$ \overline{(x e^T)^2} = e\, \overline{x^T x}\, e^T = e H e^T $$
#
# On its diagonal $H$ says how large each channel is; beside it, which channels go together. Two
# weights, two inputs that nearly agree, both weights off by 0.4:

# %% tags=["demo"]
x2 = torch.tensor([[1.0, 0.9], [-1.0, -1.1], [0.5, 0.6]], dtype=torch.float64)
h2 = x2.T @ x2 / 3
print("H =", h2.round(decimals=3).tolist())
for e in ([0.4, 0.4], [0.4, -0.4]):
    e = torch.tensor(e, dtype=torch.float64)
    print(f"e = {e.tolist()}: {(x2 @ e).square().mean():.4f} by tokens, {e @ h2 @ e:.4f} by H")
lab.predict(
    "price",
    "In a layer of the model one weight is changed, and all others of its row may follow. By which "
    "factor is the error smaller than without them (the median over channels)?",
)

# %% [markdown]
# ### Exercise 1 · The Hessian of a layer
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `add_tokens(h, seen, x) -> (h_new, seen_new)`, `damped(h, damping) -> (h_new, dead)`
# and `output_error(w, v, h) -> error`.
#
# - `add_tokens`: `h` is the mean of $x^T x$ over the `seen` tokens so far (zeros and 0 at first);
#   the result is the mean over these **and** the tokens of `x`, and how many they are. However the
#   tokens are cut into batches, the end is the same to rounding. A batch may have no token.
# - `damped`: channels whose $H_{jj}$ is exactly 0 are `dead`: they get 1 on the diagonal. **Then**
#   `damping` times the mean of the diagonal is added to every entry of the diagonal. `ValueError`
#   unless `h` is square and `damping` is finite and not negative.
# - `output_error`: for each output $i$ the mean over tokens of $(x W_i^T - x V_i^T)^2$, from `h`
#   alone. Right also where `v` is nearly `w`.
#
# Make what comes float64 before anything else; results are float64.
#
# **Shapes** `h` [K, K] float64; `x` [..., K] float32 or bfloat16, at least two dimensions; `w`, `v`
# [N, K] float32, float64 or bfloat16; `dead` [K] bool; `error` [N]; `seen` an int.


# %% solution="ex1"
def add_tokens(h: Tensor, seen: int, x: Tensor) -> tuple[Tensor, int]:
    """(H, tokens) after the tokens of x [..., K]; h [K, K] is the mean of x^T x over `seen`."""
    ### BEGIN SOLUTION
    rows = x.double().reshape(-1, x.shape[-1])
    total = seen + len(rows)
    if total == 0:
        return h.clone(), 0
    return h * (seen / total) + rows.T @ rows / total, total
    ### END SOLUTION


def damped(h: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """(H [K, K] with damping, True for channels that were always 0 [K]).

    Raises ValueError unless h is square and damping finite and not negative.
    """
    ### BEGIN SOLUTION
    if h.ndim != 2 or h.shape[0] != h.shape[1] or not 0 <= damping < math.inf:
        raise ValueError(f"h {tuple(h.shape)} must be square, damping={damping} finite and >= 0")
    dead = h.diagonal() == 0
    diagonal = h.diagonal() + dead
    extra = dead + damping * diagonal.mean()
    return h + torch.diag(extra), dead
    ### END SOLUTION


def output_error(w: Tensor, v: Tensor, h: Tensor) -> Tensor:
    """The mean squared error [N] of each output when w [N, K] becomes v [N, K]."""
    ### BEGIN SOLUTION
    e = w.double() - v.double()
    return (e @ h * e).sum(1)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")
# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Of 5 tokens, 3 are old and 2 are new: the new mean is 3/5 of the old one and 2/5 of that
# of the new tokens.
#
# **By hand.** The tokens (1, 2) and (3, 0): squares (1 + 9) / 2 = 5 and (4 + 0) / 2 = 2, products
# (2 + 0) / 2 = 1. H = (5, 1 | 1, 2). With the token (0, -2) besides: 2/3 H + 1/3 (0, 0 | 0, 4).
# Damping 0.5 of the diagonal 4, 0, 1: first 4, 1, 1, mean 2, then 5, 2, 2.
#
# **The usual errors.** Means of batches averaged, whatever their size. Squares in bfloat16. The
# mean of the diagonal before the dead channels got their 1, or damping itself in place of damping
# times the mean. `e @ h @ e.T` for all rows at once: [N, N], of which only the diagonal is asked.
# </details>
#
# A factor before $H$ (2, in papers) changes nothing that follows: damping is relative to the mean,
# and repairs are ratios. Only the 1 of a dead channel is not: there a factor changes the damping,
# a little.
#
# ### Exercise 2 · One weight changed, the others repaired
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# In every row, weight $j$ is to become a given value, and the weights that are `free` may follow,
# so that the output changes as little as possible. All others stay. With $e = W_i - V_i$:
#
# $$ \min_e\; e H e^T \quad\text{with } e_j = W_{ij} - v_i \text{ given, and } e_k = 0
#    \text{ where } k \ne j \text{ is not free} $$
#
# **Deliver** `change_one(w, h, j, v, free) -> (w_new, cost)` and
# `prices(h) -> (alone, repaired)`.
#
# - `change_one`: the best new rows, and what $e H e^T$ is then. `w_new[:, j]` is `v` to rounding;
#   weights that are not free are `w`'s bit by bit, in float64. What `free[j]` says does not matter.
# - `prices`: for each channel $j$ what a change of $e_j = 1$ costs if nothing follows (`alone`),
#   and if all other weights follow (`repaired`).
#
# `h` is symmetric and positive definite. Compute in float64; results are float64.
#
# **Shapes** `w` [N, K] float32 or float64; `h` [K, K] float64; `j` an int from 0 to K - 1; `v` [N]
# float64; `free` [K] bool; `w_new` [N, K]; `cost` [N]; `alone`, `repaired` [K].


# %% solution="ex2"
def change_one(w: Tensor, h: Tensor, j: int, v: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """(w [N, K] with v [N] in column j and the free columns [K] repaired, e H e^T [N])."""
    ### BEGIN SOLUTION
    follow = free.clone()
    follow[j] = True
    places = follow.nonzero().flatten()
    inverse = torch.linalg.inv(h[places][:, places])
    at = int((places == j).nonzero())
    e = w[:, j].double() - v.double()
    w_new = w.double().clone()
    w_new[:, places] -= e[:, None] * inverse[at] / inverse[at, at]
    w_new[:, j] = v.double()
    return w_new, e.square() / inverse[at, at]
    ### END SOLUTION


def prices(h: Tensor) -> tuple[Tensor, Tensor]:
    """(cost [K] of e_j = 1 when nothing follows, and [K] when all others follow)."""
    ### BEGIN SOLUTION
    return h.diagonal().clone(), 1 / torch.linalg.inv(h).diagonal()
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")
# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** A minimum with a condition. Lagrange: the gradient of $e H e^T$, which is $2 e H$, is 0
# in every place where $e$ may move freely, and at $j$ it is whatever holds $e_j$ there. Write that
# for the places that move, $j$ among them.
#
# **By hand.** H = (2, 1 | 1, 2), w = (1, 1), the first becomes 0.6: $e_1$ = 0.4. The second
# follows: $e_1 + 2 e_2 = 0$, so $e_2$ = -0.2, and it becomes 1.2. Cost: 2 · 0.16 - 2 · 0.08 + 2 ·
# 0.04 = 0.24. Without it: 2 · 0.16 = 0.32.
#
# **The usual errors.** The inverse of all of $H$ although some weights stay: what stays is no
# longer asked, so first take the part, then the inverse. The other order (inverse, then the part)
# answers another question. The sign of $e$.
# </details>
#
# **Reveal.** Your `prices` on the model's own layers: what a change costs alone, in parts of what
# it costs repaired. And the same for inputs whose channels do not go together, for comparison.

# %% tags=["demo"]
hessians = {t: statistics(model, ids, hessian) for t, ids in texts.items()}
ratios = {}
for name, h in hessians["code A"].items():
    alone, repaired = prices(damped(h, 0.01)[0])
    ratios.setdefault(name.split(".")[-1], []).append((alone / repaired).median().item())
for kind, own in ratios.items():
    print(f"{kind:10s} a repaired change costs 1/{placements.mean(own):.1f}", end="  ")
    print(f"(layers: 1/{min(own):.1f} to 1/{max(own):.1f})")
even = torch.diag(hessians["code A"][names[0]].diagonal())
alone, repaired = prices(even)
print(f"a diagonal H: 1/{(alone / repaired).median():.1f}")
found["price"] = placements.mean([r for own in ratios.values() for r in own])
# (with other damping it is another one: the smaller, the cheaper a repair looks on this text)
lab.reveal("price", round(found["price"], 1))

# %% [markdown]
# **Then write one sentence:** why is the factor 1 with a diagonal $H$, however unlike the sizes of
# the channels are?
#
# *Your sentence:*
#
# ## 2. Column by column
#
# Rounding changes *every* weight, so all cannot be free for ever. GPTQ goes from left to right, in
# all rows at once: a column is rounded, what is behind it follows, and it is never touched again.
# So the first columns have everything to repair them, and the last nothing.
#
# ### Exercise 3 · GPTQ, column by column
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# For $j$ = 0, 1, ... K - 1: round column $j$ to the grid as `nearest` does, and let all columns
# **behind** it follow, as exercise 2 has it. All inverses that this needs stand in one factor:
#
# $$ H^{-1} = U^T U,\quad U \text{ upper triangular}:\qquad
#    \frac{(H_{j:,j:}^{-1})_{0,:}}{(H_{j:,j:}^{-1})_{0,0}} = \frac{U_{j,j:}}{U_{jj}} $$
#
# **Deliver** `inverse_factor(h) -> U` and `gptq(w, h, scale, zero, bits, damping) -> codes`.
#
# - `inverse_factor`: $U$ with a positive diagonal and exact zeros below it. `ValueError` if `h` is
#   not positive definite.
# - `gptq`: `h` is a mean of $x^T x$ as it was measured: `damped` comes first, and weights of dead
#   channels become 0 before anything is rounded. Grids stay as they are given. Repairs are not
#   rounded to the dtype of `w`; float32 is enough for them, for codes of up to 8 bits.
#
# **Shapes** `w` [N, K] float32, float64 or bfloat16; `h`, `U` [K, K] float64; `scale`, `zero`
# [N, 1] (a grid for each row) or [N, K] (for each weight) float64, a zero a whole number from 0 to
# $2^{bits} - 1$, as `min_max` has it; `codes` [N, K] int64.


# %% solution="ex3"
def inverse_factor(h: Tensor) -> Tensor:
    """U [K, K] upper triangular with U^T U = H^-1.

    Raises ValueError if h [K, K] is not positive definite.
    """
    ### BEGIN SOLUTION
    factor, failed = torch.linalg.cholesky_ex(h)
    if failed:
        raise ValueError(f"h {tuple(h.shape)} is not positive definite: more damping, or tokens")
    return torch.linalg.cholesky(torch.cholesky_inverse(factor), upper=True)
    ### END SOLUTION


def gptq(
    w: Tensor, h: Tensor, scale: Tensor, zero: Tensor, bits: int, damping: float = 0.01
) -> Tensor:
    """The codes [N, K] of w [N, K], each column rounded and repaired by those behind it.

    Raises ValueError as damped and inverse_factor.
    """
    ### BEGIN SOLUTION
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = w.double().masked_fill(dead, 0.0)
    scale, zero = scale.expand_as(w).T, zero.expand_as(w).T
    columns = w.T.contiguous()  # [K, N]: each column in one piece, which is faster
    codes = torch.zeros_like(columns, dtype=torch.int64)
    for j in range(len(columns)):
        codes[j] = nearest(columns[j], scale[j], zero[j], bits)
        e = (columns[j] - values(codes[j], scale[j], zero[j])) / u[j, j]
        columns[j:] -= torch.outer(u[j, j:], e)
    return codes.T.contiguous()
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")
# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Exercise 2 for j = 0, 1, ... with free = everything behind j. The inverse that it needs
# belongs to what is left of $H$, and row j of $U$ is its first row, up to a factor that the
# division by $U_{jj}$ takes off.
#
# **By hand.** w = (0.6, 1.6), grid of whole numbers, H = (2, 1 | 1, 2), no damping. 0.6 becomes 1,
# so e = -0.4, and the second moves by -0.4 / 2: 1.4. It becomes 1. To nearest would be (1, 2).
# Errors: e = (-0.4, 0.6) costs 0.56; (-0.4, -0.4) costs 0.96.
#
# **The usual errors.** The lower factor. The factor of $H$. $U_{jj}^2$ in place of $U_{jj}$. The
# error taken against the weight as it came, not as the repairs before have left it.
# </details>
#
# **Reveal.** The same grids as in the baseline, fixed from the float weights; only the codes are
# other ones. $H$ is measured in the float model on "code A". About 8 s.

# %% tags=["demo"]
for bits in (4, 3, 2):
    two_bits = gptq_model(hessians["code A"], bits)  # at the end, the last one
    found["GPTQ", bits] = on_both(two_bits)
    print(f"{bits} bits: nearest {shown(found['nearest', bits])}; ", end="")
    print(f"GPTQ {shown(found['GPTQ', bits])}", flush=True)
lab.reveal("2 bits", round(found["GPTQ", 2]["code"], 1))
lab.predict(
    "shuffled",
    "Now H comes from inputs in which every channel is shuffled among the tokens: the same numbers "
    "in each channel, but nothing goes together in a token. 2 bits, perplexity on code?",
)

# %% [markdown]
# **What is the gain made of?** Controls at 2 bits, all on the same grids:
#
# - *diagonal*: only the diagonal of $H$, so how large each channel is. (Compared code by code, in
#   one block.)
# - *shuffled*: each channel is moved along the tokens, by another number of places: the same
#   numbers in each channel, and nothing goes together within a token;
# - *shuffled, signs*: the same, with random signs besides;
# - *means*: $H$ as it would be if nothing but each channel's mean and variance were known (what is
#   shuffled still has the accidental correlations of 4096 tokens);
# - *bias*: rounding to nearest, and then the simplest repair there is: each output's **mean** error
#   on the calibration text, taken off as a bias;
# - *range*: rounding to nearest, but each group's grid spans that share of its minimum and maximum,
#   of 15 from 0.3 to 1, which comes nearest to the weights: as many bits, and no text at all;
# - *damping* 1, where 0.01 is usual: the more, the less of $H$ beside its diagonal is believed.
#
# Two cells, about 9 s each.

# %% tags=["demo"]
hs = hessians["code A"]
equal = 0
for name in names[7:14]:
    w, even = model.get_submodule(name).weight.detach(), torch.diag(hs[name].diagonal())
    equal += torch.equal(by_gptq(w, even, 2), to_nearest(w, 2))
print(f"diagonal: {equal} of 7 layers as to nearest, code for code")
hs_of = {w: lambda x, w=w: hessian(shuffle(x, "," in w)) for w in ("shuffled", "shuffled, signs")}
for way, of in (hs_of | {"means": of_means}).items():
    found[way] = on_both(gptq_model(statistics(model, texts["code A"], of), 2))
    print(f"{way:16s} {shown(found[way])}", flush=True)
lab.reveal("shuffled", round(found["shuffled"]["code"], 1))


# %% tags=["demo", "fold"]
# damping, biases, and all controls together
def mean_of(x: Tensor) -> Tensor:
    return x.double().mean(0)


means = {t: statistics(model, texts[t], mean_of) for t in ("code A", "prose A")}
found["bias"] = on_both(with_biases(nearest_model[2], means["code A"]))
found["damping 1"] = on_both(gptq_model(hs, 2, 1))
found["GPTQ + bias"] = on_both(with_biases(two_bits, means["code A"]))
found["range"] = on_both(with_weights(model, lambda n, w: to_nearest(w, 2, searched_grids)))
found["GPTQ + range"] = on_both(gptq_model(hs, 2, 0.01, searched_grids))
ways = ["shuffled, signs", "shuffled", "means", "bias", "range"]
ways += ["GPTQ + bias", "GPTQ + range", "damping 1"]
panels = {
    f"held-out {k}": {"nearest": [found["nearest", 2][k]], "GPTQ": [found["GPTQ", 2][k]]}
    | {way: [found[way][k]] for way in ways}
    for k in held_out
}
code = {way: value[0] for way, value in panels["held-out code"].items()}
four = ("nearest", "bias", "range", "GPTQ", "GPTQ + range")
title = "2 bits, code: " + ", ".join(f"{w} {code[w]:.1f}" for w in four)
alt = "; ".join(f"{way} {value:.1f} on code" for way, value in code.items())
style.show(placements.bars(panels, title, "perplexity", controls=ways), alt=alt)
lab.predict(
    "prose",
    f"At 2 bits, calibrated on code, GPTQ has {code['GPTQ']:.1f} on code. Calibrated on prose, "
    "still read on code?",
)

# %% [markdown]
# The diagonal gives rounding to nearest, code for code: that large channels matter more does
# nothing here. But *shuffled* inputs, in which nothing goes together within a token, still give a
# large part of the gain, and *means* alone give more. A channel with a mean goes together with
# every other such channel, in $H$ as $\bar x_i \bar x_j$, and a bias takes off the same. With
# random signs the means are gone, and so is the gain. And yet the largest part of it is to be had
# without any input: grids from minimum to maximum are too wide at 2 bits, which gives rounding a
# mean error that a *range* does not make. What GPTQ gains on top of the better range is another
# number than what it gains on top of the worse one.
#
# **Then write one sentence:** how much of GPTQ's gain at 2 bits would a sceptic have had without
# any text, and what is left for the repair?
#
# *Your sentence:*
#
# **Another text.** Repairs are fitted to what goes together in the calibration text. So calibrate
# on four texts and read both kinds; beside it the bias, fitted to the same texts, and the range,
# fitted to none. Then prose again, with a hundred times the damping: is it the repair that does not
# carry over, or what it takes from directions of which 4096 tokens say little? 6 s and 4 s.

# %% tags=["demo"]
found["GPTQ on", "code A"] = found["GPTQ", 2]
for text in ("code B", "prose A", "prose B"):
    found["GPTQ on", text] = on_both(gptq_model(hessians[text], 2))
for text in texts:
    print(f"GPTQ on {text:8s} {shown(found['GPTQ on', text])}")
for text in means:
    found["bias on", text] = on_both(with_biases(nearest_model[2], means[text]))
    print(f"bias on {text:8s} {shown(found['bias on', text])}")
print(f"range, no text   {shown(found['range'])}")
on_prose = [found["GPTQ on", f"prose {piece}"]["code"] for piece in "AB"]
lab.reveal("prose", round(placements.mean(on_prose), 1))

# %% tags=["demo", "fold"]
# calibration against evaluation
for text in ("code B", "prose A", "prose B"):
    found["damping 1 on", text] = on_both(gptq_model(hessians[text], 2, 1))
    print(f"GPTQ on {text:8s} damping 1: {shown(found['damping 1 on', text])}")
found["damping 1 on", "code A"] = found["damping 1"]
pairs = {
    f"held-out {kind}": {
        "nearest": [found["nearest", 2][kind]],
        "bias, code": [found["bias on", "code A"][kind]],
        "bias, prose": [found["bias on", "prose A"][kind]],
        "GPTQ, code": [found["GPTQ on", f"code {p}"][kind] for p in "AB"],
        "GPTQ, prose": [found["GPTQ on", f"prose {p}"][kind] for p in "AB"],
        "damping 1, code": [found["damping 1 on", f"code {p}"][kind] for p in "AB"],
        "damping 1, prose": [found["damping 1 on", f"prose {p}"][kind] for p in "AB"],
    }
    for kind in held_out
}
texts_code = {way: placements.mean(v) for way, v in pairs["held-out code"].items()}
style.show(
    placements.bars(
        pairs,
        f"GPTQ at 2 bits, read on code: calibrated on code {texts_code['GPTQ, code']:.1f}, "
        f"on prose {texts_code['GPTQ, prose']:.1f}, damped {texts_code['damping 1, prose']:.1f}",
        "perplexity; number: mean, marks: two pieces of text",
    ),
    alt="; ".join(f"{way} {v:.1f} on code" for way, v in texts_code.items()),
)

# %% [markdown]
# **Then write one sentence:** what does another calibration text cost, is it more than between two
# pieces of the same kind, and does GPTQ on the wrong text still beat what you would have without?
#
# *Your sentence:*
#
# ## 3. Blocks, groups, order, and the bill
#
# So far grids were fixed before anything. Real programs fix a group's grid when its turn comes,
# from weights that have moved meanwhile. And they work in blocks, for speed.
#
# ### Exercise 4 · Blocks and groups
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Updating all columns behind each column reads and writes the weight K times. So within a *block*
# of columns only these are updated at once, and those behind the block when it is done: with what
# all of its columns have left, in one product. And now the grid is a *group*'s: columns 0 to
# `group` - 1 of a row share one, and so on (the last group may be shorter). It is fixed when the
# first column of the group has its turn, by `min_max` of the group's weights. As they are **when**?
#
# - `"fresh"`: with the repairs of all columns before.
# - `"lazy"`: as they stood when the current block began, so only with the repairs of blocks that
#   are done (the authors' program does this).
# - `"static"`: as they came. All grids are known before the first column.
#
# **Deliver** `gptq_blocked(w, h, bits, block, group, grids, damping) -> (codes, scale, zero)` and
# `updates(n, k, block) -> int`.
#
# - `gptq_blocked`: as above, with everything else as in exercise 3: dead weights are 0 in all three
#   kinds of grids. `ValueError` for other `grids`, and for `block` or `group` below 1. Compute in
#   float64.
# - `updates`: how many entries of the weight repairs change, each time they do: at each column
#   those behind it in its block, and after each block all those behind the block once.
#
# **Shapes** `w` [N, K] float32, float64 or bfloat16; `h` [K, K] float64; `codes` [N, K] int64;
# `scale`, `zero` [N, G] float64, with G groups.


# %% solution="ex4"
def gptq_blocked(
    w: Tensor, h: Tensor, bits: int, block: int, group: int, grids: str, damping: float = 0.01
) -> tuple[Tensor, Tensor, Tensor]:
    """(codes [N, K], scale [N, G], zero [N, G]) of w [N, K], in blocks and with a grid for a group.

    grids: "fresh", "lazy" or "static".  Raises ValueError for another, for block or group below 1,
    and as damped and inverse_factor.
    """
    ### BEGIN SOLUTION
    if grids not in ("fresh", "lazy", "static") or block < 1 or group < 1:
        raise ValueError(f"grids={grids!r}, block={block} or group={group} is not known")
    h, dead = damped(h, damping)
    u = inverse_factor(h)
    w = w.double().masked_fill(dead, 0.0)
    k, codes, scales = w.shape[1], torch.zeros_like(w, dtype=torch.int64), []
    if grids == "static":
        scales = [min_max(part, bits) for part in w.split(group, 1)]
    for start in range(0, k, block):
        stop = min(start + block, k)
        begun, errors = w.clone(), torch.zeros_like(w)
        for j in range(start, stop):
            if j == len(scales) * group:
                now = begun if grids == "lazy" else w.clone()
                if grids == "fresh":
                    now[:, stop:] -= errors[:, start:j] @ u[start:j, stop:]
                scales.append(min_max(now[:, j : j + group], bits))
            scale, zero = scales[j // group]
            codes[:, j : j + 1] = nearest(w[:, j : j + 1], scale, zero, bits)
            errors[:, j] = (w[:, j] - values(codes[:, j : j + 1], scale, zero)[:, 0]) / u[j, j]
            w[:, j:stop] -= errors[:, j : j + 1] * u[j, j:stop]
        w[:, stop:] -= errors[:, start:stop] @ u[start:stop, stop:]
    scale, zero = (torch.cat(parts, 1) for parts in zip(*scales, strict=True))
    return codes, scale, zero
    ### END SOLUTION


def updates(n: int, k: int, block: int) -> int:
    """Entries of a weight (n, k) that repairs change, counted each time."""
    ### BEGIN SOLUTION
    total = 0
    for start in range(0, k, block):
        stop = min(start + block, k)
        total += (stop - start) * (stop - start - 1) // 2 + k - stop
    return n * total
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")
# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** What column j still owes to column k behind the block is $e_j U_{jk}$. For all columns
# of a block that is one product of matrices. Until it is done, columns behind the block are
# *behind* with their repairs, and a fresh grid has to add what they lack.
#
# **By hand.** K = 4, blocks of 2, updates of one row: column 0 changes column 1 (1), then the block
# changes columns 2 and 3 (2); column 2 changes column 3 (1); behind it is nothing. 4 in all.
# Without blocks 3 + 2 + 1 = 6.
#
# **The usual errors.** Columns behind the block updated at once *and* at the end. A copy for lazy
# grids that is a view and moves along. Groups counted from the block's beginning.
# </details>
#
# ### Exercise 5 · The order of the columns, and its bill
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# The first columns have many to repair them, the last have none. *Act-order* takes the channels
# with the largest $H_{jj}$ first. Then which columns share a grid?
#
# - `static=False`: columns that are **neighbours in the new order**, each `group` of them; grids
#   are `"fresh"`. Who reads the weight needs to know each channel's group: `g_idx` [K].
# - `static=True`: neighbours **as stored**, `"static"` grids; only the rounding goes in the new
#   order.
#
# **Deliver** `act_order(h) -> order`, `gptq_ordered(w, h, bits, group, static, damping) -> (codes,
# scale, zero, g_idx)`, `dequantize(codes, scale, zero, g_idx) -> w_new` and
# `stored_bits(shape, bits, group, g_idx, scale_bits, zero_bits, index_bits) -> int`.
#
# - `act_order`: the channels in the order of falling $H_{jj}$, of `h` as measured, before damping
#   (dead ones are last). Of equal ones any may come first.
# - `gptq_ordered`: `codes` in the order of the channels as they came, `g_idx[k]` the group of
#   channel `k`: groups are counted in the order in which they are made. No blocks are asked for.
#   Compute in float64 (what exercise 3 does, as it does it). `group` is at least 1.
# - `dequantize`: float32, computed in that or in float64.
# - `stored_bits`: all bits of a weight of this shape (N, K): its codes, a scale and a zero for each
#   group of each row (as many groups as K channels make), and `index_bits` for each channel, but
#   **only** if `g_idx` says anything that is not known without it.
#
# **Shapes** `w` [N, K] float32, float64 or bfloat16; `h` [K, K] float64; `order`, `g_idx` [K]
# int64; `codes` [N, K] int64; `scale`, `zero` [N, G] float64; `w_new` [N, K] float32.


# %% solution="ex5"
def act_order(h: Tensor) -> Tensor:
    """The channels [K] of h [K, K], largest diagonal entry first."""
    ### BEGIN SOLUTION
    return h.diagonal().argsort(descending=True)
    ### END SOLUTION


def gptq_ordered(
    w: Tensor, h: Tensor, bits: int, group: int, static: bool, damping: float = 0.01
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(codes [N, K], scale [N, G], zero [N, G], g_idx [K]) with the columns in act-order.

    group is at least 1, h square.  Raises ValueError as damped and inverse_factor.
    """
    ### BEGIN SOLUTION
    k, order = w.shape[1], act_order(h)
    back, g_idx = order.argsort(), torch.arange(k, device=w.device) // group
    w_new, h_new = w[:, order], h[order][:, order]
    if not static:
        codes, scale, zero = gptq_blocked(w_new, h_new, bits, 64, group, "fresh", damping)
        return codes[:, back], scale, zero, g_idx[back]
    alive = w.masked_fill(h.diagonal() == 0, 0.0)
    grids = [min_max(part, bits) for part in alive.split(group, 1)]
    scale, zero = (torch.cat(parts, 1) for parts in zip(*grids, strict=True))
    at = g_idx[order]  # the group of each column, in the new order
    codes = gptq(w_new, h_new, scale[:, at], zero[:, at], bits, damping)
    return codes[:, back], scale, zero, g_idx
    ### END SOLUTION


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor, g_idx: Tensor) -> Tensor:
    """The weight [N, K] float32 of codes [N, K] with the grids [N, G] of its groups g_idx [K]."""
    ### BEGIN SOLUTION
    return values(codes, scale[:, g_idx], zero[:, g_idx]).float()
    ### END SOLUTION


def stored_bits(
    shape: tuple[int, int],
    bits: int,
    group: int,
    g_idx: Tensor,
    scale_bits: int,
    zero_bits: int,
    index_bits: int,
) -> int:
    """All bits of a weight (N, K): codes, grids, and g_idx [K] where it is needed."""
    ### BEGIN SOLUTION
    n, k = shape
    known = torch.equal(g_idx, torch.arange(k, device=g_idx.device) // group)
    grids = n * math.ceil(k / group) * (scale_bits + zero_bits)
    return n * k * bits + grids + (0 if known else k * index_bits)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")
# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Permute columns of w, rows **and** columns of h, do what you can already do, and go
# back. If `order[i]` is the channel at place i, then `order.argsort()[k]` is the place of channel
# k.
#
# **By hand.** The diagonal 3, 9, 1, 4 gives the order 1, 3, 0, 2. In groups of two the channels 1
# and 3 are group 0, and 0 and 2 are group 1: g_idx = 1, 0, 1, 0. Bits of 2 rows of 4 in 3 bits,
# scales of 16 and zeros of 3: 24 + 2 · 2 · 19 = 100, and 4 · 32 = 128 for this g_idx.
#
# **The usual errors.** `codes[:, order]` in place of the way back. g_idx left in the new order. An
# index charged to every row: all rows share one.
# </details>
#
# **Reveal.** First what blocks are for, on one large random weight: entries that repairs touch,
# times by the clock of the process. Then grids and orders in the model, at 2 bits and calibrated on
# "code A" and "code B", in blocks of two groups (in blocks of one, lazy grids are fresh). 9 s and
# 6 s.

# %% tags=["demo"]
import time

g = torch.Generator().manual_seed(0)
big, tokens = torch.randn(1024, 512, generator=g), torch.randn(2048, 512, generator=g)
h = hessian(tokens)
for block in (1, 64, 512):
    start = time.process_time()
    gptq_blocked(big, h, 3, block, 512, "static")
    touched = f"each weight touched {updates(1024, 512, block) / big.numel():5.1f} times"
    print(f"blocks of {block:3d}: {touched}, {time.process_time() - start:.2f} s")
both = [hessians[t] for t in ("code A", "code B")]
orders = {"static": [found["GPTQ on", t]["code"] for t in ("code A", "code B")]}
for grids in ("fresh", "lazy"):
    orders[grids] = [perplexity(changed_by(with_grids, hs, 2, grids)) for hs in both]

# %% tags=["demo"]
for way, static in (("act-order, static", True), ("act-order, g_idx", False)):
    orders[way] = [perplexity(changed_by(in_order, hs, 2, static)) for hs in both]
for way, two in orders.items():
    print(f"{way:18s} {placements.plus_minus(two)}")

# %% tags=["demo", "fold"]
# what a change costs when only the columns behind it follow: choose a layer and an order
lab.predict(
    "index",
    "g_idx is one number of 32 bits for each channel. In the model's layers of 192 rows, how many "
    "bits is that for each weight?",
    unit="bits",
)


def draw_prices(layer: str, order: str):
    h = damped(hessians["code A"][f"model.layers.{layer}"], 0.01)[0]
    places = {"as stored": torch.arange(len(h)), "act-order": act_order(h)}[order]
    u = inverse_factor(h[places][:, places])
    alone, behind = h.diagonal()[places], u.diagonal() ** -2
    part = len(h) // 4
    gain = [(alone / behind)[at].median().item() for at in (slice(part), slice(-part, None))]
    title = (
        f"{order}: price divided by {gain[0]:.1f} in the first quarter, {gain[1]:.1f} in the last"
    )
    return figures.prices(alone, behind, title), title


explorer.explorer(
    draw_prices,
    {
        "layer": ["2.mlp.down_proj", "2.self_attn.q_proj", "2.self_attn.o_proj", "5.mlp.up_proj"],
        "order": ["as stored", "act-order"],
    },
)

# %% [markdown]
# **The bill.** All bits of the layers, as you count them, against perplexity; beside GPTQ the other
# ways: rounding with a bias (32 bits for each output), and **AWQ** (lab 3), which scales up
# channels that matter before rounding to nearest, and folds the scales into the norms, so that they
# cost no bits. (AWQ here searches one exponent for each group of layers behind a norm, by your
# `output_error`; o_proj and down_proj are rounded to nearest. Its own program also searches ranges,
# as *range* does in section 2, and at 2 bits that is most of what it gains.) At 2 and 3 bits; 8 s.

# %% tags=["demo", "fold"]
hs = hessians["code A"]
given = ("nearest", "nearest + bias", "nearest, range", "AWQ", "GPTQ")
curves = {way: [] for way in (*given, *list(orders)[3:])}
for bits in (2, 3):
    plain = total_bits(bits)
    biased = perplexity(with_biases(nearest_model[bits], means["code A"]))
    curves["nearest"] += [(plain, found["nearest", bits]["code"])]
    curves["nearest + bias"] += [(total_bits(bits, biases=True), biased)]
    spanned = with_weights(model, lambda n, w, b=bits: to_nearest(w, b, searched_grids))
    curves["nearest, range"] += [(plain, perplexity(spanned))]
    curves["AWQ"] += [(plain, perplexity(awq(model, hs, bits)))]
    curves["GPTQ"] += [(plain, found["GPTQ", bits]["code"])]
    for way, static in (("act-order, static", True), ("act-order, g_idx", False)):
        known = orders[way][0] if bits == 2 else perplexity(changed_by(in_order, hs, 3, static))
        curves[way] += [(total_bits(bits, indexed=not static), known)]
found["index"] = 32 / 192
lab.reveal("index", round(found["index"], 3))

# %% tags=["demo", "fold"]
for way, points in curves.items():
    print(f"{way:18s}", "; ".join(f"{size:.3f} bits {cost:.2f}" for size, cost in points))
best = min(curves, key=lambda way: curves[way][0][1])
style.show(
    figures.bits_and_cost(
        curves,
        found["float"]["code"],
        f"All bits counted: near 2.3 bits {best} is lowest, {curves[best][0][1]:.1f}",
        "perplexity on held-out code",
    ),
    alt="Perplexity against total bits per weight at 2 and 3 bits: "
    + "; ".join(
        f"{way} {points[0][1]:.1f} and {points[1][1]:.1f}" for way, points in curves.items()
    ),
)

# %% [markdown]
# **Then write one sentence:** which order would you store, and how would that answer change for a
# layer of 8192 rows?
#
# *Your sentence:*
#
# ## 4. Rotation
#
# GPTQ changes codes and leaves inputs alone. To multiply in 4 bits, inputs have to be rounded as
# well, a grid for each token. Its largest number decides the grid: with one channel ten times as
# large as the rest, the rest is rounded to next to nothing. Large models have such channels. Ours
# has none, so we **emulate** them as in labs 2 to 4 (`zoo.with_outliers`): the same function in a
# wider model, 256 channels, of which six are large in every norm's output.
#
# Three ways out, all with the function unchanged before rounding: *SmoothQuant* (lab 2) moves a
# part of the size from inputs into weights, by a power alpha (0.8 here; the usual 0.5 is run beside
# it); *absorbing* the norms' weights into what reads them moves all that stands there; a *rotation*
# spreads it over all channels.
#
# ### Exercise 6 · Turning a whole model
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# $x W^T = (x Q)(W Q)^T$ for every orthogonal $Q$. A *Hadamard* matrix has only entries
# $\pm 1/\sqrt n$: it spreads one large channel over all of them.
#
# **Deliver** five functions.
#
# - `hadamard(n) -> Q`: an orthogonal matrix with entries $\pm 1/\sqrt n$, for n = 1, 2, 4, 8 ...;
#   `ValueError` for every other n. Any such matrix is right, a tensor of its own for each call.
# - `random_rotation(n, seed) -> Q`: such a matrix, each of its rows or columns with a sign drawn
#   from `seed`: the same seed, the same matrix, and another one (not only its negative) for other
#   seeds, from n = 32 on, where there are enough signs. torch's own (global) generator is neither
#   used nor moved. `ValueError` as `hadamard`.
# - `absorb_norms(state) -> state`: parameters of a Llama of the same function in which every
#   RMSNorm has weight 1: what reads a norm is multiplied by it.
# - `rotate(state, q) -> state`: parameters of a Llama of the same function with a residual stream
#   that is $h Q$ in place of $h$. Norms have weight 1 already.
# - `peaks(x) -> [...]`: for each token the largest $|x_j|$ over the root of the mean of $x_j^2$; 0
#   for a token that is all 0.
#
# `state` is a dictionary of parameters with the names of `Llama` in efflib (and of Hugging Face):
# `model.embed_tokens.weight`, `model.layers.0.input_layernorm.weight` and so on, any number of
# layers, `model.norm.weight`, and `lm_head.weight`, which stands there even if it is the
# embedding's own tensor. Linear layers of blocks may have biases, norms have none. The result has
# the same names, and each tensor its dtype. Compute in float64; `peaks` gives float64.
#
# **Shapes** `Q` [n, n] float64; `seed` an int from 0 to $2^{32} - 1$; `state` {name: float32 or
# float64}, both in one state if need be; `x` [..., K], float32 or bfloat16, perhaps without any
# token.


# %% solution="ex6"
def hadamard(n: int) -> Tensor:
    """An orthogonal [n, n] with entries +-1 / sqrt(n).  Raises ValueError unless n = 2^k."""
    ### BEGIN SOLUTION
    if n < 1 or n & (n - 1):
        raise ValueError(f"n={n} is not a power of two")
    q = torch.ones(1, 1, dtype=torch.float64)
    while len(q) < n:
        q = torch.cat([torch.cat([q, q], 1), torch.cat([q, -q], 1)])
    return q / math.sqrt(n)
    ### END SOLUTION


def random_rotation(n: int, seed: int) -> Tensor:
    """A Hadamard matrix [n, n] with random signs.  Raises ValueError unless n = 2^k."""
    ### BEGIN SOLUTION
    q, generator = hadamard(n), torch.Generator().manual_seed(seed)
    return q * (2 * torch.randint(2, (n, 1), generator=generator) - 1)
    ### END SOLUTION


READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}


def absorb_norms(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same function with norms of weight 1."""
    ### BEGIN SOLUTION
    new = {name: tensor.clone() for name, tensor in state.items()}
    for name, gain in state.items():
        layer, _, norm = name.removesuffix(".weight").rpartition(".")
        if name == "model.norm.weight":
            readers = ["lm_head.weight"]
        else:
            readers = [f"{layer}.{reader}.weight" for reader in READERS.get(norm, ())]
        for reader in readers:
            new[reader] = (state[reader].double() * gain.double()).to(state[reader].dtype)
            new[name] = torch.ones_like(gain)
    return new
    ### END SOLUTION


def rotate(state: dict[str, Tensor], q: Tensor) -> dict[str, Tensor]:
    """The same function with a residual stream h Q; norms have weight 1."""
    ### BEGIN SOLUTION
    new, writers = {}, ("o_proj.weight", "down_proj.weight")
    for name, tensor in state.items():
        wide = tensor.double()
        if name.endswith(writers):
            wide = q.T @ wide
        elif name.endswith(("o_proj.bias", "down_proj.bias")) or (
            tensor.ndim == 2  # embedding, head, and what reads a norm
        ):
            wide = wide @ q
        new[name] = wide.to(tensor.dtype, copy=True)
    return new
    ### END SOLUTION


def peaks(x: Tensor) -> Tensor:
    """max |x| / rms of each token of x [..., K]."""
    ### BEGIN SOLUTION
    x = x.double()
    rms = x.square().mean(-1).sqrt()
    return torch.where(rms == 0, 0.0, x.abs().amax(-1) / rms)
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")
# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** Follow the residual stream through one layer and ask of each parameter: does it read the
# stream (through a norm), or write to it? Everything else does not see $Q$ at all.
#
# **By hand.** n = 2: (1, 1 | 1, -1) / root of 2. The input (8, 0) becomes (5.7, 5.7): peak 1.41
# before, 1 after. A weight [out, in] that reads $h Q$ must be $W Q$: $h Q (W Q)^T = h W^T$. One
# that writes $y = x W^T$ and shall write $y Q$ must be $Q^T W$.
#
# **The usual errors.** $Q$ for $Q^T$, which a symmetric matrix hides: try a random orthogonal one.
# Biases of o_proj and down_proj, which are written to the stream, forgotten. `lm_head` and
# embedding as one tensor: after the last norm is absorbed they are two.
# </details>
#
# **Reveal.** The function, to rounding; then peaks: what reads the norms, before and after.


# %% tags=["demo"]
GAINS = {0: 10.0, 1: 10.0, 2: 10.0}
sample_text = texts["code A"]
large = [zoo.with_outliers(model, sample_text, GAINS, extra=64, seed=s) for s in (0, 1)]
versions = {way: [make(m) for m in large] for way, make in WAYS.items()}
inputs = {way: attention_input(first, way) for way, (first, *_) in versions.items()}
title = "Largest input of every channel of an attention: as it is, three ways out"
style.show(figures.channels(inputs, title), alt=title + "; rotated all are about alike")
lab.predict(
    "W4A4",
    "Weights and inputs in 4 bits. The model with even channels has about "
    f"{low(model, 4, 4):.0f}. What has the one with large channels, rotated?",
)

# %% [markdown]
# Now round. *W16A6*: only inputs, in 6 bits. *W4A16*: only weights. *W4A4*: both. Three controls:
# the model as trained, which has no large channels; *absorbed*, the half of your rotation that is
# not a rotation; and *twins merged*, because the emulation has a weakness: its large channels come
# in equal pairs, and whoever knows that can put the weights of each pair into one column and take
# the weights' part of the trouble away. No real model is so kind. Two cells, 8 s each.

# %% tags=["demo"]
SETTINGS = {"W16A6": (16, 6), "W4A16": (4, 16), "W4A4": (4, 4)}
rounded = {s: {} for s in SETTINGS}
for setting, bits in SETTINGS.items():
    for way, models in versions.items():
        rounded[setting][way] = [low(m, *bits) for m in models]
        print(f"{setting:5s} {way:9s} {placements.plus_minus(rounded[setting][way])}", flush=True)

# %% tags=["demo"]
merged = merged_twins(large[0])
others = {"merged, plain": merged, "merged, absorbed": absorbed(merged)}
others |= {
    "even, plain": model,
    "even, absorbed": absorbed(model),
    "even, rotated": turned(model, 0),
}
for setting, bits in SETTINGS.items():
    for way, other in others.items():
        rounded[setting][way] = [low(other, *bits)]
    print(setting, "; ".join(f"{w} {rounded[setting][w][0]:.2f}" for w in others), flush=True)
half = [low(smoothed(m, texts["code A"], 0.5), 4, 4) for m in large]
print(f"W4A4, smoothed with alpha 1/2: {placements.plus_minus(half)}")
lab.reveal("W4A4", round(placements.mean(rounded["W4A4"]["rotated"]), 1))

# %% [markdown]
# **Acceptance: both of your halves in the live model.** The rotated model, its inputs in 4 bits,
# its weights in 4 bits by your exercise 5 (act-order, static grids) in place of to nearest, with
# $H$ of the rotated model. About 5 s. Then the same GPTQ on the two ways that do without a
# rotation: what is the rotation worth once weights are repaired? About 8 s.


# %% tags=["demo"]
def repaired_4(base: nn.Module) -> nn.Module:
    """Weights in 4 bits by your exercise 5, inputs in 4 bits."""
    own = statistics(base, sample_text, hessian)
    return low_inputs(with_weights(base, lambda n, w: in_order(w, own[n], 4, True)), 4)


final = repaired_4(versions["rotated"][0])
accepted = {"rotated": perplexity(final)}
print(f"rotated, GPTQ: {accepted['rotated']:.2f}; to nearest {rounded['W4A4']['rotated'][0]:.2f}")
print("\n" + zoo.sample(final, zoo.PROMPTS[1], tokens=40))

# %% tags=["demo", "fold"]
for way in ("smoothed", "absorbed"):
    accepted[way] = perplexity(repaired_4(versions[way][0]))
    print(f"{way}, GPTQ: {accepted[way]:.2f}; to nearest {rounded['W4A4'][way][0]:.2f}")
# the figure, in added loss: the plain model would leave every picture of perplexity
groups = ["smoothed", "absorbed", "rotated", "merged, absorbed", "even, plain", "even, rotated"]
four = {"smoothed, 1/2": half} | {way: rounded["W4A4"][way] for way in groups}
four |= {f"{way}, GPTQ": [value] for way, value in accepted.items()}
four = {way: [math.log(v / found["float"]["code"]) for v in vs] for way, vs in four.items()}
mean4 = {way: placements.mean(rounded["W4A4"][way]) for way in ("smoothed", "absorbed", "rotated")}
title = "W4A4, large channels: " + ", ".join(f"{way} {v:.0f}" for way, v in mean4.items())
style.show(
    placements.bars(
        {"W4A4": four},
        f"{title}; with GPTQ " + ", ".join(f"{accepted[way]:.0f}" for way in mean4),
        "loss added, nats per token; marks: draws",
        controls=groups[3:],
    ),
    alt="Loss added at W4A4: "
    + "; ".join(f"{w} {placements.mean(v):.2f}" for w, v in four.items()),
)

# %% [markdown]
# **Then write one sentence:** at which of the three settings does the rotation itself do something
# that absorbing the norms does not, and why there?
#
# *Your sentence:*
#
# ## 5. Misconceptions
#
# <details><summary>Four sentences, to compare yours with</summary>
#
# **Section 1.** With a diagonal $H$ no other channel can say anything about channel j in any token,
# so no other weight can undo what j did; size does not come into it.
#
# **Section 2, controls.** A better range, which needs no text, comes nearly as near as GPTQ does on
# the ranges from minimum to maximum: the difference is about that of two pieces of text. A mean for
# each output, or an $H$ of means, does somewhat less. But ranges and repairs add up: on searched
# ranges GPTQ gains three times what two pieces differ by, and there it is the repair.
#
# **Section 2, texts.** Calibrated on prose, with the usual damping, GPTQ is clearly worse on code
# than calibrated on code, no better than a bias from prose and worse than a range from no text.
# With damping 1 most of that cost is gone, and GPTQ from prose is ahead of both: what goes together
# carries over, and what does not is what a small text says of directions that it hardly has.
#
# **Section 4.** At W16A6 absorbing alone does all of it. At W4A4 absorbing leaves weights with
# large columns and inputs that are still uneven, and rounding both to 4 bits shows it; the rotation
# evens out both at once.
# </details>
#
# **"GPTQ protects large channels."** With the diagonal of $H$ alone it is rounding to nearest, code
# for code. Large channels matter to AWQ, and to the order of columns.
#
# **"The gain is second-order information."** At 2 bits on grids from minimum to maximum most of it
# mends the grid: a searched range gets nearly as far with no input at all, a bias less. On grids
# that fit, what GPTQ adds is its own. At 3 bits the range gains nothing and GPTQ still does.
# Compare at your bits, on your best grid.
#
# **"Grids that see the repairs are better than grids of old weights."** Fresh grids came out worse
# here at 2 bits: a grid that stretches to hold a weight that a repair has pushed far is coarser for
# all others. (Two pieces do not settle the order of the other ways: each has a spread of 2 to 6.)
#
# **"Act-order is free."** With static grids it is. With groups in the new order a reader needs
# g_idx, which is dear in small layers, and in large ones makes a kernel fetch scales from anywhere.
#
# **"Rotation removed the outliers, so it is what we need."** Ask what the same model does with the
# norms absorbed and no rotation, and with SmoothQuant at an alpha that was looked for: at 0.5 its
# perplexity is sixty times that at 0.8. GPTQ brings both other ways nearer. What is rotated here is
# what reads a norm: o_proj and down_proj read something else, which QuaRot (2024) turns while the
# model runs (*online* rotations), and SpinQuant (2024) trains the matrices. This notebook does
# neither.
#
# ### Open task (not graded)
#
# **Beat it:** one model at no more than 2.45 bits in all for each weight of its blocks, for
# **both** kinds of text: the root of the product of its two perplexities. To beat is the best of
# section 2, GPTQ on searched ranges. No gradient. Ideas: a mean of two $H$; act-order; more damping
# for two texts; a bias on top, where it fits; weights of dead or nearly dead channels; ranges that
# are searched for the output's error in place of the weights'.


# %% tags=["demo"]
def own_weight(name: str, w: Tensor) -> Tensor:
    """Yours, in 2 bits and groups of 64. It starts as GPTQ on code."""
    return by_gptq(w, hessians["code A"][name], 2)


def of_two(pair: dict[str, float]) -> float:
    return (pair["code"] * pair["prose"]) ** 0.5


found["open task"] = of_two(on_both(with_weights(model, own_weight)))
print(f"yours {found['open task']:.2f} at {total_bits(2):.2f} bits")
best = [found["GPTQ + range"], *(found["GPTQ on", text] for text in texts)]
print(f"to beat {min(map(of_two, best)):.2f}")

# %% [markdown]
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** Why does rounding one weight down make it right to change
# the others, and what does that cost you on another text? *Rubric:* what follows, and why: the
# outputs that go together, or the price with and without repair (1); your numbers at 2 bits for
# nearest and GPTQ, and what the diagonal says (1); what part of it something simpler has, by the
# range, the bias or the means (1); your numbers for another text, beside the difference of two
# pieces of one kind (1); whether GPTQ on the wrong text is still worth it, compared with something
# simpler, or with more damping (1).
#
# **Question 2.** A colleague has a model with large channels: "With inputs in 6 bits its perplexity
# was 2000, rotated it is as good as new. So we rotate, and go to 4 bits for weights and inputs."
# What do you answer, what would you propose, and what must be measured before it is used? *Rubric:*
# what at W16A6 does as well without a rotation, with your number (1); what a rotation adds at W4A4,
# with your numbers (1); what the emulated channels cannot show, by a control (1); a part of the
# model, or a cost, that the folded rotation leaves as it is (1); a proposal with what must be
# measured on the real model (1).

# %% [markdown] written="w1"
# Where two inputs go together, an error in one weight makes an output error that the other weight
# can take away. With Lagrange the others move along a row of the inverse of H, and a change that
# costs e^2 H_jj alone costs e^2 / (H^-1)_jj with repair, about 1/3.7 in this model. At 2 bits
# rounding to nearest had a perplexity of 57.9 on code and GPTQ 26.6, on the same grids; with the
# diagonal of H the codes were those of rounding, so all of it lies beside the diagonal. But much of
# that a better grid has as well: rounding to nearest with a searched range gave 29.2 without any
# text, a bias for each output 33.8, H of means 32.9. On the searched range GPTQ has 20.5, and that
# is its own. Calibrated on prose GPTQ had 35.4 and 38.5 on code, against 23.9 and 26.6 calibrated
# on code, so the cost is larger than between two pieces of code. That still beats 57.9, but neither
# the bias from prose (36.8) nor the range; with damping 1 it is 27.1 and 29.2, so it is mostly what
# the repair took from directions that a small text hardly has.

# %% [markdown] written="w2"
# At W16A6 my plain model had about 2000 and the rotated one 10.4, but with the norms absorbed and
# no rotation it was 10.5, and smoothed 10.5: what helped was that the large channels' size went
# into the weights. It is at W4A4 that the rotation counts: 15.5, where absorbing alone has 38 and
# SmoothQuant 25, with its alpha at 0.8 (at 1/2 it is 1500, so look for it first), because then
# weights have to be even as well. With GPTQ for the weights it is 14.5, 22 and 17: the distance
# shrinks. The channels here are emulated in pairs: with the twins merged and the norms absorbed it
# is 19.6, so part of the trouble is the emulation's, and no real model looks like that. The folded
# rotation also leaves alone what o_proj and down_proj read, and the head can no longer share the
# embedding's memory. I would propose the rotation with GPTQ, perhaps an online rotation before
# down_proj, and measure perplexity and tasks of the real model at W4A4, plain, smoothed, absorbed
# and rotated, on text of another kind than the calibration, and the time.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Block by block.** Here $H$ is the float model's. Measure it on what the rounded blocks before
#   really put out (lab 4's exercise 5), and compare on both texts.
# - **A better grid.** Search each group's range for the error of the output, with `hessian`, in
#   place of the weights'. How far does rounding to nearest come?
# - **Bias inside.** Take the mean out of $H$ (the covariance), run GPTQ, and correct the biases.
# - **Online.** Turn what down_proj reads by a Hadamard matrix (512 = 2^9), in a hook: what does
#   W4A4 gain?
#
# **Next:** lab 15 trains ternary weights; lab 18 runs weights like these.
#
# **Sources.** Frantar et al., *GPTQ*, 2022 (arXiv:2210.17323). Hassibi and Stork, *Optimal Brain
# Surgeon*, 1993. Chee et al., *QuIP*, 2023 (arXiv:2307.13304). Ashkboos et al., *QuaRot*, 2024
# (arXiv:2404.00456). Liu et al., *SpinQuant*, 2024 (arXiv:2405.16406). Lin et al., *AWQ*, 2023
# (arXiv:2306.00978). Xiao et al., *SmoothQuant*, 2022 (arXiv:2211.10438). MIT 6.5940, lectures on
# quantization.
#
# ## On a model of your own (optional, not graded)
#
# Does it hold on a model that you know? The last cell before the report runs your functions on
# one: `lab.use("FOLDER")` takes a folder as the Hub has it, with config.json, safetensors and
# tokenizer.json, and `lab.use("owner/name")` asks the Hub; both want transformers installed. As it
# stands it is the course's model as it was trained, in such files, and nothing is downloaded.
# `EFFLIB_DEVICE=cuda` in the environment puts it on a GPU. About 7 s.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
own, own_bits = lab.use(), 3  # yours: lab.use("FOLDER") or lab.use("owner/name")
own_loss, own_hs = own.loss(), own.collected(hessian)
own_ways = {
    "nearest": lambda name, w: to_nearest(w, own_bits),
    "GPTQ": lambda name, w: by_gptq(w, own_hs[name], own_bits),
}
for way, rule in own_ways.items():
    print(f"{own_bits} bits, {way:7s} {own.loss(own.changed(rule)) - own_loss:+.3f} nats a token")

# %% tags=["demo", "fold"]
lab.report()
f, prose = found, [found["GPTQ on", f"prose {p}"]["code"] for p in "AB"]
takeaways = [
    f"2 bits on code: nearest {f['nearest', 2]['code']:.1f}, GPTQ {f['GPTQ', 2]['code']:.1f} on "
    f"the same grids, float {f['float']['code']:.1f}; the diagonal of H alone is nearest.",
    f"One mean per output: {f['bias']['code']:.1f}; a searched range: {f['range']['code']:.1f}, "
    f"and GPTQ on it {f['GPTQ + range']['code']:.1f}; H of means and variances: "
    f"{f['means']['code']:.1f}.",
    f"Calibrated on prose, read on code: {placements.plus_minus(prose)}; with damping 1: "
    f"{texts_code['damping 1, prose']:.1f}; bias: {f['bias on', 'prose A']['code']:.1f}.",
    f"Orders at 2 bits: {', '.join(f'{w} {placements.mean(v):.1f}' for w, v in orders.items())}; "
    f"g_idx costs {f['index']:.2f} bits a weight in layers of 192 rows.",
    "Large channels at W4A4: "
    + ", ".join(f"{w} {v:.0f}" for w, v in mean4.items())
    + "; with GPTQ "
    + ", ".join(f"{accepted[way]:.1f}" for way in mean4)
    + ".",
    f"Open task: {f['open task']:.2f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
