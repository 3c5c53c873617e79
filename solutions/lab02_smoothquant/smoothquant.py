# %% [markdown]
# # Lab 2: Outliers and SmoothQuant
#
# ![A map of activations, tokens by channels, in which four columns stand out; beside it bars of
# perplexity: rounding the weights to 8 bits costs almost nothing, rounding the activations about
# triples it.](../../course/figures/lab02/opening.svg)
#
# **The question.** Round the weights of this model to 8 bits, and little happens. Round its
# *activations* to the same 8 bits, and its perplexity about triples; OPT-175B falls from 71.6 % to
# 32.3 % average accuracy. A few columns are to blame. **Left out, they are missed even where
# nothing is rounded, and no product of integers lets them have a scale of their own. Where can
# their size go, and what does it cost there?**
#
# At the end you answer it, with a curve that your own code has drawn. The answer is graded.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | lab 1 (symmetric grids), PyTorch modules; forward hooks are explained |
# | Not covered | weights below 8 bits, 8-bit attention, training, writing kernels |
#
# After this lab you can
# 1. find outlier channels with hooks, and measure what a finer scale does about them;
# 2. build the two repairs: splitting outliers off (LLM.int8) and moving them into the weights
#    (SmoothQuant), for a whole model without changing its function;
# 3. choose the migration strength by measuring, against a model without outliers, and against
#    three repairs that are simpler.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones. Answer predictions in
# their field; where no field is shown, by `lab.answer("levels", 50)`. Seconds that cells announce
# are those of a computer that does nothing else.
#
# ## Map and notation
#
# Section 1, outliers: exercises 1 and 2. Section 2, split them off: 3. Section 3, move them into
# the weights: 4, 5 and 6. Section 4: your code in the live model.
#
# | symbol | shape | dtype | in code | meaning |
# |---|---|---|---|---|
# | $X$ | [..., K] | float | `x` | activations: the input of a linear layer, a row per token |
# | $W$ | [N, K] | float | `w` | weight of an `nn.Linear`; $Y = X W^T + b$ |
# | $t, n, j$ | | | | index of a token, of an output, of a channel (summed over) |
# | $X_j, W_{:j}$ | | | `x[..., j]`, `w[:, j]` | channel $j$: one entry per token, one per output |
# | $Q_x, Q_w$ | as X, W | int8 | `codes` | codes of X and of W |
# | $s_x, s_w$ | [], [..., 1] | float32 | `scale` | step of the 8-bit grid of X, of W |
# | $s_j$ | [K] | float32 | `s` | smoothing scale of channel $j$; no step of a grid |
# | $\alpha$ | | float | `alpha` | migration strength, 0 to 1 |
#
# ### Rules for all exercises
#
# All grids of this lab are symmetric with 8 bits: 255 codes from -127 to 127, the step is
# $\max|x| / 127$, and there is no zero point. Inputs [..., K] have one or more dimensions before
# the last (for `int8_codes` none will do, too), and at least one token; no tensor has to be
# contiguous, and each has its own of the dtypes that a card names. No function of this lab changes
# its arguments (work on new tensors), keeps anything from one call to the next, or leaves gradients
# switched on or off otherwise than it found them.

# %%
import copy
import functools
import math
from statistics import mean

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.models.groups import norm_groups
from efflib.plots import channels, explorer, outliers, repairs, style

lab = Lab("lab02_smoothquant")

QMAX = 127  # the largest code
FLOOR = 1e-5  # exercise 4: a channel maximum counts as at least this
ALPHA = 0.5  # section 4: where the errors of most layers are least

# %% tags=["demo", "fold"]
# helpers of the experiments: text, perplexity, size, what a layer reads, channels divided
from efflib.models.shifting import channel_middles, shift
from efflib.zoo import corpus

PROMPT = zoo.PROMPTS[2]  # what the models continue


def training_code(pieces: int, length: int) -> Tensor:
    """Ids [pieces, length] of training code, each from another document, `<s>` first."""
    texts = [t for t in corpus.documents("code", held_out=False).values() if len(t) > 4000]
    chosen = texts[:: len(texts) // pieces][:pieces]
    ids = [zoo.load_tokenizer().encode(text[1000:3000]).ids[: length - 1] for text in chosen]
    return torch.tensor([[zoo.BEGIN_ID, *row] for row in ids])


def perplexity(model: nn.Module) -> float:
    """On 2048 tokens of held-out code, in windows of 128."""
    return zoo.perplexity(model, split="code", tokens=2048, context=128, stride=128)


def perplexity_of(model: nn.Module, ids: Tensor) -> float:
    """On these ids [B, T]."""
    with torch.no_grad():
        logits = model(ids[:, :-1]).flatten(0, 1)
    return nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).exp().item()


def megabytes(model: nn.Module, int8: tuple | list = ()) -> float:
    """2 bytes a parameter, but 1 for each weight of the layers called `int8`."""
    total = sum(2 * p.numel() for p in model.parameters())
    return (total - sum(model.get_submodule(name).weight.numel() for name in int8)) / 1e6


def inputs_of(model: nn.Module, name: str, ids: Tensor) -> Tensor:
    """The inputs [tokens, K] of a layer on these ids."""
    seen = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    return torch.cat(seen).flatten(0, -2)


def divided(model: nn.Module, groups: dict, large: dict[str, Tensor], by: float) -> nn.Module:
    """A copy whose norms give their channels large[norm] / by, and the columns behind times by.

    by = inf leaves the channels out: they are 0, and nothing gives them back.
    """
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for norm, readers in groups.items():
            changed.get_submodule(norm).weight[large[norm]] /= by
            for name in readers:
                columns = 1 if math.isinf(by) else by
                changed.get_submodule(name).weight[:, large[norm]] *= columns
    return changed


# %% [markdown]
# ## Baseline
#
# From about 6.7 billion parameters on, language models have outliers in *every layer*, all of them
# in six or seven channels (LLM.int8, section 4). Ours has a few million parameters, and only single
# layers have one. So we put them in, with `zoo.with_outliers`; the picture below shows what a layer
# then reads. The function stays the same, and weights stay ordinary. Four channels are large
# wherever a norm's output is read, and they carry signal: they change from token to token.
#
# <details><summary>How it is done</summary>
#
# The residual stream is written into 32 channels more than it needs, so that each of its leading
# principal components stands in two channels. Two components are made 40 times as large, and what
# reads the norms takes that back. Two other components stand in columns of their own as well, but
# vary little: they are the fainter stripes of the picture.
#
# So the four are two pairs of twins, which always carry the same values. What takes the factor 40
# back is that their columns of $W$ are nearly opposite: each is as large as its neighbours, as in
# large models, and the sum of both is small. (Large models need no twins for that.) Without the
# twins the weights behind the outliers would be small, and any $\alpha$ would repair all of it:
# with each pair merged into one channel, plain W8A8 is as bad as before, and the curve of section 4
# is flat, without its two ends (the chapter has the numbers). So that curve shows what outliers do
# where weights are ordinary; that they are, is put in.
# </details>
#
# Where the four stand is drawn at random, and what rounding does to them is partly luck. So we have
# three **placements**: every perplexity is a mean over them, and what shows a single layer, or says
# so, is of the first. The model without outliers is our **control**.
#
# The measure is the perplexity on held-out code, as in lab 1, here of 2048 tokens in windows of
# 128. (The chapter reads 4096 in windows of 256: other windows, other numbers.) What is to be
# gained is size (1 byte for a weight in place of 2) and products of integers.

# %% tags=["demo"]
GAINS = {3: 40.0, 5: 40.0}  # two components that vary in every layer, 40 times as large
control, calibration = zoo.load("target"), training_code(8, 128)
placements = [zoo.with_outliers(control, calibration, GAINS, seed=i) for i in range(3)]
model, layer = placements[0], "model.layers.2.self_attn.q_proj"
groups = {group.name: list(group.linears) for group in norm_groups(model)}
names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
found = {"fp": perplexity(model)}  # the numbers you find, for the takeaways at the end
print(f"perplexity {found['fp']:.3f}; {perplexity(control):.3f} without: the same function")
print(f"{megabytes(model):.2f} MB in fp16; {megabytes(model, names):.2f} MB with int8 weights")
print("What it writes after the first line:\n" + zoo.sample(model, PROMPT, tokens=48))
first = calibration[:1, :64]  # 64 tokens: what the same layer reads in both models
style.show(*outliers.token_maps(*(inputs_of(m, layer, first) for m in (model, control))))

# %% [markdown]
# ## 1. Outliers
#
# To round $X$, we must know how large it gets. *Calibration* runs a few samples through the model
# and keeps the largest magnitude of every channel, $\max|X_j|$. A **forward pre-hook** sees the
# inputs of a layer each time it runs:
#
# ```python
# def remember(module, args):        # args: what the layer is called with; args[0] is x
#     ...
# handle = layer.register_forward_pre_hook(remember)
# model(batch)                       # calls remember(layer, (x,)) on the way
# handle.remove()
# ```
#
# What is known of large models:
#
# - **OPT-66B**: one channel from -97 to -58, another from 5.7 to 43, and most others small (Outlier
#   Suppression+, sections 1 and 4.1.1).
# - **6.7 billion parameters**: about 150 000 values of at least 6 in 2048 tokens, all in 6
#   channels; in every layer, and in about 75 % of the tokens (LLM.int8, section 4.2).
# - **OPT, BLOOM, GLM**: about 100 times as large as most values, always in the same channels
#   (SmoothQuant, section 3).
#
# Why does one large channel matter? Because the grid is shared:

# %%
# the formula on four numbers: s = max|x| / 127, codes round(x / s)
for x in (torch.tensor([0.3, -0.9, 1.2, 1.0]), torch.tensor([0.3, -0.9, 1.2, 10.0])):
    step = x.abs().max() / QMAX
    four = torch.round(x / step)
    print("x", ", ".join(f"{v:g}" for v in x.tolist()), end="")
    print(f": step {step:.4f}, codes {four.int().tolist()}")
    assert ((four * step - x).abs() <= step / 2 * 1.0001).all()

lab.predict(
    "levels",
    "In the models of the SmoothQuant paper, outliers are about 100 times as large as most values "
    "(section 3). One step covers all of X. Of the 255 codes, how many can a channel have that "
    "reaches 1 / 100 of the largest value?",
    unit="codes",
)

# %% [markdown]
# ### Exercise 1 · Find the outlier channels
#
# **30 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `channel_maxima(model, names, batches) -> {name: x_max}` and
# `outlier_channels(x_max, ratio) -> channels`.
#
# - `channel_maxima` runs `model(batch)` once for each batch, without gradients, and returns for
#   each of the named linear layers $\max|X_j|$ of its inputs over all tokens, batches and calls.
#   (A layer may run more than once in one forward pass. Each named layer runs at least once and has
#   one name in the model, and nobody writes into what it reads.)
# - Its hooks are gone when it returns, also if the model raises. All else about the model (other
#   hooks, train or eval mode of each of its modules, `requires_grad` of its parameters) stays as it
#   was, and gradients are on again if they were before.
# - `outlier_channels`: the channels whose maximum is at least `ratio` (any number above 0) times
#   the median channel (`torch.median`). A channel that is always 0 is none; any maximum
#   above 0 counts. Compare in float32 or float64, as you like: tests come to the limit only where
#   `ratio` times the median is exact.
#
# **Shapes** `batches`: a list of model inputs. Inputs of layers: [..., K], float32 or bfloat16,
# perhaps not contiguous.
# `x_max` [K], float32. `channels`: int64, ascending, perhaps empty.


# %% solution="ex1"
def channel_maxima(model: nn.Module, names: list[str], batches: list[Tensor]) -> dict[str, Tensor]:
    """max|X_j| of the inputs of the layers called `names`: {name: [K] float32}.

    Runs model(batch) once per batch, without gradients. Leaves no hook behind.
    """
    ### BEGIN SOLUTION
    maxima, handles = {}, []
    for name in names:

        def remember(module, args, name=name):
            now = args[0].detach().abs().flatten(0, -2).amax(0).float()
            maxima[name] = torch.maximum(maxima[name], now) if name in maxima else now

        handles.append(model.get_submodule(name).register_forward_pre_hook(remember))
    try:
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return maxima
    ### END SOLUTION


def outlier_channels(x_max: Tensor, ratio: float) -> Tensor:
    """Indices of channels with x_max > 0 and x_max >= ratio * median. x_max [K] -> int64."""
    ### BEGIN SOLUTION
    large = (x_max >= ratio * x_max.median()) & (x_max > 0)
    return large.nonzero().flatten()
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** One hook per layer, all of them writing into one dictionary. A hook reduces what it sees
# at once to one number per channel, so that no activations pile up.
#
# **By hand.** A layer reads the tokens (1, -5) and (0.5, 2): maxima (1, 5). Its next call reads
# (-2, 1) only: (2, 1). What you keep is the larger one, channel by channel: (2, 5). With the maxima
# (2, 5, 90), the median is 5, and at ratio 10 channel 2 is an outlier; at ratio 18 as well, at 19
# none is.
#
# **The usual error.** A closure in a loop sees the *last* value of the loop variable: every hook
# writes to the same name. Bind it by a default argument, `def remember(module, args, name=name)`.
# </details>

# %% [markdown]
# ### Exercise 2 · A W8A8 linear layer
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Weights *and* activations in 8 bits (W8A8), so that the product is one of integers:
#
# $$ Y = X W^T + b \;\approx\; s_x\, s_w\, (Q_x Q_w^T) + b $$
#
# **Deliver** two functions of numbers, `int8_codes(x, x_max) -> (codes, scale)`, the grid that ends
# at $\pm$`x_max`, and `w8a8_linear(x, w, bias, activations, x_max=None) -> y`; and one of modules,
# `swap(model, functions) -> swapped`, which puts such a function into a model. Who shares the scale
# of the activations?
#
# | `activations` | scale of X | in the SmoothQuant paper |
# |---|---|---|
# | `"token"` | from each token as it comes | O1 |
# | `"tensor"` | from the whole input as it comes | O2 |
# | `"static"` | from `x_max`, known from calibration; what is larger is clipped | O3 |
#
# - The weight has one scale for the whole of it. The bias is added as it is.
# - Only `"static"` looks at `x_max`; the other two kinds ignore it.
# - `int8_codes`: $s$ = `x_max` / 127, codes clamped to -127..127. Where `x_max` is 0, any positive
#   finite scale will do. Round x / s in float32, with `torch.round`.
# - `ValueError` for another `activations`, or `"static"` without `x_max`.
# - Multiply codes or rounded values, as you like: the sums are the same.
#
# **And `swap`**, which all experiments below use:
#
# - It gives a copy of the model, in which the linear layer `name` (dotted or not) gives
#   `functions[name](x, weight, bias)` with the copy's weight and bias (None if it has none), `x`
#   as it comes and the result as it is.
# - `model` stays as it is, and of the copy all that is no swapped layer: each module's mode, each
#   parameter's `requires_grad`. A swapped layer has one name.
# - Put a module of yours in the place of the layer, or give it another `forward`, a closure if you
#   like: mode and `requires_grad` of a swapped layer do not matter, and nobody copies or trains
#   what you return.
#
# **Shapes** `x` [..., K], `w` [N, K] and `bias` [N] or None: float32 or bfloat16, perhaps not
# contiguous. `x_max`, of these dtypes too, broadcasts to `x` in `int8_codes` and is [] in
# `w8a8_linear`. `codes` int8 in the shape of `x`; `scale` float32 in the shape of `x_max`; `y`
# [..., N], float32.


# %% solution="ex2"
def int8_codes(x: Tensor, x_max: Tensor) -> tuple[Tensor, Tensor]:
    """(codes int8 [...], scale float32 in the shape of x_max) of the grid that ends at +-x_max."""
    ### BEGIN SOLUTION
    scale = x_max.float() / QMAX
    scale = torch.where(scale > 0, scale, 1.0)
    codes = torch.round(x.float() / scale).clamp(-QMAX, QMAX)
    return codes.to(torch.int8), scale
    ### END SOLUTION


def w8a8_linear(
    x: Tensor, w: Tensor, bias: Tensor | None, activations: str, x_max: Tensor | None = None
) -> Tensor:
    """x W^T + bias with both factors rounded to 8 bits, float32 [..., N].

    activations: "token", "tensor" or "static" (which needs x_max []).  Raises ValueError otherwise.
    """
    ### BEGIN SOLUTION
    if activations == "token":
        x_max = x.abs().amax(dim=-1, keepdim=True)  # [..., 1]
    elif activations == "tensor":
        x_max = x.abs().amax()
    elif activations != "static" or x_max is None:
        raise ValueError(f"activations={activations!r}, x_max={x_max}")
    x_codes, x_scale = int8_codes(x, x_max)
    w_codes, w_scale = int8_codes(w, w.abs().amax())
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale)
    return y if bias is None else y + bias.float()
    ### END SOLUTION


def swap(model: nn.Module, functions: dict) -> nn.Module:
    """A copy of model whose linear layer `name` gives functions[name](x, its weight, its bias)."""
    ### BEGIN SOLUTION

    class Computed(nn.Module):
        def __init__(self, linear, function):
            super().__init__()
            self.weight, self.bias, self.function = linear.weight, linear.bias, function

        def forward(self, x):
            return self.function(x, self.weight, self.bias)

    swapped = copy.deepcopy(model)
    for name, function in functions.items():
        parent, _, last = name.rpartition(".")
        linear = swapped.get_submodule(name)
        layer = Computed(linear, function).train(linear.training)
        setattr(swapped.get_submodule(parent), last, layer)
    return swapped
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** The three kinds differ in one thing: which `x_max` goes into `int8_codes`, one per
# token, one in all, or the argument. Scales that do not depend on the channel stand in front of the
# sum over channels. For `swap`, a layer with a dotted name is an attribute of its parent:
# `model.get_submodule("a.b")` has the attribute `"c"` for `"a.b.c"`, and the parent of `"c"` is the
# model itself, `model.get_submodule("")`.
#
# **By hand.** x = (0.3, -2) with x_max = 12.7: the step is 0.1, the codes are 3 and -20. w = (1.27,
# 0.5) has the step 0.01 and the codes 127 and 50. The sum is 3 * 127 - 20 * 50 = -619, and y =
# -619 * 0.1 * 0.01 = -0.619.
#
# **The usual errors.** `q_x @ q_w.T` on int8 tensors adds up in int8, and 127 * 127 does not fit.
# In float32 the sums are exact up to 1040 channels; a kernel adds up in int32. `"static"` must
# use the calibrated maximum even if the input is smaller, or larger. And a function that is defined
# in a loop sees the last layer of the loop, as in exercise 1.
# </details>
#
# **Reveal.** Your functions on calibration text, that is, on training text: what we measure on must
# not be seen here.
#
# **Then write one sentence:** the outlier channels choose the step. What does that leave to all
# other channels, and what do the outliers themselves gain by it?
#
# *Your sentence:*

# %% tags=["demo"]
batches = [calibration]
maxima = channel_maxima(model, names, batches)
control_maxima = channel_maxima(control, names, batches)
hot = outlier_channels(maxima[layer], ratio=6).tolist()
both = {"with outliers": maxima[layer], "control": control_maxima[layer]}
figure, text, found["codes"] = outliers.largest(both, hot)
style.show(figure, text)
where = {"layer 0, mlp": "model.layers.0.mlp.gate_proj", "layer 2, attention": layer}
read = {label: inputs_of(model, name, calibration) for label, name in where.items()}
style.show(*outliers.intervals(read, hot))
lab.reveal("levels", 2 * round(QMAX / 100) + 1)
alone = max(names, key=lambda n: (control_maxima[n].max() / control_maxima[n].median()).item())
ratio = control_maxima[alone].max() / control_maxima[alone].median()
print(f"an outlier that the control has by itself, in {alone}: {ratio:.0f} times the median")

# %% tags=["demo"]
shares = ["less than a third", "a third to two thirds", "more than two thirds"]
lab.predict(
    "token",
    "Now the whole model goes to W8A8, with a scale per tensor: perplexity about triples. A scale "
    "per token is finer: each token has its own. Of the perplexity that the outliers cost (what "
    "the model loses beyond the control's loss), it repairs",
    options=shares,
)


# %% tags=["demo"]
# your exercise 2 in every linear layer but lm_head, for each placement: about 6 s
def w8a8_model(model: nn.Module, activations: str, maxima: dict | None = None) -> nn.Module:
    limit = {n: None if maxima is None else maxima[n].max() for n in names}
    fixed = {"activations": activations}
    return swap(model, {n: functools.partial(w8a8_linear, **fixed, x_max=limit[n]) for n in names})


each = {}  # kind -> perplexity of each placement
for kind in ("tensor", "token"):
    each[kind] = [perplexity(w8a8_model(m, kind)) for m in placements]
    found[kind] = mean(each[kind])
    found[f"control {kind}"] = perplexity(w8a8_model(control, kind))
figure, text, found["repaired"] = repairs.repaired(found, each)
style.show(figure, text)
lab.reveal("token", shares[(found["repaired"] > 100 / 3) + (found["repaired"] > 200 / 3)])
tops = read["layer 2, attention"].abs().amax(-1)  # of each token
print(f"layer 2: {(tops < tops.max() / 2).float().mean():.0%} of tokens stay below half the top")


# %% tags=["demo"]
# which side is to blame? Only W, or only X, goes through its grid (one scale per tensor): 5 s
def one_side(model: nn.Module, side: str) -> nn.Module:
    # the model with only the "weights" or only the "activations" rounded
    def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        exact = w if side == "weights" else x
        codes, scale = int8_codes(exact, exact.abs().amax())
        rounded = codes.float() * scale
        x, w = (x, rounded) if side == "weights" else (rounded, w)
        return nn.functional.linear(x, w, bias)

    return swap(model, dict.fromkeys(names, linear))


for label, models in (("with outliers", placements), ("control", [control])):
    for side in ("weights", "activations"):
        value = mean(perplexity(one_side(m, side)) for m in models)
        print(f"{label:14s} only {side:11s} rounded {value:6.2f}")
print("\nWhat W8A8 with a scale per tensor writes:")
print(zoo.sample(w8a8_model(model, "tensor"), PROMPT, tokens=48))


# %% tags=["demo"]
# is a single layer to blame? Only what reads one norm goes to W8A8 (first placement): about 7 s
def only(model: nn.Module, chosen: list[str]) -> nn.Module:
    """The model with W8A8 per tensor in the layers `chosen` and nowhere else."""
    return swap(
        model, {name: functools.partial(w8a8_linear, activations="tensor") for name in chosen}
    )


fed = [name for readers in groups.values() for name in readers]  # what any norm feeds
costs = {n: perplexity(only(model, readers)) - found["fp"] for n, readers in groups.items()}
style.show(*repairs.alone(costs, perplexity(only(model, fed)) - found["fp"]))

# %% [markdown]
# No single layer is to blame, and $W$ is not: each norm costs a little, and together they cost more
# than the sum of the parts. The step that the outliers choose leaves the median channel the few
# codes of the first figure. The outliers gain all 255, more than they need.
#
# **What a scale per token can do.** Our outliers vary. The scale per tensor is chosen by the
# largest value of all tokens; most tokens stay well below it, and with a scale of their own they
# pay for their own outlier only. **What it cannot do.** Within a token, the ordinary channels still
# share the grid of the outlier, and where every token has a large one (in real models about 75 %
# do) it is as coarse as one per tensor. So do not carry your number over to large models: it is
# that of outliers which vary. The SmoothQuant paper's table 1 says what a scale per token repairs
# in OPT from 13 billion parameters on: nothing (OPT-13B: 33.0 % average accuracy per tensor, 33.0 %
# per token, 65.6 % in fp16; OPT-175B: 32.3, 31.7 and 71.6 %). And it is found while the model runs,
# for every token and layer.
#
# A scale $c_j$ per *channel* of $X$ would be right, but it would stand inside the sum:
# $\sum_j c_j\, q_{tj}\, q_{nj}$ is no product of integers. So there are two ways out.
#
# ## 2. Split the outliers off
#
# LLM.int8() (Dettmers et al., 2022) sorts the channels at run time. Let $O$ be the channels with
# $|x| \ge 6$ in any token. They are multiplied in floating point, all others as integers:
#
# $$ X W^T \;\approx\; X_O W_O^T \;+\; s_x s_w^T \odot (Q_x Q_w^T)
# \qquad\text{with } Q_x, Q_w \text{ over the channels outside } O $$
#
# The scales are *vector-wise*: one for every token, one for every output channel (row of $W$). Both
# stand in front of the sum over channels.

# %%
# the formula on four numbers: one token, one output, the last channel is an outlier
x, w_row = torch.tensor([0.5, -1.27, 0.02, 60.0]), torch.tensor([1.0, 0.5, -1.27, 0.3])
split_codes = torch.round(x[:3] / (1.27 / 127))  # the largest of the rest is 1.27
w_codes = torch.round(w_row / (1.27 / 127))
parts = (split_codes * w_codes[:3]).sum() * 0.01 * 0.01 + x[3] * w_row[3]
whole = (torch.round(x / (60 / 127)) * w_codes).sum() * (60 / 127) * 0.01
print(f"exact {x @ w_row:.4f}, split {parts:.4f}, without the split {whole:.4f}")

# %% [markdown]
# ### Exercise 3 · The split of LLM.int8()
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `outlier_columns(x, threshold) -> mask` and
# `llm_int8_linear(x, w, bias, threshold) -> y`.
#
# - A channel is an outlier column if $|x| \ge$ `threshold` in at least one token of the input.
# - Outlier columns: x and w as they are, in float32.
# - All others: codes of exercise 2. The scale of a token comes from its columns *that are left*. A
#   row of W is rounded when the model is loaded, when no x is known yet: its scale comes from the
#   whole row.
# - It has to work with no outlier column, with nothing else, and where tokens or rows of W are 0.
#
# **Shapes** `x` [..., K], `w` [N, K] and `bias` [N] or None: float32 or bfloat16; `threshold`: a
# number that the dtype of `x` holds exactly; `mask` [K] bool; `y` [..., N], float32.


# %% solution="ex3"
def outlier_columns(x: Tensor, threshold: float) -> Tensor:
    """Channels with |x| >= threshold in any token. x [..., K] -> [K] bool."""
    ### BEGIN SOLUTION
    return (x.abs() >= threshold).flatten(0, -2).any(dim=0)
    ### END SOLUTION


def llm_int8_linear(x: Tensor, w: Tensor, bias: Tensor | None, threshold: float) -> Tensor:
    """x W^T + bias: outlier columns in float32, the others in 8 bits. float32 [..., N]."""
    ### BEGIN SOLUTION
    outlier = outlier_columns(x, threshold)
    w_codes, w_scale = int8_codes(w, w.abs().amax(dim=1, keepdim=True))  # [N, 1]
    rest = x.masked_fill(outlier, 0)
    x_codes, x_scale = int8_codes(rest, rest.abs().amax(dim=-1, keepdim=True))  # [..., 1]
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale.T)
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** A column that is set to 0 has the code 0 and adds nothing. So the integer part needs no
# smaller matrices, only an x of its own in which the outlier columns are 0: its tokens have the
# right scales. The columns that were taken out are a product by themselves, of x and w as float32.
#
# **By hand.** The four numbers above: column 3 is an outlier. (0.5, -1.27, 0.02, 0) has the step
# 0.01 and the codes 50, -127, 2, 0. The row of W has the step 0.01 and the codes 100, 50, -127, 30.
# 50 * 100 - 127 * 50 - 2 * 127 = -1604; times 0.01 * 0.01 that is -0.1604, and 60 * 0.3 = 18 comes
# on top.
#
# **The usual error.** The scales are taken from x before the split: the outliers are multiplied
# exactly, and everything else still pays for them.
# </details>


# %% tags=["demo"]
# reveal: your split in the whole model, at 6, at 20 and nowhere (9 perplexities, about 6 s)
kept = {}  # (threshold, kind of layer) -> which columns are in floating point, in every call


def split(x: Tensor, w: Tensor, bias: Tensor | None, threshold: float, kind: str) -> Tensor:
    kept.setdefault((threshold, kind), []).append(outlier_columns(x, threshold))
    return llm_int8_linear(x, w, bias, threshold)


for limit in (6.0, 20.0, math.inf):  # the last one: its grids, and nothing split off
    splits = {n: functools.partial(split, threshold=limit, kind=n.split(".")[-1]) for n in names}
    each[f"split at {limit:g}"] = [perplexity(swap(m, splits)) for m in placements]
    found[f"split at {limit:g}"] = mean(each[f"split at {limit:g}"])
    masks = {kind: torch.cat(row).float() for (at, kind), row in kept.items() if at == limit}
    found[f"share {limit:g}"] = 100 * torch.cat(list(masks.values())).mean().item()
    print(f"split at {limit:3g}: {found[f'split at {limit:g}']:.2f}, in floating point", end=" ")
    print(f"{found[f'share {limit:g}']:.1f} % of all columns:", end=" ")
    print(", ".join(f"{k} {masks[k].mean():.0%}" for k in ("q_proj", "o_proj", "down_proj")))
print(f"fp32 {found['fp']:.2f}")

# %% [markdown]
# The split leaves next to nothing of the damage, and needs no calibration. But it sorts columns at
# every step, and reads and multiplies two kinds of matrices: at run time it is often slower than
# fp16.
#
# The share that is not in integers is no argument against it. The threshold 6 was chosen for
# other models; there it takes out about 0.1 % of the columns. Here it takes out almost a hundred
# times as many, most of them in front of `down_proj`: many values above 6, and no outlier
# channels. At 20 far fewer are left, and the perplexity is the same.
#
# ## 3. Move them into the weights
#
# SmoothQuant (Xiao et al., 2023) does the work before run time. For any $s_j > 0$
#
# $$ Y = X W^T = \big(X\,\mathrm{diag}(s)^{-1}\big)\,\big(W\,\mathrm{diag}(s)\big)^T $$
#
# Divide what is large by $s_j$, multiply what is small: the product stays. The division costs
# nothing, because X comes out of a norm with a gain for every channel, so $s$ can be folded into
# it. Which $s$? The **migration strength** $\alpha$, from 0 to 1, says how much of the difficulty
# moves from the activations to the weights:
#
# - $\alpha = 1$: all of it. Every channel of $X / s$ reaches exactly 1, and $W s$ takes the
#   differences between them.
# - $\alpha = 0$: none of it. Every column of $W s$ reaches exactly 1, and $X / s$ takes the
#   differences between the columns on top of its own. (Not "no smoothing", which is $s_j = 1$.)
# - Between them $\log s_j$ goes in proportion to $\alpha$ from one end to the other.
#
# The example of the lecture has $\alpha = 0.5$, and $s = (1, 4, 1, 3)$:

# %%
x_example = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])  # [2 tokens, K = 4]
w_example = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]).T  # [N = 3, K = 4]
s_example = torch.tensor([1.0, 4.0, 1.0, 3.0])
print("X / s    ", (x_example / s_example).tolist())
print("(W s)^T  ", (w_example * s_example).T.tolist())
for name, v in (("X", x_example), ("W", w_example)):
    after = v / s_example if name == "X" else v * s_example
    print(
        f"max |{name}_j| {v.abs().amax(0).tolist()}, after smoothing {after.abs().amax(0).tolist()}"
    )
assert torch.equal((x_example / s_example) @ (w_example * s_example).T, x_example @ w_example.T)

lab.predict(
    "end",
    "The outlier models with W8A8, all scales per tensor. Which of these three leaves the highest "
    "perplexity, on every placement?",
    options=["no smoothing", "smoothing with alpha = 0", "smoothing with alpha = 1"],
)

# %% [markdown]
# ### Exercise 4 · Smoothing scales
#
# **15 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Derive** the formula of $s_j$ from the three properties above: it holds the largest magnitudes
# $\max|X_j|$ and $\max|W_{:j}|$, and $\alpha$. Check it on the example of the lecture.
#
# **Deliver** `smoothing_scales(x_max, weights, alpha) -> s`, with `x_max` for $\max|X_j|$.
#
# - `weights` are all linear layers that read this input: q, k and v share one, gate and up another.
#   $\max|W_{:j}|$ is taken over all rows of all of them, since X can be divided only once.
# - $\max|X_j|$ and $\max|W_{:j}|$ count as at least `FLOOR` each, in float32, before any power: a
#   channel that calibration never saw must not get $s = 0$. They may be as large as $10^{30}$.
# - `ValueError` for $\alpha$ below 0 or above 1.
#
# **Shapes** `x_max` [K] and `weights`, a list of [N_i, K], float32 or bfloat16, not changed; `s`
# [K], float32, > 0. Compute in float32 or float64: powers in bfloat16 have 8 significant bits.


# %% solution="ex4"
def smoothing_scales(x_max: Tensor, weights: list[Tensor], alpha: float) -> Tensor:
    """s_j of migration strength alpha, for all weights that read X. [K] float32 > 0.

    Both maxima are at least FLOOR.  Raises ValueError for alpha below 0 or above 1.
    """
    ### BEGIN SOLUTION
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, got {alpha}")
    w_max = torch.cat([w.abs().float() for w in weights]).amax(dim=0)  # [K]
    return x_max.float().clamp(min=FLOOR) ** alpha / w_max.clamp(min=FLOOR) ** (1 - alpha)
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Write down $s_j$ at both ends. A quantity whose logarithm goes in proportion from $a$ to
# $b$ is $a$ after none of the way, $b$ after all of it, and $\sqrt{ab}$ halfway: a product of
# powers of both. A column of W belongs to a channel of X; put all weights, as float32, below one
# another, and take the maximum over the rows.
#
# **By hand.** Channel 1 of the example: X reaches 16, so $s$ is 16 at $\alpha = 1$; the column of W
# reaches 1, so $s$ is 1 at $\alpha = 0$. Halfway between their logarithms: 4. A quarter of the way:
# 2.
#
# **The usual errors.** `amax(dim=1)`: the maximum of each *row*. For a square weight nothing
# complains, and the scales belong to output channels. And powers of bfloat16 numbers: make `x_max`
# and the weights float32 first.
# </details>

# %% [markdown]
# ### Exercise 5 · Fold the scales into the model
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A norm computes $\mathrm{norm}(h) = g \odot \hat h + c$, with a gain $g$ and perhaps a bias $c$.
# Which gain and bias give its output divided by $s$?
#
# **Deliver** `smooth(model, groups, maxima, alpha) -> smoothed`: a copy of the model with the same
# function, whose norms give $X / s$.
#
# - `groups`: {name of a norm: names of all linear layers that read it}, at least one group, and
#   at least one layer in each. Each group has one $s$, that of exercise 4 for all of its weights.
#   Decide what the norm and the linear layers have to become so that the outputs stay.
# - `maxima`: {name of a linear layer: [K]}, from exercise 1. The layers of a group have the same
#   input and the same maxima.
# - `model` does not change. Nor do layers that are in no group, nor any bias of a linear layer.
#
# A norm has its gain in `weight` and its bias in `bias`; one without a bias has no such attribute,
# or has `bias = None`. Parameters keep their dtype and stay parameters; float32 inside is accurate
# enough, and $s$ may be rounded to their dtype first: it cancels. The copy is as trainable as the
# model (what was frozen stays frozen), and its modules are in the same mode.


# %% solution="ex5"
def smooth(
    model: nn.Module, groups: dict[str, list[str]], maxima: dict[str, Tensor], alpha: float
) -> nn.Module:
    """A copy of model with the same function: s folded into its norms and the linears behind."""
    ### BEGIN SOLUTION
    smoothed = copy.deepcopy(model)
    for norm_name, linear_names in groups.items():
        norm = smoothed.get_submodule(norm_name)
        linears = [smoothed.get_submodule(name) for name in linear_names]
        s = smoothing_scales(maxima[linear_names[0]], [m.weight.detach() for m in linears], alpha)
        with torch.no_grad():
            norm.weight.div_(s)
            if getattr(norm, "bias", None) is not None:
                norm.bias.div_(s)
            for linear in linears:
                linear.weight.mul_(s)
    return smoothed
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Work on a deep copy, and in place under `torch.no_grad()`: parameters stay parameters.
# What the norm loses in a channel, every weight that reads it gets back in that column. A bias of a
# linear layer is added after the product, where $s$ has cancelled.
#
# **By hand.** One channel: $g = 2$, $c = 6$, $\hat h = 1$ give X = 8; with w = 5 the output is 40.
# For $s = 4$: $g = 0.5$ and $c = 1.5$ give X / s = 2; w = 20 gives 40 again. Dividing $g$ alone
# would give 0.5 + 6 = 6.5.
#
# **The usual error.** One scale for q, another for k: but they read the same X. Or only the gain is
# divided: then a norm with a bias gives something else.
# </details>

# %% tags=["demo"]
# reveal: the same function, other channels
smoothed = smooth(model, groups, maxima, alpha=0.5)
after = channel_maxima(smoothed, names, batches)
with torch.no_grad():
    gap = (smoothed(calibration[:1]) - model(calibration[:1])).abs().max().item()
print(f"largest difference of the logits after smoothing: {gap:.2g}")
style.show(*outliers.smoothed(maxima[layer], after[layer], hot))

# %% [markdown]
# ### Exercise 6 · Sweep the migration strength
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# $\alpha$ is chosen by measuring. **Deliver** `sweep(x, weights, alphas, activations) -> errors`:
# for each $\alpha$ the relative squared error that smoothing and W8A8 together leave in the outputs
# of all layers that read `x`:
#
# $$ e(\alpha) = \frac{\sum_i \lVert \hat Y_i - X W_i^T \rVert^2}{\sum_i \lVert X W_i^T \rVert^2},
# \qquad \hat Y_i = \text{W8A8 of } X / s \text{ and } W_i\, s . $$
#
# - $\max|X_j|$ comes from `x` itself. One $s$ for all weights, as in exercise 5; each weight has
#   its own grid.
# - The exact outputs are those of the float weights, without biases.
#
# **Shapes** `x` [..., K] and `weights`, a list of [N_i, K], float32 or bfloat16, not changed;
# `alphas`: a list of numbers in any order; `activations`: `"token"` or `"tensor"`; `errors`: a list
# of floats in the order of `alphas`. Compute in float32 or float64 here, too: outputs are up to
# 1e17 in size, and not all below 1e-16.


# %% solution="ex6"
def sweep(x: Tensor, weights: list[Tensor], alphas: list[float], activations: str) -> list[float]:
    """Relative squared output error of smoothing and W8A8, for each alpha, over all weights."""
    ### BEGIN SOLUTION
    x, weights = x.float(), [w.float() for w in weights]
    exact = [x @ w.T for w in weights]
    size = sum(y.square().sum() for y in exact)
    x_max = x.abs().flatten(0, -2).amax(dim=0)  # [K]
    errors = []
    for alpha in alphas:
        s = smoothing_scales(x_max, weights, alpha)
        pairs = zip(weights, exact, strict=True)
        rounded = [(w8a8_linear(x / s, w * s, None, activations), y) for w, y in pairs]
        error = sum((y_hat - y).square().sum() for y_hat, y in rounded)
        errors.append((error / size).item())
    return errors
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** Make x and the weights float32 first. The exact outputs do not depend on alpha, nor does
# the largest magnitude of each channel: compute them once. For each alpha there is one s, and each
# weight goes through exercise 2 by itself.
#
# **By hand.** Two weights. The first has outputs with a sum of squares of 10 and errors with 1, the
# second outputs with 90 and errors with 3: $e$ = (1 + 3) / (10 + 90) = 0.04. That is not the mean
# of 1 / 10 and 3 / 90.
#
# **The usual errors.** `x = x / s` inside the loop: the next alpha starts from what the last one
# left. And a tensor of one number is no float: `.item()` makes it one.
# </details>
#
# ## 4. Your code in the live model
#
# At $\alpha = 1/2$ both sides of a channel reach the same magnitude,
# $\sqrt{\max|X_j| \max|W_{:j}|}$. Which $\alpha$ is best has to be measured.
#
# First one layer, with your exercise 6; then the whole model in perplexity, with exercises 2, 4
# and 5. There are two kinds of controls. The same sweep on the model **without outliers**: if
# $\alpha$ mattered as much there, the curve would tell us nothing about outliers. And three
# **simpler repairs**, all with one scale per tensor; if one of them were enough, smoothing would
# not be needed:
#
# - **Leave out** the outlier channels: they are set to 0 in every norm.
# - **Clip**: static grids that end at a fraction of the calibrated maximum. Which fraction, is
#   searched on calibration text.
# - **Shift** (Outlier Suppression+, 2023): take the middle of its range off every channel in the
#   norm's bias, and give it back in the biases behind,
#   $X W^T + b = (X - z) W^T + (b + W z)$. Nothing is scaled.

# %% tags=["demo"]
ALPHAS = [0.0, 0.25, 0.5, 0.75, 1.0]
norm = "model.layers.2.input_layernorm"


def errors_of(model: nn.Module, readers: list[str]) -> list[float]:
    """Your exercise 6 for the layers that read one norm."""
    weights = [model.get_submodule(name).weight.detach() for name in readers]
    return sweep(inputs_of(model, readers[0], calibration), weights, ALPHAS, "tensor")


one_layer = {"with outliers": [errors_of(m, groups[norm]) for m in placements]}
one_layer["control"] = [errors_of(control, groups[norm])]
style.show(*repairs.layer_errors(ALPHAS, one_layer))
everywhere = [errors_of(model, readers) for readers in groups.values()]
least = [ALPHAS[errors.index(min(errors))] for errors in everywhere]
counts = [f"alpha = {a:g} for {least.count(a)}" for a in sorted(set(least))]
print(f"least error, first placement: {', '.join(counts)} of {len(least)} norms")


# %% tags=["demo"]
# the whole model, three placements: 15 perplexities, about 9 s
def swept(model: nn.Module) -> list[float]:
    """Perplexity of smoothing and W8A8 per tensor, for each alpha."""
    maxima = channel_maxima(model, names, batches)
    smoothed = [smooth(model, groups, maxima, alpha) for alpha in ALPHAS]
    return [perplexity(w8a8_model(which, "tensor")) for which in smoothed]


curves = {"with outliers": []}
for which in placements:
    curves["with outliers"].append(swept(which))
    print("a placement:", ", ".join(f"{p:.2f}" for p in curves["with outliers"][-1]))

# %% tags=["demo"]
# where clipped grids should end, searched on calibration text, on each placement: about 6 s
ENDS = [1.0, 0.7, 0.5, 0.4, 0.3]  # of static grids, in calibrated maxima
calibrated = [channel_maxima(which, names, batches) for which in placements]
simple = {"left out": [], "shifted": [], "clipped": [], "one factor": []}
for which, own in zip(placements, calibrated, strict=True):
    made = [w8a8_model(which, "static", {n: end * m for n, m in own.items()}) for end in ENDS]
    searched = [perplexity_of(rounded, calibration) for rounded in made]
    simple["clipped"].append(perplexity(made[searched.index(min(searched))]))
    print("calibration text:", ", ".join(f"{p:.1f}" for p in searched), "for ends at", ENDS)

# %% tags=["demo"]
# the other repairs, and one factor for the outlier channels of all norms: about 7 s
FACTOR = 8.0
for which, own in zip(placements, calibrated, strict=True):
    large = {norm: outlier_channels(own[readers[0]], ratio=6) for norm, readers in groups.items()}
    without = divided(which, groups, large, math.inf)
    simple["left out"].append(perplexity(w8a8_model(without, "tensor")))
    centred = shift(which, channel_middles(which, calibration))
    simple["shifted"].append(perplexity(w8a8_model(centred, "tensor")))
    moved = divided(which, groups, large, FACTOR)
    simple["one factor"].append(perplexity(w8a8_model(moved, "tensor")))
found |= {name: mean(row) for name, row in simple.items()}
found["left out, fp"] = perplexity(without)
print(f"left out, nothing rounded: {found['left out, fp']:.2f}, with them {found['fp']:.2f}")

# %% tags=["demo"]
# the control's sweep, all in one figure, and what each repair leaves of what outliers cost: 3 s
curves["control"] = [swept(control)]
valley = [mean(column) for column in zip(*curves["with outliers"], strict=True)]
found |= {"smoothed": valley[ALPHAS.index(ALPHA)], "alpha 0": valley[0], "alpha 1": valley[-1]}
found["flat"] = 100 * (max(curves["control"][0]) / min(curves["control"][0]) - 1)
style.show(*repairs.migration(ALPHAS, curves, found))
base, left = found["control tensor"], {}
for name in (*simple, "smoothed"):
    left[name] = 100 * (found[name] - base) / (found["tensor"] - base)
    print(f"{name:10s} {found[name]:6.2f}: leaves {left[name]:3.0f} % of what the outliers cost")
heights = [found["tensor"], found["alpha 0"], found["alpha 1"]]
ends = ["no smoothing", "smoothing with alpha = 0", "smoothing with alpha = 1"]
lab.reveal("end", ends[heights.index(max(heights))])

# %% tags=["demo", "fold"]
# look closely: move alpha, and watch where the size of the channels goes
attention = [model.get_submodule(name).weight.detach() for name in groups[norm]]
sizes = {}  # alpha -> largest magnitudes of X / s and of W s, each [K]
for alpha in ALPHAS:
    s = smoothing_scales(maxima[groups[norm][0]], attention, alpha)
    sizes[alpha] = maxima[groups[norm][0]] / s, torch.cat(attention).abs().amax(0) * s
everything = torch.cat([side for both in sizes.values() for side in both])
LIMITS = (everything.min().item() / 1.5, everything.max().item() * 3)  # the same for every alpha
middle = {k: [mean(c) for c in zip(*rows, strict=True)] for k, rows in curves.items()}


def draw(alpha: float):
    parts = []
    for name, side in zip(("activations", "weights"), sizes[alpha], strict=True):
        parts.append(f"{name} {side.max():.3g} ({side.max() / side.median():.1f} times the median)")
    text = f"alpha = {alpha:g}, largest channel: " + ", ".join(parts)
    text += f"; perplexity {middle['with outliers'][ALPHAS.index(alpha)]:.1f}"
    return channels.smoothing(*sizes[alpha], ALPHAS, middle, alpha, text, hot, LIMITS), text


explorer.explorer(draw, {"alpha": ALPHAS}, first={"alpha": ALPHA})

# %% tags=["demo"]
# what is left after smoothing: only W, or only X, goes through its grid (first placement)
print("perplexity      only W rounded  only X rounded    both")
for i, alpha in enumerate(ALPHAS):
    if alpha in (0.0, ALPHA, 1.0):
        smoothed = smooth(model, groups, maxima, alpha)
        sides = [perplexity(one_side(smoothed, side)) for side in ("weights", "activations")]
        print(f"alpha = {alpha:<8g}{sides[0]:14.2f}{sides[1]:16.2f}", end="")
        print(f"{curves['with outliers'][0][i]:8.2f}")
print(f"control, not smoothed: only X rounded {perplexity(one_side(control, 'activations')):.2f}")
# and which layers: those that a norm feeds, or o_proj and down_proj, which smoothing cannot reach
smoothed = smooth(model, groups, maxima, ALPHA)
for label, which in (("not smoothed", model), ("smoothed", smoothed), ("control", control)):
    parts = [perplexity(only(which, part)) for part in (fed, [n for n in names if n not in fed])]
    print(f"{label:13s} W8A8 where norms feed {parts[0]:6.2f}, elsewhere {parts[1]:6.2f}")

# %% [markdown]
# At $\alpha = 0$ nearly all of the error comes from $X$, at 1 nearly all from $W$. In the middle
# $X$ costs little more than in the control, and $W$ little more than before: both have room. At
# $\alpha = 0.5$ the perplexity is lowest on every placement, and so is the error of nearly every
# layer; we go on with it. (So does the paper, for OPT.)
#
# The smoothed layer still has some 50 times the error of the control's (the first figure of this
# section). In perplexity that is little: where norms feed the layers, W8A8 now costs a few tenths.
# More is lost in `o_proj` and `down_proj`, which no norm feeds, and there the control loses as
# much.
#
# How near the end at 1 comes to the model that is not smoothed is chance: one has its error in $W$,
# the other in $X$.
#
# **The simpler repairs.** *Left out*, the four channels do less harm than kept in W8A8, and most of
# what is lost is lost before anything is rounded: they carry signal. *Shifting* at least halves a
# channel that keeps to one side, as in OPT-66B. Ours change their sign from token to token, and in
# most layers the middle of their range is not far from 0 (the second figure of section 1; layer 0
# is the exception, one pair there keeps mostly to one side). If an outlier were a constant,
# shifting alone would repair it completely, and at no cost in $W$: that is why we use outliers that
# vary. *Clipping* is the strongest of the three, and takes three lines. Most tokens stay below half
# the top: a grid that ends earlier serves them all, and spoils a few. It still leaves several times
# what smoothing leaves, which spoils none.
#
# **One factor** for the four channels of every norm, here 8, does as well as the formula. So its
# details are not what matters here; what matters is that a good part of the size, not all of it,
# goes over to $W$. But the factor had to be searched (2 and 16 are clearly worse, see the chapter).
# The formula finds how much without a search, for each channel of each norm, and nobody has to tell
# it which channels are outliers.
#
# **The three levels of the paper.** From O1 to O3 the scale of the activations gets cheaper to
# find: per token as it comes, per tensor as it comes, or fixed by calibration. Beside them: the
# finer grids of LLM.int8 (scales per token and per row of $W$), with nothing else, smoothed, and
# with its split.
#
# O3 has never seen the text that it is measured on, and clips what is larger than in the
# calibration text. Is that a loss, after what clipping has shown?

# %% tags=["demo"]
# three placements, 12 perplexities: about 8 s
kinds = {"O1 (token)": "token", "O2 (tensor)": "tensor", "O3 (static)": "static"}
measured = {level: [] for level in (*kinds, "rows and tokens, smoothed")}
for which, own in zip(placements, calibrated, strict=True):
    smoothed = smooth(which, groups, own, ALPHA)
    after = channel_maxima(smoothed, names, batches)
    for level, kind in kinds.items():
        measured[level].append(perplexity(w8a8_model(smoothed, kind, after)))
    measured["rows and tokens, smoothed"].append(perplexity(swap(smoothed, splits)))
measured["rows and tokens"] = each["split at inf"]  # the last `splits` of section 2
measured["rows and tokens, split at 6"] = each["split at 6"]
found |= {level: mean(values) for level, values in measured.items()}
style.show(*repairs.levels(measured, found))
print("What O3 writes (third placement):")
print(zoo.sample(w8a8_model(smoothed, "static", after), PROMPT, tokens=48))

# %% [markdown]
# O3 loses next to nothing by the peaks that it clips: the largest value need not be the best end
# of a grid, also after smoothing. O1 to O3 differ less than any of them from the model that is
# not smoothed.
#
# ### Open task (not graded)
#
# **The best W8A8 perplexity with static scales**, one for each input and one for each weight, on
# the first placement: nothing is measured at run time. O3 is the start; 3 % above fp32 is the
# number to beat, and it can be done. Anything goes that keeps the function before rounding and sees
# training text only, but for one thing: merging the twin channels is a repair of our emulation and
# of no real model, so it does not count. Some ideas: shift first; another $\alpha$ for each norm;
# end the grids before the calibrated maximum; smooth what no norm feeds (`down_proj` reads a
# product with the outputs of `up_proj`, so an $s$ can be folded into the rows of `up_proj`;
# `o_proj` reads mixtures of what `v_proj` writes).


# %% tags=["demo"]
def my_model() -> nn.Module:
    """Yours. It starts as O3."""
    smoothed = smooth(model, groups, maxima, ALPHA)
    return w8a8_model(smoothed, "static", channel_maxima(smoothed, names, batches))


found["open"] = perplexity(my_model())
print(f"yours {found['open']:.3f} (first placement); the control's W8A8", end=" ")
print(f"{found['control tensor']:.3f}; to beat: {1.03 * found['fp']:.3f}")

# %% [markdown]
# ## 5. Misconceptions
#
# **"Simulated W8A8 tells nothing about the real kernel."** It tells all about its quality: integer
# sums are exact, so the kernel gives what your exercise 2 gives. Of speed it tells nothing: on a
# GPU integers have about twice the rate of fp16, and rounding x and rescaling y take their share.
#
# **"It is not even faster: not worth it."** Memory decides how many devices a model needs at all.
# With 530 billion parameters (the largest model of the paper) 2 bytes each are 1060 GB and need two
# nodes of eight 80 GB GPUs; 1 byte each fits into one node. The paper measures 232 ms for a prompt
# on sixteen GPUs in fp16, and 253 ms on eight in int8.
#
# **"Smoothing removes the difficulty."** It moves it: $\max|X_j| / s_j \times \max|W_{:j}|\, s_j$
# is the same for every $\alpha$. It pays because weights have room to spare.
#
# **"The whole network is smooth now."** Only what a norm feeds: q, k, v, gate and up. The inputs of
# `o_proj` and `down_proj` keep their outliers, and exercise 1 has shown you one.
#
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** A few columns of $X$ triple the perplexity of W8A8. What
# happens if they are left out? Why can they not have a scale of their own, where does their size
# go, and what does it cost there?
# *Rubric:* what leaving them out costs, and why, with your number (1); where a scale per channel of
# $X$ stands in the formula of the product, and what follows for integer hardware (1); where
# smoothing puts this scale, and what that costs at run time (1); what it costs in rounding: your
# perplexities before and after (1), and what is left, in $W$ or in $X$ (1).

# %% [markdown] written="w1"
# Left out, the columns take the signal with them that they carry: the perplexity is 15.8 before
# anything is rounded, where the whole model has 10.3. With a scale per channel, y_n = sum_j (s_j
# q_tj) (s_w q_nj): s_j changes with the index of the sum and cannot be taken out of it. Each
# product would have to be scaled in floating point before it is added, and the int8 unit could
# not be used. SmoothQuant divides X by a scale per channel before quantization: the factor goes
# into the weight, W_nj s_j, which is rounded once, offline, and the division into the gain of the
# norm. Nothing is left to do at run time. The size is not gone: the columns of W are now unequal,
# and one scale per tensor has to cover them. At alpha = 0.5 that is a good bargain: W8A8 per
# tensor goes from 28 to 11.1, where the control has 10.7 (my curve). Rounding only W costs hardly
# more than before smoothing; what X still costs is mostly what it costs the control. At alpha = 1
# rounding W alone gives more than 20: W has room for half of the difference, not for all of it.

# %% [markdown]
# **Question 2.** Explain both ends of your curve over $\alpha$: what goes wrong at 0, what at 1?
# Then the controls: what would the curve alone not prove? And why do clipping and shifting each
# remove what they remove, and leave the rest?
# *Rubric:* the end at 0, with the maxima of X and W (1); the end at 1, likewise (1); the model
# without outliers, and its number (1); clipping, what it removes and leaves, with your number (1);
# shifting, likewise, and the outliers for which it would be enough (1).

# %% [markdown] written="w2"
# With alpha = 0, s_j = 1 / max|W_:j|: the columns of the weights become equally large, while the
# activations keep their outliers (they are only multiplied by max|W_:j|, similar for all channels).
# The grid of X stays coarse, and the perplexity (38) is even higher than that of plain W8A8 (28).
# With alpha = 1, s_j = max|X_j|: all channels of X / s reach exactly 1, and the whole difference
# sits in the weights. The outlier columns of W s are many times larger than the others; one scale
# per tensor has to cover them, and the other columns are left with a few codes. The curve alone
# would not prove that outliers are the cause: smoothing could help or hurt any model. On the
# control the same sweep moves the perplexity by one or two percent only, so the U belongs to the
# outliers. Clipping makes the grid finer for all tokens that stay below its end, and most do, since
# the outliers vary; the largest values, which carry signal, are cut, so it cannot go on, and about
# 12 % of the damage is left (smoothing leaves about 2 %). Shifting takes the middle of each
# channel's range away: all of a channel that is constant, most of one that goes from -97 to -58,
# nothing of one that goes from -50 to 50. My outliers change their sign, so it leaves about four
# fifths.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Shift, then smooth.** Write the shift yourself: an $s$ of 1, a bias in every norm and in what
#   reads it. Try it on `zoo.with_offset(control, 2, 75.0)`, which adds a *constant* to two
#   channels: there it repairs everything, and nothing is left to smooth. On ours, shift one norm
#   at a time: which one gains? Then smooth after shifting.
# - **A scale per row of W.** Give `w8a8_linear` a scale per output channel and draw the curve
#   again. Which side of the U disappears, and why not the other?
# - **Alpha per layer.** Let `sweep` choose it for each norm. Is the model better than with one?
#
# **Next:** lab 3 uses the same folding for another purpose: at 3 and 4 bits it is the *weights* of
# the large channels that must be protected.
#
# **Sources.** Dettmers et al., *LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale*,
# 2022 (outliers, the split). Xiao et al., *SmoothQuant: Accurate and Efficient Post-Training
# Quantization for Large Language Models*, 2023 (smoothing; tables 1 to 3 hold the accuracies quoted
# above and O1 to O3, section 5 the 530B model). Wei et al., *Outlier Suppression+: Accurate
# Quantization of Large Language Models by Equivalent and Effective Shifting and Scaling*, 2023
# (shifting). Jacob et al., *Quantization and Training of Neural Networks for Efficient
# Integer-Arithmetic-Only Inference*, 2018 (integer products).
#
# ## On a model of your own (optional, not graded)
#
# Does it hold on a model that you know? The last cell before the report runs your functions on
# one: `lab.use("FOLDER")` takes a folder as the Hub has it, with config.json, safetensors and
# tokenizer.json, and `lab.use("owner/name")` asks the Hub; both want transformers installed. As it
# stands it is the course's model as it was trained, in such files, and nothing is downloaded. (A
# Gemma multiplies by 1 + w: there your `smooth` changes the function, and the cell shows it.)
# `EFFLIB_DEVICE=cuda` in the environment puts it on a GPU. About 5 s.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
own = lab.use()  # yours: lab.use("FOLDER") or lab.use("owner/name")
own_loss, own_names = own.loss(), list(own.linears)
own_groups = {g.name: list(g.linears) for g in norm_groups(own.model)}
own_maxima = channel_maxima(own.model, own_names, [ids[None] for ids in own.calibration])
wide = sum(len(outlier_channels(x_max, 10)) > 0 for x_max in own_maxima.values())
print(f"{wide} of {len(own_names)} linears read a channel of 10 times the median")
smoothed = smooth(own.model, own_groups, own_maxima, ALPHA)
print(f"smoothing alone moves the loss by {own.loss(smoothed) - own_loss:+.5f}")
one_scale = functools.partial(w8a8_linear, activations="tensor")
for way, changed in {"as it is": own.model, "smoothed": smoothed}.items():
    w8a8 = swap(changed, dict.fromkeys(own_names, one_scale))
    print(f"W8A8 per tensor, {way}: {own.loss(w8a8) - own_loss:+.3f} nats a token")

# %% tags=["demo"]
lab.report()
f = found
takeaways = [
    f"Four outlier channels leave the median channel {f['codes']} of 255 codes.",
    f"W8A8 per tensor: {f['fp']:.1f} becomes {f['tensor']:.1f}; control {f['control tensor']:.1f}.",
    f"A scale per token repairs {f['repaired']:.0f} % of what the outliers cost.",
    f"LLM.int8 {f['split at 6']:.2f}, {f['share 6']:.0f} % in floats; at 20 {f['share 20']:.0f} %.",
    f"Alpha 0, {ALPHA:g}, 1: {f['alpha 0']:.1f}, {f['smoothed']:.1f}, {f['alpha 1']:.1f}.",
    f"Without outliers alpha moves the perplexity by {f['flat']:.1f} %.",
    "What each leaves of the damage: " + ", ".join(f"{k} {v:.0f} %" for k, v in left.items()) + ".",
    f"O1 {f['O1 (token)']:.2f}, O2 {f['O2 (tensor)']:.2f}, O3 {f['O3 (static)']:.2f}.",
    f"Open task: static scales, {f['open']:.3f} ({f['open'] / f['fp'] - 1:.1%} above fp32).",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
