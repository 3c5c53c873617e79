# %% [markdown]
# # Lab 4: Pruning with Wanda
#
# ![Three bars: the perplexity of one small model as it is, and twice with half of its weights set
# to zero. One of the two is somewhat higher, the other leaves the
# picture.](../../course/figures/lab04/opening.svg)
#
# **The question.** Two people set half of all weights of one model to zero, without training it
# again. Each takes the weights that matter least. One model still writes Python, the other does
# not. **What did one of them look at that the other did not? And a model with half of its weights
# gone, is it half as large, and twice as fast?**
#
# Section 6 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | linear layers, norms of vectors; helpful: labs 2 and 3 (large channels) |
# | Not covered | how sparse kernels are written; masks that are learned in training |
#
# After this lab you can
# 1. say what removing a weight does to a layer's output, and choose weights by it, with controls;
# 2. make n:m patterns and store them, and count bits and products exactly;
# 3. prune a whole model block by block, and take neurons and heads really out of it.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones. Answer predictions in
# their field; where no field is shown, by `lab.answer("removed", 50)`. Seconds that a cell
# announces are those of a quiet machine with two cores.
#
# ## Map and notation
#
# Section 1, which weights go: exercises 1 and 2. Section 2, patterns and their storage: 3 and 4.
# Section 3, the whole model: 5. Section 4, units really removed: 6. Section 5: what is wrong.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | $W$ | [N, K] | `w` | weight of an `nn.Linear`: N outputs, K inputs |
# | $X$ | [..., K] | `x` | its inputs, a row per token; $Y = X W^T$ |
# | $X_j$ | | `x[..., j]` | input channel $j$ over all tokens |
# | | [K] | `norms` | one number for each channel: exercise 2 derives it |
# | $S$ | [N, K] | `s` | scores, how much each weight matters: the lowest go |
# | $M$ | [N, K], bool | `mask` | True where a weight is **kept** |
# | $G$ | [K, K] | `gram` | $X^T X$, summed over all tokens |
#
# *Sparsity* is the share of weights that are zero. In $n{:}m$, $n$ is how many of $m$ neighbours in
# a row are **kept**, as hardware and papers read "2:4". (The authors' code counts the zeros: the
# same for 2:4 and 4:8, the opposite for 1:4.)
#
# ### Rules for all exercises
#
# No function changes its arguments, or what it returned before. Except in exercise 5, a result may
# be an argument itself or a view of it. Any tensor may be a view that is not contiguous. N, K and
# the number of tokens are at least 1. Numbers are finite unless a card names inf or NaN, and of
# very unlike sizes: scores from 1e-8 to 1e4 in magnitude, some of them one float32 apart. So do not
# round, shift or scale what you compare. (-0.0 is a zero.)

# %%
import copy
import time
from functools import partial

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, placements, pruning, style

lab = Lab("lab04_wanda")

# %% [markdown]
# ## Baseline
#
# Large models have input channels that are tens of times as large as the others. Ours is small and
# has none, so we emulate them as in labs 2 and 3: `zoo.with_outliers` writes the same function into
# a somewhat wider model, where four channels of every norm's output are large and change from token
# to token, with ordinary weights. Three of them are drawn: numbers below are means over the three
# *draws*, with the smallest and the largest. (What a draw changes here are weights that read the
# difference of two equal channels, 0 until something is pruned. Where the channels stand does not
# matter to masks of rows or layers.) The model as it was trained has even channels and is the
# **control**.
#
# We prune the linear layers of the blocks. The embedding is looked up, not multiplied, and stays,
# as in the papers. Quality is perplexity on 2048 tokens of held-out code.

# %% tags=["demo"]
from efflib.models.groups import norm_groups
from efflib.zoo import corpus
from efflib.zoo.evaluation import held_out_segments, token_losses

control = zoo.load("target")
documents = [d for d in corpus.documents("code", held_out=False).values() if len(d) > 4000]
documents = documents[:: len(documents) // 64][:64]  # training text
ids = [zoo.load_tokenizer().encode(d[:4000]).ids[:635] for d in documents]
text = torch.tensor([[zoo.BEGIN_ID, *row[:127]] for row in ids])  # [64, 128]
calibration = text[::2]
models = [zoo.with_outliers(control, calibration, {3: 8.0, 5: 8.0}, seed=s) for s in (0, 1, 2)]
held_out = held_out_segments("code", 2048)  # 16 pieces of text
PROMPT = zoo.PROMPTS[1]
names = [n for n, m in control.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]


# %% tags=["demo", "fold"]
# helpers of the experiments: perplexity, pruned copies, what a linear layer reads, controls, times
# and pictures; for later sections the model as a list of blocks, and a smaller model
def perplexity(model: nn.Module) -> float:
    """On held-out code."""
    return token_losses(model, held_out, context=128, stride=128).double().mean().exp().item()


@torch.no_grad()
def with_masks(base: nn.Module, rule) -> nn.Module:
    """A copy of a model whose weight `name` is pruned by the mask rule(name, w)."""
    changed = copy.deepcopy(base)
    for name in names:
        weight = changed.get_submodule(name).weight
        weight.copy_(apply_mask(weight.detach(), rule(name, weight.detach())))
    return changed


@torch.no_grad()
def inputs_of(model: nn.Module, ids: Tensor, chosen: list[str]) -> dict[str, Tensor]:
    """{name: what this linear layer reads} [texts, T, K]."""
    seen, hooks = {}, []
    for name in chosen:
        linear = model.get_submodule(name)

        def keep(module, args, name=name):
            seen[name] = args[0]

        hooks.append(linear.register_forward_pre_hook(keep))
    model(ids)
    for hook in hooks:
        hook.remove()
    return seen


found = {}  # the numbers you find, for the takeaways at the end
measured = {}  # (way, pattern) -> perplexities, one for each draw; "control" apart


def norms_of(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """{linear layer: your norms of its inputs}."""
    return {n: input_norms(x) for n, x in inputs_of(model, ids, names).items()}


def mask_of(s: Tensor, pattern: float | tuple[int, int], scope: str = "row") -> Tensor:
    """Your mask for scores, by a share of zeros or by (n, m)."""
    return nm_mask(s, *pattern) if isinstance(pattern, tuple) else keep_share(s, pattern, scope)


def ratios(ways: dict, rounds: int) -> dict[str, float]:
    """Best processor time of each function, on one thread, in parts of the first one's best.

    Not the time of a clock on the wall, which other programs stretch.  Every round calls each
    once, so that a busy moment meets all of them.
    """
    times, threads = {way: [] for way in ways}, torch.get_num_threads()
    torch.set_num_threads(1)  # thread_time counts the thread that asks, and no other
    for _ in range(rounds):
        for way, function in ways.items():
            start = time.thread_time()
            function()
            times[way].append(time.thread_time() - start)
    torch.set_num_threads(threads)
    first = min(next(iter(times.values())))
    return {way: min(own) / first for way, own in times.items()}


def changed_norms(way: str, norms: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The norms of all layers as they are, or as a control has them."""
    if way == "norms shuffled":
        g = torch.Generator()
        return {n: v[torch.randperm(len(v), generator=g.manual_seed(0))] for n, v in norms.items()}
    if way == "8 largest stay":  # far above all others; among these magnitude decides
        return {n: torch.where(v >= v.topk(8).values[-1], 1e9, 1.0) for n, v in norms.items()}
    if way == "gain, no data":  # of the norm layer before it; 1 where there is none
        even = {n: torch.ones_like(v) for n, v in norms.items()}
        return even | {
            n: group.norm.weight.detach().abs()
            for group in norm_groups(model)
            for n in group.linears
        }
    return norms


def note(way: str, pattern: str, pruned: list[nn.Module]) -> None:
    """Measure a way: the draws, pruned by it, and last the pruned control."""
    *values, last = [perplexity(m) for m in pruned]
    measured[way, pattern], measured[way, pattern, "control"] = values, [last]
    print(f"{way:17s} {pattern:4s} {placements.plus_minus(values)}; control {last:.2f}")


import dataclasses

from efflib.finetuning.training import finetune
from efflib.models.llama import Llama
from efflib.models.rotary import turns
from efflib.recovery import retrain
from efflib.refit import refit
from efflib.units import READERS, WRITERS, Shape, first_order, linear_flops


class Block(nn.Module):
    """A layer of the model as a function of hidden states [T, D]."""

    def __init__(self, layer: nn.Module, config) -> None:
        super().__init__()
        self.layer, self.config = layer, config

    def forward(self, hidden: Tensor) -> Tensor:
        c, positions = self.config, torch.arange(len(hidden), device=hidden.device)
        by = turns(positions, c.head_dim, c.rope_theta, hidden.dtype, c.rope_scaling)
        return self.layer(hidden[None], by, None, None)[0]


def prune_model(model: nn.Module, ids: Tensor, pattern) -> nn.Module:
    """A copy of the model, its blocks pruned by your exercise 5."""
    model = copy.deepcopy(model)
    blocks = [Block(layer, model.config) for layer in model.model.layers]
    texts = list(model.model.embed_tokens(ids).detach())
    pruned = prune_blocks(blocks, texts, pattern)
    model.model.layers = nn.ModuleList(block.layer for block in pruned)
    return model


@torch.no_grad()
def repaired(model: nn.Module, norms: dict[str, Tensor], pattern) -> nn.Module:
    """A copy of the model, chosen by your masks of your scores, and the rest fitted anew."""
    changed, read = copy.deepcopy(model), inputs_of(model, calibration, names)
    for name in names:
        weight = changed.get_submodule(name).weight
        kept = mask_of(scores(weight, norms[name]), pattern)
        weight.copy_(refit(weight, read[name], kept))
    return changed


def unit_rule(rule: str, model: Llama, ids: Tensor, seed: int):
    """f(layer, kind, w, rows, size) -> a score for each unit; "yours" is your exercise 6."""
    generator = torch.Generator().manual_seed(seed)
    readers = [
        f"model.layers.{i}.{n}" for i in range(len(model.model.layers)) for n in READERS.values()
    ]
    seen = inputs_of(model, ids, readers) if rule == "yours" else {}
    guess = first_order(model, ids) if rule == "taylor" else {}

    def score(i: int, kind: str, w: Tensor, rows: list[Tensor], size: int) -> Tensor:
        if rule == "yours":
            read = seen[f"model.layers.{i}.{READERS[kind]}"].double().flatten(0, -2)
            return unit_scores(w, read.T @ read, size)
        if rule == "taylor":
            return guess[kind][i].float()
        if rule == "magnitude":  # of all weights that read or write the unit
            squares = w.square().sum(0) + sum(r.square().sum(1) for r in rows)
            return squares.view(-1, size).sum(1).sqrt()
        return torch.rand(w.shape[1] // size, generator=generator)

    return score


def smaller(model: Llama, ids: Tensor, shape: Shape, rule: str = "yours", seed: int = 0) -> Llama:
    """The model with shape.heads heads and shape.neurons neurons in every layer, by your code."""
    c, score = model.config, unit_rule(rule, model, ids, seed)
    state = dict(model.state_dict())
    for i in range(shape.layers):
        for kind, reader in READERS.items():
            name, size = f"model.layers.{i}.{reader}", c.head_dim if kind == "heads" else 1
            w, own = (
                state[f"{name}.weight"],
                [f"model.layers.{i}.{n}.weight" for n in WRITERS[kind]],
            )
            rows = [state[n] for n in own]
            keep = best_units(score(i, kind, w, rows, size), getattr(shape, kind))
            fewer, state[f"{name}.weight"] = remove_units(rows, w, keep, size)
            state |= dict(zip(own, fewer, strict=True))
    sizes = {"num_attention_heads": shape.heads, "num_key_value_heads": shape.heads}
    made = Llama(dataclasses.replace(c, intermediate_size=shape.neurons, **sizes)).eval()
    made.load_state_dict(state)
    return made


# %% tags=["demo"]
dense = perplexity(control)
found["dense"] = dense
weights, wider = (
    sum(m.get_submodule(n).weight.numel() for n in names) for m in (control, models[0])
)
print(f"{len(names)} linear layers in the blocks, {weights / 1e6:.2f} M weights; ", end="")
print(f"with large channels, written wider, {wider / 1e6:.2f} M")
print(
    "perplexity", ", ".join(f"{perplexity(m):.3f}" for m in (control, *models)), "of one function"
)
print(zoo.sample(control, PROMPT, tokens=48))

# %% tags=["demo"]
lab.predict(
    "rows",
    "In a layer of the model, half of all weights go: the smallest of the layer, wherever they "
    "stand. Which share of its weights does the worst row lose?",
    unit="%",
)
lab.predict(
    "magnitude",
    f"The model has perplexity {dense:.1f}. What has it, with large channels, when the smaller "
    "half of the weights of every layer is 0?",
)

# %% [markdown]
# ## 1. Which weights go
#
# The oldest rule says: the small ones. $S = |W|$, and the lowest scores of the **layer** go, or
# those of every **row**, that is, of every output.
#
# ### Exercise 1 · Magnitude masks
#
# **15 minutes · 15 points** · difficulty 1 of 5 ●○○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `keep_share(s, sparsity, scope) -> mask`, `apply_mask(w, mask) -> w_new` and
# `magnitude_mask(w, sparsity, scope) -> mask`.
#
# - `keep_share`: False at exactly `int(n * sparsity)` of the lowest of $n$ scores; `scope` is
#   `"row"` ($n = K$, in every row) or `"layer"` ($n = N K$, all together). Of equal scores any may
#   go, but never more than that number. `ValueError` for another scope, and for a sparsity that is
#   not from 0 to 1 (NaN too).
# - `apply_mask`: `w` with 0 where the mask is False, whatever stood there: inf and NaN as well.
#   Where it is True, `w` as it was, bit by bit: also inf, NaN and -0.0.
# - `magnitude_mask`: `keep_share` of $|W|$, with its `ValueError`.
#
# **Shapes** `s`, `w` [N, K] float32 or bfloat16, perhaps views that are not contiguous; `mask`
# [N, K] bool; `w_new` [N, K] in the dtype of `w`.


# %% solution="ex1"
def keep_share(s: Tensor, sparsity: float, scope: str) -> Tensor:
    """A mask [N, K] without the lowest int(n * sparsity) scores s of each row, or of the layer.

    Raises ValueError for another scope than "row" and "layer", or a sparsity not from 0 to 1.
    """
    ### BEGIN SOLUTION
    if scope not in ("row", "layer") or not 0 <= sparsity <= 1:
        raise ValueError(f"scope={scope!r} or sparsity={sparsity} is not known")
    compared = s if scope == "row" else s.reshape(1, -1)
    order = compared.argsort(dim=1)
    mask = torch.ones_like(compared, dtype=torch.bool)
    mask.scatter_(1, order[:, : int(compared.shape[1] * sparsity)], False)
    return mask.reshape(s.shape)
    ### END SOLUTION


def apply_mask(w: Tensor, mask: Tensor) -> Tensor:
    """w [N, K] with 0 where mask is False."""
    ### BEGIN SOLUTION
    return torch.where(mask, w, 0.0)
    ### END SOLUTION


def magnitude_mask(w: Tensor, sparsity: float, scope: str) -> Tensor:
    """True where |w| is kept. [N, K] bool.  Raises ValueError as keep_share."""
    ### BEGIN SOLUTION
    return keep_share(w.abs(), sparsity, scope)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Sorting gives places; the first so many places are those that go. A layer is one long
# row.
#
# **By hand.** Rows 0.1, -0.2 and 5, -6, half of them goes. By layer the two smallest of all four
# are 0.1 and -0.2: the first row is empty. By row 0.1 and 5 go.
#
# **The usual errors.** A threshold, `scores > t`: of equal scores all go, or none. `w * mask` where
# `w` is inf or NaN: NaN. The sign: -6 is large.
# </details>
#
# **Reveal.** Your masks on one layer, and on the whole model.

# %% tags=["demo"]
LAYER = "model.layers.2.mlp.up_proj"
w = control.get_submodule(LAYER).weight.detach()
lost = 1 - magnitude_mask(w, 0.5, "layer").float().mean(1)  # of every row
found["rows"] = 100 * lost.max().item()
print(f"{LAYER}: rows lose from {lost.min():.0%} to {lost.max():.0%} of their weights")
lab.reveal("rows", round(found["rows"]))
for scope in ("layer", "row"):
    by_size = partial(magnitude_mask, sparsity=0.5, scope=scope)
    pruned = [with_masks(m, lambda n, w, f=by_size: f(w)) for m in (*models, control)]
    note(f"magnitude, {scope}", "50%", pruned)
lab.reveal("magnitude", round(placements.mean(measured["magnitude, layer", "50%"]), 1))

# %% [markdown]
# ### What a weight does
#
# A weight $W_{ij}$ alone does one thing: it adds $W_{ij} X_j$ to output $i$. So the change that
# removing it makes is known before anything is computed, for each token $t$: $W_{ij} X_{tj}$. Here
# is a layer with one output and two inputs, and two tokens; the second weight is ten times smaller.

# %% tags=["demo"]
w4, x4 = torch.tensor([[1.0, 0.1]]), torch.tensor([[0.1, 30.0], [-0.2, 40.0]])
for j in range(2):
    without = w4.clone()
    without[0, j] = 0
    change = (x4 @ w4.T - x4 @ without.T).flatten()
    shown = [round(value, 4) for value in change.tolist()]
    print(f"without weight {w4[0, j]:.1f} the output changes by {shown}")
lab.predict(
    "removed",
    "Of the perplexity that magnitude adds at 50 %, how much does a score that knows the inputs "
    "take off, with large channels?",
    unit="%",
)

# %% [markdown]
# ### Exercise 2 · The score of a weight, derived
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Let the score of a weight be the size of the change that removing it **alone** makes:
#
# $$ S_{ij} = \lVert X W^T - X W'^T \rVert_F,\qquad
#    W' = W \text{ but } W'_{ij} = 0 $$
#
# where $\lVert\cdot\rVert_F$ is the root of the sum of squares over all tokens and outputs. Derive
# what this is in terms of $W_{ij}$ and of **one number for each channel** of $X$: nobody can run a
# layer once for every weight, or keep all of $X$.
#
# **Deliver** three functions.
#
# - `input_norms(x) -> norms`: that number for each channel. Tokens are whatever stands before the
#   last dimension.
# - `scores(w, norms) -> S`: from `w` and `norms` alone, without `x`.
# - `wanda_mask(w, norms, sparsity) -> mask`: the lowest scores of every **row** go, as
#   `keep_share` takes them, equal ones and `ValueError` included.
#
# Compute and compare in float32 or float64, whatever the dtype of `x` and `w` is: squares, too.
#
# **Shapes** `x` [..., K], with at least two dimensions, and `w` [N, K], float32 or bfloat16,
# perhaps not contiguous; `norms` [K] >= 0, `S` [N, K] float32; `mask` [N, K] bool.


# %% solution="ex2"
def input_norms(x: Tensor) -> Tensor:
    """The number of each channel of x [..., K]: [K] float32."""
    ### BEGIN SOLUTION
    return x.double().flatten(0, -2).square().sum(0).sqrt().float()
    ### END SOLUTION


def scores(w: Tensor, norms: Tensor) -> Tensor:
    """S [N, K] float32: what removing each weight of w [N, K] alone changes."""
    ### BEGIN SOLUTION
    return w.float().abs() * norms
    ### END SOLUTION


def wanda_mask(w: Tensor, norms: Tensor, sparsity: float) -> Tensor:
    """True where w [N, K] is kept; in every row int(K * sparsity) go.

    Raises ValueError as keep_share.
    """
    ### BEGIN SOLUTION
    return keep_share(scores(w, norms), sparsity, "row")
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Subtract before you take the norm: of $Y - Y'$ only one column is not zero, and in it
# one number stands in every row as a factor. A factor leaves a norm by its size.
#
# **By hand.** The cell above: the changes are (0.1, -0.2) for the first weight, of size 0.2236, and
# (3, 4) for the second, of size 5. The small weight matters more, by far.
#
# **The usual errors.** The square of the norm, which is another order. A mean over tokens is only a
# factor, the same for all; but norms of several batches must then be of equal weight. In bfloat16
# every square is rounded to 8 bits before it is summed.
# </details>
#
# **Reveal.** This is Wanda (Sun et al., 2023): *pruning by weights and activations*, the score
# $|W_{ij}| \lVert X_j \rVert$. The norms here are those of the model before anything is pruned.
# Beside it four controls, and one choice of the paper's exchanged:
#
# - the same norms in random order;
# - the *gain* of the norm layer in place of the norm: a factor for each channel without any data
#   (1 where no norm layer stands before);
# - norms that know only which eight channels of a layer are the largest: those stay, and magnitude
#   decides about the rest;
# - the model with even channels;
# - your scores compared over the layer, not in every row.
#
# Two cells, about 7 s each; a third, 5 s, goes to other shares of zeros with even channels. Compare
# ways within one model. The two models compute the same, but the one with large channels has more
# weights for it (the Baseline printed both numbers), so half of them is not the same half.


# %% tags=["demo"]
dense_norms = [norms_of(m, calibration) for m in (*models, control)]


def measure(way: str, scope: str = "row") -> None:
    """Half of the weights gone by your scores, with the norms that this way has."""
    pruned = []
    for m, norms in zip((*models, control), dense_norms, strict=True):
        s = changed_norms(way, norms, m)
        pruned.append(with_masks(m, lambda n, w, s=s: mask_of(scores(w, s[n]), 0.5, scope)))
    note(way, "50%", pruned)


for way in ("Wanda", "norms shuffled"):
    measure(way)

# %% tags=["demo"]
for way in ("gain, no data", "8 largest stay"):
    measure(way)
measure("Wanda by layer", "layer")
added = {
    way: placements.mean(measured[way, "50%"]) - dense
    for way in ("magnitude, layer", "Wanda", "8 largest stay")
}
for way, more in added.items():
    print(
        f"{way:17s} adds {more:5.2f}, {more / added['magnitude, layer']:.1%} of what magnitude adds"
    )
found["removed"] = 100 * (1 - added["Wanda"] / added["magnitude, layer"])
lab.reveal("removed", round(found["removed"]))

# %% tags=["demo"]
SHARES = (0.4, 0.5, 0.6, 0.7)
curve = {"magnitude": [], "Wanda": []}
for share in SHARES:
    by_size = with_masks(control, lambda n, w, p=share: magnitude_mask(w, p, "layer"))
    by_score = with_masks(control, lambda n, w, p=share: wanda_mask(w, dense_norms[-1][n], p))
    for way, model in zip(curve, (by_size, by_score), strict=True):
        curve[way].append(perplexity(model))
found["times"] = [a / b for a, b in zip(curve["magnitude"], curve["Wanda"], strict=True)]
apart = ", ".join(f"{t:.2f} at {p:.0%}" for t, p in zip(found["times"], SHARES, strict=True))
title = f"Even channels: magnitude's perplexity in parts of Wanda's is {apart}"
style.show(pruning.sweep(SHARES, curve, dense, title), alt=title)

# %% tags=["demo", "fold"]
# a slice of one layer, and which of its weights stay: choose the rule and the sparsity
STRIPE = "model.layers.2.self_attn.q_proj"
stripe_w = models[0].get_submodule(STRIPE).weight.detach()
large = dense_norms[0][STRIPE].argsort(descending=True)
stripe = torch.cat([large[:8], large[-40:]]).sort().values  # the 8 largest channels among others


def draw_masks(rule: str, sparsity: float):
    ways = {
        "layer": lambda: magnitude_mask(stripe_w, sparsity, "layer"),
        "row": lambda: magnitude_mask(stripe_w, sparsity, "row"),
        "Wanda": lambda: wanda_mask(stripe_w, dense_norms[0][STRIPE], sparsity),
    }
    mask = ways[rule]()
    kept = mask[:, large[:8]].float().mean().item()
    title = (
        f"{rule}, {sparsity:.0%} zeros: {kept:.0%} of the weights of the 8 largest channels stay"
    )
    fig = pruning.mask_map(mask[:24, stripe], dense_norms[0][STRIPE][stripe], title)
    return fig, title


explorer.explorer(
    draw_masks,
    {"rule": ["Wanda", "layer", "row"], "sparsity": [0.3, 0.5, 0.6, 0.8]},
    first={"sparsity": 0.5},
)

# %% [markdown]
# **Then write one sentence:** where do the norms help, where hardly, and what do the controls say:
# the shuffled norms, the gain, the eight that stay, and the comparison over the layer? (Section 5
# has one to compare yours with.)
#
# *Your sentence:*
#
# ## 2. Patterns, and what they save
#
# Half of the weights are zero. Stored as they are, zeros take 16 bits like all others, and a
# machine multiplies by them like by all others. To save memory one has to say *where* the zeros are
# in fewer bits than they save. Two ways:
#
# - zeros **anywhere**: the values that stay, and a *bitmap*, one bit for each weight;
# - a pattern **2:4**, of every 4 neighbours in a row 2 are kept: the values that stay, and for each
#   a place 0 to 3 in its four:
#
# $$ 4 \cdot 16 = 64 \text{ bits} \quad\to\quad 2 \cdot 16 + 2 \cdot 2 = 36 \text{ bits} $$
#
# To save time the machine has to find the right inputs for what is left. The place says it at once.
# In a bitmap one has to count the ones before.

# %% tags=["demo"]
print(f"36 bits for 64: {36 / 64:.4f} of the memory, {64 / 36:.2f} times smaller")
print(f"8-bit weights: {2 * 8 + 2 * 2} for {4 * 8}, {32 / 20:.2f} times smaller")
lab.predict(
    "2:4",
    "The price of the pattern: perplexity of the model with large channels after Wanda at 2:4, if "
    f"at 50 % anywhere it is {placements.mean(measured['Wanda', '50%']):.1f}?",
)
lab.predict(
    "bitmap",
    "And what does the pattern save? At 2:4 a 16-bit weight takes 9 bits. How many does it take "
    "with half of the weights zero, anywhere, and a bitmap?",
    unit="bits",
)

# %% [markdown]
# ### Exercise 3 · n of m
#
# **15 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `nm_mask(s, n, m) -> mask` and `fits(w, n, m) -> bool`.
#
# - `nm_mask` **keeps** exactly the $n$ highest scores of every $m$ neighbours of a row: columns 0
#   to m - 1, m to 2m - 1 and so on. Of equal scores any may stay, but exactly $n$. n = 0 and n = m
#   are allowed.
# - `fits` says whether every such group of `w` has **at most** $n$ values that are not zero.
# - `ValueError` from both, unless 0 <= n <= m and m >= 1 and K is a multiple of m.
#
# **Shapes** scores `s`, `w` [N, K] float32 or bfloat16, perhaps not contiguous; `mask` [N, K] bool;
# `fits` a bool, not a tensor.


# %% solution="ex3"
def nm_mask(s: Tensor, n: int, m: int) -> Tensor:
    """A mask [N, K] that keeps the n highest scores s of every m neighbours of a row.

    Raises ValueError unless 0 <= n <= m, m >= 1 and K is a multiple of m.
    """
    ### BEGIN SOLUTION
    groups = grouped(s, n, m)
    highest = groups.argsort(dim=-1, descending=True)[..., :n]
    mask = torch.zeros_like(groups, dtype=torch.bool)
    return mask.scatter_(-1, highest, True).reshape(s.shape)
    ### END SOLUTION


def fits(w: Tensor, n: int, m: int) -> bool:
    """Whether every m neighbours of a row of w [N, K] hold at most n values that are not zero.

    Raises ValueError as nm_mask.
    """
    ### BEGIN SOLUTION
    return bool(((grouped(w, n, m) != 0).sum(-1) <= n).all())


def grouped(w: Tensor, n: int, m: int) -> Tensor:
    """w [N, K] in its groups [N, K / m, m].  Raises ValueError as nm_mask."""
    if m < 1 or not 0 <= n <= m or w.shape[1] % m:
        raise ValueError(f"no {n}:{m} in rows of {w.shape[1]}")
    return w.reshape(w.shape[0], -1, m)
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** A row of 12 scores in groups of 4 is a 3 by 4 table. Then it is exercise 1 with short
# rows.
#
# **By hand.** 5, 1, 4, 2 | 0, 7, 8, 9 at 2:4: 5 and 4, then 8 and 9 stay. At 1:4: 5, then 9. The
# row 0, 7, 8, 0 | 0, 0, 0, 1 fits 2:4 and does not fit 1:4.
#
# **The usual errors.** n zeros in place of n kept: at 1:4 three quarters of the weights would stay.
# Groups that run down columns, or over the ends of rows. `and` of two tensors.
# </details>
#
# ### Exercise 4 · 64 bits to 36
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `compress(w) -> (values, places)`, `multiply(values, places, x) -> y`,
# `stored_bits(shape, value_bits) -> int` and `bitmap_bits(shape, kept, value_bits) -> int`.
#
# - `compress`: for every 4 neighbours of a row two values, those that are not zero in the order of
#   the row, and their places 0 to 3. `places` packs four places into a byte, in the order of the
#   values, the first in the **lowest** two bits. A group with one value that is not zero stores one
#   of its zeros as well, a group with none two of them: which ones is yours to choose, and a zero
#   may stand before the value or behind it. The two places of a group differ. `ValueError` if K is
#   not a multiple of 8 or a group holds three or four values that are not zero.
# - `multiply`: $y = X W^T$ of the stored weight, computed from the stored values: of `x`, a row of
#   $W$ reads only the inputs at its places. What others hold must not matter, NaN too; whether NaN
#   or inf at the place of a stored 0 counts is yours. Values may come in any order within a group.
# - `stored_bits`: bits of a 2:4 weight of this shape (N, K), K a multiple of 8, with values of
#   `value_bits` bits, and their places.
# - `bitmap_bits`: the same for zeros **anywhere**, any N and K, of which `kept` values are not zero
#   (from 0 to N K): these values in the order of the row, and for each weight one bit that says
#   whether it is among them.
#
# Compute in float32 or finer, result in float32. Both numbers of bits are ints.
#
# **Shapes** `w` [N, K] float32 or bfloat16; `values` [N, K/2] in the dtype of `w`; `places`
# [N, K/8] uint8; `x` [..., K] float32; `y` [..., N] float32. `w` and `x` may be not contiguous.


# %% solution="ex4"
def compress(w: Tensor) -> tuple[Tensor, Tensor]:
    """(values [N, K/2], places [N, K/8] uint8) of a weight that fits 2:4.

    Raises ValueError if it does not, or K is not a multiple of 8.
    """
    ### BEGIN SOLUTION
    if w.shape[1] % 8 or not fits(w, 2, 4):
        raise ValueError(f"w {tuple(w.shape)} does not fit 2:4 with K a multiple of 8")
    groups = w.reshape(w.shape[0], -1, 4)
    first = (groups != 0).int().argsort(dim=-1, descending=True, stable=True)[..., :2]
    at = first.sort(dim=-1).values  # [N, K/4, 2]
    values = groups.gather(-1, at).flatten(1)
    quads = at.flatten(1).reshape(w.shape[0], -1, 4)
    places = (quads << 2 * torch.arange(4, device=w.device)).sum(-1)
    return values, places.to(torch.uint8)
    ### END SOLUTION


def multiply(values: Tensor, places: Tensor, x: Tensor) -> Tensor:
    """x [..., K] times the stored weight: [..., N] float32."""
    ### BEGIN SOLUTION
    at = (places[..., None].int() >> 2 * torch.arange(4, device=x.device)) & 3  # [N, K/8, 4]
    group = torch.arange(values.shape[1], device=x.device) // 2  # of each value in its row
    inputs = 4 * group + at.flatten(1)  # [N, K/2]
    rows = x.float().reshape(-1, x.shape[-1])
    y = torch.stack([(row[inputs] * values.float()).sum(1) for row in rows])
    return y.reshape(*x.shape[:-1], len(values))
    ### END SOLUTION


def stored_bits(shape: tuple[int, int], value_bits: int) -> int:
    """Bits of a stored 2:4 weight (N, K)."""
    ### BEGIN SOLUTION
    n, k = shape
    return n * (k // 2) * (value_bits + 2)
    ### END SOLUTION


def bitmap_bits(shape: tuple[int, int], kept: int, value_bits: int) -> int:
    """Bits of a weight (N, K) with `kept` values that are not zero, anywhere, and a map of bits."""
    ### BEGIN SOLUTION
    n, k = shape
    return kept * value_bits + n * k
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Packing is a number in base 4: the first place counts 1, the second 4, then 16 and 64.
# Multiplying: place $p$ in group $g$ is input $4 g + p$. What is left is to fetch, and to add up.
#
# **By hand.** 0, 5, 0, -1 | 3, 0, 0, 2 has the values 5, -1, 3, 2 and the places 1, 3, 0, 3. The
# byte is 1 + 3 · 4 + 0 · 16 + 3 · 64 = 205. With x = 1 to 8: 5 · 2 - 1 · 4 + 3 · 5 + 2 · 8 = 37.
# A group 0, 0, 0, 7 is stored as 0, 7 with places 0, 3 (or 1, 3 or 2, 3), or as 7, 0 with 3, 0.
# As a bitmap the row has four values of 16 bits and the bits 0101 1001.
#
# **The usual errors.** $4 g + p$ in uint8, which wraps from 256 inputs on, and a uint8 tensor as an
# index, which torch takes for a mask. Places of a row as places of a group: they do not fit into
# 2 bits. Two equal places in a group that is all zero. The weight built up again, and multiplied
# densely: right, but a zero times NaN is NaN, and nothing is saved.
# </details>
#
# **Reveal.** First the price, in perplexity, of two patterns and of 60 %: about 6 s. Then the
# bits of the model with even channels, by your two formulas and as stored.

# %% tags=["demo"]
PATTERNS = {"4:8": (4, 8), "2:4": (2, 4), "60%": 0.6}
for name, p in PATTERNS.items():
    pruned = [
        with_masks(m, lambda n, w, p=p: mask_of(w.abs(), p, "layer")) for m in (*models, control)
    ]
    note("magnitude, layer", name, pruned)
    pairs = zip((*models, control), dense_norms, strict=True)
    pruned = [with_masks(m, lambda n, w, s=s, p=p: mask_of(scores(w, s[n]), p)) for m, s in pairs]
    note("Wanda", name, pruned)
    if name == "2:4":
        sparse_model = pruned[-1]  # the control
lab.reveal("2:4", round(placements.mean(measured["Wanda", "2:4"]), 1))

# %% tags=["demo"]
anywhere = with_masks(control, lambda n, w: wanda_mask(w, dense_norms[-1][n], 0.5))
free, tied = ([m.get_submodule(n).weight.detach() for n in names] for m in (anywhere, sparse_model))
held = sum(8 * part.nbytes for w in tied for part in compress(w.bfloat16()))
counted = sum(stored_bits(w.shape, 16) for w in tied)
print(f"2:4: {held / weights:.3f} bits a weight as stored, {counted / weights:.3f} by your formula")
found["bitmap"] = sum(bitmap_bits(w.shape, int(w.count_nonzero()), 16) for w in free) / weights
price = [measured["Wanda", pattern, "control"][0] for pattern in ("2:4", "50%")]
print(f"anywhere: {found['bitmap']:.3f} bits; perplexity {price[1]:.1f}, at 2:4 {price[0]:.1f}")
lab.reveal("bitmap", round(found["bitmap"], 1))
w = sparse_model.get_submodule(LAYER).weight.detach()
sample_x = inputs_of(sparse_model, calibration[:1], [LAYER])[LAYER][0, :8]
off = (multiply(*compress(w), sample_x) - sample_x @ w.T).abs().max()
print(f"your product against the dense one: off by {off:.1e}")

# %% tags=["demo"]
# half of the products are gone. Is it faster? A product of zeros, yours, and a smaller matrix
big_w, big_x = torch.randn(1024, 1024), torch.randn(64, 1024)
zeros = apply_mask(big_w, nm_mask(big_w.abs(), 2, 4))
packed = compress(zeros)
ways = {
    "dense": lambda: big_x @ big_w.T,
    "2:4, zeros in place": lambda: big_x @ zeros.T,
    "2:4, your product": lambda: multiply(*packed, big_x),
    "half the rows gone": lambda: big_x @ big_w[:512].T,
}
for way, ratio in ratios(ways, rounds=9).items():
    print(f"{way:20s} {ratio:6.2f} of the time of the dense product")

# %% [markdown]
# (Processor times of one thread. On a busy machine the ratios still vary: run the cell again.)
#
# **Then write one sentence:** what does the pattern 2:4 cost, what does it save that zeros anywhere
# do not, and on which machines?
#
# *Your sentence:*
#
# ## 3. The whole model
#
# So far all norms came from the model before pruning. But the second block will never see those
# inputs: it will see what the pruned first block puts out. *Sequential calibration* goes from block
# to block: measure what each linear layer reads, prune the block, run the texts through the pruned
# block, and take its outputs to the next. So every block runs twice for each text, where norms of
# the dense model take one pass. (Both can be had with one block in memory at a time.)
#
# ### Exercise 5 · Block by block
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `prune_blocks(blocks, texts, pattern) -> pruned`, a list of new blocks.
#
# - `blocks` is a list of modules; a block maps hidden states [T, D] to [T, D]. `texts` is a list of
#   what the **first** block reads, [T, D] each; T may differ.
# - For each block, in order: collect `input_norms` of every `nn.Linear` inside it (there is one at
#   least, and none stands inside another), wherever it stands, over **all** texts together; all
#   linears of a block are measured before any of them is pruned. Then mask each by its scores.
#   Then run the texts through the **pruned** block: its outputs are what the next block reads.
# - `pattern` is a share of zeros (in every row; a number, 0 and 1 included), or a pair (n, m), a
#   tuple.
# - The blocks that came in stay as they were. The new ones share no parameter with them, carry no
#   hooks, no new buffers and no replaced `forward`, and can be trained. Only the weights of linears
#   change; biases, other parameters, what trains (`requires_grad`) and the mode of every part
#   (train, eval) do not.
# - A block may itself be an `nn.Linear`, and may mix the tokens of its text, as attention does. A
#   linear may read [T, K], [1, T, K] or more dimensions; if it is called several times in one pass,
#   all of its inputs count. Blocks come without hooks. Every linear is called at least once, with
#   its input alone and not by name, and no part writes into hidden states in place.
# - Texts run through each part in the mode in which it came, and nothing is drawn at random. A pass
#   may move buffers (a BatchNorm's statistics): in the new blocks they may, in those that came in
#   they stay.
#
# **Shapes** texts: float32 [T, D], at least one.


# %% solution="ex5"
def prune_blocks(blocks: list[nn.Module], texts: list[Tensor], pattern) -> list[nn.Module]:
    """New blocks, pruned one after the other, each on what the pruned ones before it put out.

    texts: what the first block reads, [T, D] each; pattern: a share of zeros, or (n, m).
    """
    ### BEGIN SOLUTION
    with torch.no_grad():
        pruned = []
        for block in blocks:
            block = copy.deepcopy(block)
            for linear, x in linear_inputs(block, texts).items():
                s = scores(linear.weight, input_norms(x))
                pair = isinstance(pattern, tuple)
                mask = nm_mask(s, *pattern) if pair else keep_share(s, pattern, "row")
                linear.weight.copy_(apply_mask(linear.weight, mask))
            texts = [block(x) for x in texts]
            pruned.append(block)
    return pruned


def linear_inputs(block: nn.Module, texts: list[Tensor]) -> dict[nn.Linear, Tensor]:
    """{linear: all that it reads [tokens, K]}, in one pass over the texts."""
    seen = {linear: [] for linear in block.modules() if isinstance(linear, nn.Linear)}

    def note(module, args):
        seen[module].append(args[0].flatten(0, -2))

    hooks = [linear.register_forward_pre_hook(note) for linear in seen]
    for x in texts:
        block(x)
    for hook in hooks:
        hook.remove()
    return {linear: torch.cat(inputs) for linear, inputs in seen.items()}
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Forward hooks see what a module reads: `linear.register_forward_pre_hook(f)` calls
# `f(module, args)` before every call, and `args[0]` is the input. A dictionary can have modules as
# keys. There are two passes for a block: one to measure, one to go on.
#
# **By hand.** Two blocks of one linear each, one text. The norms of the second are those of the
# **pruned** first one's outputs. With 100 % zeros in the first, they are norms of its bias.
#
# **The usual errors.** Hooks registered on the block that came in, or left on the new one. Norms of
# two texts added: squares add, norms do not. Inputs [1, 5, K] and [1, 9, K] joined as they are. A
# block that is run once, with its outputs taken before it was pruned. `copy.deepcopy` at the end:
# too late. `.eval()` for the measurement, and `.train()` afterwards for parts that were not.
# </details>
#
# **Reveal.** Your function on the model with even channels, in which attention and MLP make a
# block, against the norms of the dense model. The **yardstick**: both are calibrated twice, on
# other pieces of the same documents. A difference that is smaller than that between two
# calibrations says nothing. Then the plainest **repair**: your masks choose as in section 2, and
# the weights that stay are fitted anew, by least squares, to what the dense layer put out on the
# calibration text (`efflib.refit`: a few steps of conjugate gradients, nothing is trained).
# SparseGPT (Frantar and Alistarh, 2023) chooses and repairs in one pass through the columns; the
# chapter measures it. Three cells, about 7 s each.


# %% tags=["demo"]
later = torch.tensor([[zoo.BEGIN_ID, *row[508:635]] for row in ids[::2]])
texts = [(piece, norms_of(control, piece)) for piece in (calibration, later)]
once, after = {}, {}
for name, p in {"50%": 0.5, "2:4": (2, 4)}.items():
    once[name], after[name] = [], []
    for piece, s in texts:
        at_once = with_masks(control, lambda n, w, s=s, p=p: mask_of(scores(w, s[n]), p))
        once[name].append(perplexity(at_once))
        after[name].append(perplexity(prune_model(control, piece, p)))
    for way, values in (("norms of the dense model", once), ("block by block", after)):
        print(f"{name} {way:24s}", ", ".join(f"{value:.2f}" for value in values[name]))

# %% tags=["demo"]
pairs = list(zip((*models, control), dense_norms, strict=True))
note("Wanda, refitted", "50%", [repaired(m, s, 0.5) for m, s in pairs])

# %% tags=["demo"]
note("Wanda, refitted", "2:4", [repaired(m, s, (2, 4)) for m, s in pairs])

# %% tags=["demo", "fold"]
ways = ["magnitude, layer", "Wanda", "Wanda, refitted"]
half, packs = ({w: placements.mean(measured[w, p]) for w in ways} for p in ("50%", "2:4"))
found["half"] = half
headline = f"at 50 % {half['magnitude, layer']:.1f} by magnitude, {half['Wanda']:.1f} by Wanda, "
headline += f"{half['Wanda, refitted']:.1f} with repair; dense {dense:.1f}"
style.show(
    placements.bars(
        {f"{p}, large channels": {w: measured[w, p] for w in ways} for p in ("50%", "2:4")},
        f"Half of the weights gone, {headline}",
        "perplexity; number: mean, marks: draws",
    ),
    alt="Perplexity at 50 % and at 2:4, with large channels: "
    + "; ".join(f"{w} {half[w]:.1f} and {packs[w]:.1f}" for w in ways),
)
even = {
    p: {
        "magnitude, layer": measured["magnitude, layer", p, "control"],
        "Wanda": once[p],
        "block by block": after[p],
        "Wanda, refitted": measured["Wanda, refitted", p, "control"],
    }
    for p in ("50%", "2:4")
}
style.show(
    placements.bars(
        {f"{p}, even channels": values for p, values in even.items()},
        "The control: with even channels norms gain little at 50 %, repair gains more",
        "perplexity; marks: calibrations",
    ),
    alt="The same for the model as trained: "
    + "; ".join(f"{w} {even['50%'][w][0]:.1f} and {even['2:4'][w][0]:.1f}" for w in even["50%"]),
)

# %% [markdown]
# **Then write one sentence:** what did sequential calibration change, at which pattern, and is the
# difference larger than that between two calibrations?
#
# *Your sentence:*
#
# **Recovery.** A short training, with the zeros held, makes good what choosing cannot. About 10 s.
# (In the paper full fine-tuning takes LLaMA-7B at 2:4 from 11.53 to 7.02, where dense is 5.68. Lab
# 10 does it with adapters. Mind that an adapter that is merged makes the zeros disappear.)

# %% tags=["demo"]
generator = torch.Generator().manual_seed(0)
windows = [[zoo.BEGIN_ID, *row[i : i + 127]] for row in ids[1::2] for i in range(0, 635, 127)]
rows = torch.tensor(windows)[torch.randperm(160, generator=generator)].view(40, 4, 128)
start = time.perf_counter()
recovered, _ = retrain(sparse_model, list(rows), lr=3e-4)
found["2:4 before"], found["2:4 after"] = perplexity(sparse_model), perplexity(recovered)
print(f"2:4 by Wanda, {found['2:4 before']:.2f}; after {len(rows)} steps ", end="")
print(f"({time.perf_counter() - start:.0f} s) {found['2:4 after']:.2f}, dense {dense:.2f}")
weights_fit = all(fits(recovered.get_submodule(n).weight.detach(), 2, 4) for n in names)
print(f"the weights still fit 2:4: {weights_fit}")
trained_on, _ = finetune(control, list(rows), lr=3e-4)
found["trained on"] = perplexity(trained_on)
print(f"control, the dense model trained as long: {found['trained on']:.2f}")

# %% tags=["demo"]
lab.predict(
    "neurons",
    "A quarter of all neurons goes, those that matter least, really removed. Perplexity of the "
    f"model as trained ({dense:.1f})?",
)

# %% [markdown]
# ## 4. Really removed
#
# What makes every machine faster is a smaller matrix. A **neuron** $j$ of an MLP is row $j$ of
# `gate` and `up` and column $j$ of `down`; a **head** is `head_dim` rows of q, k and v, and as
# many columns of o. If they go together, nothing else has to change. Which ones? Again: those that
# change the output least. A unit $u$ is a set of neighbouring columns of the weight $W$ that
# **reads** it, and what it adds to the output is $X_u W_u^T$.
#
# ### Exercise 6 · Units
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `unit_scores(w, gram, size) -> [K / size]`: for each unit $u$ of `size` neighbouring columns
#   (0 to size - 1 is unit 0, and so on) the norm $\lVert X_u W_u^T \rVert_F$ over all tokens and
#   outputs, **exactly**, from `w` and $G = X^T X$ alone. Derive it: the square of a Frobenius norm
#   is a trace, $\lVert A \rVert_F^2 = \mathrm{tr}(A A^T) = \mathrm{tr}(A^T A)$. For units of one
#   column you know the answer already.
# - `best_units(s, n) -> [n]`: which n units have the highest scores, **in ascending order** of
#   their numbers. Of equal scores any may stay, but exactly n, at least 1 and at most all.
# - `remove_units(writers, reader, keep, size) -> (new writers, new reader)`: what stays. `writers`
#   is a list of tensors whose **first** dimension is K (rows of weights, or biases), `reader` has
#   it as its **last**, whatever their other dimension is. `keep` holds the numbers of the units
#   that stay, at least one, each once, in any order, and they come out in that order.
#
# Scores are computed in float32 or float64; a trace that is negative by rounding counts as 0, any
# other counts, however small, unless a product on the way is below 1e-38, which float32 does not
# hold. `size` divides K.
#
# **Shapes** `w` [N, K] float32; `gram` [K, K] float32 or float64; scores [K / size] float32;
# `keep` int64; `writers` [K, D] or [K] and `reader` [N, K], float32 or bfloat16, and as they came.
# Weights may be not contiguous.


# %% solution="ex6"
def unit_scores(w: Tensor, gram: Tensor, size: int) -> Tensor:
    """How much each unit of `size` columns of w [N, K] adds to the output: [K / size] float32."""
    ### BEGIN SOLUTION
    w, gram = w.double(), gram.double()
    units = w.T.reshape(-1, size, len(w))  # [K / size, size, N]
    blocks = gram.reshape(len(units), size, len(units), size)
    blocks = blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [K / size, size, size]
    squares = ((units @ units.mT) * blocks).sum((1, 2))  # tr(W_u^T W_u G_u)
    return squares.clamp(min=0).sqrt().float()
    ### END SOLUTION


def best_units(s: Tensor, n: int) -> Tensor:
    """The n units with the highest scores s, in ascending order: [n] int64."""
    ### BEGIN SOLUTION
    return s.topk(n).indices.sort().values
    ### END SOLUTION


def remove_units(
    writers: list[Tensor], reader: Tensor, keep: Tensor, size: int
) -> tuple[list[Tensor], Tensor]:
    """(writers with fewer rows, the reader with fewer columns)."""
    ### BEGIN SOLUTION
    places = (keep[:, None] * size + torch.arange(size, device=keep.device)).flatten()
    return [w[places] for w in writers], reader[:, places]
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** $\lVert X_u W_u^T \rVert_F^2 = \mathrm{tr}(W_u X_u^T X_u W_u^T)$, and $X_u^T X_u$ is a
# block of $G$ on its diagonal. Only that block is needed.
#
# **By hand.** $W$ = (1, 2), $G$ = ((4, -1), (-1, 1)). Units of one column: $1 \cdot 2 = 2$ and
# $2 \cdot 1 = 2$. One unit of two: $4 - 2 - 2 + 4 = 4$, so 2. (Taken as orthogonal, it would be
# 2.83.) Keep = 2, 0 with size 2: columns 4, 5, 0, 1.
#
# **The usual errors.** Columns $u$, $u + 1$ in place of $u \cdot$ size and on. The diagonal of $G$
# alone for units of several columns. The reader's rows removed: its outputs are the residual
# stream, which all layers share. A root of a negative rounding error: NaN.
# </details>
#
# **Reveal.** Your functions make smaller models of the control, of the shapes below, with a config
# that any program for Llama reads. Beside your score three others: units at random (three draws,
# the middle one and both ends), the size of all weights of a unit, and the first-order guess of
# what the loss becomes (*Taylor*, which needs gradients). `smaller`, which puts your functions to
# work, stands in the folded cell of the baseline. About 8 s.


# %% tags=["demo"]
SHAPES = {"neurons 3/4": Shape(6, 6, 384), "neurons 1/2": Shape(6, 6, 256)}
SHAPES |= {"heads 5/6": Shape(6, 5, 512), "both": Shape(6, 5, 384)}
structured, cut = {}, {}
for label, shape in SHAPES.items():
    cut[label] = smaller(control, calibration, shape)
    made = {"yours": cut[label]}
    made |= {r: smaller(control, calibration, shape, r) for r in ("magnitude", "taylor")}
    structured[label] = {way: perplexity(m) for way, m in made.items()}
    random = [smaller(control, calibration, shape, "random", seed) for seed in (0, 1, 2)]
    low, structured[label]["random"], high = sorted(perplexity(m) for m in random)
    share = linear_flops(cut[label]) / linear_flops(control)
    shown = ", ".join(f"{way} {v:.1f}" for way, v in structured[label].items())
    print(f"{label:11s} {share:4.0%} of products: {shown} ({low:.1f} to {high:.1f})")
lab.reveal("neurons", round(structured["neurons 3/4"]["yours"], 1))

# %% tags=["demo"]
# time of a prompt of 512 tokens: dense, half of the weights 0, half of the neurons gone
prompt = text[:4].reshape(1, -1)
zeroed = prune_model(control, calibration[:4], 0.5)
timed = {"dense": control, "50 % zeros": zeroed, "neurons 1/2": cut["neurons 1/2"]}
with torch.no_grad():
    found["prompt"] = ratios({k: lambda m=m: m(prompt) for k, m in timed.items()}, rounds=9)
for label, ratio in found["prompt"].items():
    share = linear_flops(timed[label]) / linear_flops(control)
    print(f"{label:12s} {share:4.0%} of the products are done, time {ratio:.2f} of dense")

# %% tags=["demo", "fold"]
# quality against products; half of the neurons gone, trained for a moment; what models write
shares = {s: linear_flops(cut[s]) / linear_flops(control) for s in ("neurons 1/2", "neurons 3/4")}
points = {
    way: [(shares[s], structured[s][way]) for s in shares] + [(1.0, dense)]
    for way in ("yours", "random", "magnitude", "taylor")
}
points["half of the weights 0"] = [(1.0, measured["Wanda", "50%", "control"][0])]
after, _ = finetune(cut["neurons 1/2"], list(rows), lr=3e-4)
found["half before"], found["half after"] = structured["neurons 1/2"]["yours"], perplexity(after)
print(
    f"half of the neurons: {found['half before']:.2f}, after {len(rows)} steps "
    f"{found['half after']:.2f}"
)
points["1/2, trained on"] = [(shares["neurons 1/2"], found["half after"])]
style.show(
    pruning.cost_and_quality(
        points,
        dense,
        f"Half of the neurons removed: {found['half before']:.1f}, and fewer products; "
        "zeros save none",
    ),
    alt="Perplexity against the share of products for units chosen by your score, at random, by "
    "magnitude and by Taylor, for half of the weights set to zero, which saves none, and for half "
    "of the neurons gone, trained on.",
)

# what they write
writers = {
    "dense": models[0],
    "magnitude, 50 %": with_masks(models[0], lambda n, w: magnitude_mask(w, 0.5, "layer")),
    "Wanda, 50 %": with_masks(models[0], lambda n, w: wanda_mask(w, dense_norms[0][n], 0.5)),
    "even channels: Wanda, 2:4": sparse_model,
    "the same, trained on": recovered,
    "even channels: half of the neurons": cut["neurons 1/2"],
    "the same half, trained on": after,
}
for label, writer in writers.items():
    print(f"\n--- {label}: perplexity {perplexity(writer):.1f}")
    print(zoo.sample(writer, PROMPT, tokens=40)[len(PROMPT) :])

# %% [markdown]
# Draws lie far apart, so compare a score with their range and not only with their mean. The size of
# the weights need not be better than a draw: a neuron with small weights may carry large values.
# And Taylor, which asks what the *loss* loses and needs gradients for it, may do better than yours,
# which asks only what the next sum loses. All of them leave a model that has to be trained on.
#
# ## 5. Misconceptions
#
# <details><summary>Three sentences, to compare yours with</summary>
#
# **Section 1.** With large channels the norms decide nearly everything, and hardly anything at 50 %
# with even ones; the more zeros, the more they help there, too. In random order they lose it: it is
# these channels, not some factor for each. The gain, without data, takes off a part with large
# channels and does harm with even ones. Sparing the eight largest channels takes off most of what
# magnitude adds, but leaves clearly more than the norms do; and nobody told Wanda which channels to
# spare, or how many. Rows or the layer makes next to no difference here.
#
# **Section 2.** 2:4 costs perplexity, and in memory it saves nothing that a bitmap does not save as
# well: at one half both take 9 bits. It saves multiplications, on machines that fetch inputs by
# place: NVIDIA's tensor cores from Ampere on (the paper measures 1.6 times on the matrices of
# LLaMA, 1.24 end to end).
#
# **Section 3.** At 50 % nothing that two calibrations do not change as well. At 2:4, with even
# channels, block by block is worse by both calibrations, though by about as much as these differ
# among themselves: compare pairs (the chapter has five). A score alone repairs nothing. A repair
# could be fitted to what a layer will really read; the chapter measures SparseGPT both ways.
# </details>
#
# **"Half of the weights are zero, so the model is half as large and twice as fast."** You counted:
# stored as they are, zeros take as much memory as other numbers, and time as well. With a bitmap
# half of the weights take 9 bits of 16, and so does 2:4. Time needs a program that reads the
# format: for 2:4 the hardware has one, though vLLM took its kernels for it out in March 2026 (pull
# request 36799: not widely used). For zeros anywhere MACKO (Macko and Boža, November 2025) reports
# 1.5 times less memory and 1.5 times the speed, for Wanda at 50 % on Llama-2-7B, on GPUs without
# any sparse unit: where one token at a time is multiplied, reading the weights is what takes the
# time. Removed units are fewer products on any machine.
#
# **"Small weights do not matter."** They do if they meet a large input. And without large inputs
# magnitude is not bad: look at the control.
#
# **"Wanda is better than SparseGPT, because it is simpler."** The paper finds them level on large
# models at 50 %. On this small model a repair wins clearly, the more so the tighter the pattern:
# yours of least squares, and SparseGPT's in the chapter, which is best at 50 %, for it also chooses
# knowing that it will repair. Wanda is cheaper: no update.
#
# **"A pruned model is the best small model."** The lecture's table of Sheared-LLaMA says that
# pruning to a shape *and* training on 50 billion tokens beats training a model of that size from
# the start. Without the training it does not. And rounding to 4 bits (labs 1 and 3) takes about
# half of the bits of 2:4 and does less damage: the chapter has the numbers.
#
# ### Open task (not graded)
#
# **Beat it:** the lowest perplexity of the control at 2:4 in all linear layers of the blocks,
# without any training: no gradient, and no weight that stays may change. The cell prints your
# perplexity by both calibrations of section 3, and Wanda's: beat both, for a gain that one
# calibration shows may be that text's. Ideas: other exponents, $|W| \lVert X \rVert^a$; the order
# of the columns (a permutation of the inputs of `down_proj` costs nothing, if the rows of `gate`
# and `up` go along); norms that count some tokens more; other shares for other layers.


# %% tags=["demo"]
def own_scores(name: str, w: Tensor, norms: Tensor) -> Tensor:
    """Yours. It starts as Wanda."""
    return scores(w, norms)


mine = []
for _, s in texts:
    own = with_masks(control, lambda n, w, s=s: nm_mask(own_scores(n, w, s[n]), 2, 4))
    mine.append(perplexity(own))
found["open task"] = placements.mean(mine)
print("yours  ", placements.plus_minus(mine), *(f"{value:.2f}" for value in mine))
print("to beat", placements.plus_minus(once["2:4"]), *(f"{value:.2f}" for value in once["2:4"]))

# %% [markdown]
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** What did one of the two look at that the other did not, and
# why is that the right thing? Is a model with half of its weights gone half as large and twice as
# fast?
# *Rubric:* what removing a weight changes, and the score that follows from it (1); your numbers for
# magnitude and Wanda (1); what two of the controls say: shuffled norms, the gain without data, the
# largest channels left alone, even channels (1); size and speed of zeros anywhere and of 2:4, each
# as it is stored (1), and of units really removed (1).
#
# **Question 2.** A colleague prunes a 70B model for a server without sparse hardware. "Unstructured
# 50 % with SparseGPT, because its perplexity is the best of the table." What do you answer, what
# would you propose, and what must be measured before it is used?
# *Rubric:* time: what the server gains from zeros anywhere with ordinary matrix products, and why
# (1); memory: what they save stored as they are, and what in a format for zeros, counted (1); an
# alternative that makes this server faster or its memory last longer (1), with its price: your
# numbers, or the training that it needs (1); what perplexity on one kind of text does not show (1).

# %% [markdown] written="w1"
# Removing a weight changes output i by W_ij X_j, so the size of the change over the tokens is
# |W_ij| times the norm of the input channel. Magnitude looks at the first factor only. With large
# channels, magnitude at 50 % took the perplexity from 10 to about 60 and Wanda to 14. With the
# norms in random order it was about 55, so it is these channels and not some factor for each. With
# only the eight largest channels of each layer left alone, and magnitude for the rest, it was 15.4:
# that is most of the gain, but it adds half as much again as Wanda does. On the model with even
# channels the two were 15.1 and 14.2, because there the norms say little at 50 %. Zeros anywhere
# save nothing stored as they are, and a prompt took 1.00 of the time. With a bitmap they take 9 of
# 16 bits, and so does 2:4, which costs more (24.8 for 14.2) and is faster only on hardware that
# knows it; my own product took far longer than the dense one. With half of the neurons really
# removed the prompt took 0.83 of the time on any machine, but the perplexity was 58.

# %% [markdown] written="w2"
# With ordinary matrix products the server gains no time: every zero is read and multiplied, and in
# my run a model with 50 % zeros took as long as the dense one. Stored as they are they save no
# memory either; with a bitmap 16 bits become 9, but then some kernel has to read that. A repair is
# worth something (12.7 against 13.8 for Wanda alone here), but that is quality and not speed. I
# would propose to remove units, neurons and heads to a shape that is planned beforehand, and to
# train the result on: a quarter of the neurons gone gave 16, half of them 58, and 40 steps of
# training took the 58 to 21. Or to quantize to 4 bits. Before it is used one must measure the speed
# on that server, and tasks: perplexity on code says nothing about other text or about facts, where
# pruned models lose more than the average shows.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Choice and repair.** Refit the weights that magnitude leaves. How much of Wanda's gain is left
#   when both are repaired? And does the repair fit its text: what does one from prose do to code?
# - **Which layers?** Prune one layer of the model, or one kind of matrix, and leave the others:
#   which is the most sensitive? Give each a sparsity of its own, one half in all.
# - **Fewer texts.** How many calibration texts does Wanda need here? And prose for code?
#
# **Next:** lab 10 trains adapters beside pruned and quantized weights; lab 11 uses the same Hessian
# for rounding.
#
# **Sources.** Macko and Boža, *MACKO*, 2025 (arXiv:2511.13061). Sun et al., *A Simple and Effective
# Pruning Approach for Large Language Models*, 2024 (arXiv:2306.11695). Frantar and Alistarh,
# *SparseGPT*, 2023 (arXiv:2301.00774). Mishra et al., *Accelerating Sparse Deep Neural Networks*,
# 2021 (arXiv:2104.08378). Michel et al., *Are Sixteen Heads Really Better than One?*, 2019
# (arXiv:1905.10650). Ma et al., *LLM-Pruner*, 2023 (arXiv:2305.11627). Xia et al., *Sheared LLaMA*,
# 2024 (arXiv:2310.06694). MIT 6.5940, lectures on pruning.
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
own = lab.use()  # yours: lab.use("FOLDER") or lab.use("owner/name")
own_loss, own_norms = own.loss(), own.collected(input_norms)
own_masks = {
    "magnitude, 50 %": lambda name, w: magnitude_mask(w, 0.5, "row"),
    "Wanda, 50 %": lambda name, w: wanda_mask(w, own_norms[name], 0.5),
    "magnitude, 2:4": lambda name, w: nm_mask(w.abs(), 2, 4),
    "Wanda, 2:4": lambda name, w: nm_mask(scores(w, own_norms[name]), 2, 4),
}
for way, mask in own_masks.items():
    pruned = own.changed(lambda name, w, mask=mask: apply_mask(w, mask(name, w)))
    print(f"{way:16s} {own.loss(pruned) - own_loss:+.3f} nats a token")

# %% tags=["demo", "fold"]
lab.report()
f, half = found, found["half"]
takeaways = [
    f"Perplexity {f['dense']:.1f}; half of the weights gone, with large channels: by magnitude "
    f"{half['magnitude, layer']:.1f}, by Wanda {half['Wanda']:.1f}, refitted "
    f"{half['Wanda, refitted']:.1f}.",
    f"Norms shuffled: {placements.mean(measured['norms shuffled', '50%']):.1f}; the gain, no data: "
    f"{placements.mean(measured['gain, no data', '50%']):.1f}; only the 8 largest channels left "
    f"alone: {placements.mean(measured['8 largest stay', '50%']):.1f}. Even: "
    f"{measured['magnitude, layer', '50%', 'control'][0]:.1f} and "
    f"{measured['Wanda', '50%', 'control'][0]:.1f}.",
    f"2:4 stores 64 bits in 36 and costs {placements.mean(measured['Wanda', '2:4']):.1f}; anywhere "
    f"with a bitmap it is {f['bitmap']:.1f} bits a weight.",
    f"2:4 of the control, {f['2:4 before']:.1f}; trained on for a moment, {f['2:4 after']:.1f}.",
    f"Time of a prompt: 50 % zeros {f['prompt']['50 % zeros']:.2f} of dense, half of the neurons "
    f"gone {f['prompt']['neurons 1/2']:.2f}, with perplexity {f['half before']:.1f}, trained on "
    f"{f['half after']:.1f}.",
    f"Open task: {f['open task']:.2f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
