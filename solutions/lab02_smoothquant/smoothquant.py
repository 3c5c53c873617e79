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
# | Time | 2 to 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | lab 1 (symmetric grids), PyTorch modules; forward hooks are explained |
# | Not covered | weights below 8 bits, 8-bit attention, training, writing kernels |
#
# After this lab you can
# 1. find outlier channels with hooks, and say why neither a scale per token nor one per tensor
#    helps;
# 2. build the two repairs: splitting outliers off (LLM.int8) and moving them into the weights
#    (SmoothQuant), for a whole model without changing its function;
# 3. choose the migration strength by measuring, with a control experiment.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones.

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
# | $X_j, W_{:j}$ | | | `x[..., j]`, `w[:, j]` | channel $j$: one entry per token, one per output |
# | $s_x, s_w$ | [], [..., 1] | float32 | `scale` | step of the 8-bit grid of X, of W |
# | $s_j$ | [K] | float32 | `s` | smoothing scale of channel $j$ |
# | $\alpha$ | | float | `alpha` | migration strength, 0 to 1 |
#
# All grids of this lab are symmetric with 8 bits: codes -127 to 127, $s = \max|x| / 127$, no zero
# point.

# %%
import copy
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
FLOOR = 1e-5  # the smallest channel maximum that exercise 4 reckons with

# %% [markdown]
# ## Baseline
#
# Outliers appear in models from about 6.7 billion parameters on; ours has a few million. So we
# emulate them: `zoo.with_outliers` adds a constant to a few channels of every norm's output, and
# takes what the next linear layers make of it off their biases. The function stays the same, and
# the activations look like those of OPT-6.7B: a few channels that are large in *every* token. The
# model without them is our **control**.
#
# The measure is the perplexity on held-out code, as in lab 1.

# %% tags=["demo"]
from efflib.zoo.phenomena.smoothquant import CHANNELS, OFFSET  # noqa: E402 -- not in grading

control = zoo.load("target")
model = zoo.with_outliers(control, CHANNELS, OFFSET)
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
print(f"perplexity {found['fp']:.3f} with {CHANNELS} outlier channels of {OFFSET:g}, ", end="")
print(f"{perplexity(control):.3f} without: the same function")
print(
    f"{megabytes(model, False):.2f} MB in fp16; {megabytes(model, True):.2f} MB with int8 weights"
)
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
    print(f"x {x.tolist()}\n  step {step:.4f}, codes {four.int().tolist()}")
    assert ((four * step - x).abs() <= step / 2 * 1.0001).all()

lab.predict(
    "levels",
    "With the outliers, one step covers the whole input of a layer. How many of the 255 codes does "
    "the median channel of the third attention layer use?",
    unit="codes",
)

# %% [markdown]
# ### Exercise 1 · Find the outlier channels
#
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 2 of 5 | 4 of 5 | 25 | 15 |
#
# **Deliver** `channel_maxima(model, names, batches) -> {name: x_max}` and
# `outlier_channels(x_max, ratio) -> channels`.
#
# - `channel_maxima` runs `model(batch)` once for each batch, without gradients, and returns for
#   each of the named layers $\max|X_j|$ of its inputs over all tokens, batches and calls. (A layer
#   may run more than once in one forward pass.)
# - Its hooks are gone when it returns, also if the model raises. All else about the model (other
#   hooks, train or eval mode) stays as it was.
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
#                     now = |args[0]|, all dimensions but the last flattened, max over them
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
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 3 of 5 | 5 of 5 | 25 | 15 |
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
# - The weight has one scale for the whole of it.
# - `int8_codes`: $s$ = `x_max` / 127, codes clamped to -127..127. Where `x_max` is 0, any positive
#   finite scale will do. Round x / s, with `torch.round`.
# - `ValueError` for another `activations`, or `"static"` without `x_max`.
# - Multiply codes or rounded values, as you like: the sums are the same.
#
# **Shapes** `x` [..., K], float32 or bfloat16, perhaps not contiguous; `w` [N, K]; `bias` [N] or
# None; `x_max` of `int8_codes` broadcasts to `x`, that of `w8a8_linear` is []. `codes` int8 in the
# shape of `x`; `scale` float32 in the shape of `x_max`; `y` [..., N], float32.


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
#               codes = clamp(round(x / s), -127, 127) as int8
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
# **Then write one sentence:** what does an ordinary channel pay, and to whom?
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
step = maxima[layer].max() / QMAX
found["levels"] = 2 * torch.round(maxima[layer] / step).median().item() + 1
style.show(
    channels.magnitudes(
        {"with outliers": maxima[layer], "control": control_maxima[layer]},
        f"{len(outliers)} of {len(maxima[layer])} channels are outliers; the median channel is "
        f"left with {found['levels']:.0f} of 255 codes",
        "max |X_j|",
        marked=outliers.tolist(),
    ),
    alt="Two bar charts of channel maxima on a log scale. With outliers a few bars stand far above "
    "all others; in the control all are of similar height.",
)
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
    "is finer: each token has its own. Of what the perplexity lost, it repairs",
    unit="%",
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


for kind in ("tensor", "token"):
    found[kind] = perplexity(w8a8_model(model, kind))
    found[f"control {kind}"] = perplexity(w8a8_model(control, kind))
lost = found["tensor"] - found["fp"]
found["repaired"] = 100 * (found["tensor"] - found["token"]) / lost
style.show(
    grid.bars(
        {
            "fp32": found["fp"],
            "W8A8 tensor": found["tensor"],
            "W8A8 token": found["token"],
            "control, tensor": found["control tensor"],
            "control, token": found["control token"],
        },
        f"A scale per token repairs {found['repaired']:.0f} % of what outlier channels cost",
        "perplexity",
    ),
    alt="Bars of perplexity: fp32 and both control models are low, W8A8 with outliers is high, "
    "per tensor and per token alike.",
)
lab.reveal("token", found["repaired"])

# %% [markdown]
# The large channels are large in every token, so a scale per token is as coarse as one per tensor.
# A scale per *channel* of $X$ would be right, but it would stand inside the sum: $\sum_j s_j
# q_{tj} q_{nj}$ is no integer product. Weights, on the other hand, are even. There are two ways
# out.
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
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 3 of 5 | 4 of 5 | 25 | 15 |
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
# **Shapes** `x` [..., K], float32 or bfloat16; `mask` [K] bool; `w` [N, K]; `bias` [N] or None;
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
# y = (q_x @ q_w.T) * (s_x * s_w.T)  +  x[..., O] @ w[:, O].T  +  bias
# ```
# **The usual error.** The scales are taken from x before the split: the outliers are multiplied
# exactly, and everything else still pays for them.
# </details>

# %% tags=["demo"]
# reveal: your split in the whole model, and how much of it is not int8
share = []


def split_layer(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    share.append(outlier_columns(x, 6.0).float().mean().item())
    return llm_int8_linear(x, w, bias, threshold=6.0)


found["split"] = perplexity(swap(model, lambda name: split_layer))
found["share"] = 100 * sum(share) / len(share)
found["share of the norms"] = 100 * CHANNELS / len(maxima[layer])
print(f"LLM.int8: perplexity {found['split']:.3f} (fp32 {found['fp']:.3f}); ", end="")
print(f"{found['share']:.1f} % of the columns in floating point")
print("per linear layer of the first block:")
for name, part in zip(names[:7], share[:7], strict=True):
    print(f"  {name:36s}{part:7.1%}")

# %% [markdown]
# The split is nearly lossless and needs no calibration. But it sorts columns at every step, and
# reads and multiplies two kinds of matrices: at run time it is often slower than fp16. (In real
# models about 0.1 % of the channels are outliers; our narrow model has more of them, and layers
# after the activation function hold many values above 6.)
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
# it. $\alpha$ says how much of the difficulty moves from the activations to the weights.
#
# The example of the lecture, with $\alpha = 0.5$ (the slide's $\hat X$ prints a 6 where
# $6 / 3 = 2$):

# %%
x_example = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])  # [2 tokens, K = 4]
w_example = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]).T  # [N = 3, K = 4]
s_example = (x_example.abs().amax(0) / w_example.abs().amax(0)).sqrt()
print("s     ", s_example.tolist())
print("X / s ", (x_example / s_example).tolist())
print("W s   ", (w_example * s_example).T.tolist(), "(transposed, as on the slide)")
assert torch.equal((x_example / s_example) @ (w_example * s_example).T, x_example @ w_example.T)

lab.predict(
    "alpha",
    "Perplexity of the outlier model with W8A8 (per tensor) after smoothing: which alpha is best?",
    options=["0", "0.25", "0.5", "0.75", "1"],
)

# %% [markdown]
# ### Exercise 4 · Smoothing scales
#
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 2 of 5 | 5 of 5 | 15 | 15 |
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
# [K], float32, > 0.


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
# w_max = max|.| over the rows of torch.cat(weights)            # [K]
# s = clamp(x_max, min=FLOOR)^alpha / clamp(w_max, min=FLOOR)^(1 - alpha)
# ```
# **The usual error.** `amax(dim=1)`: the maximum of each *row*. For a square weight nothing
# complains, and the scales belong to output channels.
# </details>

# %% [markdown]
# ### Exercise 5 · Fold the scales into the model
#
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 3 of 5 | 5 of 5 | 30 | 15 |
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
# and stay parameters.


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
    alt="Channel maxima on a log scale before and after smoothing: the outliers stand far above "
    "the rest before, and only a little above after.",
)

# %% [markdown]
# ### Exercise 6 · Sweep the migration strength
#
# | difficulty | importance | minutes | points |
# |---|---|---|---|
# | 3 of 5 | 4 of 5 | 25 | 15 |
#
# $\alpha$ is chosen by measuring. **Deliver** `sweep(x, weights, alphas, activations) -> errors`:
# for each $\alpha$ the relative squared error that smoothing and W8A8 together leave in the outputs
# of all layers that read `x`:
#
# $$ e(\alpha) = \frac{\sum_i \lVert \hat Y_i - X W_i^T \rVert^2}{\sum_i \lVert X W_i^T \rVert^2},
# \qquad \hat Y_i = \text{W8A8 of } X / s \text{ and } W_i\, s . $$
#
# - $\max|X_j|$ comes from `x` itself. One $s$ for all weights; each weight has its own grid.
# - The exact outputs are those of the float weights, without biases.
#
# **Shapes** `x` [..., K] and `weights`, a list of [N_i, K], float32 or bfloat16, not changed;
# `alphas`: a list of numbers in any order; `activations`: `"token"` or `"tensor"`; `errors`: a list
# of floats in the order of `alphas`.


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
# and 5. The control is the same sweep on the model without outliers: if $\alpha$ mattered there
# too, the curve would tell us nothing about outliers.

# %% tags=["demo"]
ALPHAS = [0.0, 0.25, 0.5, 0.75, 1.0]


def inputs_of(model: nn.Module, name: str) -> Tensor:
    """The inputs [tokens, K] of a layer on the calibration text."""
    seen = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    with torch.no_grad():
        for batch in batches:
            model(batch)
    hook.remove()
    return torch.cat(seen).flatten(0, -2)


norm = "model.layers.2.input_layernorm"
one_layer = {}
for label, which in (("with outliers", model), ("control", control)):
    weights = [which.get_submodule(name).weight.detach() for name in groups[norm]]
    one_layer[label] = sweep(inputs_of(which, groups[norm][0]), weights, ALPHAS, "tensor")
    print(f"{label:15s}" + "  ".join(f"{e:.2e}" for e in one_layer[label]))
best = ALPHAS[one_layer["with outliers"].index(min(one_layer["with outliers"]))]
style.show(
    channels.sweep(
        ALPHAS,
        one_layer,
        f"q, k and v of layer 2: the least error is at alpha = {best:g}",
        "relative squared error of the outputs",
    ),
    alt="Relative output error of one attention layer against alpha, with outliers and without.",
)

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

# %% tags=["demo"]
lowest = min(curve["with outliers"])
found["alpha"], found["smooth"] = ALPHAS[curve["with outliers"].index(lowest)], lowest
found["ends"] = (curve["with outliers"][0], curve["with outliers"][-1])
found["flat"] = 100 * (max(curve["control"]) / min(curve["control"]) - 1)
style.show(
    channels.sweep(
        ALPHAS,
        curve,
        f"alpha = {found['alpha']:g} is best; without outliers alpha moves perplexity by "
        f"{found['flat']:.1f} %",
        reference=found["fp"],
        at=found["alpha"],
    ),
    alt="Perplexity against alpha. With outliers: "
    + ", ".join(f"{p:.1f}" for p in curve["with outliers"])
    + ". Control: "
    + ", ".join(f"{p:.1f}" for p in curve["control"]),
)
lab.reveal("alpha", f"{found['alpha']:g}")


# %% tags=["demo"]
# look closely: move alpha, and watch where the size of the channels goes
def draw(alpha: float):
    weights = [model.get_submodule(name).weight.detach() for name in groups[norm]]
    x_max = maxima[groups[norm][0]]
    s = smoothing_scales(x_max, weights, alpha)
    w_max = torch.cat(weights).abs().amax(0)
    i = ALPHAS.index(alpha)
    text = f"alpha = {alpha:g}: largest activation channel {(x_max / s).max():.3g}, largest "
    text += f"weight channel {(w_max * s).max():.3g}; perplexity {curve['with outliers'][i]:.1f}"
    fig = channels.smoothing(x_max / s, w_max * s, ALPHAS, curve, alpha, text, outliers.tolist())
    return fig, text


explorer.explorer(draw, {"alpha": ALPHAS})

# %% [markdown]
# **Is your curve uneven between its ends?** Each $\alpha$ rounds the outlier columns of $W$ anew,
# and a large constant multiplies whatever error that leaves: with a few columns such errors do not
# average out. The chapter rounds each side alone and finds the unevenness in the weights only.
#
# **The three levels of the paper.** From O1 to O3 the scale of the activations gets cheaper to
# find: per token as it comes, per tensor as it comes, or fixed by calibration.

# %% tags=["demo"]
smoothed = smooth(model, groups, maxima, found["alpha"])
after = channel_maxima(smoothed, names, batches)
found["levels of the paper"] = {
    "O1 (token)": perplexity(w8a8_model(smoothed, "token")),
    "O2 (tensor)": perplexity(w8a8_model(smoothed, "tensor")),
    "O3 (static)": perplexity(w8a8_model(smoothed, "static", after)),
}
bars = {"fp32": found["fp"], "W8A8": found["tensor"], "LLM.int8": found["split"]}
bars |= found["levels of the paper"]
style.show(
    grid.bars(
        bars,
        f"Smoothing brings W8A8 from {found['tensor']:.1f} to {found['smooth']:.1f}; the split of "
        f"LLM.int8 to {found['split']:.1f}",
        "perplexity",
    ),
    alt="Bars of perplexity: " + ", ".join(f"{name} {value:.1f}" for name, value in bars.items()),
)

# %% [markdown]
# ## 5. Misconceptions
#
# **"Simulated W8A8 tells nothing about the real kernel."** It tells all about its quality: integer
# sums are exact, so the kernel gives what your exercise 2 gives. Speed is another matter, and
# depends on the number of tokens:


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
    fast = milliseconds(lambda a=x_codes: torch._int_mm(a, w_codes.T))
    plain = milliseconds(lambda a=x: a @ float_w.T)
    print(f"{tokens:4d} tokens: float32 {plain:6.2f} ms, int8 {fast:6.2f} ms, {plain / fast:.1f} x")

# %% [markdown]
# **"Half the bytes, a few percent faster: not worth it."** Memory decides how many devices a model
# needs at all. The arithmetic of the largest model in the paper, with GPUs of 80 GB:

# %%
for bits in (16, 8):
    gigabytes = 530e9 * bits / 8 / 1e9
    gpus = next(n for n in (1, 2, 4, 8, 16, 32) if 80 * n >= gigabytes)  # powers of two, in nodes
    print(f"530B parameters, {bits:2d} bits: {gigabytes:.0f} GB of weights, {gpus} GPUs")
# the paper measures 1040 GB on 16 GPUs and 527 GB on 8 (sequences of 128 tokens): GB means 2^30
# bytes there, and activations come on top
assert round(530e9 * 2 / 2**30) == 987 and round(530e9 / 2**30) == 494

# %% [markdown]
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
# the outliers are in every token: in my model it repaired only a small part of what W8A8 had lost
# (the percentage of the second reveal), as every token's own maximum is an outlier.

# %% [markdown]
# **Question 2.** Explain both ends of your curve over $\alpha$: what goes wrong at 0, what at 1?
# Then say why the control is needed and what yours shows.
# *Rubric:* the end at 0, with the maxima of X and W (1); the end at 1, likewise (2); what the curve
# alone would not prove, and the number of the control (2).

# %% [markdown] written="w2"
# With alpha = 0, s_j = 1 / max|W_:j|: the columns of the weights become perfectly even, while the
# activations keep their outliers (they are only multiplied by max|W_:j|, similar for all channels).
# The grid of X stays coarse and the perplexity near that of plain W8A8. With alpha = 1,
# s_j = max|X_j|: all channels of X / s reach exactly 1, and the whole difference sits in the
# weights. The outlier columns of W s are then many times larger than the others; one scale per
# tensor has to cover them, and the other columns are left with a few codes. In between both sides
# are moderately uneven, and 8 bits are enough for each. The curve alone would not prove that
# outliers are the cause: smoothing could help or hurt any model. On the control the same sweep
# moves the perplexity by about one percent only, so the U belongs to the outliers.

# %% [markdown]
# ## Stretch (not graded)
#
# - **A scale per row of W.** Give `w8a8_linear` a scale per output channel. Which end of the U gets
#   lower, and why hardly?
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
    f"{CHANNELS} outlier channels leave the median channel {found['levels']:.0f} of 255 codes.",
    f"W8A8 per tensor: perplexity {found['fp']:.1f} becomes {found['tensor']:.1f}; without "
    f"outliers {found['control tensor']:.1f}.",
    f"A scale per token repairs {found['repaired']:.0f} % of that: outliers are in every token.",
    f"LLM.int8: {found['split']:.2f}, with {found['share']:.1f} % of the columns not in int8.",
    f"Smoothing: best at alpha = {found['alpha']:g} with {found['smooth']:.1f}; alpha = 0 gives "
    f"{found['ends'][0]:.1f}, alpha = 1 {found['ends'][1]:.1f}.",
    f"Control: without outliers alpha moves the perplexity by {found['flat']:.1f} %.",
    f"After smoothing: {levels_of_the_paper}.",
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
