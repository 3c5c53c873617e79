# %% [markdown]
# # Lab 3: Activation-aware weight quantization (AWQ)
#
# **The question.** Rounding the weights of this lab's model to 4 bits ruins it, and a few channels
# are to blame. They could stay in 16 bits, but hardware dislikes matrices that are partly 4-bit and
# partly 16-bit. **Which channels are they, can they be protected although every weight is rounded,
# and does it make the model faster?**
#
# At the end your code answers it: a quantized model that holds packed 4-bit words and generates
# text, and a formula that says how many tokens per second it can reach.

# %% [markdown]
# ## Card
#
# | | |
# |---|---|
# | Time | 2 to 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | lab 1 (scale, zero point, groups); helpful: lab 2 (outlier channels) |
# | Not covered | clipping, GPTQ's corrections, writing a GPU kernel |
#
# After this lab you can
# 1. find the channels that matter (*salient* ones), and prove with a control that you did;
# 2. say why scaling a channel up divides its rounding error by $s$, and when that ends; search $s$;
# 3. pack 4-bit codes, and predict tokens per second from the bytes that are moved.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Later exercises call your earlier ones. Answer predictions in
# their field; where no field is shown, by `lab.answer("keep", 50)`.

# %% [markdown]
# ## Map and notation
#
# Section 1, which weights matter: exercises 1 and 2. Section 2, protect them by scaling: 3 and 4.
# Section 3, pack and decode: 5 and 6. Section 4: your code in the live model.
#
# | symbol | shape | dtype | in code | meaning |
# |---|---|---|---|---|
# | $W, \hat W$ | [N, K] | float32 | `w`, `w_hat` | weight of an `nn.Linear`, before and after |
# | $X$ | [..., K] | float | `x` | its inputs, a row per token; $Y = X W^T + b$ |
# | $X_j, W_{:j}$ | | | `x[..., j]`, `w[:, j]` | input channel $j$: one column of $W$ |
# | $G$ | | int | `group_size` | neighbours in a row that share a scale and a zero point |
# | $q$ | [N, K] | uint8 | `codes` | codes 0 to $2^b - 1$ |
# | $\Delta$ | [N, K/G] | float32 | `scale` | step of a group's grid |
# | $z$ | [N, K/G] | int32 | `zero` | zero point: the code of 0.0 |
# | $s_j$ | [K] | float32 | `s` | factor that channel $j$ is multiplied by before rounding |
#
# (AWQ calls the factors $s$, so here the step of the grid is $\Delta$.) All grids are asymmetric:
# $\hat w = \Delta\,(q - z)$. "RTN" is rounding to nearest, what lab 1 did. "W4A16" means weights in
# 4 bits, activations in 16. No function of this lab changes its arguments: work on new tensors.

# %%
import copy
import math
import time

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import channels, explorer, grid, salience, style

lab = Lab("lab03_awq")

RATIOS = [i / 20 for i in range(20)]  # 0, 0.05 .. 0.95: the grid of exercise 4
FLOOR = 1e-4  # of scales before they are normalized

# %% [markdown]
# ## Baseline
#
# Salient channels belong to large models. Ours is small, so we emulate them as in lab 2:
# `zoo.with_offset` makes 4 of the 192 channels of every norm's output large in all tokens, and
# the function of the model stays the same. The model without them is a **control**.
#
# Quality is the perplexity on held-out code, or the *added loss*: the logarithm of its ratio to
# that of the float model, in nats per token. Size is counted in bits, as in lab 1.

# %% tags=["demo"]
from efflib.quantization.awq_model import record
from efflib.zoo.phenomena.awq import CHANNELS, FRACTION, GROUP, OFFSET
from efflib.zoo.phenomena.story import QUICK, losses, windows

plain = zoo.load("target")
model = zoo.with_offset(plain, CHANNELS, OFFSET)
names = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
held_out = windows("code", True, QUICK, seed=0)[::2]  # [6, 257] ids
text = windows("code", False, QUICK, seed=0)[::4, :-1]  # [2, 256] ids of training text
calibration = record(model, text)  # what every linear and every block gets
found = {}  # the numbers you find, for the takeaways at the end


def loss(model: nn.Module) -> float:
    return losses(model, held_out).mean().item()


found["float"] = loss(model)
print(f"perplexity {math.exp(found['float']):.2f} with {CHANNELS} channels of {OFFSET:g}, ", end="")
print(f"{math.exp(loss(plain)):.2f} without: the same function")
weights = sum(model.get_submodule(n).weight.numel() for n in names)
others = sum(p.numel() for p in model.parameters()) - weights
for bits in (16, 4, 3):
    total = weights * (bits + (16 + bits) / GROUP * (bits < 16)) + 16 * others
    print(f"{bits:2d} bits in {len(names)} linear layers: {total / 8e6:.2f} MB")

# %% [markdown]
# ## 1. Which weights matter
#
# Rounding moves $w_{nj}$ by about half a step at most, whatever $j$ is. But what counts is the
# output, and there the error of column $j$ is multiplied by $X_j$:
#
# $$ \hat y_n - y_n = \sum_j (\hat w_{nj} - w_{nj})\, x_j $$

# %% tags=["demo"]
layer = "model.layers.2.self_attn.q_proj"
w, x = model.get_submodule(layer).weight.detach(), calibration.inputs[layer].flatten(0, -2)
large = x.abs().mean(0).topk(CHANNELS).indices
style.show(
    channels.magnitudes(
        {"activations: mean |X_j|": x.abs().mean(0), "weights: mean |W_:j|": w.abs().mean(0)},
        f"{CHANNELS} of {w.shape[1]} channels of X stand out (the same four are marked in W)",
        "mean magnitude",
        marked=large.tolist(),
    ),
    alt="Mean magnitudes by channel on a log scale. Left, activations: four channels near 30, the "
    "rest below 2. Right, weights: the same four channels are like all others.",
)
# %%
# the formula on four numbers: equal rounding errors, unequal channels
error = torch.tensor([0.05, -0.04, 0.05, -0.03])  # w_hat - w
four = torch.tensor([0.5, 30.0, 0.8, 0.4])  # x
shares = ", ".join(f"{share:.3f}" for share in (error * four).abs().tolist())
print(f"errors in the output, channel by channel: {shares}")
assert (error * four).abs().argmax() == 1 and error.abs().argmax() != 1

lab.predict(
    "keep",
    "All weights are rounded to 4 bits, but in every layer the 3 % of input channels with the "
    "largest |X| stay in floating point. Which part of the added loss disappears?",
    unit="%",
)
lab.predict(
    "control",
    "And if the same number of channels is chosen by the largest |W| instead?",
    unit="%",
)

# %% [markdown]
# ### Exercise 1 · Round in groups
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
#
# **Deliver** `quantize_groups(w, bits, group_size) -> (codes, scale, zero)` and
# `dequantize_groups(codes, scale, zero) -> w_hat`. Each $G$ neighbours of a row have the
# asymmetric grid of lab 1:
#
# $$ lo = \min(0, \min w), \quad hi = \max(0, \max w), \quad
# \Delta = \frac{hi - lo}{2^b - 1}, \quad z = \mathrm{round}(-lo / \Delta), \quad
# q = \mathrm{clamp}(\mathrm{round}(w / \Delta) + z,\, 0,\, 2^b - 1) $$
#
# - A group of zeros gets any positive finite scale. All other scales are as the formula says.
# - Errors stay within half a step, at the ends of a group's range too: rounding $z$ moves the grid,
#   and the clamp then takes off no more than that.
# - $G$ must divide $K$ (real models are built so): else `ValueError`, also for $G < 1$.
#
# **Shapes** `w` [N, K], float32 or bfloat16, perhaps not contiguous; $b$ is 1 to 8.
# `codes` [N, K] uint8, `scale` [N, K/G] float32, `zero` [N, K/G] int32; `w_hat` [N, K] float32.
# (`dequantize_groups` finds $G$ in the shapes.)


# %% solution="ex1"
def quantize_groups(w: Tensor, bits: int, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and zero points of w [N, K], rounded to nearest in groups of a row.

    Returns (codes [N, K] uint8, scale [N, K/G] float32 > 0, zero [N, K/G] int32).
    Raises ValueError unless group_size >= 1 divides K.
    """
    ### BEGIN SOLUTION
    n, k = w.shape
    if group_size < 1 or k % group_size:
        raise ValueError(f"group_size={group_size} must divide K={k}")
    groups = w.float().reshape(n, k // group_size, group_size)  # [N, K/G, G]
    lo = groups.amin(-1, keepdim=True).clamp(max=0)
    hi = groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale)
    codes = (torch.round(groups / scale) + zero).clamp(0, 2**bits - 1)
    return codes.reshape(n, k).to(torch.uint8), scale.squeeze(-1), zero.squeeze(-1).int()
    ### END SOLUTION


def dequantize_groups(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The weight [N, K], float32, of codes [N, K], scale [N, K/G] and zero [N, K/G]."""
    ### BEGIN SOLUTION
    groups = codes.int().unflatten(1, (scale.shape[1], -1))  # [N, K/G, G]
    return ((groups - zero[..., None]) * scale[..., None]).flatten(1)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Give the groups a dimension of their own: [N, K] becomes [N, K/G, G]. Then every
# parameter of a group is a reduction over the last dimension, and broadcasts back.
#
# **Pseudocode**
# ```
# groups = w as float32, reshaped to [N, K/G, G]
# lo, hi = min and max over the last dimension (keepdim), stretched to contain 0
# scale  = (hi - lo) / (2^b - 1), and 1 where that is 0
# zero   = round(-lo / scale);   codes = clamp(round(groups / scale) + zero), then uint8
# back:    (codes as int32 - zero) * scale, with the same dimensions
# ```
# **The usual error.** `reshape(N, G, K/G)`: there the last dimension does not hold $G$ neighbours.
# Or codes that become uint8 before the clamp: -1 is 255 there.
# </details>

# %% [markdown]
# ### Exercise 2 · Keep some channels in floating point
#
# **15 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
#
# **Deliver** three small functions.
#
# - `mean_magnitude(x) -> score`: the mean of $|X_j|$ over all tokens.
# - `top_channels(score, fraction) -> channels`: the indices of the `round(fraction * K)` channels
#   with the largest scores, but at least one, in any order. `ValueError` unless
#   $0 <$ `fraction` $\le 1$.
# - `keep_channels(w, channels, bits, group_size) -> w_hat`: the weight after rounding (exercise 1),
#   but with the columns `channels` as they were. Kept columns still count for the range of their
#   groups, as in the paper's experiment.
#
# **Shapes** `x` [..., K], with one or more dimensions before the last; `x` and `w` [N, K] float32
# or bfloat16; compute in float32. `score` [K] float32, as an argument perhaps negative; `channels`
# int64 [C], as an argument perhaps empty; `w_hat` [N, K] float32.


# %% solution="ex2"
def mean_magnitude(x: Tensor) -> Tensor:
    """mean |X_j| over all tokens of x [..., K]. [K] float32"""
    ### BEGIN SOLUTION
    return x.float().abs().reshape(-1, x.shape[-1]).mean(0)
    ### END SOLUTION


def top_channels(score: Tensor, fraction: float) -> Tensor:
    """Indices, int64, of the `fraction` of channels (at least one) with the largest score [K].

    Raises ValueError unless 0 < fraction <= 1.
    """
    ### BEGIN SOLUTION
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    return score.topk(max(1, round(fraction * len(score)))).indices
    ### END SOLUTION


def keep_channels(w: Tensor, channels: Tensor, bits: int, group_size: int) -> Tensor:
    """w [N, K] rounded, but the columns `channels` as they were. [N, K] float32"""
    ### BEGIN SOLUTION
    w_hat = dequantize_groups(*quantize_groups(w, bits, group_size))
    w_hat[:, channels] = w[:, channels].float()
    return w_hat
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Round everything, then put the columns back. `top_channels` gets a vector of scores; it
# need not know whether they came from activations or from weights.
#
# **Pseudocode**
# ```
# mean_magnitude:  float32, abs, all dimensions but the last into one, mean over it
# top_channels:    score.topk(max(1, round(fraction * K))).indices
# keep_channels:   w_hat = dequantize_groups(*quantize_groups(...)); w_hat[:, channels] = w[...]
# ```
# **The usual error.** `x.mean(...).abs()`: activations of both signs cancel. Or `w[channels]`,
# which are rows: outputs, not inputs.
# </details>


# %% [markdown]
# **Reveal.** Perplexity of the whole model, 4 and 3 bits. Random channels are the control of the
# experiment: as many channels in float, and no reason why they should be the ones.
#
# **Then write one sentence:** which part of the repair is due to *keeping* and which to *choosing*?
#
# *Your sentence:*
# %% tags=["demo"]
def rtn(w: Tensor, bits: int) -> Tensor:
    return dequantize_groups(*quantize_groups(w, bits, GROUP))


def with_weights(change, base: nn.Module = model) -> nn.Module:
    """A copy of the model whose weight `name` is change(name, w) for every linear layer."""
    changed = copy.deepcopy(base)
    for name in names:
        weight = changed.get_submodule(name).weight.detach()  # shares the layer's memory
        weight.copy_(change(name, weight.clone()))
    return changed


generator = torch.Generator().manual_seed(0)
chosen = {  # the channels that each score chooses, for every layer
    "|X|": {n: top_channels(mean_magnitude(calibration.inputs[n]), FRACTION) for n in names},
    "|W|": {
        n: top_channels(mean_magnitude(model.get_submodule(n).weight), FRACTION) for n in names
    },
    "random": {
        n: top_channels(torch.rand(calibration.inputs[n].shape[-1], generator=generator), FRACTION)
        for n in names
    },
}
added = {}  # (bits, variant) -> nats per token
for bits in (4, 3):
    added[bits, "RTN"] = loss(with_weights(lambda n, v, b=bits: rtn(v, b))) - found["float"]
    for by, of in chosen.items():
        kept = with_weights(lambda n, v, b=bits, c=of: keep_channels(v, c[n], b, GROUP))
        added[bits, f"keep {by}"] = loss(kept) - found["float"]
removed = {key: 100 * (1 - value / added[key[0], "RTN"]) for key, value in added.items()}
bars = {f"{b} bits\n{v}": math.exp(found["float"] + value) for (b, v), value in added.items()}
style.show(
    grid.bars(
        bars,
        f"Kept by |X|, 3 % of the channels repair {removed[4, 'keep |X|']:.1f} % at 4 bits; "
        f"by |W| {removed[4, 'keep |W|']:.1f} %, at random {removed[4, 'keep random']:.1f} %",
        "perplexity",
        log=True,
    ),
    alt="Bars of perplexity: "
    + "; ".join(f"{name} {value:.1f}".replace("\n", " ") for name, value in bars.items()),
)
found["keep"], found["kept by |W|"] = removed[4, "keep |X|"], removed[4, "keep |W|"]
lab.reveal("keep", found["keep"])
lab.reveal("control", found["kept by |W|"])

# %% [markdown]
# ## 2. Protect by scaling
#
# Two kinds of numbers in one matrix need two kernels. AWQ does with one. For any $s_j > 0$
#
# $$ X W^T = \big(X\, \mathrm{diag}(s)^{-1}\big)\,\big(W\, \mathrm{diag}(s)\big)^T
# \qquad\Rightarrow\qquad \hat W = Q\big(W\,\mathrm{diag}(s)\big)\,\mathrm{diag}(s)^{-1} $$
#
# $1/s$ goes into the layer before (section 4 shows how), so the real layer holds the codes of
# $W\,\mathrm{diag}(s)$. Rounding moves $s_j w$ by at most $\Delta/2$; divided by $s_j$ that is
# $\Delta / (2 s_j)$. So the error of channel $j$ shrinks as $1/s_j$, its square as $1/s_j^2$, **as
# long as the step $\Delta$ of its group holds**. The step grows once $s_j w$ leaves the old range,
# and then every weight of the group pays.

# %%
# the formula on four numbers: one group, 3 bits; only the first channel is scaled
group = torch.tensor([0.3, -1.0, 0.7, 2.0])
for factor in (1.0, 2.0, 4.0, 8.0):
    s = torch.tensor([factor, 1.0, 1.0, 1.0])
    step = ((group * s).max() - (group * s).min()) / 7
    rounded = torch.round(group * s / step) * step / s
    bound = step / 2 / factor
    print(f"s = {factor:g}: step {step:.3f}, first weight 0.3 -> {rounded[0]:.3f}, ", end="")
    print(f"bound of its error {bound:.3f}")
    assert (rounded[0] - 0.3).abs() <= bound + 1e-6

lab.predict(
    "factor",
    "At 4 bits, the 3 % of channels with the largest |X| are multiplied by one factor before "
    "rounding. Which one is best for the model?",
    options=["1", "2", "4", "8", "16", "32"],
)

# %% [markdown]
# ### Exercise 3 · A round trip with scales
#
# **10 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
#
# **Deliver** `scaled_round_trip(w, s, bits, group_size) -> w_hat`, the weight
# $Q(W\,\mathrm{diag}(s))\,\mathrm{diag}(s)^{-1}$ (with exercise 1 as $Q$), and
# `output_error(x, w, w_hat) -> float`, the mean over all tokens and outputs of
# $(X \hat W^T - X W^T)^2$.
#
# - `ValueError` unless `s` has shape [K] and every entry is positive and finite.
#
# **Shapes** `w`, `w_hat` [N, K], `x` [..., K] with one or more dimensions before the last, float32
# or bfloat16; `s` [K] float32. `w_hat` is returned in float32; compute in float32.


# %% solution="ex3"
def scaled_round_trip(w: Tensor, s: Tensor, bits: int, group_size: int) -> Tensor:
    """Q(W diag(s)) diag(s)^-1 of w [N, K] and s [K] > 0. [N, K] float32

    Raises ValueError for scales of another shape, or that are not positive and finite.
    """
    ### BEGIN SOLUTION
    if s.shape != w.shape[1:] or not ((s > 0) & torch.isfinite(s)).all():
        raise ValueError(f"need {w.shape[1]} positive finite scales, got {tuple(s.shape)}")
    return dequantize_groups(*quantize_groups(w.float() * s, bits, group_size)) / s
    ### END SOLUTION


def output_error(x: Tensor, w: Tensor, w_hat: Tensor) -> float:
    """Mean of (X W_hat^T - X W^T)^2 over all tokens of x [..., K] and all N outputs."""
    ### BEGIN SOLUTION
    return (x.float() @ (w_hat.float() - w.float()).T).square().mean().item()
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** `w * s` multiplies column $j$ by $s_j$ by broadcasting. The error of the output is the
# output of the error: $X (\hat W - W)^T$.
#
# **Pseudocode**
# ```
# check s: shape, > 0, finite
# w_hat = dequantize_groups(*quantize_groups(w * s, ...)) / s
# error = mean of (x @ (w_hat - w).T)^2, .item()
# ```
# **The usual error.** $s$ on the rows (`s[:, None]`): in a square matrix nothing complains. Or the
# division by $s$ is forgotten: the real layer gets $X/s$, but the simulation must undo it.
# </details>


# %% [markdown]
# **Reveal.** One layer first: the error that comes from the scaled channels, and from the others.
# Then the whole model.
#
# **Then write one sentence:** where does the error of the layer turn, what has happened to $\Delta$
# there, and how far is the best factor of the whole model from it?
#
# *Your sentence:*
# %% tags=["demo"]
FACTORS = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0]


def one_factor(k: int, where: Tensor, factor: float) -> Tensor:
    """Scales [K]: factor for the channels `where`, 1 for the others."""
    return torch.ones(k).index_fill(0, where, factor)


def protect(where: Tensor, bits: int, factor: float) -> dict[str, float]:
    """Output errors of the layer by where they come from, and the step of the groups with them."""
    s = one_factor(w.shape[1], where, factor)
    w_hat = scaled_round_trip(w, s, bits, GROUP)
    rest = torch.ones(w.shape[1], dtype=torch.bool).index_fill(0, where, False)
    step = quantize_groups(w * s, bits, GROUP)[1][:, (where // GROUP).unique()].mean().item()
    return {
        "scaled channels": output_error(x[:, where], w[:, where], w_hat[:, where]),
        "other channels": output_error(x[:, rest], w[:, rest], w_hat[:, rest]),
        "all": output_error(x, w, w_hat),
        "step": step,
    }


curves = [protect(chosen["|X|"][layer], 4, factor) for factor in FACTORS]
style.show(
    salience.protection(
        FACTORS,
        curves,
        "The scaled channels gain, though less than 1/s^2; the others pay, as the step grows",
    ),
    alt="Left: squared output error against the factor. That of the scaled channels falls, more "
    "slowly than 1/s^2; that of the others rises, and their sum has a minimum. Right: the mean "
    "step of their groups rises.",
)
# %% tags=["demo"]
for bits in (4, 3):
    for factor in (2, 3, 4, 8, 16, 32):
        scaled = with_weights(
            lambda n, v, b=bits, f=factor: scaled_round_trip(
                v, one_factor(v.shape[1], chosen["|X|"][n], float(f)), b, GROUP
            )
        )
        added[bits, f"x{factor}"] = loss(scaled) - found["float"]
for bits in (4, 3):
    row = {"1": added[bits, "RTN"]} | {str(f): added[bits, f"x{f}"] for f in (2, 3, 4, 8, 16, 32)}
    found[f"factor {bits}"] = min(row, key=row.get)
    print(f"{bits} bits, added loss: " + ", ".join(f"x{f} {v:.3f}" for f, v in row.items()))
if added[4, "x3"] > max(added[4, "x2"], added[4, "x4"]):
    print("Factor 3 is no mistake of yours: a handful of columns carries nearly all of this loss,")
    print("and every factor rounds them anew. The curve has a trend, and luck on top of it.")
lab.reveal("factor", found["factor 4"])


# %% tags=["demo"]
# look closely: move the factor, and choose the channels and the bits
def draw(factor: float, by: str, bits: int):
    rows = [protect(chosen[by][layer], bits, f) for f in FACTORS]
    now, one = rows[FACTORS.index(factor)], rows[0]
    text = f"{bits} bits, channels by {by}, factor {factor:g}: {now['all'] / one['all']:.2f} times "
    text += f"the error of factor 1; step {now['step'] / one['step']:.2f} times"
    return salience.protection(FACTORS, rows, text, at=factor), text


explorer.explorer(draw, {"factor": FACTORS, "by": ["|X|", "|W|", "random"], "bits": [4, 3]})

# %% [markdown]
# ### Exercise 4 · Search the scales
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
#
# One factor for a few channels is crude. AWQ gives every channel its own, from one number, the
# ratio $\alpha$:
#
# $$ s_j = \max(\text{mean}|X_j|^{\alpha},\, 10^{-4}), \qquad
# s \leftarrow s \,\big/ \sqrt{\max(s)\min(s)} , \qquad
# \alpha^* = \arg\min_{\alpha \in \{0,\, 0.05,\, \dots,\, 0.95\}} \text{mean}
# \big(f(\hat W(s)) - f(W)\big)^2 $$
#
# Linears that share an input share $s$ (q, k and v, for example), and $f$ is the output that
# matters: that of the whole attention, if the three go into it. $10^{-4}$ keeps the scale of a dead
# channel above 0. Dividing by the root changes no $\hat w$, since a common factor cancels; it keeps
# $W\,\mathrm{diag}(s)$ within the range of 16-bit floats. $\alpha$ runs over the grid of the
# paper's code: from 0, where $s = 1$, to 0.95, where $X/s$ is nearly even.
#
# **Deliver** `candidate_scales(x_mean, ratio) -> s` and
# `search_scales(x_mean, weights, block, bits, group_size) -> (s, ratio, losses)`.
#
# - `weights` is a list, `block` a function: `block(list of weights)` gives the output $f$, a
#   tensor; for a single linear it could be `lambda ws: x @ ws[0].T`. Call it once with the float
#   weights and once for each of `RATIOS`, in order: 21 times.
# - Every candidate is the `scaled_round_trip` of all the weights with the same scales.
# - `losses`: a list of 20 floats; the first is that of plain rounding, since $s = 1$ at ratio 0.
#   Of equal losses the first wins.
#
# **Shapes** `x_mean`, `s` [K] float32, `x_mean` ≥ 0 (a dead channel has 0); `weights`: [N_i, K];
# `ratio` a float. The output of `block` has any shape, in float32 or bfloat16; compute in float32.


# %% solution="ex4"
def candidate_scales(x_mean: Tensor, ratio: float) -> Tensor:
    """mean|X|^ratio, at least FLOOR, then divided by sqrt(max(s) min(s)). [K] float32"""
    ### BEGIN SOLUTION
    s = (x_mean.float() ** ratio).clamp(min=FLOOR)
    return s / (s.max() * s.min()).sqrt()
    ### END SOLUTION


def search_scales(
    x_mean: Tensor, weights: list[Tensor], block, bits: int, group_size: int
) -> tuple[Tensor, float, list[float]]:
    """(scales [K], ratio, losses) of the ratio of RATIOS whose mean squared error is least.

    weights: [N_i, K] of the linears that share the input; block(weights): the output to compare.
    """
    ### BEGIN SOLUTION
    exact, losses = block(weights), []
    for ratio in RATIOS:
        s = candidate_scales(x_mean, ratio)
        output = block([scaled_round_trip(w, s, bits, group_size) for w in weights])
        losses.append((output.float() - exact.float()).square().mean().item())
    ratio = RATIOS[losses.index(min(losses))]
    return candidate_scales(x_mean, ratio), ratio, losses
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** 20 candidates, one loss each. `block` hides what the layer does with the weights; you
# only compare its outputs.
#
# **Pseudocode**
# ```
# candidate_scales: s = clamp(x_mean ** ratio, min=FLOOR);  s / sqrt(max(s) * min(s))
# exact = block(weights)
# for ratio in RATIOS:
#     s = candidate_scales(x_mean, ratio)
#     losses += mean of (block([scaled_round_trip(w, s, ...) for w in weights]) - exact)^2
# the ratio of the smallest loss, its scales, and all losses
# ```
# **The usual error.** The error of the *weights* is minimized. Then ratio 0 nearly always wins: the
# data had no say. Or every weight gets a search of its own, but they read one and the same $X/s$.
# </details>

# %% [markdown]
# ## 3. Pack and decode
#
# So far weights took few values and were stored as floats. Now we store codes: eight of 4 bits in
# one 32-bit word, the first in the lowest bits:
#
# $$ \text{word} = \sum_{i=0}^{7} q_i\, 2^{4 i} $$
#
# Why is that faster? To generate one token, a model multiplies one vector by every matrix: 2 FLOPs
# per weight, and every weight is read from memory. So are the keys and values of the tokens so far
# (the KV cache), for each sequence its own. The **roofline** says how long a step takes at least,
# for $B$ sequences that decode together:
#
# $$ t = \max\left( \frac{\text{weight bytes} + B \cdot \text{KV bytes}}{\text{bandwidth}},\;
# \frac{B \cdot \text{FLOPs per token}}{\text{peak}} \right) $$

# %%
# the formulas on four numbers
q = [3, 15, 0, 9]
word = sum(code << (4 * i) for i, code in enumerate(q))
print(f"codes {q} -> word {word} = 0x{word:04x}; read the hex digits from the right")
assert [(word >> (4 * i)) & 0xF for i in range(4)] == q
read, compute = 2 * 4096 * 4096 / 1.008e12, 2 * 4096 * 4096 / 165e12  # one fp16 matrix, RTX 4090
print(f"4096 x 4096 times a vector: reading {1e6 * read:.0f} us, computing {1e6 * compute:.1f} us")

lab.predict(
    "decode",
    "Llama-2-7B in fp16, an RTX 4090, one sequence with 512 tokens in its cache. The linears of "
    "all blocks are now stored with 4 bits in groups of 128; the output layer and the cache stay "
    "in 16. How many times as fast can decoding be, at most?",
    unit="times",
)

# %% [markdown]
# ### Exercise 5 · Pack, and multiply from the packed weight
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
#
# **Deliver**
# - `pack_int4(codes) -> words`: eight codes to a word, along the last dimension; the last word is
#   filled with codes 0. `ValueError` for a code outside 0..15.
# - `unpack_int4(words, length) -> codes`: the first `length` codes.
# - `w4a16_linear(x, words, scale, zero_words, bias) -> y`: $y = x \hat W^T + b$ of a weight that
#   is stored packed. The zero points were packed as *one* row, `pack_int4(zero.flatten())`. The
#   weight is decoded in float32 and then given the dtype of `x`.
#
# **Shapes** `codes` [..., M], any integer dtype; `words` [..., ⌈M/8⌉] int32, which has a sign:
# the top code's highest bit is bit 31. Unpacked codes: uint8. For the linear: `x` [..., K] with one
# or more dimensions before the last, float32 or bfloat16; `words` [N, ⌈K/8⌉]; `scale` [N, K/G]
# float16; `zero_words` [⌈N K/(8 G)⌉]; `bias` [N] in the dtype of `x`, or `None`; `y` [..., N] in
# the dtype of `x`.


# %% solution="ex5"
def pack_int4(codes: Tensor) -> Tensor:
    """Codes [..., M] in 0..15 -> words [..., ceil(M / 8)] int32, the first code in the lowest bits.

    Raises ValueError for a code outside 0..15.
    """
    ### BEGIN SOLUTION
    if codes.numel() and not (0 <= codes.min() and codes.max() <= 15):
        raise ValueError(f"codes must be in 0..15, got {codes.min()} to {codes.max()}")
    codes = nn.functional.pad(codes.int(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = torch.zeros(codes.shape[:-1], dtype=torch.int32)
    for i in range(8):
        words |= codes[..., i] << (4 * i)
    return words
    ### END SOLUTION


def unpack_int4(words: Tensor, length: int) -> Tensor:
    """Words [..., ceil(length / 8)] int32 -> codes [..., length] uint8."""
    ### BEGIN SOLUTION
    codes = torch.stack([(words >> (4 * i)) & 15 for i in range(8)], dim=-1)
    return codes.flatten(-2)[..., :length].to(torch.uint8)
    ### END SOLUTION


def w4a16_linear(
    x: Tensor, words: Tensor, scale: Tensor, zero_words: Tensor, bias: Tensor | None
) -> Tensor:
    """x W_hat^T + b of a packed weight.  x [..., K] -> [..., N], dtype of x."""
    ### BEGIN SOLUTION
    codes = unpack_int4(words, x.shape[-1])  # [N, K]
    zero = unpack_int4(zero_words, scale.numel()).view(scale.shape)  # [N, K/G]
    w_hat = dequantize_groups(codes, scale.float(), zero.int())
    return nn.functional.linear(x, w_hat.to(x.dtype), bias)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** `<<` and `|` put a code into its place, `>>` and `& 15` take it out. A negative word is
# no accident: its bits are right, and the mask removes the sign that `>>` draws in.
#
# **Pseudocode**
# ```
# pack:    check the range;  codes as int32, filled to a multiple of 8, as [..., words, 8]
#          words = OR over i of codes[..., i] << (4 i)
# unpack:  codes[..., i] = (words >> (4 i)) & 15, flattened, cut to `length`, uint8
# linear:  codes from words, zero from zero_words (as many as scales), float32 scale,
#          dequantize_groups, .to(x.dtype), x @ w_hat.T + bias
# ```
# **The usual error.** Shifting in uint8: `code << 4` loses its upper bits there. Or no `& 15`: with
# a top code of 8 or more the word is negative, and `>>` fills up with ones. And `codes - zero` with
# both uint8: 3 - 5 is 254 there, so zero points become int32 before exercise 1 gets them.
# </details>

# %% [markdown]
# ### Exercise 6 · The roofline of decoding
#
# **15 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
#
# **Deliver** three formulas.
#
# - `weight_bytes(shapes, bits, group_size) -> float`: the bytes of weights of these shapes [N, K].
#   16 bits: 2 bytes a weight. Fewer: $b$ bits a weight, and for each group a scale of 16 bits and a
#   zero point of $b$ bits. A last group that is not full counts, too: $\lceil K/G \rceil$ in a row.
# - `decode_rate(weights, kv, flops, batch, bandwidth, peak) -> float`: tokens per second of all
#   `batch` sequences together, by the formula of the roofline above.
# - `ridge_batch(weights, kv, flops, bandwidth, peak) -> float`: the batch at which reading and
#   computing take the same time (perhaps not a whole number); `math.inf` if reading always takes
#   longer.
#
# **Units** `weights`: bytes read once per step; `kv`: bytes of keys and values read for each
# sequence; `flops`: per token; `bandwidth`: bytes/s; `peak`: FLOP/s. `shapes`: a list of pairs of
# ints; `bits`: 16, or 1 to 8.


# %% solution="ex6"
def weight_bytes(shapes: list[tuple[int, int]], bits: int, group_size: int) -> float:
    """Bytes of weights [N, K]: codes, and for bits < 16 a 16-bit scale and a zero per group."""
    ### BEGIN SOLUTION
    total = 0
    for n, k in shapes:
        total += n * k * bits
        if bits < 16:
            total += n * math.ceil(k / group_size) * (16 + bits)
    return total / 8
    ### END SOLUTION


def decode_rate(
    weights: float, kv: float, flops: float, batch: int, bandwidth: float, peak: float
) -> float:
    """Tokens per second that `batch` sequences together can reach at most."""
    ### BEGIN SOLUTION
    return batch / max((weights + batch * kv) / bandwidth, batch * flops / peak)
    ### END SOLUTION


def ridge_batch(weights: float, kv: float, flops: float, bandwidth: float, peak: float) -> float:
    """The batch at which computing takes as long as reading; inf if it never does."""
    ### BEGIN SOLUTION
    gap = flops / peak - kv / bandwidth  # seconds that one more sequence adds to computing's lead
    return weights / bandwidth / gap if gap > 0 else math.inf
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** A step makes `batch` tokens: weights are read once for all of them, keys and values for
# each. The ridge is where the two arguments of `max` are equal; solve for the batch.
#
# **Pseudocode**
# ```
# weight_bytes:  sum of N K b + N ceil(K / G) (16 + b) over the shapes, / 8;  no second term at 16
# decode_rate:   batch / max((weights + batch kv) / bandwidth, batch flops / peak)
# ridge_batch:   weights / bandwidth = B (flops / peak - kv / bandwidth);  inf unless that is > 0
# ```
# **The usual error.** One second divided by the time of a step gives steps per second; each makes
# `batch` tokens. And bits are not bytes.
# </details>


# %% [markdown]
# **Reveal.** The lecture's measurement: Llama-2-7B on an RTX 4090, 50 tokens per second in fp16 and
# 166 with AWQ and TinyChat, MIT's chat program with W4A16 kernels (groups of 128). Your formulas
# give the bounds from shapes alone; the output layer stays in 16 bits, and the cache holds 512
# tokens. The plot shows them against the batch, with that cache for each sequence and without any.
#
# **Then write one sentence:** from which batch on does the 4-bit model gain nothing, and what
# becomes of that when every sequence has a cache to read?
#
# *Your sentence:*
# %% tags=["demo"]
BANDWIDTH, PEAK = 1.008e12, 165.2e12  # RTX 4090: bytes/s; fp16 FLOP/s
LLAMA = [(4096, 4096)] * 4 + [(11008, 4096)] * 2 + [(4096, 11008)]  # one layer of 32
head = weight_bytes([(32000, 4096)], 16, 128)
kv = 2 * 32 * 4096 * 512 * 2  # keys and values, layers, width, tokens, bytes
flops = 2 * (32 * sum(n * k for n, k in LLAMA) + 32000 * 4096)
llama_bytes = {b: weight_bytes(LLAMA * 32, b, 128) + head for b in (16, 4)}
bound = {b: decode_rate(v, kv, flops, 1, BANDWIDTH, PEAK) for b, v in llama_bytes.items()}
ridge = {b: ridge_batch(v, 0, flops, BANDWIDTH, PEAK) for b, v in llama_bytes.items()}
measured = {16: 50, 4: 166}
for b in (16, 4):
    print(
        f"{b:2d} bits: {llama_bytes[b] / 1e9:5.2f} GB of weights, {bound[b]:.0f} tokens/s at most"
    )
    print(f"    measured {measured[b]}, {measured[b] / bound[b]:.0%} of it; ", end="")
    cached = ridge_batch(llama_bytes[b], kv, flops, BANDWIDTH, PEAK)
    with_cache = f"at batch {cached:.0f}" if math.isfinite(cached) else "never"
    print(f"computing takes over at batch {ridge[b]:.0f} without a cache, {with_cache} with it")
batches = [2 ** (i / 4) for i in range(45)]
rates, cached_rates = (
    {
        f"{b} bits": [decode_rate(v, read, flops, n, BANDWIDTH, PEAK) for n in batches]
        for b, v in llama_bytes.items()
    }
    for read in (0, kv)
)
found["decode"] = bound[4] / bound[16]
style.show(
    salience.decode(
        batches,
        rates,
        {"fp16: 50": (1, 50), "TinyChat: 166": (1, 166)},
        f"At batch 1 bytes allow {found['decode']:.1f} times, measured {166 / 50:.1f}; without a "
        f"cache 4 bits gain nothing from batch {ridge[16]:.0f} on",
        cached_rates,
    ),
    alt="Tokens per second against batch for Llama-2-7B on an RTX 4090: 4 bits are a factor above "
    "16 bits at small batches. Without a cache both reach the same ceiling; with 512 cached tokens "
    "for each sequence both flatten far below it, bound by reading the cache.",
)
lab.reveal("decode", found["decode"])

# %% [markdown]
# ## 4. Your code in the live model
#
# Your search for all 24 inputs: norms by the output of the attention or the MLP, `o_proj` and
# `down_proj` by their own. The course's reference runs the same experiment; its row must come out.
# (Next to a rounding tie $w/\Delta$ and $w \cdot (1/\Delta)$ may round apart. That moves the loss
# by thousandths, and by a few hundredths where the model is ruined anyway.)

# %% tags=["demo"]
from torch.func import functional_call

from efflib.models.groups import norm_groups


def own_output(name: str):
    """A block: the output of one linear."""
    return lambda weights: calibration.inputs[name] @ weights[0].T


def block_output(parent: str, parts: list[str]):
    """A block: the output of the attention or MLP `parent` with other weights in its linears."""
    module, call = model.get_submodule(parent), calibration.blocks[parent]

    def run(weights: list[Tensor]) -> Tensor:
        swapped = {f"{p}.weight": weight for p, weight in zip(parts, weights, strict=True)}
        with torch.no_grad():
            output = functional_call(module, swapped, call.args, call.kwargs)
        return output if isinstance(output, Tensor) else output[0]

    return run


def search_model(bits: int) -> dict[str, tuple]:
    """{linear: (scales, ratio, losses)} of your search."""
    scales = {}
    for norm in norm_groups(model):
        linears = list(norm.linears)
        parent = linears[0].rpartition(".")[0]
        block = block_output(parent, [n.removeprefix(f"{parent}.") for n in linears])
        weights = [model.get_submodule(n).weight.detach() for n in linears]
        x_mean = mean_magnitude(calibration.inputs[linears[0]])
        scales |= dict.fromkeys(linears, search_scales(x_mean, weights, block, bits, GROUP))
    for name in names:
        if name.endswith(("o_proj", "down_proj")):
            weight = model.get_submodule(name).weight.detach()
            x_mean = mean_magnitude(calibration.inputs[name])
            scales[name] = search_scales(x_mean, [weight], own_output(name), bits, GROUP)
    return scales


searches = {bits: search_model(bits) for bits in (4, 3)}
for bits in (4, 3):
    awq = with_weights(lambda n, v, b=bits: scaled_round_trip(v, searches[b][n][0], b, GROUP))
    added[bits, "search"] = loss(awq) - found["float"]
s, ratio, curve = searches[4][layer]
style.show(
    grid.lines(
        torch.tensor(RATIOS),
        [{"q, k, v": torch.tensor(curve) / curve[0]}],
        f"Layer 2, 4 bits: ratio {ratio:g} leaves {min(curve) / curve[0]:.0%} of plain rounding's "
        "loss in the attention's output",
        "ratio",
        ["loss / loss of RTN"],
        at=ratio,
    ),
    alt=f"Loss of the attention's output against the ratio, with its minimum at {ratio:g}.",
)

# %% tags=["demo"]
from efflib.quantization import awq_model
from efflib.zoo.phenomena import awq as story

theirs = {"RTN": with_weights(lambda n, v: story.keep_channels(v, large[:0], 4, GROUP))}
theirs |= story.by_hand(model, calibration, 4, seed=0)
scales = awq_model.search_model(model, calibration, 4, GROUP)
folded = awq_model.fold(model, scales)
codes = awq_model.quantized_weights(folded, calibration, scales, 4, GROUP, clip=False)
theirs["search"] = awq_model.with_values(folded, codes)
print("4 bits, added loss in nats per token:        yours  reference")
for name, m in theirs.items():
    print(f"  {name:40s}{added[4, name]:8.3f}{loss(m) - found['float']:11.3f}")

# %% tags=["demo"]
story_row = ["RTN", "keep random", "keep |W|", "keep |X|", "x2", "x8", "x32", "search"]
bars = {name: math.exp(found["float"] + added[4, name]) for name in story_row}
found["story"] = {b: {n: added[b, n] for n in story_row} for b in (4, 3)}
found["search"] = 100 * (1 - added[4, "search"] / added[4, "RTN"])
style.show(
    grid.bars(
        {"float": math.exp(found["float"])} | bars,
        f"4 bits: the search removes {found['search']:.0f} % of RTN's added loss, with all "
        "weights rounded",
        "perplexity",
        log=True,
    ),
    alt="Bars of perplexity at 4 bits: " + ", ".join(f"{n} {v:.1f}" for n, v in bars.items()),
)
print("3 bits, added loss: " + ", ".join(f"{n} {v:.2f}" for n, v in found["story"][3].items()))
control = with_weights(lambda n, v: rtn(v, 4), plain)
found["no outliers"] = loss(control) - found["float"]
print(f"Control, the model without outliers, 4 bits RTN: {found['no outliers']:.3f}")

# %% [markdown]
# **What to make of it.** The search finds the channels by itself and removes most of the loss, with
# every weight in 4 bits. It does not reach what keeping them does: kept channels have no error at
# all, scaled ones still $1/s$ of theirs, and with $s$ the steps of all others in their groups grow.
# One factor for the right channels comes close to it, but you had to choose both. At 3 bits the
# search helps and does not save this model; the line above says by how much. And the control says
# that without outliers there is little to repair at 4 bits. Models of billions of weights have such
# channels; ours has them because we put them there.
#
# ### The packed model
#
# Now the packed model: your words, your linear layer, and text from it. But where does $X/s$ come
# from at run time? Nothing may divide by $s$ there, so $1/s$ is **folded** into what makes $X$:
#
# - q, k and v, or gate and up, read a norm: its gain is divided, $g_j \leftarrow g_j / s_j$.
# - `o_proj` reads a mixture of values over *tokens*; channel $j$ of it comes from row $j$ of
#   `v_proj` alone. So that row is divided by $s_j$.
# - `down_proj` reads $\mathrm{silu}(\text{gate}_j) \cdot \text{up}_j$, linear in up: row $j$ of
#   `up_proj` is divided. (Not that of `gate_proj`, which goes through the silu.)
#
# Rows that were divided are rounded afterwards, with the scales of their own inputs. The reference
# does this here; `python -m efflib.chat --quant w4a16` is the same as a program.

# %% tags=["demo"]
from efflib.decoding.sampling import Sampling, stream

# the second rule on four numbers: two tokens, two channels
p, v, o = torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 8.0], [3.0, 4.0]]), torch.tensor([2.0, 1])
s = torch.tensor([1.0, 4.0])  # of the two inputs of o
print(f"o_proj gets {(p @ v).tolist()}, and {(p @ (v / s)).tolist()} after folding")
assert torch.equal((p @ v) @ o, (p @ (v / s)) @ (s * o))


class Packed(nn.Module):
    """A linear layer that holds 4-bit codes and calls your exercise 5."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        codes, scale, zero = quantize_groups(linear.weight.detach(), 4, GROUP)
        self.register_buffer("words", pack_int4(codes))
        self.register_buffer("scale", scale.half())
        self.register_buffer("zero_words", pack_int4(zero.flatten()))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return w4a16_linear(x, self.words, self.scale, self.zero_words, self.bias)


def stored(model: nn.Module, names: list[str]) -> int:
    """Bytes of the linear layers called `names`, without biases."""
    parts = [model.get_submodule(n) for n in names]
    tensors = [t for m in parts for k, t in m.state_dict().items() if k != "bias"]
    return sum(t.numel() * t.element_size() for t in tensors)


packed = copy.deepcopy(folded)
for name in names:
    parent, _, last = name.rpartition(".")
    setattr(packed.get_submodule(parent), last, Packed(folded.get_submodule(name)))
shapes = [tuple(model.get_submodule(n).weight.shape) for n in names]
found["packed"] = stored(packed, names)
print(f"linear layers: {stored(model, names) / 1e6:.2f} MB in fp32, ", end="")
print(f"{found['packed'] / 1e6:.3f} MB packed; formula {weight_bytes(shapes, 4, GROUP) / 1e6:.3f}")
print(f"added loss {loss(packed) - found['float']:.3f} (float16 scales)")
tokenizer = zoo.load_tokenizer()
prompt = "def read_lines(path):\n"
ids = torch.tensor([[zoo.BEGIN_ID] + tokenizer.encode(prompt).ids])
sampling, generator = Sampling(0.7, top_p=0.9), torch.Generator().manual_seed(0)
ruined = with_weights(lambda n, v: rtn(v, 4))
for label, writer in (("float", model), ("RTN, 4 bits", ruined), ("packed, 4 bits", packed)):
    generator.manual_seed(0)
    new = [token.item() for token in stream(writer, ids, 40, sampling, generator)]
    print(f"\n--- {label}:\n{prompt}{tokenizer.decode(new)}")

# %% [markdown]
# ## 5. Misconceptions
#
# **"A quarter of the bytes, so four times as fast."** Only where reading the weights is what takes
# the time, and only with a kernel that decodes inside the product. Ours decodes the whole matrix
# first, in every step. Here the roofline of this machine beside what runs on it:


# %% tags=["demo"]
def seconds(function, repeats: int = 5) -> float:
    """The fastest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


big = torch.randn(4096, 8192)  # 134 MB: more than caches hold
vector, matrix = torch.randn(8192), torch.randn(1024, 1024)
bandwidth = big.numel() * 4 / seconds(lambda: big @ vector)
peak = 2 * 1024**3 / seconds(lambda: matrix @ matrix)
print(f"this machine: {bandwidth / 1e9:.1f} GB/s, {peak / 1e9:.0f} GFLOP/s in fp32")
model_flops = 2 * sum(p.numel() for p in model.parameters())
ids = torch.tensor([[zoo.BEGIN_ID]])
found["tokens/s"] = {}
for label, which, weights_read in (
    ("fp32", model, 2 * weight_bytes(shapes, 16, GROUP)),
    ("w4a16, decoded each time", packed, weight_bytes(shapes, 4, GROUP)),
):
    read = weights_read + 4 * model.config.vocab_size * model.config.hidden_size
    limit = decode_rate(read, 0, model_flops, 1, bandwidth, peak)
    rate = 24 / seconds(lambda m=which: list(stream(m, ids, 24)), repeats=2)
    found["tokens/s"][label] = (limit, rate)
    print(f"{label:26s} at most {limit:6.0f} tokens/s by bytes, measured {rate:5.0f}")

# %% [markdown]
# So ours is smaller, and not faster but slower. A model of a few megabytes spends its time in
# Python and in decoding, not in reading; the bound is true and far away. At 7 billion weights, and
# with a kernel that decodes as it multiplies, it is close, as the 4090 shows.
#
# **"The salient weights are the large weights."** Your control says no: by $|W|$ is like random.
#
# **"The more a channel is scaled up, the better protected it is."** Until $\Delta$ grows.
#
# **"AWQ is trained on the calibration text."** One number per input is chosen, from a grid of 20.
# There is little to overfit, so a few hundred tokens serve.
#
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1.** A colleague kept the 1 % of weight *columns* with the largest $|W|$ in fp16, saw
# no gain and concluded: "Mixed precision does not help 4-bit models." What was the mistake, which
# experiment shows it, and why does AWQ in the end keep nothing in fp16?
# *Rubric:* what decides how much a channel's error matters, with the formula (2); the comparison
# with its control, with your numbers (2); what scaling does instead, and what it spares (1).

# %% [markdown] written="w1"
# The output error is the sum over j of (w_hat_nj - w_nj) x_j: rounding errors are about equally
# large in all columns of a group, at most half a step, so a column matters by its activation X_j
# and not by its weights. The experiment: the same number of channels kept by |X|, by |W| and at
# random. In mine |X| removed nearly all of the loss that RTN adds, and |W| no more than random
# channels, which are the control. AWQ multiplies the salient columns by s before rounding and
# divides X by s, which divides their error by s while the step of the group holds. All weights are
# then 4-bit codes of one format, and one kernel without a special case for some columns is enough.

# %% [markdown]
# **Question 2.** "W4A16 is 3.6 times smaller, so a server that answers many users at once gets 3.6
# times as many tokens per second." Where is this right and where is it wrong? Use exercise 6.
# *Rubric:* what bounds the time at batch 1, with the two numbers of bytes (2); what bounds it at
# large batch, with the ridge of your plot (2); one further limit: KV cache, or the cost of decoding
# weights (1).

# %% [markdown] written="w2"
# At batch 1 a step reads all weights and does 2 FLOPs with each, so the bytes decide: 13.2 GB
# against 3.6 GB for Llama-2-7B, at most 3.6 times as fast, and 3.3 were measured. With B sequences
# the weights are read once for all of them, but the FLOPs grow with B. On the RTX 4090 computing
# takes over at batch 164 in fp16 and already at 45 with 4 bits; beyond both, the two formats reach
# the same rate, since W4A16 computes in 16 bits. Between the two the gain shrinks from 3.6 to 1.
# Keys and values are read for each sequence and are not made smaller by W4A16, so with long
# contexts they take over the bytes; and weights must be decoded, which costs instructions.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Clip.** After scaling, let each group search a smaller range, 1 to 0.55 of its largest weight,
#   by the output error of that group alone. `efflib.quantization.awq.search_clip` does it; compare.
# - **Loss of the linear.** Search q, k and v by their own outputs instead of the attention's.
# - **Another score.** `mean|X|^a / mean|W|^(1-a)` is the default of two libraries. Is it better?
# - **Fewer tokens.** How few calibration tokens give the same ratios?
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
lab.report()
four, three = found["story"][4], found["story"][3]
(limit, rate), (_, decoded) = found["tokens/s"].values()
takeaways = [
    f"Perplexity {math.exp(found['float']):.1f} in float; RTN at 4 bits adds {four['RTN']:.2f} "
    f"nats, at 3 bits {three['RTN']:.2f}.",
    f"3 % of the channels kept by |X| remove {found['keep']:.1f} % of that at 4 bits; by |W| "
    f"{found['kept by |W|']:.1f} %.",
    f"Scaling them instead: best factor {found['factor 4']} at 4 bits, {found['factor 3']} at 3.",
    f"Searched scales add {four['search']:.2f} nats at 4 bits, {three['search']:.2f} at 3, with "
    "every weight rounded.",
    f"Packed: {found['packed'] / 1e6:.2f} MB of codes, scales and zero points.",
    f"Llama-2-7B: bytes allow {found['decode']:.1f} times the speed; 166 / 50 = 3.3 measured.",
    f"This model, here: {rate:.0f} tokens/s of at most {limit:.0f} in fp32, so bytes are not the "
    f"limit; {decoded:.0f} from packed words, which are decoded in every step.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))

# %% [markdown]
# **Next:** lab 10 uses 4-bit weights for fine-tuning, lab 11 corrects rounding errors with second
# derivatives, lab 18 puts W4A16 into an engine.
#
# **Sources.** Lin et al., *AWQ: Activation-aware Weight Quantization for On-Device LLM Compression
# and Acceleration*, 2024 (arXiv:2306.00978; sections 3.1 and 3.2, figure 2). MIT 6.5940, lecture on
# LLM deployment (TinyChat: 50 and 166 tokens per second). Williams, Waterman and Patterson,
# *Roofline*, 2009. NVIDIA, *Ada GPU architecture* (RTX 4090: 1008 GB/s, 165.2 TFLOP/s in fp16 with
# fp32 sums).
