# %% [markdown]
# # Lab 2: Outliers and SmoothQuant
#
# **The question.** Lab 1 rounded weights to 8 bits and nothing happened. Round the *activations*
# of a large language model to the same 8 bits, and it is ruined: OPT-175B falls from 71.6 % to
# 32.3 % average accuracy. A few channels are to blame. **You may not leave them out, and you may
# not give them a scale of their own. Where can their size go?**
#
# At the end you answer it with a curve that your own code has drawn.

# %% [markdown]
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
# 3. choose the migration strength by measuring, with a control experiment.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones. Answer predictions in
# their field; where no field is shown, by `lab.answer("levels", 50)`.

# %% [markdown]
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
# All grids of this lab are symmetric with 8 bits: 255 codes from -127 to 127, the step is
# $\max|x| / 127$, and there is no zero point. No function of this lab changes its arguments: work
# on new tensors.

# %%
import copy
import math
import time

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.models.groups import norm_groups
from efflib.plots import channels, explorer, grid, style
from efflib.zoo import corpus

lab = Lab("lab02_smoothquant")

QMAX = 127  # the largest code
FLOOR = 1e-5  # exercise 4: a channel maximum counts as at least this

# %% [markdown]
# ## Baseline
#
# Outliers appear in models from about 6.7 billion parameters on; ours has a few million. So we
# emulate them: `zoo.with_offset` adds a constant to a few channels of every norm's output, and
# takes what the next linear layers make of it off their biases. The function stays the same, and
# the activations look like those of OPT-6.7B: a few channels that are large in *every* token. The
# model without them is our **control**.
#
# The measure is the perplexity on held-out code, as in lab 1. What is to be gained is size (1 byte
# for a weight in place of 2) and products of integers.

# %% tags=["demo"]
from efflib.zoo.phenomena.smoothquant import CHANNELS, OFFSET

control = zoo.load("target")
model = zoo.with_offset(control, CHANNELS, OFFSET)
groups = {group.name: list(group.linears) for group in norm_groups(model)}
names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
found = {}  # the numbers you find, for the takeaways at the end


def perplexity(model: nn.Module) -> float:
    return zoo.perplexity(model, split="code", tokens=2048, context=128, stride=128)


def megabytes(model: nn.Module, int8: bool) -> float:
    """2 bytes a parameter; with int8, 1 byte for each weight of a linear layer."""
    total = sum(2 * p.numel() for p in model.parameters())
    return (total - int8 * sum(model.get_submodule(n).weight.numel() for n in names)) / 1e6


found["fp"] = perplexity(model)
print(
    f"{CHANNELS} of {model.config.hidden_size} channels of every norm get {OFFSET:g} added: ",
    end="",
)
print(f"perplexity {found['fp']:.3f}; {perplexity(control):.3f} without: the same function")
small, large = megabytes(model, True), megabytes(model, False)
print(f"{large:.2f} MB in fp16; {small:.2f} MB with int8 weights, {small / large:.0%} of it")
print(f"{len(names)} linear layers, {len(groups)} norms; the first one feeds")
print("  " + ", ".join(groups["model.layers.0.input_layernorm"]))

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
# Why does one large channel matter? Because the grid is shared:

# %%
# the formula on four numbers: s = max|x| / 127, codes round(x / s)
for x in (torch.tensor([0.3, -0.9, 1.2, 1.0]), torch.tensor([0.3, -0.9, 1.2, 100.0])):
    step = x.abs().max() / QMAX
    four = torch.round(x / step)
    print("x", ", ".join(f"{v:g}" for v in x.tolist()), end="")
    print(f": step {step:.4f}, codes {four.int().tolist()}")
    assert ((four * step - x).abs() <= step / 2 * 1.0001).all()

lab.predict(
    "levels",
    "One step covers the whole input of a layer. In the third attention layer the largest channel "
    "reaches about 77, the median channel m = 2. A channel that reaches m can have the codes from "
    "-round(m / step) to round(m / step). How many of the 255 codes are that for the median one?",
    unit="codes",
)

# %% [markdown]
# ### Exercise 1 · Find the outlier channels
#
# **30 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
#
# **Deliver** `channel_maxima(model, names, batches) -> {name: x_max}` and
# `outlier_channels(x_max, ratio) -> channels`.
#
# - `channel_maxima` runs `model(batch)` once for each batch, without gradients, and returns for
#   each of the named layers $\max|X_j|$ of its inputs over all tokens, batches and calls. (A layer
#   may run more than once in one forward pass.)
# - Its hooks are gone when it returns, also if the model raises. All else about the model (other
#   hooks, train or eval mode) stays as it was, and gradients are on again if they were before.
# - `outlier_channels`: the channels whose maximum is at least `ratio` times the median channel
#   (`torch.median`). A channel that is always 0 is none.
#
# **Shapes** `batches`: a list of model inputs. Inputs of layers: [..., K], float32 or bfloat16.
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
# **Idea.** One hook per layer, all of them writing into one dictionary. The hook reduces what it
# sees at once to [K], so that no activations pile up.
#
# **Pseudocode**
# ```
# for each name:  register a pre-hook on model.get_submodule(name):
#                     now = |args[0]| in float32, all dimensions but the last flattened,
#                           max over them
#                     maxima[name] = elementwise maximum of now and what is there already
# try:     run every batch under torch.no_grad()
# finally: remove all hooks
# ```
# **The usual error.** A closure in a loop sees the *last* value of the loop variable: every hook
# writes to the same name. Bind it by a default argument, `def remember(module, args, name=name)`.
# </details>

# %% [markdown]
# ### Exercise 2 · A W8A8 linear layer
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
#
# Weights *and* activations in 8 bits (W8A8), so that the product is one of integers:
#
# $$ Y = X W^T + b \;\approx\; s_x\, s_w\, (Q_x Q_w^T) + b $$
#
# **Deliver** `int8_codes(x, x_max) -> (codes, scale)`, the grid that ends at $\pm$`x_max`, and
# `w8a8_linear(x, w, bias, activations, x_max=None) -> y`. Who shares the scale of the activations?
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


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** The three kinds differ in one line: which `x_max` goes into `int8_codes`. Scales that do
# not depend on the channel stand in front of the sum over channels.
#
# **Pseudocode**
# ```
# int8_codes:   s = x_max as float32 / 127, but 1 where that is 0
#               codes = clamp(round(x as float32 / s), -127, 127) as int8
# w8a8_linear:  x_max = max|x| along the last dim (keepdim) | max|x| | the argument
#               q_x, s_x = int8_codes(x, x_max);   q_w, s_w = int8_codes(w, max|w|)
#               y = (q_x as float) @ (q_w as float).T * (s_x * s_w) + bias
# ```
# **The usual error.** `q_x @ q_w.T` on int8 tensors adds up in int8, and 127 * 127 does not fit.
# In float32 the sums are exact up to 1040 channels; a kernel adds up in int32. And `"static"` must
# use the calibrated maximum even if the input is smaller, or larger.
# </details>


# %% [markdown]
# **Reveal.** Your functions on calibration text, that is, on training text: what we measure on must
# not be seen here.
#
# **Then write one sentence:** the outlier channels choose the step. What does that leave to all
# other channels, and what do the outliers themselves gain by it?
#
# *Your sentence:*
# %% tags=["demo"]
def training_code(pieces: int, length: int) -> Tensor:
    """Ids [pieces, length] of training code, each from another document, `<s>` first."""
    texts = [t for t in corpus.documents("code", held_out=False).values() if len(t) > 4000]
    chosen = texts[:: len(texts) // pieces][:pieces]
    ids = [zoo.load_tokenizer().encode(text[1000:3000]).ids[: length - 1] for text in chosen]
    return torch.tensor([[zoo.BEGIN_ID, *row] for row in ids])


batches = list(training_code(8, 128).split(4))
maxima = channel_maxima(model, names, batches)
control_maxima = channel_maxima(control, names, batches)
layer = "model.layers.2.self_attn.q_proj"
outliers = outlier_channels(maxima[layer], ratio=6)
largest, median = maxima[layer].max().item(), maxima[layer].median().item()
reach = round(median / (largest / QMAX))
found["levels"] = 2 * reach + 1
style.show(
    channels.magnitudes(
        {"with outliers": maxima[layer], "control": control_maxima[layer]},
        f"{len(outliers)} of {len(maxima[layer])} channels are outliers; the median channel is "
        f"left with {found['levels']} of 255 codes",
        "max |X_j|",
        marked=outliers.tolist(),
    ),
    alt=f"Channel maxima on a log scale, a bar per channel. With outliers: largest {largest:.1f}, "
    f"median {median:.2f}. Control: largest {control_maxima[layer].max():.1f}, median "
    f"{control_maxima[layer].median():.2f}.",
)
print(f"largest {largest:.1f}, median {median:.2f}: the median channel has the codes ", end="")
print(f"-{reach} to {reach}")
everywhere = {tuple(outlier_channels(maxima[n], 6).tolist()) for g in groups.values() for n in g}
print(f"channels {outliers.tolist()}; the same in all {len(groups)} norms: {len(everywhere) == 1}")
others = [n for n in names if n not in sum(groups.values(), [])]
widest = max(others, key=lambda n: (control_maxima[n].max() / control_maxima[n].median()).item())
print(f"and one that the model has by itself: {widest}, channel {control_maxima[widest].argmax()},")
print(f"  {control_maxima[widest].max() / control_maxima[widest].median():.0f} times the median")
lab.reveal("levels", found["levels"])
lab.predict(
    "token",
    "Now the whole model goes to W8A8, with a scale per tensor. That ruins it. A scale per token "
    "is finer: each token has its own. Of the perplexity that the outliers cost (what the model "
    "loses beyond the control's loss), it repairs",
    options=["less than a quarter", "about half", "more than three quarters"],
)


# %% tags=["demo"]
class Swapped(nn.Module):
    """A linear layer that computes with a function of yours."""

    def __init__(self, linear: nn.Linear, function) -> None:
        super().__init__()
        self.weight, self.bias, self.function = linear.weight, linear.bias, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


def swap(model: nn.Module, make) -> nn.Module:
    """A copy of the model in which layer `name` computes make(name)(x, weight, bias)."""
    swapped = copy.deepcopy(model)
    for name in names:
        parent, _, last = name.rpartition(".")
        layer = Swapped(swapped.get_submodule(name), make(name))
        setattr(swapped.get_submodule(parent), last, layer)
    return swapped


def w8a8_model(model: nn.Module, activations: str, maxima: dict | None = None) -> nn.Module:
    """The model with your exercise 2 in every linear layer but lm_head."""

    def make(name: str):
        x_max = None if maxima is None else maxima[name].max()
        return lambda x, w, bias: w8a8_linear(x, w, bias, activations, x_max)

    return swap(model, make)


def inputs_of(model: nn.Module, name: str) -> Tensor:
    """The inputs [tokens, K] of a layer on the calibration text."""
    seen = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    with torch.no_grad():
        for batch in batches:
            model(batch)
    hook.remove()
    return torch.cat(seen).flatten(0, -2)


cost = {}  # what the outliers cost: the loss of the model beyond that of the control
for kind in ("tensor", "token"):
    found[kind] = perplexity(w8a8_model(model, kind))
    found[f"control {kind}"] = perplexity(w8a8_model(control, kind))
    cost[kind] = found[kind] - found[f"control {kind}"]
found["repaired"] = 100 * (1 - cost["token"] / cost["tensor"])
bars = {
    "fp32": found["fp"],
    "W8A8 tensor": found["tensor"],
    "W8A8 token": found["token"],
    "control, tensor": found["control tensor"],
    "control, token": found["control token"],
}
style.show(
    grid.bars(
        bars,
        f"Outliers cost {cost['tensor']:.2f} per tensor, {cost['token']:.2f} per token: "
        f"{found['repaired']:.0f} % repaired",
        "perplexity",
    ),
    alt="Bars of perplexity: " + ", ".join(f"{name} {value:.1f}" for name, value in bars.items()),
)
sizes = inputs_of(model, layer).abs()[:, outliers]  # [tokens, outlier channels]
print(f"the outlier channels of {layer}, over all tokens: {sizes.min():.1f} to {sizes.max():.1f}")
part = found["repaired"]
lab.reveal(
    "token",
    "less than a quarter"
    if part < 25
    else "more than three quarters"
    if part > 75
    else "about half",
)


# %% tags=["demo"]
# which side is to blame? Only W, or only X, goes through its grid (one scale per tensor)
def one_side(model: nn.Module, side: str) -> nn.Module:
    """The model with only the "weights" or only the "activations" rounded."""

    def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        exact = w if side == "weights" else x
        codes, scale = int8_codes(exact, exact.abs().amax())
        rounded = codes.float() * scale
        x, w = (x, rounded) if side == "weights" else (rounded, w)
        return nn.functional.linear(x, w, bias)

    return swap(model, lambda name: linear)


for label, which in (("with outliers", model), ("control", control)):
    sides = [perplexity(one_side(which, side)) for side in ("weights", "activations")]
    both = found["tensor" if which is model else "control tensor"]
    print(f"{label:14s} only W rounded {sides[0]:6.2f}, only X {sides[1]:6.2f}, both {both:6.2f}")
columns = model.get_submodule(layer).weight.detach().abs().amax(dim=0)
print(
    f"{layer}: the largest column of W is {columns.max() / columns.median():.1f} times the ", end=""
)
print(f"median one, the largest channel of X {largest / median:.0f} times")

# %% [markdown]
# The large channels are large in every token, so a scale per token is about as coarse as one per
# tensor. A scale $c_j$ per *channel* of $X$ would be right, but it would stand inside the sum:
# $\sum_j c_j\, q_{tj}\, q_{nj}$ is no product of integers.
#
# The columns of $W$ are of similar size, and without outliers rounding $W$ costs nothing, as in
# lab 1. With outliers it costs something, because whatever error an outlier column of $W$ gets is
# multiplied by a large constant. We shall meet this error again. The larger part comes from $X$,
# and there are two ways out.
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
split = (split_codes * w_codes[:3]).sum() * 0.01 * 0.01 + x[3] * w_row[3]
whole = (torch.round(x / (60 / 127)) * w_codes).sum() * (60 / 127) * 0.01
print(f"exact {x @ w_row:.4f}, split {split:.4f}, without the split {whole:.4f}")

# %% [markdown]
# ### Exercise 3 · The split of LLM.int8()
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
#
# **Deliver** `outlier_columns(x, threshold) -> mask` and
# `llm_int8_linear(x, w, bias, threshold) -> y`.
#
# - A channel is an outlier column if $|x| \ge$ `threshold` in at least one token of the input.
# - Outlier columns: x and w as they are, in float32.
# - All others: codes of exercise 2. The scale of a token comes from its columns *that are left*. A
#   row of W is rounded when the model is loaded, when no x is known yet: its scale comes from the
#   whole row.
# - It has to work with no outlier column, and with nothing else.
#
# **Shapes** `x` [..., K], `w` [N, K] and `bias` [N] or None: float32 or bfloat16; `mask` [K] bool;
# `y` [..., N], float32.


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
# smaller matrices, only an x with the outlier columns set to 0.
#
# **Pseudocode**
# ```
# O = (|x| >= threshold), any over all dimensions but the last
# q_w, s_w = int8_codes(w, max|w| of each row)                  # s_w [N, 1]
# rest = x with the columns O set to 0 (a new tensor)
# q_x, s_x = int8_codes(rest, max|rest| of each token)          # s_x [..., 1]
# y = (q_x as float) @ (q_w as float).T * (s_x * s_w.T)
#     + x[..., O] @ w[:, O].T  +  bias                          # x, w and bias as float32
# ```
# **The usual error.** The scales are taken from x before the split: the outliers are multiplied
# exactly, and everything else still pays for them.
# </details>

# %% tags=["demo"]
# reveal: your split in the whole model, and how much of it is not int8
kept = {name: [0, 0] for name in names}  # columns in floating point, columns in all


def split_layer(name: str):
    def linear(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        kept[name][0] += int(outlier_columns(x, 6.0).sum())
        kept[name][1] += x.shape[-1]
        return llm_int8_linear(x, w, bias, threshold=6.0)

    return linear


found["split"] = perplexity(swap(model, split_layer))
# an infinite threshold splits nothing off: the grids of LLM.int8 alone
found["no split"] = perplexity(swap(model, lambda name: lambda *a: llm_int8_linear(*a, math.inf)))
found["share"] = 100 * sum(k for k, _ in kept.values()) / sum(n for _, n in kept.values())
print(f"scales per token and per row of W: perplexity {found['no split']:.2f} without the split, ")
print(f"  {found['split']:.2f} with it (fp32 {found['fp']:.2f}); ", end="")
print(f"{found['share']:.1f} % of all columns are in floating point:")
for kind in ("q_proj", "o_proj", "gate_proj", "down_proj"):
    shares = [k / n for name, (k, n) in kept.items() if name.endswith(kind)]
    print(f"  {kind:10s}" + "".join(f"{part:8.1%}" for part in shares) + "   block by block")

# %% [markdown]
# The split is nearly lossless and needs no calibration. But it sorts columns at every step, and
# reads and multiplies two kinds of matrices: at run time it is often slower than fp16. (In real
# models about 0.1 % of the channels are outliers. Our narrow model has more: the outputs of norms
# hold hardly any but the emulated ones, but the inputs of `o_proj` in the later blocks and of
# `down_proj` hold many values above 6, with or without the emulation.)
#
# ## 3. Move them into the weights
#
# SmoothQuant (Xiao et al., 2023) does the work before run time. For any $s_j > 0$
#
# $$ Y = X W^T = \big(X\,\mathrm{diag}(s)^{-1}\big)\,\big(W\,\mathrm{diag}(s)\big)^T
# \qquad\qquad
# s_j = \frac{\max|X_j|^{\alpha}}{\max|W_{:j}|^{1-\alpha}} $$
#
# Divide what is large by $s_j$, multiply what is small: the product stays. The division costs
# nothing, because X comes out of a norm with a gain for every channel, so $s$ can be folded into
# it. $\alpha$ says how much of the difficulty moves from the activations to the weights:
#
# - $\alpha = 1$: $s_j = \max|X_j|$. All channels of $X / s$ reach 1, and $W s$ takes all of the
#   difference.
# - $\alpha = 0$: $s_j = 1 / \max|W_{:j}|$. All columns of $W s$ reach 1, and $X / s$ takes their
#   difference on top of its own. (This is not "no smoothing", which is $s_j = 1$.)
#
# The example of the lecture with $\alpha = 0.5$, where $s = (1, 4, 1, 3)$:

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
    "The outlier model with W8A8, all scales per tensor. Which of these three leaves the highest "
    "perplexity?",
    options=["no smoothing", "smoothing with alpha = 0", "smoothing with alpha = 1"],
)

# %% [markdown]
# ### Exercise 4 · Smoothing scales
#
# **10 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
#
# **Deliver** `smoothing_scales(x_max, weights, alpha) -> s`.
#
# - `weights` are all linear layers that read this input: q, k and v share one, gate and up another.
#   $\max|W_{:j}|$ is taken over all rows of all of them, since X can be divided only once.
# - $\max|X_j|$ and $\max|W_{:j}|$ count as at least `FLOOR` each, before the powers: a channel that
#   calibration never saw must not get $s = 0$.
# - `ValueError` unless $0 \le \alpha \le 1$.
#
# **Shapes** `x_max` [K] and `weights`, a list of [N_i, K], float32 or bfloat16, not changed; `s`
# [K], float32, > 0. Compute in float32: powers in bfloat16 have 8 significant bits.


# %% solution="ex4"
def smoothing_scales(x_max: Tensor, weights: list[Tensor], alpha: float) -> Tensor:
    """s_j = max|X_j|^alpha / max|W_:j|^(1 - alpha) over all weights that read X. [K] float32 > 0.

    Both maxima are at least FLOOR.  Raises ValueError unless 0 <= alpha <= 1.
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
# **Idea.** A column of W belongs to a channel of X. Put all weights below one another, and take
# the maximum over the rows.
#
# **Pseudocode**
# ```
# raise ValueError unless 0 <= alpha <= 1
# x_max, weights = all as float32
# w_max = max|.| over the rows of torch.cat(weights)            # [K]
# s = clamp(x_max, min=FLOOR)^alpha / clamp(w_max, min=FLOOR)^(1 - alpha)
# ```
# **The usual error.** `amax(dim=1)`: the maximum of each *row*. For a square weight nothing
# complains, and the scales belong to output channels.
# </details>

# %% [markdown]
# ### Exercise 5 · Fold the scales into the model
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
#
# A norm computes $\mathrm{norm}(h) = g \odot \hat h + c$, with a gain $g$ and perhaps a bias $c$.
# Its output divided by $s$ is the norm with $g / s$ and $c / s$.
#
# **Deliver** `smooth(model, groups, maxima, alpha) -> smoothed`: a copy of the model with the same
# function, whose norms give $X / s$.
#
# - `groups`: {name of a norm: names of all linear layers that read it}. For each group compute one
#   $s$ (exercise 4), divide the norm's `weight` and its `bias`, if it has one, and multiply the
#   columns of the weights. Biases of linear layers stay: they are added after the product.
# - `maxima`: {name of a linear layer: [K]}, from exercise 1. The layers of a group have the same
#   input and the same maxima.
# - `model` does not change. Nor do layers that are in no group.
#
# A norm without a bias has no attribute `bias`, or has `bias = None`. Parameters keep their dtype
# and stay parameters; float32 inside is accurate enough. The copy is as trainable as the model
# (what was frozen stays frozen), and its modules are in the same mode.


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
#
# **Pseudocode**
# ```
# smoothed = copy.deepcopy(model)
# for each norm and its linears (get_submodule on the copy):
#     s = smoothing_scales(maxima of one of them, all their weights, alpha)     # [K]
#     norm.weight /= s;   norm.bias /= s if there is one
#     every linear.weight *= s                                # [N, K] * [K]: column j times s_j
# ```
# **The usual error.** One scale for q, another for k: but they read the same X. Or only the gain is
# divided. Then a norm with a bias gives something else, and our outliers, which *are* the bias,
# stay where they were.
# </details>

# %% tags=["demo"]
# reveal: the same function, other channels
smoothed = smooth(model, groups, maxima, alpha=0.5)
after = channel_maxima(smoothed, names, batches)
ids = batches[0][:1]
with torch.no_grad():
    gap = (smoothed(ids) - model(ids)).abs().max().item()
print(f"largest difference of the logits after smoothing: {gap:.2g}")
spread = [(m[layer].max() / m[layer].median()).item() for m in (maxima, after)]
style.show(
    channels.magnitudes(
        {"before": maxima[layer], "after, alpha = 0.5": after[layer]},
        f"The largest channel was {spread[0]:.0f} times the median, now {spread[1]:.1f} times",
        "max |X_j|",
        marked=outliers.tolist(),
    ),
    alt=f"Channel maxima on a log scale. Before smoothing the largest is {spread[0]:.0f} times the "
    f"median, after smoothing {spread[1]:.1f} times.",
)

# %% [markdown]
# ### Exercise 6 · Sweep the migration strength
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
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
# of floats in the order of `alphas`. Compute in float32 here, too.


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
# **Idea.** The exact outputs do not depend on alpha: compute them once.
#
# **Pseudocode**
# ```
# x, weights = all as float32
# x_max = max|x| over all dimensions but the last
# for alpha in alphas:
#     s = smoothing_scales(x_max, weights, alpha)
#     error = sum over weights of |w8a8_linear(x / s, w * s, None, activations) - x w.T|^2
#     append error / sum over weights of |x w.T|^2, as a float
# ```
# **The usual error.** `x = x / s` inside the loop: the next alpha starts from what the last one
# left.
# </details>

# %% [markdown]
# ## 4. Your code in the live model
#
# First one layer, with your exercise 6; then the whole model in perplexity, with exercises 2, 4
# and 5. The control is the same sweep on the model without outliers: if $\alpha$ mattered as much
# there, the curve would tell us nothing about outliers. (A little it may: the control's channels
# are not equally large either.)
#
# In the first figure compare shapes, not heights: errors are relative to the outputs $X W^T$, and
# the constants make those larger, until the bias takes them off again. The cell prints by how much.

# %% tags=["demo"]
ALPHAS = [0.0, 0.25, 0.5, 0.75, 1.0]
norm = "model.layers.2.input_layernorm"
one_layer, size = {}, {}
for label, which in (("with outliers", model), ("control", control)):
    weights = [which.get_submodule(name).weight.detach() for name in groups[norm]]
    x = inputs_of(which, groups[norm][0])
    one_layer[label] = sweep(x, weights, ALPHAS, "tensor")
    size[label] = sum((x @ w.T).square().sum().item() for w in weights)
    print(f"{label:15s}" + "  ".join(f"{e:.2e}" for e in one_layer[label]))
times = {label: max(errors) / min(errors) for label, errors in one_layer.items()}
style.show(
    channels.sweep(
        ALPHAS,
        one_layer,
        f"q, k and v of layer 2: with outliers alpha changes the error up to "
        f"{times['with outliers']:.0f} times, in the control {times['control']:.2f} times",
        "relative squared error",
    ),
    alt="Relative squared output error of one attention layer against alpha. "
    + "; ".join(f"{k}: " + ", ".join(f"{e:.1e}" for e in v) for k, v in one_layer.items()),
)
ratio = size["with outliers"] / size["control"]
print(f"squared outputs with outliers, as a multiple of the control's: {ratio:.0f}")
least = []  # the alpha of the least error, for each norm
for readers in groups.values():
    weights = [model.get_submodule(name).weight.detach() for name in readers]
    errors = sweep(inputs_of(model, readers[0]), weights, ALPHAS, "tensor")
    least.append(ALPHAS[errors.index(min(errors))])
print("least error: " + ", ".join(f"alpha = {a:g} in {least.count(a)} norms" for a in set(least)))

# %% tags=["demo"]
curve = {"with outliers": [], "control": []}
for alpha in ALPHAS:
    quantized = w8a8_model(smooth(model, groups, maxima, alpha), "tensor")
    curve["with outliers"].append(perplexity(quantized))
    print(f"alpha {alpha:4.2f}, with outliers: perplexity {curve['with outliers'][-1]:.2f}")

# %% tags=["demo"]
for alpha in ALPHAS:
    quantized = w8a8_model(smooth(control, groups, control_maxima, alpha), "tensor")
    curve["control"].append(perplexity(quantized))
    print(f"alpha {alpha:4.2f}, control: perplexity {curve['control'][-1]:.2f}")
ALPHA = 0.5  # where the errors of the layers are least; used from here on
found["smooth"] = curve["with outliers"][ALPHAS.index(ALPHA)]
found["ends"] = (curve["with outliers"][0], curve["with outliers"][-1])
found["valley"] = (min(curve["with outliers"][1:-1]), max(curve["with outliers"][1:-1]))
found["flat"] = 100 * (max(curve["control"]) / min(curve["control"]) - 1)
style.show(
    channels.sweep(
        ALPHAS,
        curve,
        f"A valley from 0.25 to 0.75 ({found['valley'][0]:.1f} to {found['valley'][1]:.1f}), ends "
        f"at {found['ends'][0]:.1f} and {found['ends'][1]:.1f}; without outliers alpha moves "
        f"perplexity by {found['flat']:.1f} %",
        reference=found["fp"],
        at=ALPHA,
    ),
    alt="Perplexity against alpha. With outliers: "
    + ", ".join(f"{p:.1f}" for p in curve["with outliers"])
    + ". Control: "
    + ", ".join(f"{p:.1f}" for p in curve["control"]),
)
three = {"no smoothing": found["tensor"]}
three |= {f"smoothing with alpha = {i}": end for i, end in enumerate(found["ends"])}
print(", ".join(f"{name}: {value:.2f}" for name, value in three.items()))
lab.reveal("end", max(three, key=three.get))


# %% tags=["demo"]
# look closely: move alpha, and watch where the size of the channels goes
attention = [model.get_submodule(name).weight.detach() for name in groups[norm]]
sizes = {}  # alpha -> largest magnitudes of X / s and of W s, each [K]
for alpha in ALPHAS:
    s = smoothing_scales(maxima[groups[norm][0]], attention, alpha)
    sizes[alpha] = maxima[groups[norm][0]] / s, torch.cat(attention).abs().amax(0) * s
everything = torch.cat([side for both in sizes.values() for side in both])
LIMITS = (everything.min().item() / 1.5, everything.max().item() * 2)  # the same for every alpha


def draw(alpha: float):
    parts = []
    for name, side in zip(("activations", "weights"), sizes[alpha], strict=True):
        parts.append(f"{name} {side.max():.3g} ({side.max() / side.median():.1f} times the median)")
    text = f"alpha = {alpha:g}, largest channel: " + ", ".join(parts)
    text += f"; perplexity {curve['with outliers'][ALPHAS.index(alpha)]:.1f}"
    marked = outliers.tolist()
    return channels.smoothing(*sizes[alpha], ALPHAS, curve, alpha, text, marked, LIMITS), text


explorer.explorer(draw, {"alpha": ALPHAS})

# %% tags=["demo"]
# what is left after smoothing: only W, or only X, goes through its grid
print("perplexity      only W rounded  only X rounded    both")
for alpha in (0.0, ALPHA, 1.0):
    smoothed = smooth(model, groups, maxima, alpha)
    sides = [perplexity(one_side(smoothed, side)) for side in ("weights", "activations")]
    both = curve["with outliers"][ALPHAS.index(alpha)]
    print(f"alpha = {alpha:<8g}{sides[0]:14.2f}{sides[1]:16.2f}{both:8.2f}")
    if alpha == ALPHA:
        found["only W"], found["only X"] = sides
control_x = perplexity(one_side(control, "activations"))
beyond = [value - found["fp"] for value in (found["only W"], found["only X"], control_x)]
print(f"beyond fp32, at alpha = {ALPHA:g}: {beyond[0]:.2f} from W alone; ", end="")
print(f"{beyond[1]:.2f} from X alone, {beyond[2]:.2f} from X alone in the control")

# %% [markdown]
# At $\alpha = 0$ most of the error comes from $X$, at 1 from $W$. In the valley $X$ costs about as
# much as in the control, so **most of what is left is weight error**: each $\alpha$ rounds the
# outlier columns of $W$ anew, and a large constant multiplies whatever error that leaves. It is a
# shift of the outputs, the same in every token, and how much it hurts depends on its direction.
# With a few columns that is chance: so the order *within* the valley is no law, and another text
# or a slightly different $\alpha$ may give another. The squared errors of the layers add up over
# all outputs and show a clearer least; we go on with that $\alpha$. (So does the paper, for OPT.)
#
# **The three levels of the paper.** From O1 to O3 the scale of the activations gets cheaper to
# find: per token as it comes, per tensor as it comes, or fixed by calibration. Beside them: the
# finer grids of LLM.int8 (scales per token and per row of $W$), with nothing else, smoothed, and
# with its split.

# %% tags=["demo"]
smoothed = smooth(model, groups, maxima, ALPHA)
after = channel_maxima(smoothed, names, batches)
found["levels of the paper"] = {
    "O1 (token)": perplexity(w8a8_model(smoothed, "token")),
    "O2 (tensor)": perplexity(w8a8_model(smoothed, "tensor")),
    "O3 (static)": perplexity(w8a8_model(smoothed, "static", after)),
}
found["smooth, rows"] = perplexity(
    swap(smoothed, lambda n: lambda *a: llm_int8_linear(*a, math.inf))
)
bars = {"fp32": found["fp"], "control\nW8A8": found["control tensor"], "W8A8": found["tensor"]}
bars |= {f"smoothed\n{name}": value for name, value in found["levels of the paper"].items()}
bars |= {"rows and\ntokens": found["no split"], "rows, tokens\nsmoothed": found["smooth, rows"]}
bars |= {"rows, tokens\nsplit": found["split"]}
style.show(
    grid.bars(
        bars,
        f"Scales per tensor: smoothing brings {found['tensor']:.1f} to {found['smooth']:.1f}, "
        f"the control has {found['control tensor']:.1f}. Per row and token: from "
        f"{found['no split']:.1f}, smoothing to {found['smooth, rows']:.1f}, the split to "
        f"{found['split']:.1f}",
        "perplexity",
    ),
    alt="Bars of perplexity: "
    + ", ".join(f"{name} {value:.1f}".replace("\n", " ") for name, value in bars.items()),
)

# %% [markdown]
# ## 5. Misconceptions
#
# **"Simulated W8A8 tells nothing about the real kernel."** It tells all about its quality: integer
# sums are exact, so the kernel gives what your exercise 2 gives. Speed is another matter. Here the
# integer product alone, and with what belongs to it (rounding x, rescaling y); the numbers are
# those of this CPU and of float32:


# %% tags=["demo"]
def milliseconds(function) -> float:
    """The fastest of 10 runs."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


w_codes, w_scale = int8_codes(torch.randn(1024, 1024), torch.tensor(4.0))
float_w = w_codes.float() * w_scale
for tokens in (1, 16, 256):
    x = torch.randn(tokens, 1024)
    x_codes, x_scale = int8_codes(x, x.abs().amax(dim=-1, keepdim=True))
    integer = torch._int_mm(x_codes, w_codes.T)  # [tokens, N] int32
    assert torch.equal(integer.double(), x_codes.double() @ w_codes.double().T), "sums are exact"
    ours = w8a8_linear(x, float_w, None, "token")
    assert torch.allclose(ours, integer * (x_scale * w_scale), rtol=1e-4, atol=1e-3)

    def whole(x: Tensor) -> Tensor:
        codes, scale = int8_codes(x, x.abs().amax(dim=-1, keepdim=True))
        return torch._int_mm(codes, w_codes.T) * (scale * w_scale)

    plain = milliseconds(lambda a=x: a @ float_w.T)
    fast = milliseconds(lambda a=x_codes: torch._int_mm(a, w_codes.T))
    print(f"{tokens:4d} tokens: float32 {plain:6.2f} ms, int8 product {fast:6.2f} ms, ", end="")
    print(f"with rounding and scales {milliseconds(lambda a=x: whole(a)):6.2f} ms")

# %% [markdown]
# **"Half the bytes, a few percent faster: not worth it."** Memory decides how many devices a model
# needs at all: with 530 billion parameters (the largest model of the paper) 2 bytes each are
# 1060 GB and need two nodes of eight 80 GB GPUs, 1 byte each fits into one node.
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
# **Question 1.** A colleague says: "The outliers sit in fixed channels, so give each channel of X
# its own scale, as we do for weights. Then no smoothing is needed." What is wrong with it on
# integer hardware, and in which sense does SmoothQuant do what the colleague wants?
# *Rubric:* where a scale per channel stands in the formula of the product, and what follows (2);
# what smoothing does with that scale, and what it costs at run time (2); one number of your own
# that shows why the scale per token is no substitute (1).

# %% [markdown] written="w1"
# With a scale per channel, y_n = sum_j (s_j q_tj) (s_w q_nj): s_j changes with the index of the
# sum and cannot be taken out of it. Each product would have to be scaled in floating point before
# it is added, and the int8 unit could not be used. A scale per token or per output channel stands
# in front of the sum. SmoothQuant does divide X by a scale per channel, but before quantization:
# the factor goes into the weight, W_nj s_j, which is rounded once, offline, and the division into
# the gain of the norm, so it costs nothing at run time. A scale per token is no substitute because
# the outliers are in every token: in my model it repaired only a few percent of what the outliers
# cost (the second reveal, net of the control), as every token's own maximum is an outlier.

# %% [markdown]
# **Question 2.** Explain both ends of your curve over $\alpha$: what goes wrong at 0, what at 1?
# Then say why the control is needed and what yours shows.
# *Rubric:* the end at 0, with the maxima of X and W (1); the end at 1, likewise (2); what the curve
# alone would not prove, and the number of the control (2).

# %% [markdown] written="w2"
# With alpha = 0, s_j = 1 / max|W_:j|: the columns of the weights become equally large, while the
# activations keep their outliers (they are only multiplied by max|W_:j|, similar for all channels).
# The grid of X stays coarse, and the perplexity is even higher than that of plain W8A8, since X has
# taken over the differences between columns of W. With alpha = 1, s_j = max|X_j|: all channels of
# X / s reach exactly 1, and the whole difference sits in the weights. The outlier columns of W s
# are then many times larger than the others; one scale per tensor has to cover them, and the other
# columns are left with a few codes. In between both sides are moderately unequal, and 8 bits are
# enough for each. The curve alone would not prove that outliers are the cause: smoothing could help
# or hurt any model. On the control the same sweep moves the perplexity by about one percent only,
# so the U belongs to the outliers.

# %% [markdown]
# ## Stretch (not graded)
#
# - **A scale per row of W.** Give `w8a8_linear` a scale per output channel and draw the curve
#   again. Which side of the U disappears, and why not the other?
# - **Alpha per layer.** Let `sweep` choose it for each norm. Is the model better than with one?
# - **The other linears.** `o_proj` reads what `v_proj` writes, so $s$ can be folded into the rows
#   of `v_proj`. Try it.
# - **Clip.** With `"static"`, use a quantile of the calibration instead of the maximum.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
lab.report()
levels_of_the_paper = ", ".join(f"{k} {v:.1f}" for k, v in found["levels of the paper"].items())
takeaways = [
    f"{CHANNELS} outlier channels leave the median channel {found['levels']} of 255 codes.",
    f"W8A8 per tensor: perplexity {found['fp']:.1f} becomes {found['tensor']:.1f}; without "
    f"outliers {found['control tensor']:.1f}.",
    f"A scale per token repairs {found['repaired']:.0f} % of what the outliers cost (net of the "
    "control): they are in every token.",
    f"LLM.int8: {found['split']:.2f}, {found['no split']:.2f} on its grids without the split; "
    f"{found['share']:.1f} % of all columns are not in int8.",
    f"Smoothing: a valley of {found['valley'][0]:.1f} to {found['valley'][1]:.1f}; alpha = 0 gives "
    f"{found['ends'][0]:.1f}, alpha = 1 {found['ends'][1]:.1f}.",
    f"Control: without outliers alpha moves the perplexity by {found['flat']:.1f} %.",
    f"After smoothing: {levels_of_the_paper}. Rounding W alone gives {found['only W']:.1f}, "
    f"rounding X alone {found['only X']:.1f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))

# %% [markdown]
# **Next:** lab 3 uses the same folding for another purpose: at 3 and 4 bits it is the *weights* of
# the large channels that must be protected.
#
# **Sources.** Dettmers et al., *LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale*,
# 2022 (outliers, the split). Xiao et al., *SmoothQuant: Accurate and Efficient Post-Training
# Quantization for Large Language Models*, 2023 (smoothing; tables 2 and 3 hold O1 to O3 and the
# accuracies quoted above, section 5 the 530B model). Jacob et al., *Quantization and Training of
# Neural Networks for Efficient Integer-Arithmetic-Only Inference*, 2018 (integer products).
