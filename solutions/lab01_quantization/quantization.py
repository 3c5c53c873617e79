# %% [markdown]
# # Lab 1: Linear and k-means quantization
#
# ![Four rows, from 16 bits down to 2: on the left the weights of one row and the levels that they
# are rounded to, on the right how the model continues the start of a function. With fewer levels
# the text falls apart.](../../course/figures/lab01/opening.svg)
#
# **The question.** One model, asked four times to go on with the same function. Nothing was
# changed but the number of bits of a weight. With 2 bits, equally spaced levels and one scale per
# row, it is ruined; and yet there are several ways out at nearly the same size: a finer code, a
# scale for every few weights, levels in better places. **If you have a few bits to spend, do you
# buy finer codes, more scales, or levels in better places? And what helps without any?**
#
# At the end you answer this for this model, with numbers that you measured. The answer is graded.
#
# ## Card
#
# | | |
# |---|---|
# | Time | 3 to 4 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | Python, PyTorch tensors and autograd; nothing about quantization |
# | Not covered | outliers in activations, choosing what to protect, rounding with data, kernels |
#
# After this lab you can
# 1. turn a range of numbers into a scale and a zero point, bound the error by half a step, and
#    compute with the codes in integers;
# 2. say what a quantized weight costs in bits, with everything that is needed to read it back, and
#    write the file that has this size;
# 3. quantize a whole model, train through the rounding, and judge both by perplexity per bit.
#
# Every exercise has a card, a stub, a check and a folded help. `lab.check("ex1")` runs the public
# tests (6 of 15 points) and names the kinds of hidden tests (9 of 15). `lab.hint("ex1")` gives one
# hint at a time. Tests call your functions by name, so keep names and arguments as they are. Later
# exercises call your earlier ones.
#
# ## Map and notation
#
# Section 1, the grid: exercises 1 and 2. Section 2, granularity and cost: 3 and 4. Section 3,
# training through rounding, and the whole model: 5 and 6. Section 4: your code in the live model.
#
# | symbol | shape | dtype | in code | meaning |
# |---|---|---|---|---|
# | $W$, $\hat W$ | [N, K] | float32 | `w`, `w_hat` | weight of an `nn.Linear`, before and after |
# | $b$ | | int | `bits` | bits of one code |
# | $q$ | as $x$ | int8, uint8 | `codes` | code: which level |
# | $q_{min}, q_{max}$ | | int | `qmin`, `qmax` | first and last code |
# | $s$ | one per group | float32 | `scale` | distance between two levels, > 0 |
# | $z$ | one per group | int32 | `zero` | zero point: the code of 0.0 |
# | $G$ | | int | `granularity` | neighbours in a row that share $s$ and $z$ |
#
# **Two kinds of grid**
#
# | | codes $q_{min} \dots q_{max}$ | $b$ | $z$ |
# |---|---|---|---|
# | symmetric | $-(2^{b-1}-1) \dots 2^{b-1}-1$ | 2 to 8 | 0 |
# | asymmetric | $0 \dots 2^b-1$ | 1 to 8 | a code |
#
# ### Rules for all exercises
#
# No function of this lab changes its arguments or a setting of torch, gives an argument (or a view
# of one) back, or keeps anything from one call to the next: work on new tensors. (`x.float()` of a
# float32 `x` is `x` itself, and `flatten` and `reshape` give a view where they can.) Tensors that
# you get need not be contiguous; all numbers are finite, $x / s$ too. Any order of float32
# operations will do; tests allow for the rounding.

# %%
import copy
import math
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, granularity, grid, layers, pareto, placements, style

lab = Lab("lab01_quantization")


def code_range(bits: int, symmetric: bool) -> tuple[int, int]:
    """(qmin, qmax) of the grid.  Raises ValueError for a width that does not exist."""
    if not (2 if symmetric else 1) <= bits <= 8:
        raise ValueError(f"no grid with bits={bits}, symmetric={symmetric}")
    if symmetric:
        return -(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


# %% tags=["demo", "fold"]
# helpers of the experiments: what a layer reads, a training loop, a repair of outputs
def inputs_of(layer: nn.Linear, ids: Tensor) -> Tensor:
    """Inputs [tokens, K] of a layer of the model while it reads ids [B, T]; for experiments."""
    seen = []
    hook = layer.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    return seen[0].flatten(0, -2)


def descend(v: Tensor, loss, steps: int, rate: float) -> Tensor:
    """Gradient descent on v, in place, at a rate that falls to 0; the losses on the way. [steps]"""
    path = []
    for step in range(steps):
        path.append(loss(v))
        (slope,) = torch.autograd.grad(path[-1], [v])
        v.data -= rate * (1 - step / steps) * slope
    return torch.stack(path).detach()


def rate_for(x: Tensor, y: Tensor) -> float:
    """1 / the largest curvature of |x v^T - y|^2 / |y|^2 in v; twice as much would diverge."""
    return y.square().sum().item() / (2 * torch.linalg.matrix_norm(x.T @ x, 2).item())


def repaired(y_hat: Tensor, y: Tensor, other: Tensor) -> Tensor:
    """Outputs `other` [tokens, N], moved and scaled by what brings y_hat closest to y. [tokens, N]

    For each output a number to add and one to multiply with, by least squares over the tokens.
    """
    off_hat, off = y_hat - y_hat.mean(dim=0), y - y.mean(dim=0)
    scale = (off * off_hat).sum(dim=0) / off_hat.square().sum(dim=0)
    return scale * (other - y_hat.mean(dim=0)) + y.mean(dim=0)


# %% [markdown]
# ## Baseline
#
# The model is a small Llama, trained for this course on the source code of Python's standard
# library. Our measure of quality is its *perplexity* on held-out code: $\exp$ of the mean of
# $-\ln p(\text{next token})$. Lower is better; guessing blindly among $V$ tokens gives $V$.
#
# We read 16 slices of 256 tokens, spread over the held-out text, as the chapter does. A number
# from so little text is uncertain, and the spread over the slices says by how much. Slices differ a
# lot from each other, but every model reads the same ones: so we look at the *difference* from the
# unrounded model slice by slice, which varies far less. In all plots a bar says what is left.
#
# All sizes in this lab are bits, counted from shapes. 16 bits a parameter (fp16) is the size to
# beat: the shipped weights are fp16 numbers. We compute in float32, here and after quantization.

# %% tags=["demo"]
from efflib.zoo import evaluation, writing

model, found = zoo.load("target"), {}  # found: the numbers you find, for the takeaways
text = evaluation.held_out_segments("code", tokens=4096)  # [16, 256]: 16 slices


def losses(model: nn.Module) -> Tensor:
    """Mean of -ln p(next token) on each slice. [16]"""
    return evaluation.token_losses(model, text, context=256, stride=256).mean(dim=1)


linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"}
parameters, before = sum(p.numel() for p in model.parameters()), losses(model)
found["perplexity"] = before.mean().exp().item()
print(f"{parameters / 1e6:.2f} million parameters, {len(linears)} linear layers to quantize")
print(f"perplexity {found['perplexity']:.2f}; slices {before.exp().min():.1f}..", end="")
print(f"{before.exp().max():.1f}\n\n{zoo.sample(model, zoo.PROMPTS[4], tokens=70)}")

# %% [markdown]
# ## 1. The grid
#
# Replace every number $x$ by the nearest of a few equally spaced levels, and store only which
# level it was:
#
# $$ q = \mathrm{clamp}\big(\mathrm{round}(x / s) + z,\; q_{min},\; q_{max}\big)
# \qquad\qquad \hat x = s\,(q - z) $$
#
# Rounding moves a number by at most half a step: $|\hat x - x| \le s/2$ unless $x$ is clipped. The
# art is to keep $s$ small, and $s$ is the width of the range divided by the number of steps.

# %% tags=["demo"]
style.show(*grid.staircase(step=0.5, first=-2, last=4))
# the formula on four numbers: 2 bits (codes 0, 1, 2, 3), s = 1, z = 1
four = torch.tensor([-1.0, -0.4, 0.7, 2.0])
four_codes = (torch.round(four / 1.0) + 1).clamp(0, 3)
four_hat = 1.0 * (four_codes - 1)
for name, values in (("x", four), ("codes", four_codes), ("x_hat", four_hat)):
    print(f"{name:6s}" + "".join(f"{value:6.1f}" for value in values))
lab.predict(
    "outlier",
    "A weight matrix has 4-bit codes and one asymmetric grid from its smallest to its largest "
    "weight. ONE of its thousands of weights is replaced by a value 10 times as large as the "
    "largest. The mean of |x_hat - x| over all the OTHER weights becomes",
    unit="times as large",
)

# %% [markdown]
# ### Exercise 1 · The grid: there and back
#
# **30 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# 1. `affine_parameters(lo, hi, bits, symmetric) -> (scale, zero)`: the grid for groups of numbers
#    that lie in [lo, hi].
#    - *Symmetric:* the largest magnitude meets the largest code,
#      $s = \max(|lo|, |hi|)\,/\,q_{max}$, and $z = 0$.
#    - *Asymmetric:* 0.0 must have a code of its own, so first stretch the range until it contains
#      0: $lo \leftarrow \min(lo, 0)$ and $hi \leftarrow \max(hi, 0)$. Then
#      $s = (hi - lo)\,/\,q_{max}$ and $z = \mathrm{round}(-lo / s)$ (a tie may go either way).
#    - A group of zeros would get $s = 0$. Give it any positive finite scale instead (and, if
#      asymmetric, any code for $z$). Leave the scale of all other groups as it is: a range of
#      $10^{-18}$ is a range.
#      (Other ranges are tested from $10^{-30}$ to $10^{31}$, where nothing over- or underflows.)
#    - A number of bits that does not exist raises `ValueError` (tested in this function alone).
# 2. `quantize(x, scale, zero, bits, symmetric) -> codes`, by
#    $q = \mathrm{clamp}(\mathrm{round}(x/s) + z,\, q_{min},\, q_{max})$ with `torch.round`, which
#    takes ties to the even number, however far `x` lies outside. (Rounding $x/s + z$ in one step
#    is right too.)
# 3. `dequantize(codes, scale, zero) -> values`, by $\hat x = s\,(q - z)$.
#
# **Shapes** `lo`, `hi`: one common shape, any number of dimensions, float32 or bfloat16, lo ≤ hi.
# Returned, in the same shape: `scale` float32, `zero` int32. `x`: any shape, perhaps without
# elements, float32 or bfloat16, perhaps not contiguous; `scale` and `zero` each broadcast to `x`:
# for example [N, 1] for `x` [N, K]. Codes: shape of `x`, int8 if symmetric, else uint8. Values:
# shape of the codes, float32.
# Compute in float32 throughout.


# %% solution="ex1"
def affine_parameters(lo: Tensor, hi: Tensor, bits: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scale and zero point of groups whose values lie in [lo, hi].

    lo, hi: one shape [...], float32 or bfloat16; compute in float32.
    Returns (scale [...] float32 > 0, zero [...] int32 in qmin..qmax).
    Raises ValueError for a width that does not exist (code_range does that for you).
    """
    ### BEGIN SOLUTION
    _, qmax = code_range(bits, symmetric)
    lo, hi = lo.float(), hi.float()
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / qmax
        lo = torch.zeros_like(lo)
    else:
        lo, hi = lo.clamp(max=0), hi.clamp(min=0)
        scale = (hi - lo) / qmax
    scale = torch.where(scale > 0, scale, 1.0)
    zero = torch.round(-lo / scale).to(torch.int32)
    return scale, zero
    ### END SOLUTION


def quantize(x: Tensor, scale: Tensor, zero: Tensor, bits: int, symmetric: bool) -> Tensor:
    """Codes clamp(round(x / s) + z, qmin, qmax) of x.

    x [...]: float32 or bfloat16, computed in float32; scale float32 and zero int32 broadcast to x.
    Returns codes [...]: int8 if symmetric, else uint8.
    """
    ### BEGIN SOLUTION
    qmin, qmax = code_range(bits, symmetric)
    codes = (torch.round(x.float() / scale) + zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)
    ### END SOLUTION


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Values s (q - z), float32 [...], that the codes [...] (int8 or uint8) stand for."""
    ### BEGIN SOLUTION
    return (codes.to(torch.int32) - zero) * scale
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** A grid has one step fewer than it has codes: the codes 0..15 span 15 steps. The scale is
# the width of the range divided by the steps. The zero point is the number of steps from the lowest
# level up to 0.0. There: round first, shift second, clamp third, and change the dtype last.
#
# **By hand.** The range -0.3..1.2 with 4 bits, asymmetric: its width 1.5 makes 15 steps of
# $s = 0.1$, and 0.0 lies 3 steps above -0.3, so $z = 3$. The range 0.3..1.2 is first stretched to
# 0..1.2: $s = 0.08$, $z = 0$. On a grid of 3 bits (codes 0..7) with $s = 0.1$ and $z = 5$, x = 0.13
# is 1.3 steps, rounded 1, shifted 6; back: 0.1 (6 - 5) = 0.1. x = 0.94 is 9.4 steps, rounded 9,
# shifted 14, clamped 7; back: 0.2.
#
# **The usual errors.** `lo` and `hi` are used as they come. A group in 5..6 then gets
# $z = \mathrm{round}(-5/s)$, which is no code; clamped to 0, it makes every value come back as at
# most 1: the range must contain 0. The quantizer that was published with AWQ (the method of lab 3)
# has this flaw. And small integer types wrap around without a word: in uint8, 256 is 0 and 3 - 5
# is 254. So clamp before you cast, and widen before you subtract.
# </details>
#
# ### Exercise 2 · A product of integers
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# If activations are quantized like weights, $\hat x_{tk} = s_t\,(q_{tk} - z_t)$ for token $t$ and
# $\hat w_{nk} = s_n\,(q_{nk} - z_n)$ for output $n$, a linear layer needs no float but at its end:
#
# $$ y_{tn} = \sum_k \hat x_{tk} \hat w_{nk} = s_t\, s_n\, A_{tn}, \qquad
# A_{tn} = \sum_k (q_{tk} - z_t)\,(q_{nk} - z_n) . $$
#
# Integer hardware multiplies codes as they are stored, 8 bits times 8 bits; $q - z$ takes a ninth
# bit. So it gives you $P_{tn} = \sum_k q_{tk}\,q_{nk}$ and not $A_{tn}$. **Derive** what is
# missing: there is no formula for it on this card.
#
# **Deliver** `integer_product(products, x_sums, w_sums, k, x_zero, w_zero) -> A`, from sums alone:
# the codes are not among the arguments.
#
# **Shapes** `products` [T, N]; `x_sums` [T]: $\sum_k q_{tk}$; `w_sums` [N]: $\sum_k q_{nk}$; `k`:
# how many inputs there are, an int; `x_zero` [T]; `w_zero` [N]. All tensors int32; codes and zero
# points have 8 bits, signed or not. `A`: [T, N], int32, exact as long as an int32 holds `A` and the
# sums that you are given. (Single terms of it may be larger: in torch int32 wraps around, which
# takes itself back.)


# %% solution="ex2"
def integer_product(
    products: Tensor, x_sums: Tensor, w_sums: Tensor, k: int, x_zero: Tensor, w_zero: Tensor
) -> Tensor:
    """Sums of (q_x - z_x) (q_w - z_w) over k inputs, exactly. int32 [T, N]

    products [T, N]: sums of q_x q_w.  x_sums [T], w_sums [N]: sums of the codes of a row.
    x_zero [T], w_zero [N]: zero points.  All int32.
    """
    ### BEGIN SOLUTION
    x_sums, x_zero = x_sums[:, None], x_zero[:, None]  # [T, 1]
    return products - x_sums * w_zero - x_zero * w_sums + k * x_zero * w_zero
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Multiply the two brackets out. Four terms, each a sum over $k$; what does not depend on
# $k$ leaves its sum.
#
# **By hand.** One token with the codes 5, 1 and the zero point 2, one output with the codes 4, 0
# and the zero point 3: $A = 3 \cdot 1 + (-1)(-3) = 6$. You are given the product 20, the sums 6 and
# 4, and $k = 2$. The four terms are 20, -18, -8 and 12: which is which?
#
# **The usual errors.** What belongs to a row is broadcast along a column: where T = N, torch does
# not complain. Or something becomes a float on the way, and float32 keeps 24 bits.
# </details>
#
# **Reveal.** Your functions on a real weight: as trained, and with the outlier of the prediction.
# Then as a layer of integers: its real inputs, 8 bits, a grid per token; the product by torch's
# integer kernel, which takes int8 codes and adds up in int32. The sums of codes cost next to
# nothing: one addition for each code, against N products.
#
# **Then write one sentence:** why does a weight pay for the size of another weight?
#
# *Your sentence:*


# %% tags=["demo"]
def one_grid(w: Tensor, bits: int) -> Tensor:
    """w through one asymmetric grid."""
    scale, zero = affine_parameters(w.min(), w.max(), bits, symmetric=False)
    return dequantize(quantize(w, scale, zero, bits, symmetric=False), scale, zero)


w = linears["model.layers.0.self_attn.q_proj"].weight.detach()
spoiled = w.clone()
spoiled[0, 0] = 10 * w.abs().max()
w_hats = {"as trained": one_grid(w, 4), "one outlier": one_grid(spoiled, 4)}
errors = [(w_hat - w).flatten()[1:].abs().mean().item() for w_hat in w_hats.values()]
found["outlier"] = errors[1] / errors[0]
style.show(*grid.with_outlier(w, w_hats, found["outlier"]))
print(f"mean error {errors[1]:.4f}; it cannot grow beyond the mean of |w|, {w.abs().mean():.4f}")
lab.reveal("outlier", found["outlier"])


# %% tags=["demo"]
def eight_bits(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """int8 codes, scale and zero point, a grid for each row: the codes of uint8 moved by 128."""
    scale, zero = affine_parameters(*rows.aminmax(dim=1, keepdim=True), 8, symmetric=False)
    codes = quantize(rows, scale, zero, 8, symmetric=False)
    return (codes.int() - 128).to(torch.int8), scale, zero - 128


x = inputs_of(linears["model.layers.0.self_attn.q_proj"], text[:4])  # [1024, K]
(q_x, s_x, z_x), (q_w, s_w, z_w) = eight_bits(x), eight_bits(w)
sums = [codes.sum(dim=1, dtype=torch.int32) for codes in (q_x, q_w)]
whole = integer_product(torch._int_mm(q_x, q_w.T), *sums, w.shape[1], z_x[:, 0], z_w[:, 0])
simulated = dequantize(q_x, s_x, z_x) @ dequantize(q_w, s_w, z_w).T
off = [(s_x * whole * s_w.T - y).abs().max() / y.abs().max() for y in (simulated, x @ w.T)]
print(f"integers, scaled once: off by {off[0]:.0e} from the simulation in floats,")
print(f"and by {off[1]:.0e} from the layer without rounding (of the largest output)")

# %% [markdown]
# ## 2. Granularity and cost
#
# A weight pays for the size of another one because both have one step, and the largest sets it. So
# let fewer weights share a scale: one per **tensor**, per output **channel** (a row of $W$), or
# per **group** of $G$ neighbours in a row. A scale takes 16 bits (fp16) and a zero point $b$ bits.
# The whole weight then takes
#
# $$ \text{bits} = N K b + \text{groups} \times (16 + b), \qquad
# \text{groups} = 1,\;\; N \;\;\text{or}\;\; N \lceil K / G \rceil . $$
#
# This is a promise about a file. A file holds bytes, so codes of 3 bits have to be packed: one
# after another into a stream of bits, across the borders of bytes. `unpack_codes` in the next cell
# reads such a stream. In exercise 3 you write what it reads.


# %%
def unpack_codes(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes of `bits` bits in a stream of bytes [M] uint8. uint8 [count]"""
    places = torch.arange(8, device=packed.device)
    stream = (packed[:, None].int() >> places) & 1  # [M, 8], each byte's lowest bit first
    digits = stream.flatten()[: count * bits].reshape(count, bits)
    return (digits << places[:bits]).sum(dim=1).to(torch.uint8)


# the formula on four group sizes: what "3-bit" codes really cost for a weight [192, 192]
for G in (16, 32, 64, 192):
    n_groups = 192 * math.ceil(192 / G)
    total = 192 * 192 * 3 + n_groups * (16 + 3)
    print(f"G = {G:3d}: {n_groups:4d} groups, {total / 192**2:.3f} bits a weight")

lab.predict(
    "finer",
    "Two ways to spend a little more than 4 bits on this weight. A: 4-bit codes, a scale per row "
    "(4.10 bits a weight). B: 3-bit codes, a scale for every 16 weights (4.19: B may even spend a "
    "little more). The mean squared error of B is that of A",
    unit="times",
)

# %% [markdown]
# ### Exercise 3 · Granularity and its price
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `quantize_weight(w, bits, granularity, symmetric) -> w_hat`, the weight after a round
# trip through the grids of its groups; `weight_bits(shape, bits, granularity, symmetric)`, its
# total size in bits; and `pack_codes(codes, bits) -> packed`, the bytes that `unpack_codes` above
# turns back into the codes.
#
# - `granularity` is `"tensor"`, `"channel"` or an int $G \ge 1$: groups of $G$ neighbours in a row.
#   If $G$ does not divide $K$, the last group of each row is shorter and has its own grid; if
#   $G > K$, each row is one group. `quantize_weight` raises `ValueError` for anything else: other
#   strings (`"Tensor"`, too), `None`, fractions such as 2.5, numbers below 1. (2.0 and `True` are
#   not tested, nor is `weight_bits` with any of these.)
# - The grid of a group spans its smallest to its largest weight (exercise 1).
# - A scale counts 16 bits, a zero point `bits` bits; a symmetric grid stores no zero point. Only
#   weights have codes: if you fill up a last group, what you fill in counts nothing.
# - The round trip uses the scales of exercise 1, in float32: the 16 bits are only counted.
# - Packed codes take $\lceil \text{count} \cdot b / 8 \rceil$ bytes; the bits behind the last code
#   are 0.
#
# **Shapes** `w` [N, K], not empty, float32 or bfloat16, perhaps not contiguous. `w_hat` [N, K],
# float32. The size is an int. `codes`: any shape, uint8 in $0 \dots 2^b - 1$, read row by row,
# perhaps not contiguous, at least one; $b$ is 1 to 8. `packed`: [bytes], uint8.


# %% solution="ex3"
def quantize_weight(w: Tensor, bits: int, granularity: str | int, symmetric: bool) -> Tensor:
    """w [N, K] after quantization and dequantization, float32 [N, K].

    granularity: "tensor", "channel" or the group size G >= 1.  Raises ValueError otherwise.
    """

    ### BEGIN SOLUTION
    def round_trip(groups: Tensor) -> Tensor:  # every row of groups [R, G] is one group
        lo, hi = groups.aminmax(dim=1, keepdim=True)
        scale, zero = affine_parameters(lo, hi, bits, symmetric)
        return dequantize(quantize(groups, scale, zero, bits, symmetric), scale, zero)

    if granularity == "tensor":
        return round_trip(w.reshape(1, -1)).reshape(w.shape)
    size = w.shape[1] if granularity == "channel" else granularity
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"granularity is 'tensor', 'channel' or G >= 1, got {granularity!r}")
    return torch.cat([round_trip(block) for block in w.split(size, dim=1)], dim=1)
    ### END SOLUTION


def weight_bits(shape: tuple[int, int], bits: int, granularity: str | int, symmetric: bool) -> int:
    """Total bits of a quantized weight [N, K] = shape: codes, fp16 scales, b-bit zero points."""
    ### BEGIN SOLUTION
    n, k = shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else n * math.ceil(k / size)
    return n * k * bits + groups * (16 if symmetric else 16 + bits)
    ### END SOLUTION


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """The stream of bytes that unpack_codes reads. uint8 [ceil(count bits / 8)]

    codes [...]: uint8, each below 2^bits.
    """
    ### BEGIN SOLUTION
    places = torch.arange(8, device=codes.device)
    digits = (codes.reshape(-1, 1).int() >> places[:bits]) & 1  # [count, bits]
    stream = nn.functional.pad(digits.flatten(), (0, -digits.numel() % 8))
    return (stream.reshape(-1, 8) << places).sum(dim=1).to(torch.uint8)
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Write the round trip once, for a matrix whose every *row* is a group. All three
# granularities can be brought into that shape. For packing, go backwards through `unpack_codes`:
# each of its steps has an inverse, and the last one comes first.
#
# **By hand.** One row of 5 weights in groups of 2 at 3 bits: the groups are 2, 2 and 1 weights. The
# last one has a single weight, so its range is from 0 to that weight, and it comes back, but for a
# rounding. Size: 5 · 3 bits of codes and three times 16 + 3 bits, 72 bits for 5 weights. Packing 6,
# 1, 7 at 3 bits: the stream 011 100 111, cut into the bytes 01110011 and 1, lowest bit first: 206
# and 1.
#
# **The usual errors.** To make $K$ a multiple of $G$, the last group is filled up with its
# neighbours and gets their range. (Zeros do no harm: all grids of this lab contain 0.) For the
# size: a group that is begun is a group, so round up. In the stream: the highest bit of a code
# first, or a new byte for each row.
# </details>

# %% [markdown]
# ### Exercise 4 · A codebook by k-means
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Must levels be equally spaced? Deep Compression (Han et al., 2016) stores a table of $2^b$ values,
# the *codebook* $c$, with its entries where the weights are: $\hat w = c[q]$, where $q$ is the
# nearest entry. The price is the table: $2^b \times 16$ bits for every set of weights that shares
# one.
#
# **Deliver** `kmeans_codebook(values, bits, iterations) -> (codebook, codes)`.
#
# 1. Start: $2^b$ centroids equally spaced from the smallest to the largest value.
# 2. `iterations` times: every value goes to its nearest centroid, then every centroid moves to the
#    mean of its values. A centroid without values stays where it is. You may stop early once
#    nothing moves.
# 3. The codes point to the nearest entry of the final codebook. At equal distance either will do,
#    in step 2 as well.
#
# **Shapes** `values`: any shape, float32 or bfloat16, perhaps not contiguous, not empty.
# `codebook` [$2^b$], float32, ascending (but for the rounding: a float32 mean of equal values may
# lie a little above them). `codes`: shape of `values`, any integer dtype.
# `iterations` is 0 to 250; $b$ is 1 to 8; squares of differences may be taken to be neither
# infinite nor rounded to 0. Below it runs on up to 100 000 values with 4 to
# 32 centroids: a table of all distances will do, but the hints have a faster way.


# %% solution="ex4"
def kmeans_codebook(values: Tensor, bits: int, iterations: int) -> tuple[Tensor, Tensor]:
    """k-means in one dimension from an even start; codebook[codes] approximates values.

    values [...]: float32 or bfloat16.  Returns (codebook [2^bits] float32 ascending, codes [...]
    of an integer dtype).
    """
    ### BEGIN SOLUTION
    flat = values.reshape(-1).float()
    size = 2**bits
    codebook = torch.linspace(flat.min().item(), flat.max().item(), size, device=flat.device)
    for _ in range(iterations):
        codes = torch.bucketize(flat, (codebook[1:] + codebook[:-1]) / 2)
        counts = torch.bincount(codes, minlength=size)
        sums = torch.bincount(codes, weights=flat.double(), minlength=size)
        codebook = torch.where(counts > 0, (sums / counts).float(), codebook)
    codes = torch.bucketize(flat, (codebook[1:] + codebook[:-1]) / 2)
    return codebook, codes.reshape(values.shape)
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** On a line, "nearest centroid" means "between the midpoints to its two neighbours". And
# the centroids stay in order by themselves, so nothing needs sorting.
#
# **By hand.** 0, 1, 2 and 9 with 2 bits: the centroids start at 0, 3, 6 and 9. The nearest of 0 and
# 1 is 0, that of 2 is 3, that of 9 is 9. The means are 0.5, 2 and 9; 6 has no values and stays:
# 0.5, 2, 6, 9 after one iteration, and nothing moves any more.
#
# **The usual error.** The codes that are returned are from before the last update. Or an empty
# centroid becomes 0 / 0 = NaN, and from then on everything does.
# </details>
#
# **Reveal.** A codebook differs from a linear grid in two ways: its levels are not equally spaced,
# and the outermost ones do not stand at the smallest and the largest weight, so these two are
# *clipped*. Which of the two helps? The control is a linear grid that may clip: `clipped_grid`
# tries nine ranges from 0.2 to 1 times min..max and keeps the one with the least squared error. A
# scale and a zero point have to be stored in any case, so clipping costs no bits.
#
# First one weight: error against *total* bits. `kmeans_weight` runs your exercise 4 on a whole
# weight, for 100 iterations: k-means starts at min..max, and after a few it is still near there, so
# that a fine codebook would look worse than the clipped grid. Then every third weight of the model,
# one step at a time: from a scale per tensor to one per row, from there to groups of 64, and so on;
# and from min..max to a clipped range, from there to a codebook. One more bit of a *fine* grid
# halves the step and divides the squared error by 4, so $\log_4$ of the improvement is what a step
# is *worth* in bits of a fine grid. (A coarse one gains more: from 2 to 3 bits, 3 steps become 7,
# and $(7/3)^2 = 5.4$, worth 1.2; from 4 to 5 it is 4.3.) It *costs* the bits that it adds.
#
# **Then write one sentence:** which steps are worth their price for nearly all weights, and which
# for a few?
#
# *Your sentence:*


# %% tags=["demo"]
kinds = {"tensor": "tensor", "channel": "channel", "G = 64": 64, "G = 32": 32, "G = 16": 16}


def clipped_grid(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point [R, 1] of each row: of nine ranges the one with least squared error."""
    lo, hi = groups.aminmax(dim=1, keepdim=True)
    tried = [affine_parameters(f * lo, f * hi, bits, False) for f in torch.linspace(0.2, 1, 9)]
    made = (dequantize(quantize(groups, s, z, bits, False), s, z) for s, z in tried)
    best = torch.stack([(each - groups).square().sum(dim=1) for each in made]).argmin(dim=0)  # [R]
    scale, zero = (torch.stack(parts) for parts in zip(*tried, strict=True))  # [9, R, 1]
    return scale[best, torch.arange(len(best))], zero[best, torch.arange(len(best))]


def clipped_weight(w: Tensor, bits: int, kind: str) -> Tensor:
    """w [N, K] on clipped grids, one for each of its groups; a G of `kinds` has to divide K."""
    groups = w.reshape(-1, {"tensor": w.numel(), "channel": w.shape[1]}.get(kind, kinds[kind]))
    scale, zero = clipped_grid(groups, bits)
    return dequantize(quantize(groups, scale, zero, bits, False), scale, zero).view_as(w)


# %% tags=["demo"]
def kmeans_weight(w: Tensor, bits: int, iterations: int = 100, every: int = 1) -> Tensor:
    """w [N, K] with one codebook, fitted to every `every`-th weight."""
    codebook, _ = kmeans_codebook(w.flatten()[::every].clone(), bits, iterations)
    return codebook[torch.bucketize(w, (codebook[1:] + codebook[:-1]) / 2)]


def settings(w: Tensor, bits: int) -> dict[tuple[str, str], tuple[Tensor, int]]:
    """{(method, granularity): (w_hat, total bits)} of one weight [N, K]."""
    made = {}
    for kind, g in kinds.items():
        total = weight_bits(w.shape, bits, g, symmetric=False)
        made["linear", kind] = quantize_weight(w, bits, g, symmetric=False), total
        if kind != "G = 16":
            made["clipped", kind] = clipped_weight(w, bits, kind), total
    made["k-means", "tensor"] = kmeans_weight(w, bits), w.numel() * bits + 2**bits * 16
    return made


# %% tags=["demo"]
points = [
    pareto.Point(*key, bits, total / w.numel(), (w_hat - w).square().mean().item())
    for bits in (2, 3, 4, 5)
    for key, (w_hat, total) in settings(w, bits).items()
]
mse = {(p.granularity, p.bits): p.cost for p in points if p.method == "linear"}
found["finer"] = mse["G = 16", 3] / mse["channel", 4]
style.show(*pareto.of_a_weight(points, found["finer"]))
lab.reveal("finer", found["finer"])


def draw(bits: int, granularity: str):
    row = quantize_weight(w, bits, kinds[granularity], symmetric=False)[0]
    return grid.levels_of_a_row(w[0], row, f"{bits} bits, {granularity}")


explorer.explorer(draw, {"bits": [2, 3, 4, 8], "granularity": list(kinds)})

# %% tags=["demo"]
# every third weight, at two widths: about 5 seconds
worth, prices, wide = {2: {}, 4: {}}, {2: {}, 4: {}}, ("channel", "tensor")
for bits, b in ((2, 3), (4, 5)):
    for v in (layer.weight.detach() for layer in list(linears.values())[::3]):
        made = settings(v, bits)
        finer = quantize_weight(v, b, "channel", False), weight_bits(v.shape, b, "channel", False)
        steps = {(a, b): (made["linear", a], made["linear", b]) for a, b in pairwise(kinds)}
        steps["channel", "+ 1 bit"] = made["linear", "channel"], finer
        steps |= {(a, "clipped"): (made["linear", a], made["clipped", a]) for a in wide}
        steps["clipped", "k-means"] = made["clipped", "tensor"], made["k-means", "tensor"]
        for step, ((a_hat, a_bits), (b_hat, b_bits)) in steps.items():
            gain = math.log((a_hat - v).square().mean() / (b_hat - v).square().mean(), 4)
            worth[bits].setdefault(step, []).append(gain)
            prices[bits].setdefault(step, []).append((b_bits - a_bits) / v.numel())
style.show(*granularity.worth(worth, prices))

# %% [markdown]
# **What the two pictures say together.** A scale per row costs a tenth of a bit or less and is
# worth several times that. A clipped range costs nothing. With 2 bits, where a step is wide, it is
# worth about half a bit per row and a whole one per tensor, and most of what a codebook gains over
# a scale per tensor is this; with 4 bits and a scale per row it is worth little. The step from
# there to a codebook is what free spacing is worth: less than clipping a whole tensor, and part of
# its price is not in this picture, for integers cannot multiply the codes any more. Groups of 64
# are just worth their price. Each further halving of $G$ doubles the number of scales, but the
# range of bell-shaped weights shrinks only slowly with their number: so it costs more than it is
# worth, and the same bits are better spent on finer codes. Groups are bought all the same, for two
# reasons. There is no code of 3.5 bits, and a group *is* a size between two whole numbers of bits.
# And in a weight with outliers (dots far above the others) a group keeps the damage to itself.
# Section 4 asks whether perplexity agrees; it is not the squared error of weights.
#
# ## 3. Training through rounding, and the whole model
#
# At 2 bits rounding hurts on any grid. What if the weights could adapt to it? Then the forward pass
# rounds, and the backward pass must find a gradient. But `round` is flat between its jumps: its
# derivative is 0 almost everywhere, and nothing would ever learn.
#
# The **straight-through estimator** (Bengio et al., 2013) pretends. Forward it gives $\hat x$,
# backward the derivative of a clamp:
#
# $$ \frac{\partial \hat x}{\partial x} := \begin{cases} 1 & \text{where }
# q_{min} \le \mathrm{round}(x/s) + z \le q_{max} \\ 0 & \text{where } x \text{ is clipped}
# \end{cases} $$

# %% tags=["demo"]
style.show(*grid.straight_through(step=0.5, first=-2, last=4))
# the trick on four numbers: a + (b - a).detach() has the value of b and the derivative of a
a = torch.tensor([-1.0, -0.4, 0.7, 2.0], requires_grad=True)
print("derivative of round:  ", torch.autograd.grad(torch.round(a).sum(), a)[0].tolist())
through = a + (torch.round(a) - a).detach()
print("straight through:     ", torch.autograd.grad(through.sum(), a)[0].tolist())
lab.predict(
    "training",
    "One layer at 2 bits, a scale per row: the output projection (o_proj) of the attention in the "
    "middle of the model. Its weights are trained for 150 steps, through the rounding, to give the "
    "same outputs as before. On other text, the output error that is left is",
    unit="% of that of plain rounding",
)

# %% [markdown]
# ### Exercise 5 · A gradient through rounding
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `fake_quantize(x, scale, zero, bits, symmetric) -> x_hat`: the values of
# `dequantize(quantize(x))`, with the gradient above for `x`. (`scale` and `zero` need none.) Up to
# half a step beyond each end, where $x$ still rounds to the last level, the tests accept 0 or 1.
#
# - It may be called several times before one `backward`, also for one `x`; gradients that reach `x`
#   by other ways are not its business.
# - An `x` that needs no gradient gives the values alone; then neither needs one afterwards.
# - Values may be off by a few roundings of the size of `x`, as `x + (x_hat - x).detach()` is.
#
# **Shapes** as in exercise 1. `x_hat`: shape of `x`, float32. The gradient has the dtype of `x`,
# as autograd makes it.


# %% solution="ex5"
def fake_quantize(x: Tensor, scale: Tensor, zero: Tensor, bits: int, symmetric: bool) -> Tensor:
    """dequantize(quantize(x)), float32 [...], with the straight-through gradient to x [...].

    The gradient is 1 where x is inside the range of the grid and 0 where it is clipped.
    """
    ### BEGIN SOLUTION
    qmin, qmax = code_range(bits, symmetric)
    with torch.no_grad():
        x_hat = dequantize(quantize(x, scale, zero, bits, symmetric), scale, zero)
        position = torch.round(x.float() / scale) + zero
        inside = (position >= qmin) & (position <= qmax)
    x = x.float()
    return x_hat + torch.where(inside, x - x.detach(), 0.0)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** `x - x.detach()` is 0 with derivative 1. What it is added to keeps its value and gets a
# derivative. Whether $x$ is clipped can be seen before the clamp of exercise 1, and no longer after
# it.
#
# **By hand.** 2 bits (codes 0..3), $s = 1$, $z = 1$. x = 2.4 is rounded 2, shifted 3, a code: value
# 2, derivative 1. x = 2.6 is rounded 3, shifted 4, no code: value 2 again, derivative 0.
#
# **The usual error.** `x + (x_hat - x).detach()` alone passes the gradient everywhere. A weight
# that is clipped is then pushed on and on, although its value no longer changes anything.
# </details>
#
# **Reveal.** First one layer of the model at 2 bits, a scale per row. Plain rounding is the
# simplest *post-training quantization* (PTQ). Then its weights are trained through the rounding to
# give the layer's own outputs on training text, and measured on held-out text. This is *layer-wise*
# training: it knows one layer's outputs and not the model's loss. *Quantization-aware training*
# (QAT) trains the whole network on its loss; the
# [chapter](../../course/chapters/lab01_quantization.md) does that to a small model, as a figure.
# The learning rate falls to 0: a weight near a boundary else flips between two codes. It starts at
# 1 over the largest curvature of the loss, which can be computed: nothing is tried out. The chapter
# shows what more steps, more text, and Adam make of it.
#
# Training deserves two controls. The clipped grid of section 2 uses no data. And the *repair* uses
# the same data and trains nothing: it adds a number to each output and multiplies it by another,
# $y'_n = a_n \hat y_n + c_n$, both by least squares on the training text. For 16 bits a row each,
# both could be stored with the layer. Each of the two grids is rounded, repaired and trained. One
# layer is no evidence for all: look at three.
#
# The share above each picture tells layers apart: how much of the squared size of a layer's inputs
# is that of their *mean* over the tokens. Where this is nearly all, rounding moves an output by
# nearly the same amount for every token, and one number for each output takes that away. A large
# gain of training in such a layer is no sign that it found better weights.
#
# Then the mask. Here the *outputs* of a layer are quantized, to 4 bits on a range that clips many
# of them, and its weights are trained to bring the quantized outputs close to the true ones. A
# clipped output cannot come closer whatever the weights do; its error is large and stays. There is
# nothing to win here, since the weights are those that made the true outputs: watch what is lost.
# Once with your gradient, once with 1 everywhere.
#
# **Then write one sentence:** why do weights that are not at fault move, when there is no mask?
#
# *Your sentence:*

# %% tags=["demo"]
# reads the training text: about 5 seconds
learn_ids = zoo.calibration("code", n=8, length=128)


def two_bits(layer: nn.Linear, clipped: bool) -> list[float]:
    """Output errors on held-out text of a layer at 2 bits: rounded, repaired, trained."""
    x, other_x, w = inputs_of(layer, learn_ids), inputs_of(layer, text[:4]), layer.weight.detach()
    ends = w.aminmax(dim=1, keepdim=True)
    scale, zero = clipped_grid(w, 2) if clipped else affine_parameters(*ends, 2, symmetric=False)

    def output(v: Tensor, x: Tensor) -> Tensor:
        return x @ fake_quantize(v, scale, zero, 2, symmetric=False).T

    y, v = x @ w.T, w.clone().requires_grad_(True)
    size = y.square().sum()
    descend(v, lambda v: (output(v, x) - y).square().sum() / size, 150, rate_for(x, y))
    y_hat, rounded, trained = output(w, x), output(w, other_x), output(v.detach(), other_x)
    made = rounded, repaired(y_hat, y, rounded), trained
    return [(each - other_x @ w.T).square().mean().item() for each in made]


# %% tags=["demo"]
# three layers, about 8 seconds
ways = ["repaired", "trained", "clipped", "clipped, repaired", "clipped, trained"]
middle, panels = model.config.num_hidden_layers // 2, {}
for place in (f"{middle}.self_attn.o_proj", "0.self_attn.o_proj", f"{middle}.mlp.down_proj"):
    layer, x = linears[f"model.layers.{place}"], inputs_of(linears[f"model.layers.{place}"], text)
    (rounded, *rest), clipped = two_bits(layer, clipped=False), two_bits(layer, clipped=True)
    left = [error / rounded for error in (*rest, *clipped)]
    found.setdefault("trained", {})[place] = [100 * part for part in left]
    share = x.mean(0).square().sum() / x.square().sum(1).mean()
    panels[f"{place}, mean {share:.0%}"] = {w: [p] for w, p in zip(ways, left, strict=True)}
title = "Output error that is left at 2 bits on held-out text; plain rounding is 1"
words = "; ".join(f"{k} {[round(p) for p in row]} %" for k, row in found["trained"].items())
style.show(placements.bars(panels, title, "left", [ways[0], *ways[2:4]]), f"{title}: {words}")
lab.reveal("training", found["trained"][f"{middle}.self_attn.o_proj"][1])

# %% tags=["demo"]
up = linears[f"model.layers.{model.config.num_hidden_layers // 2}.mlp.up_proj"]
up_x = inputs_of(up, zoo.calibration("code", n=8, length=64))
y = up_x @ up.weight.detach().T  # [512, N]: the true outputs
out_scale, out_zero = affine_parameters(0.2 * y.min(), 0.2 * y.max(), 4, symmetric=False)
paths = {"your gradient": [], "1 everywhere": []}
for name in paths:

    def loss(v: Tensor, everywhere: bool = name == "1 everywhere") -> Tensor:
        x_hat = fake_quantize(up_x @ v.T, out_scale, out_zero, 4, symmetric=False)
        if everywhere:
            x_hat = up_x @ v.T + (x_hat - up_x @ v.T).detach()
        return (x_hat - y).square().mean() / y.square().mean()

    v = up.weight.detach().clone().requires_grad_(True)
    paths[name] = descend(v, loss, 60, rate_for(up_x, y))
style.show(*grid.training(paths))

# %% [markdown]
# ### Exercise 6 · A whole model
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `quantize_model(model, bits, granularity) -> (quantized, total)`.
#
# - `quantized` is a copy of `model` in which the weight of every `nn.Linear` (subclasses too, and
#   `model` itself may be one) has gone through `quantize_weight(..., symmetric=False)`. Two
#   exceptions stay in float: layers named `lm_head` (the last part of the dotted name, no more and
#   no less), and weights that are the same parameter as the weight of an `nn.Embedding` (*tied*),
#   whatever the layer is called and wherever it stands.
# - `model` does not change, nor do its gradients, and the copy shares no memory with it.
#   Parameters that are one in it are one in the copy. In all else the copy is as the model:
#   biases, buffers, training mode, `requires_grad`.
# - `total` is the size of the copy in bits, an int: `weight_bits` for each quantized weight, 16
#   bits for every element of every other parameter (biases, norms, embeddings, lm_head, ...). A
#   parameter that is used in several places counts once. Buffers count nothing.
#
# All parameters are float32. Not tested: subclasses of `nn.Embedding`; a weight that an `nn.Linear`
# shares with a module that is neither; a weight or a layer that is called `lm_head` in one place
# and not in another; whether the copy carries gradients.


# %% solution="ex6"
def quantize_model(model: nn.Module, bits: int, granularity: str | int) -> tuple[nn.Module, int]:
    """(copy of model with quantized nn.Linear weights, its total size in bits).

    Left in float: layers named lm_head, and weights tied to an nn.Embedding.
    """
    ### BEGIN SOLUTION
    quantized = copy.deepcopy(model)
    total = {id(p): 16 * p.numel() for p in quantized.parameters()}
    done = {id(m.weight) for m in quantized.modules() if isinstance(m, nn.Embedding)}
    for name, layer in quantized.named_modules():
        skip = name.split(".")[-1] == "lm_head" or not isinstance(layer, nn.Linear)
        if skip or id(layer.weight) in done:
            continue
        weight = layer.weight
        with torch.no_grad():
            weight.copy_(quantize_weight(weight, bits, granularity, symmetric=False))
        total[id(weight)] = weight_bits(weight.shape, bits, granularity, symmetric=False)
        done.add(id(weight))
    return quantized, sum(total.values())
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** Copy first, and work on the copy. Keep the bill in a dictionary keyed by
# `id(parameter)`: what is shared then counts once by itself.
#
# **By hand.** An embedding [11, 8], one layer 8 → 12 with bias, an output layer tied to the
# embedding; 4 bits, per channel. Embedding and output: one parameter, 88 · 16 bits. Weight:
# 96 · 4 + 12 · (16 + 4). Bias: 12 · 16. Together 1408 + 624 + 192 = 2224 bits.
#
# **The usual error.** `layer.weight = nn.Parameter(...)` cuts ties: the total then counts two
# weights where there was one. Copying values *into* the parameter keeps them.
# </details>
#
# ## 4. Your code in the live model
#
# Everything you wrote, in one plot: the five granularities of section 2 at 4, 3 and 2 bits, rows at
# 5, 6 and 8, clipped linear grids, and codebooks, one per tensor and at 2 bits also one per row.
# (What stands on a front depends on what was tried: without 5 bits per row, 4 bits in groups of 16
# would.) Sizes are totals of the whole model, so they hold the embedding in 16 bits as well. Text
# and slices are those of the baseline and of the
# [chapter](../../course/chapters/lab01_quantization.md), whose table has more settings. For speed a
# codebook per tensor is fitted to every 8th weight here, and one per row takes 10 iterations.
# Fitted to other weights it is another codebook: its perplexity can differ from the chapter's by
# more than the bar says, which holds the luck of the text alone.
#
# A setting is on the *front* if no other one that is at most 0.01 bits a parameter larger is
# better. A bar is the uncertainty of the difference from fp16: its spread over the slices, divided
# by the root of their number.
#
# Below the plot stands what each purchase costs and gives, in order of size, from one scale per
# tensor and from one per row. All settings read the same slices, so two purchases are compared by
# *their* difference, slice by slice. Each line says how far its perplexity is from the line above,
# and from the clipped range, which is free; below 0 is better. A perplexity above $V$ is worse than
# guessing blindly: a ruined model is sure of wrong tokens.
#
# "Better places" are two purchases. A clipped range keeps the spacing equal; a codebook clips *and*
# spaces freely. Each codebook has a control of its own size: one per tensor the clipped range
# per tensor, one per row a clipped range for every 64 weights. Question 1 asks you what to buy.

# %% tags=["demo"]
measured, slices = [], {}


def measure(method: str, kind: str, bits: int, quantized: nn.Module, total: int) -> None:
    """Adds a setting to `measured`: total bits a parameter, perplexity, its uncertainty."""
    slices[method, kind, bits] = after = losses(quantized)
    cost, off = after.mean().exp().item(), (after - before).std().item() / math.sqrt(len(after))
    measured.append(pareto.Point(method, kind, bits, total / parameters, cost, cost * off))


print("18 models, about 9 seconds")
for bits in (4, 3, 2):
    for kind, g in kinds.items():
        measure("linear", kind, bits, *quantize_model(model, bits, g))
for bits in (5, 6, 8):
    measure("linear", "channel", bits, *quantize_model(model, bits, "channel"))


# %% tags=["demo"]
def clipped_model(bits: int, kind: str) -> tuple[nn.Module, int]:
    """The model on clipped grids, and its total size in bits: that of the grids of min..max."""
    quantized, total = quantize_model(model, bits, kinds[kind])
    for name, layer in linears.items():
        made = clipped_weight(layer.weight.detach(), bits, kind)
        quantized.get_submodule(name).weight.data.copy_(made)
    return quantized, total


print("10 models, about 6 seconds")
for kind in ("tensor", "channel", "G = 64", "G = 32"):
    for bits in (4, 3, 2) if kind in wide else (3, 2):
        measure("clipped", kind, bits, *clipped_model(bits, kind))


# %% tags=["demo"]
def kmeans_model(bits: int, kind: str = "tensor") -> tuple[nn.Module, int]:
    """The model with your codebooks, one for each layer or each row, and its total size in bits."""
    quantized, total = copy.deepcopy(model), 16 * parameters
    for name in linears:
        weight = quantized.get_submodule(name).weight.detach()  # shares the layer's memory
        sets, every, rounds = (weight, 1, 10) if kind == "channel" else (weight[None], 8, 50)
        total += weight.numel() * (bits - 16) + len(sets) * 2**bits * 16
        for values in sets:
            values.copy_(kmeans_weight(values, bits, rounds, every))
    return quantized, total


print("4 models, about 8 seconds")
for bits, kind in ((4, "tensor"), (3, "tensor"), (2, "tensor"), (2, "channel")):
    measure("k-means", kind, bits, *kmeans_model(bits, kind))

# %% tags=["demo", "fold"]
best = pareto.front(measured)
good = [p for p in best if p.cost <= 1.1 * found["perplexity"]]
found["smallest"] = p = min(good, key=lambda p: p.size) if good else best[-1]
at = {(p.method, p.granularity, p.bits): p for p in measured}
style.show(*pareto.of_a_model(measured, p, (16, found["perplexity"])))


def number(x: float, like: float, sign: str = "") -> str:
    """x with two decimals, or with none if `like`, beside which it is read, is 100 or more."""
    return f"{x:{sign},.{2 if abs(like) < 100 else 0}f}"


def change(a: pareto.Point, b: pareto.Point) -> str:
    """By how much the perplexity of b is above that of a, and the uncertainty of that."""
    off, rise = b.cost * slices[b[:3]] - a.cost * slices[a[:3]], b.cost - a.cost
    return f"{number(rise, rise, '+')} ± {number(off.std().item() / math.sqrt(len(off)), rise)}"


def purchases(start: pareto.Point) -> list[str]:
    """What each way to spend bits costs and gives, from a linear setting, in order of size."""
    kind, b = start.granularity, start.bits
    free, groups = at["clipped", kind, b], ("G = 64", "G = 32", "G = 16")
    ways = {f"finer codes ({b + 1} bits)": at["linear", kind, b + 1], "a clipped range": free}
    ways["a codebook per tensor"] = at["k-means", "tensor", b]
    if kind == "tensor":
        ways["a scale per row"] = at["linear", "channel", b]
        ways["a scale per row, clipped"] = at["clipped", "channel", b]
    ways |= {f"groups, {g}": at["linear", g, b] for g in groups}
    ways |= {f"groups, {g}, clipped": at["clipped", g, b] for g in groups[:2]}
    if b == 2:
        ways["a codebook per row"] = at["k-means", "channel", b]
    ways = dict(sorted(ways.items(), key=lambda way: (round(way[1].size, 1), -way[1].cost)))
    lines = [f"\n{f'{b} bits per {kind}':30s}{start.size:.2f}{number(start.cost, start.cost):>12s}"]
    for (name, p), above in zip(ways.items(), [start, *ways.values()], strict=False):
        beside = "" if p is free else change(free, p)
        lines.append(
            f"  {name:27s}{p.size - start.size:+.2f}{number(p.cost, p.cost):>12s}"
            f"{change(above, p):>20s}{beside:>20s}".rstrip()
        )
    return lines


found["answer"] = [
    purchases(at["linear", kind, bits]) for kind in ("tensor", "channel") for bits in (2, 3)
]
print(f"{'':36s}perplexity{'change from':>14s}{'change from':>20s}")
print(f"{'bits a parameter, added':36s}{'':10s}{'line above':>13s}{'clipped range':>22s}", end="")
print("\n".join(["", *(line for part in found["answer"] for line in part)]))
print("\na scale per row, and what a clipped range changes")
for b in (4, 3, 2):
    row, free = at["linear", "channel", b], at["clipped", "channel", b]
    print(f"  {b} bits{number(row.cost, row.cost):>12s}{change(row, free):>18s}")

# %% [markdown]
# **Three more looks.** *Which layers hurt most?* One layer at 2 bits per channel, all others as
# they are, on shorter slices of the same text. Below the plot, on the same slices: what all do
# together. If that is more than the sum, one reason may be that each layer then works on inputs
# that are wrong already.
#
# *What do the models write?* The most likely text goes round in circles even with 16 bits: greedy
# decoding of a small model does. In a ruined model it hangs on a hair: one code that rounds the
# other way is enough for another text, so the last one may differ from the picture at the top. So
# count also how many of 30 drawn texts are Python. The ± is the uncertainty of such a count;
# differences of one or two say nothing.
#
# *What does the file hold?* Groups of 32, written with your `pack_codes` and read back. The file is
# larger than the formula by its header: for each tensor safetensors keeps a name, a dtype, a shape
# and two offsets, as text, and a quantized weight is three tensors.

# %% tags=["demo"]
# about 5 seconds
rise, spread, short = {}, {}, text[:, :64]
start = evaluation.token_losses(model, short, context=64, stride=64).mean(dim=1)
for name, layer in linears.items():
    kept = layer.weight.detach().clone()
    layer.weight.data.copy_(quantize_weight(kept, 2, "channel", symmetric=False))
    off = evaluation.token_losses(model, short, context=64, stride=64).mean(dim=1) - start
    layer.weight.data.copy_(kept)
    rise[name], spread[name] = off.mean().item(), off.std().item() / math.sqrt(len(off))
ruined, _ = quantize_model(model, 2, "channel")
together = evaluation.token_losses(ruined, short, context=64, stride=64).mean() - start.mean()
style.show(*layers.of_a_model(rise, spread))
found["worst"] = [(name, rise[name], spread[name]) for name in sorted(rise, key=rise.get)[:-4:-1]]
print(f"one at a time, added up: {sum(rise.values()):.2f} nats; all at once: {together:.2f}")

# %% tags=["demo"]
prompt, found["parses"] = zoo.PROMPTS[4], {}


def drawn_ones(k: int) -> str:
    """k of 30, with its uncertainty: counted with one more of each kind, or 0 would be sure."""
    return f"{k} ± {math.sqrt((k + 1) * (31 - k) / 32):.0f}"


print("the most likely text, and how many of 30 drawn ones are Python; about 6 seconds")
for bits in (16, 4, 3, 2):
    writer = model if bits == 16 else quantize_model(model, bits, "channel")[0]
    drawn = writing.continuations(writer, prompt, tokens=40, n=30, seed=0)
    found["parses"][bits] = sum(writing.parses(each, prompt) for each in drawn)
    print(f"\n--- {bits} bits; of 30 drawn, {drawn_ones(found['parses'][bits])} parse")
    print(zoo.sample(writer, prompt, tokens=70).removeprefix(prompt))

# %% tags=["demo"]
from safetensors.torch import load_file, save_file


def stored(w: Tensor, bits: int, G: int) -> dict[str, Tensor]:
    """What a file holds of a weight [N, K] in groups of G, which divides K."""
    groups = w.reshape(-1, G)
    scale, zero = affine_parameters(*groups.aminmax(dim=1, keepdim=True), bits, symmetric=False)
    codes = quantize(groups, scale, zero, bits, symmetric=False)
    zero = pack_codes(zero.to(torch.uint8), bits)
    return {"codes": pack_codes(codes, bits), "scale": scale.half(), "zero": zero}


def restored(file: dict[str, Tensor], name: str, bits: int, G: int) -> Tensor:
    """The weight, flat, that is in the file under this name."""
    scale = file[f"{name}.scale"].float()
    zero = unpack_codes(file[f"{name}.zero"], bits, len(scale))[:, None].int()
    codes = unpack_codes(file[f"{name}.codes"], bits, len(scale) * G)
    return dequantize(codes.reshape(-1, G), scale, zero).flatten()


# %% tags=["demo"]
path, G = Path(tempfile.mkdtemp()) / "model.safetensors", 32
rest = {n: p.detach().half() for n, p in model.named_parameters()}
for bits in (4, 3, 2):
    file = {n: p for n, p in rest.items() if n.removesuffix(".weight") not in linears}
    for name, layer in linears.items():
        parts = stored(layer.weight.detach(), bits, G)
        file |= {f"{name}.{part}": values for part, values in parts.items()}
    save_file(file, path)
    on_disk, (again, total) = path.stat().st_size, quantize_model(model, bits, G)
    for name, layer in again.named_modules():
        if name in linears:
            layer.weight.data.copy_(restored(load_file(path), name, bits, G).view_as(layer.weight))
    print(f"{bits} bits: {on_disk:,} bytes on disk, {total // 8:,} by the formula, ", end="")
    print(f"perplexity of what is read back {losses(again).mean().exp():.2f}")

# %% [markdown]
# ## 5. Misconceptions
#
# **"The quantized model is now smaller."** The file is. The model that was measured is a
# simulation: its weights take few values and are stored as floats.
#
# **"Smaller is faster."** Only with a kernel that reads the codes. Turning codes back into floats
# before an ordinary product adds work. An integer kernel multiplies codes and adds up in int32; its
# sums are exactly those of the simulation, as exercise 2 showed. Where it is faster depends on
# machine and shape.
#
# **"Training a layer is quantization-aware training."** Section 3 trained one layer on its own
# outputs. That lowers the layer's error; what the model loses is another question.
#
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the question of this lab.** You have linear codes of 2 or 3 bits with one scale per
# tensor or per row, and a few bits to spend. Do you buy finer codes, more scales, or levels in
# better places? When do groups pay? And how much of what a codebook gains has a clipped linear grid
# of the same size as well?
# *Rubric:* each of the three purchases with what it costs in total bits and what it gives, from
# your list (1); which comes first and which only in some cases, at equal size, with the uncertainty
# of the difference taken into account (2); each codebook beside the clipped grid of its size, and
# where clipping does not help (1); one price that no size shows (1).

# %% [markdown] written="w1"
# From 2 bits per tensor (perplexity 45,340) a scale per row costs 0.07 bits a parameter and gives
# 340, one bit more costs 0.87 bits and gives 218. A clipped range costs nothing and gives 61, a
# codebook per tensor next to nothing and 32: most of what the codebook gains, a linear grid of its
# size has as well. At 3 bits they give 14.45 and 12.88 from 218. So clipping comes first where a
# step is wide. Then a scale per row, which is nearly free: clipped, 37 and 11.4. At 3 and 4 bits
# per row clipping adds nothing that is sure (-0.07 ± 0.23 and -0.10 ± 0.07). Groups of 64 pay: for
# less than 0.2 bits more than rows they are better than clipped rows by 11.5 ± 1.5 at 2 bits, if
# they are clipped too, and by 0.85 ± 0.14 at 3. At 2 bits a codebook per row, of the size of these
# groups, is better by another 4.1 ± 0.8: there free places are worth their table. Smaller groups
# are no bargain: 3 bits in groups of 16 lose to 4 bits per row, which is smaller and better by
# 0.34 ± 0.07. Groups fill the gaps between whole numbers of bits, and help weights with outliers.
# The codes of a codebook are looked up and can no longer be multiplied as integers; those of a
# clipped grid can.

# %% [markdown]
# **Question 2.** The gradient of exercise 5 is not the derivative of the function. Why does
# training with it work all the same, why must it be 0 where values are clipped, and what does
# training give and cost compared with a clipped grid and with a repair, which train nothing?
# *Rubric:* what the true derivative is and what follows from it (1); what happens to the float
# weights and to the codes during training, and why the estimate points in a useful direction (2);
# what training added to the clipped grid and to the repair, with your numbers of three layers and
# where their difference comes from (1); what the mask prevents, or one cost or risk (1).

# %% [markdown] written="w2"
# The true derivative of the staircase is 0 except at the jumps, where it does not exist: gradient
# descent would never move. The estimate ignores the rounding and keeps the clamp. The optimizer
# moves the float weights a little at every step; most codes stay, but small moves in the same
# direction add up until a weight crosses a boundary and its code changes. The direction is useful
# because over a whole step x_hat does rise with x, at an average slope of 1. So errors of several
# weights can cancel in the output, which rounding each weight by itself cannot do. On grids of
# min..max training left 72, 12 and 112 % of the error in my three layers, but the repair left 87,
# 10 and 78, and a clipped grid, with no data at all, 73, 82 and 43. The 12 % are no feat of
# training: nearly all of that layer's input is its mean, and one number for each output does as
# well. On the clipped grid training was far ahead of the repair in one layer (36 against 63), level
# in another (7 both times), and in the third it made things worse (53, where clipping alone left
# 43): this layer has 512 inputs and read 1024 tokens, and what fits these need not fit others.
# A clipped value does not change, so a gradient for it promises what will not happen: with 1
# everywhere the large errors of clipped outputs drove the weights, and the loss rose instead of
# staying where it was. Training costs data, gradients and float copies of the weights; the repair
# costs data and two numbers a row.

# %% [markdown]
# ## Open task (not graded)
#
# **The best perplexity at 4.75 bits a parameter or less, everything counted.** The number to beat
# is that of 3-bit codebooks per tensor. `my_model` returns a model and its total bits; the cell
# measures it, and what it found goes into the takeaways. Ideas: not every layer needs the same
# bits, and you know which ones hurt; most of what is left in 16 bits is one matrix; clipped ranges
# for rows and groups; codebooks per row; training on clipped grids.
#
# ## Stretch (not graded)
#
# - **Clip by the output.** At 3 bits per row clipping lowers the squared error of the weights, and
#   the perplexity by no more than its uncertainty. Search the range by the error of the layer's
#   outputs instead (`inputs_of`).
# - **Repair the model.** Give every layer of the model at 2 bits per row a bias that corrects the
#   mean of its outputs (16 bits a row). What does perplexity do, on grids of min..max, and on
#   clipped ones?
# - **Flip-flop.** Set the learning rate of section 3 four times as high. How many codes change in
#   the last ten steps, and what does the error do?
# - **Another optimizer.** Train by Adam at a rate of 0.003 standard deviations of the weights, for
#   150 steps and for 600. What do the error on training text and that on other text do?
# - **Cheaper groups.** A scale of 8 bits, a zero point shared by a row: do groups of 16 pay then?
# - **Symmetric at 2 bits** has three levels. What does the fourth buy, and what does it cost?
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
#
# **Next:** lab 2 quantizes activations too, where outliers are not an accident; lab 3 asks which
# weights deserve better; lab 11 uses data to decide each rounding.
#
# **Sources.** Jacob et al., *Quantization and Training of Neural Networks for Efficient
# Integer-Arithmetic-Only Inference*, 2018 (the affine grid; exercise 2 is its section 2.3).
# Krishnamoorthi, *Quantizing deep convolutional networks*, 2018 (granularity). Han, Mao and Dally,
# *Deep Compression*, 2016 (k-means; figure 3 is the example of a public test). Bengio, Léonard and
# Courville, *Estimating or Propagating Gradients Through Stochastic Neurons*, 2013
# (straight-through). Nagel et al., *A White Paper on Neural Network Quantization*, 2021 (an
# overview).


# %% tags=["demo"]
def my_model() -> tuple[nn.Module, int]:
    return kmeans_model(3)


mine, total = my_model()
cost, limit = losses(mine).mean().exp().item(), 4.75
to_beat = at["k-means", "tensor", 3]
found["open"] = f"perplexity {cost:.2f} at {total / parameters:.2f} bits a parameter"
print(f"to beat: {to_beat.cost:.2f} at {to_beat.size:.2f}; yours: {found['open']}")
print("within the limit" if total / parameters <= limit else f"too large: at most {limit} bits")

# %% tags=["demo"]
own = lab.use()  # yours: lab.use("FOLDER") or lab.use("owner/name")
own_loss = own.loss()
for bits in (4, 3):
    for grain in ("tensor", "channel", 64):
        change = {"bits": bits, "granularity": grain, "symmetric": False}
        rounded = own.changed(lambda name, w, change=change: quantize_weight(w, **change))
        print(f"{bits} bits, {grain}: {own.loss(rounded) - own_loss:+.3f} nats a token")

# %% tags=["demo", "fold"]
lab.report()
p, reference, left = found["smallest"], found["perplexity"], found["trained"].items()
control = {k: at["linear", k, 2] for k in kinds}
takeaways = [
    f"One outlier made the mean error of the other weights {found['outlier']:.1f} times as large.",
    f"3 bits in groups of 16 had {found['finer']:.1f} times the squared error of 4 bits per row.",
    "Output error left at 2 bits, in % of plain rounding (repaired, trained | clipped: rounded, "
    "repaired, trained): "
    + "; ".join(f"{k} {a:.0f}, {b:.0f} | {c:.0f}, {d:.0f}, {e:.0f}" for k, (a, b, c, d, e) in left),
    f"Perplexity at 2 bits (fp16 {reference:.1f}): "
    + ", ".join(f"{kind} {style.number(point.cost)}" for kind, point in control.items()),
    f"One range for a tensor at 2 bits: min..max {control['tensor'].cost:,.0f}, clipped "
    f"{at['clipped', 'tensor', 2].cost:.1f}, codebook {at['k-means', 'tensor', 2].cost:.1f}.",
    f"Smallest within 10 % of fp16 ({1.1 * reference:.2f}): {p.bits} bits, {p.method}, "
    f"{p.granularity}, perplexity {p.cost:.2f} ± {p.spread:.2f}; {p.size:.2f} bits a parameter in "
    f"all, {16 / p.size:.1f} times smaller.",
    "Drawn texts that are Python, of 30: "
    + ", ".join(f"{drawn_ones(n)} at {bits} bits" for bits, n in found["parses"].items()),
    "The layers that hurt most at 2 bits, in nats: "
    + ", ".join(f"{n.removeprefix('model.')} {a:.3f} ± {b:.3f}" for n, a, b in found["worst"]),
    f"Open task: {found['open']}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
