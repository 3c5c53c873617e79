# %% [markdown]
# # Lab 1: Linear and k-means quantization
#
# **The question.** With 2 bits a weight, equally spaced levels and one scale per matrix, the
# language model of this lab is ruined. A scale for every 32 weights undoes most of the damage, and
# so does a table of four well-placed levels per matrix. But scales and tables cost bits too. **If
# you have a few bits to spend, do you buy finer codes, more scales, or levels in better places?**
#
# Section 4 asks this again. You then answer it for this model, with numbers that you measured.

# %% [markdown]
# ## Card
#
# | | |
# |---|---|
# | Time | 2 to 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | Python, PyTorch tensors and autograd; nothing about quantization |
# | Not covered | activations, choosing what to protect, using data to round, fast kernels |
#
# After this lab you can
# 1. turn a range of numbers into a scale and a zero point, and bound the error by half a step;
# 2. say what a quantized weight costs in bits, with everything that is needed to read it back;
# 3. quantize a whole model, train through the rounding, and judge both by perplexity per bit.
#
# Every exercise has a card, a stub, a check and a folded help. `lab.check("ex1")` runs the public
# tests (6 of 15 points) and names the kinds of hidden tests (9 of 15). `lab.hint("ex1")` gives one
# hint at a time. Tests call your functions by name, so keep names and arguments as they are. Later
# exercises call your earlier ones.

# %% [markdown]
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
# No function of this lab changes its arguments, or keeps anything from one call to the next: work
# on new tensors. Any order of float32 operations will do; tests allow for the rounding.

# %%
import copy
import math
import time

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, grid, matrices, pareto, style

lab = Lab("lab01_quantization")


def code_range(bits: int, symmetric: bool) -> tuple[int, int]:
    """(qmin, qmax) of the grid.  Raises ValueError for a width that does not exist."""
    if not (2 if symmetric else 1) <= bits <= 8:
        raise ValueError(f"no grid with bits={bits}, symmetric={symmetric}")
    if symmetric:
        return -(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


# %% [markdown]
# ## Baseline
#
# The model is a small Llama, trained for this course on the source code of Python's standard
# library. Our measure of quality is its *perplexity* on held-out code: $\exp$ of the mean of
# $-\ln p(\text{next token})$. Lower is better; guessing blindly among $V$ tokens gives $V$.
#
# All sizes in this lab are bits, counted from shapes. 16 bits a parameter (fp16) is the size to
# beat: the shipped weights are fp16 numbers. We compute in float32, here and after quantization.

# %% tags=["demo"]
model = zoo.load("target")
found = {}  # the numbers you find, for the takeaways at the end


def float_bits(model: nn.Module) -> int:
    """Bits of the model in fp16; a parameter that is used twice counts once."""
    return sum(16 * p.numel() for p in model.parameters())


def perplexity(model: nn.Module) -> float:
    return zoo.perplexity(model, split="code", tokens=2048, context=128, stride=128)


linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"}
found["fp16 MB"], found["perplexity"] = float_bits(model) / 8e6, perplexity(model)
share = sum(16 * m.weight.numel() for m in linears.values()) / float_bits(model)
print(f"{found['fp16 MB']:.2f} MB in fp16, {share:.0%} of it in {len(linears)} linear layers")
print(f"perplexity {found['perplexity']:.2f}, with a vocabulary of {model.config.vocab_size}")
assert all(torch.equal(p, p.half().float()) for p in model.parameters()), "not fp16 numbers"

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
x = torch.linspace(-1.6, 2.6, 800)
x_hat = torch.round(x / 0.5).clamp(-2, 4) * 0.5
half = torch.full_like(x, 0.25)
style.show(
    grid.lines(
        x,
        [{"x": x, "x_hat": x_hat}, {"x_hat - x": x_hat - x, "+s/2": half, "-s/2": -half}],
        title="Inside the range the error stays within half a step; outside it grows without limit",
        xlabel="x",
        ylabels=["value", "error"],
    ),
    alt="Left: a staircase of levels 0.5 apart follows the diagonal from -1 to 2 and is flat "
    "beyond. Right: the error is a sawtooth between -0.25 and 0.25 that grows where x is clipped.",
)
# %%
# the formula on four numbers: 2 bits (codes 0, 1, 2, 3), s = 1, z = 1
four = torch.tensor([-1.0, -0.4, 0.7, 2.0])
four_codes = (torch.round(four / 1.0) + 1).clamp(0, 3)
four_hat = 1.0 * (four_codes - 1)
for name, values in (("x", four), ("codes", four_codes), ("x_hat", four_hat)):
    print(f"{name:6s}" + "".join(f"{value:6.1f}" for value in values))
assert (four_hat - four).abs().max() <= 0.5

lab.predict(
    "outlier",
    "A weight matrix has 4-bit codes and one asymmetric grid from its smallest to its largest "
    "weight. ONE of its thousands of weights is replaced by a value 10 times as large as the "
    "largest. The mean of |x_hat - x| over all the OTHER weights becomes",
    unit="times as large",
)

# %% [markdown]
# ### Exercise 1 · Scale and zero point
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
#
# **Deliver** `affine_parameters(lo, hi, bits, symmetric) -> (scale, zero)`: the grid for groups of
# numbers that lie in [lo, hi].
#
# - *Symmetric:* the largest magnitude meets the largest code, $s = \max(|lo|, |hi|)\,/\,q_{max}$,
#   and $z = 0$.
# - *Asymmetric:* 0.0 must have a code of its own, so first stretch the range until it contains 0:
#   $lo \leftarrow \min(lo, 0)$ and $hi \leftarrow \max(hi, 0)$. Then $s = (hi - lo)\,/\,q_{max}$
#   and $z = \mathrm{round}(-lo / s)$.
# - A group of zeros would get $s = 0$. Give it any positive finite scale instead (and any code for
#   $z$). Leave the scale of all other groups as it is: a range of $10^{-18}$ is a range.
# - A width that does not exist raises `ValueError`.
#
# **Shapes** `lo`, `hi`: one common shape, any number of dimensions, float32 or bfloat16, lo ≤ hi.
# Compute in float32. Returned, in the same shape: `scale` float32, `zero` int32.


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


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** A grid has one step fewer than it has codes: the codes 0..15 span 15 steps. The scale is
# the width of the range divided by the steps. The zero point is the number of steps from the lowest
# level up to 0.0.
#
# **By hand.** The range -0.3..1.2 with 4 bits, asymmetric: its width 1.5 makes 15 steps of
# $s = 0.1$, and 0.0 lies 3 steps above -0.3, so $z = 3$. The range 0.3..1.2 is first stretched to
# 0..1.2: $s = 0.08$, $z = 0$.
#
# **The usual error.** `lo` and `hi` are used as they come. A group in 5..6 then gets
# $z = \mathrm{round}(-5/s)$, which is no code; clamped to 0, it makes every value come back as at
# most 1. The cause is not the clamp: the range must contain 0. The quantizer that was published
# with AWQ (the method of lab 3) has this flaw.
# </details>

# %% [markdown]
# ### Exercise 2 · Quantize and dequantize
#
# **15 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
#
# **Deliver** `quantize(x, scale, zero, bits, symmetric) -> codes`, by
# $q = \mathrm{clamp}(\mathrm{round}(x/s) + z,\, q_{min},\, q_{max})$ with `torch.round`, which
# takes ties to the even number, however far `x` lies outside; and `dequantize(codes, scale, zero)
# -> values`, by $\hat x = s\,(q - z)$.
#
# **Shapes** `x`: any shape, float32 or bfloat16 (compute in float32), perhaps not contiguous.
# `scale` (float32) and `zero` (int32) each broadcast to `x`: for example [N, 1] for `x` [N, K].
# Codes: shape of `x`, int8 if symmetric, else uint8. Values: shape of the codes, float32.


# %% solution="ex2"
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


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Round first, shift second, clamp third, and change the dtype last.
#
# **By hand.** 3 bits (codes 0..7), $s = 0.1$, $z = 5$. x = 0.13 is 1.3 steps, rounded 1, shifted 6;
# back: 0.1 (6 - 5) = 0.1. x = 0.94 is 9.4 steps, rounded 9, shifted 14, clamped 7; back: 0.2.
#
# **The usual error.** Small integer types wrap around without a word: in uint8, 256 is 0 and 3 - 5
# is 254. So clamp before you cast, and widen before you subtract. And no integer type holds
# $10^{30}$: clamp while the numbers are floats.
# </details>

# %% [markdown]
# **Reveal.** Your functions on a real weight: as trained, and with the outlier of the prediction.
#
# **Then write one sentence:** why does a weight pay for the size of another weight?
#
# *Your sentence:*
# %% tags=["demo"]
w = linears["model.layers.0.self_attn.q_proj"].weight.detach()


def one_scale(w: Tensor, bits: int) -> Tensor:
    """w through one asymmetric grid."""
    scale, zero = affine_parameters(w.min(), w.max(), bits, symmetric=False)
    return dequantize(quantize(w, scale, zero, bits, symmetric=False), scale, zero)


spoiled = w.clone()
spoiled[0, 0] = 10 * w.abs().max()
w_hats = {"as trained": one_scale(w, 4), "one outlier": one_scale(spoiled, 4)}
errors = [(w_hat - w).flatten()[1:].abs().mean().item() for w_hat in w_hats.values()]
found["outlier"] = errors[1] / errors[0]
wider = (spoiled.max() - spoiled.min()) / (w.max() - w.min())
zeros = (w_hats["one outlier"] == 0).float().mean()
print(f"the step became {wider:.2f} times as wide, the mean error {found['outlier']:.2f} times:")
print(f"{zeros:.0%} of the weights now round to 0, where the error is |w| and cannot grow further")
print(f"mean error {errors[1]:.4f}, mean of |w| {w.abs().mean():.4f}")
near = {name: w_hat[w_hat.abs() <= 1.5 * w.abs().max()] for name, w_hat in w_hats.items()}
style.show(
    grid.histogram_with_grid(
        w,
        near,
        f"One outlier (far to the right, not shown) makes the other errors {found['outlier']:.1f} "
        "times as large",
    ),
    alt="Two histograms of the same bell-shaped weights with the 4-bit levels as vertical lines; "
    "the outlier and its level lie outside. Many levels cover the bell as trained, only a few fall "
    "into it with the outlier.",
)
corner, corner_hat = w[:6, :8], w_hats["as trained"][:6, :8]
style.show(
    matrices.before_after(
        corner, corner_hat, f"48 of these weights at 4 bits: {len(corner_hat.unique())} values left"
    ),
    alt="A corner of 6 by 8 weights, their values after quantization, and the errors.",
)
lab.reveal("outlier", found["outlier"])

# %% [markdown]
# ## 2. Granularity and cost
#
# Let fewer weights share a scale: one per **tensor**, per output **channel** (a row of $W$), or
# per **group** of $G$ neighbours in a row. A scale takes 16 bits (fp16) and a zero point $b$ bits.
# The whole weight then takes
#
# $$ \text{bits} = N K b + \text{groups} \times (16 + b), \qquad
# \text{groups} = 1,\;\; N \;\;\text{or}\;\; N \lceil K / G \rceil . $$

# %% tags=["demo"]
ratio = ((w.amax(1) - w.amin(1)) / (w.max() - w.min())).median()
style.show(
    matrices.row_ranges(w, f"The median row needs only {ratio:.0%} of the range of the tensor"),
    alt="A bar from the smallest to the largest weight for every row, sorted by width, between two "
    "dashed lines at the range of the whole weight. Most bars are clearly shorter.",
)
# %%
# the formula on four group sizes: what "3-bit" codes really cost for a weight [192, 192]
for G in (8, 32, 96, 192):
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
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
#
# **Deliver** `quantize_weight(w, bits, granularity, symmetric) -> w_hat`, the weight after a round
# trip through the grids of its groups, and `weight_bits(shape, bits, granularity, symmetric)`, its
# total size in bits.
#
# - `granularity` is `"tensor"`, `"channel"` or an int $G \ge 1$: groups of $G$ neighbours in a row.
#   If $G$ does not divide $K$, the last group of each row is shorter and has its own grid; if
#   $G > K$, each row is one group. `quantize_weight` raises `ValueError` for anything else: other
#   strings, `None`, fractions, numbers below 1.
# - The grid of a group spans its smallest to its largest weight (exercise 1).
# - A scale counts 16 bits, a zero point `bits` bits; a symmetric grid stores no zero point.
#
# **Shapes** `w` [N, K], float32 or bfloat16, perhaps not contiguous. `w_hat` [N, K], float32. The
# size is an int.


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


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Write the round trip once, for a matrix whose every *row* is a group. All three
# granularities can be brought into that shape.
#
# **By hand.** One row of 5 weights in groups of 2 at 3 bits: the groups are 2, 2 and 1 weights. The
# last one has a single weight, so its range is from 0 to that weight, and it comes back exactly.
# Size: 5 · 3 bits of codes and three times 16 + 3 bits, 72 bits for 5 weights.
#
# **The usual error.** To make $K$ a multiple of $G$, the last group is filled up with its
# neighbours and gets their range. (Zeros do no harm: all grids of this lab contain 0.) For the
# size: a group that is begun is a group, so round up.
# </details>

# %% [markdown]
# ### Exercise 4 · A codebook by k-means
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
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
# 3. The codes point to the nearest entry of the final codebook; at equal distance either will do.
#
# **Shapes** `values`: any shape, float32 or bfloat16, perhaps not contiguous, not empty.
# `codebook` [$2^b$], float32, ascending (but for the rounding: a float32 mean of equal values may
# lie a little above them). `codes`: shape of `values`, any integer dtype.
# `iterations` may be 0; $b$ is 1 to 8. Below it runs on thousands of values with 256 centroids: a
# table of all distances will do, but the hints have a faster way.


# %% solution="ex4"
def kmeans_codebook(values: Tensor, bits: int, iterations: int) -> tuple[Tensor, Tensor]:
    """k-means in one dimension from an even start; codebook[codes] approximates values.

    values [...]: float32 or bfloat16.  Returns (codebook [2^bits] float32 ascending, codes [...]
    of an integer dtype).
    """
    ### BEGIN SOLUTION
    flat = values.reshape(-1).float()
    size = 2**bits
    codebook = torch.linspace(flat.min().item(), flat.max().item(), size)
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


# %% [markdown]
# **Reveal.** Error against *total* bits for this one weight. `kmeans_weight` runs your exercise 4
# on every set of weights that shares a codebook.
#
# **Then write one sentence:** when is a finer granularity a better buy than one more bit?
#
# *Your sentence:*
# %% tags=["demo"]
def kmeans_weight(w: Tensor, bits: int, granularity: str, iterations=15, every=1) -> Tensor:
    """w [N, K] with a codebook per tensor or per channel, fitted to every `every`-th weight."""
    w_hat = torch.empty_like(w)
    rows = [slice(None)] if granularity == "tensor" else range(w.shape[0])
    for row in rows:
        codebook, _ = kmeans_codebook(w[row].flatten()[::every].clone(), bits, iterations)
        w_hat[row] = codebook[torch.bucketize(w[row], (codebook[1:] + codebook[:-1]) / 2)]
    return w_hat


def codebook_bits(shape: tuple[int, int], bits: int, tables: int) -> int:
    """Codes, and 2^b entries of 16 bits for each table."""
    return shape[0] * shape[1] * bits + tables * 2**bits * 16


points = []
for bits in (2, 3, 4, 5):
    for granularity in ("tensor", "channel", 16):
        kind = "group 16" if granularity == 16 else granularity
        w_hat = quantize_weight(w, bits, granularity, symmetric=False)
        size = weight_bits(w.shape, bits, granularity, symmetric=False) / w.numel()
        points.append(pareto.Point("linear", kind, bits, size, (w_hat - w).square().mean().item()))
    for granularity, tables in (("tensor", 1), ("channel", w.shape[0])):
        w_hat = kmeans_weight(w, bits, granularity)
        size, mse = codebook_bits(w.shape, bits, tables), (w_hat - w).square().mean().item()
        points.append(pareto.Point("k-means", granularity, bits, size / w.numel(), mse))
mse = {(p.method, p.granularity, p.bits): p.cost for p in points}
found["finer"] = mse["linear", "group 16", 3] / mse["linear", "channel", 4]
sizes = {(p.granularity, p.bits): p.size for p in points if p.method == "linear"}
found["sizes"] = sizes["group 16", 3], sizes["channel", 4]
style.show(
    pareto.tradeoff(
        points,
        f"3 bits in groups of 16: {found['finer']:.1f} times the error of 4 bits per channel",
        "total bits per weight",
        "mean squared error of the weight",
    ),
    alt="Error against total bits per weight for linear quantization per tensor, per channel and "
    "in groups of 16, and for k-means per tensor and per channel, at 2 to 5 bits.",
)
lab.reveal("finer", found["finer"])
print("bits a weight: B {:.3f}, A {:.3f}".format(*found["sizes"]))
for bits in (2, 3):
    size = codebook_bits((1, 32), bits, 1) / 32
    print(f"{bits}-bit codes and a codebook for every 32 weights: {size:.1f} bits a weight")

# %% [markdown]
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
x = torch.linspace(-1.6, 2.6, 800)
steps = torch.round(x / 0.5)
estimate = ((steps >= -2) & (steps <= 4)).float()
style.show(
    grid.lines(
        x,
        [{"x_hat": steps.clamp(-2, 4) * 0.5}, {"true": 0 * x, "straight-through": estimate}],
        title="The true derivative is 0 between the jumps; the estimate is 1 inside the range",
        xlabel="x",
        ylabels=["forward: x_hat", "backward: derivative"],
    ),
    alt="Left: the staircase of a quantizer. Right: its true derivative is 0 between the jumps, "
    "the straight-through estimate is 1 from -1.25 to 2.25 and 0 outside.",
)
# %%
# the trick on four numbers: a + (b - a).detach() has the value of b and the derivative of a
a = torch.tensor([-1.0, -0.4, 0.7, 2.0], requires_grad=True)
print("derivative of round:  ", torch.autograd.grad(torch.round(a).sum(), a)[0].tolist())
through = a + (torch.round(a) - a).detach()
print("straight through:     ", torch.autograd.grad(through.sum(), a)[0].tolist())
assert torch.equal(through, torch.round(a))

lab.predict(
    "training",
    "One linear layer at 2 bits, a scale per row. Its weights are trained for 150 steps, through "
    "the rounding, to give the same outputs as before. On inputs that were not used for training, "
    "the output error that is left is",
    unit="% of that of plain rounding",
)

# %% [markdown]
# ### Exercise 5 · A gradient through rounding
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
#
# **Deliver** `fake_quantize(x, scale, zero, bits, symmetric) -> x_hat`: the values of
# `dequantize(quantize(x))`, with the gradient above for `x`. (`scale` and `zero` need none.) Up to
# half a step beyond each end, where $x$ still rounds to the last level, the tests accept 0 or 1.
#
# - It may be called several times before one `backward`, also for one `x`; gradients that reach `x`
#   by other ways are not its business.
# - An `x` that needs no gradient gives the values alone.
#
# **Shapes** as in exercise 2. `x_hat`: shape of `x`, float32. The gradient has the dtype of `x`,
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
# derivative. Whether $x$ is clipped can be seen before the clamp of exercise 2, and no longer after
# it.
#
# **By hand.** 2 bits (codes 0..3), $s = 1$, $z = 1$. x = 2.4 is rounded 2, shifted 3, a code: value
# 2, derivative 1. x = 2.6 is rounded 3, shifted 4, no code: value 2 again, derivative 0.
#
# **The usual error.** `x + (x_hat - x).detach()` alone passes the gradient everywhere. A weight
# that is clipped is then pushed on and on, although its value no longer changes anything.
# </details>

# %% [markdown]
# **Reveal.** One layer of the model at 2 bits, a scale per row. Plain rounding is the simplest
# *post-training quantization* (PTQ); training through the rounding is *quantization-aware training*
# (QAT). We record the layer's real inputs, take its own outputs as targets, train on every second
# input and measure on the others. The learning rate is small and falls to 0: a weight near a
# rounding boundary else flips between two codes. The ranges go from min to max, so hardly any
# weight is clipped here; the mask of exercise 5 counts on narrower ranges (the first stretch task).
#
# **Then write one sentence:** what did training change in this layer, and what is as it was?
#
# *Your sentence:*
# %% tags=["demo"]
layer = linears[f"model.layers.{model.config.num_hidden_layers // 2}.self_attn.o_proj"]
seen = []
hook = layer.register_forward_hook(lambda module, args, output: seen.append(args[0].detach()))
perplexity(model)
hook.remove()
inputs = torch.cat([part.flatten(0, -2) for part in seen])  # [tokens, K]
w_layer = layer.weight.detach()
scale, zero = affine_parameters(*w_layer.aminmax(dim=1, keepdim=True), 2, symmetric=False)


def output_error(w: Tensor, inputs: Tensor) -> Tensor:
    """Squared error of the layer's outputs with w at 2 bits, relative to the outputs."""
    w_hat = fake_quantize(w, scale, zero, 2, symmetric=False)
    return ((w_hat - w_layer) @ inputs.T).square().mean() / (w_layer @ inputs.T).square().mean()


trained = w_layer.clone().requires_grad_(True)
optimizer = torch.optim.Adam([trained], lr=0.003 * w_layer.std().item())
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=150)
for _ in range(150):
    optimizer.zero_grad()
    output_error(trained, inputs[::2]).backward()
    optimizer.step()
    schedule.step()
with torch.no_grad():
    rounded, tuned = (output_error(v, inputs[1::2]).item() for v in (w_layer, trained))
    code_of = [quantize(v, scale, zero, 2, symmetric=False) for v in (w_layer, trained)]
found["training"] = 100 * tuned / rounded
style.show(
    grid.bars(
        {"rounded (PTQ)": rounded, "trained through rounding (QAT)": tuned},
        f"On the same 2-bit grid, training leaves {found['training']:.0f} % of the error",
        "relative output error, other inputs",
    ),
    alt=f"Two bars: output error {rounded:.3g} after rounding, {tuned:.3g} after training.",
)
print(f"{(code_of[0] != code_of[1]).float().mean():.0%} of the codes changed")
lab.reveal("training", found["training"])

# %% [markdown]
# ### Exercise 6 · A whole model
#
# **20 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
#
# **Deliver** `quantize_model(model, bits, granularity) -> (quantized, total)`.
#
# - `quantized` is a copy of `model` in which the weight of every `nn.Linear` (subclasses too, and
#   `model` itself may be one) has gone through `quantize_weight(..., symmetric=False)`. Two
#   exceptions stay in float: layers named `lm_head` (the last part of the dotted name, no more and
#   no less), and weights that are the same parameter as the weight of an `nn.Embedding` (*tied*),
#   whatever the layer is called and wherever it stands.
# - `model` does not change, nor do its gradients. Parameters that are one in it are one in the
#   copy. In all else the copy is as the model: biases, buffers, training mode, `requires_grad`.
# - `total` is the size of the copy in bits, an int: `weight_bits` for each quantized weight, 16
#   bits for every element of every other parameter (biases, norms, embeddings, lm_head, ...). A
#   parameter that is used in several places counts once. Buffers count nothing.


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

# %% [markdown]
# ## 4. Your code in the live model
#
# Everything you wrote, in one plot: linear grids and k-means codebooks at 8, 4, 3 and 2 bits.
# Sizes are totals of the whole model, so they hold the embedding in 16 bits as well. Codebooks per
# channel and per group appear only where their tables do not outweigh the codes by far; the
# [chapter](../../course/chapters/lab01_quantization.md) has them all. For speed, a codebook of a
# whole tensor is fitted to every 8th of its weights.
#
# A setting is on the *front* if no other one is smaller and at least as good.
#
# **Then answer the question of the first cell.** Start with linear codes and one scale per matrix.
# What do finer codes, more scales, or levels in better places cost, and what do they give? (The
# last have another price, which no size shows: codes are looked up in a table, so they can no
# longer be multiplied.)
#
# *Your answer, with three numbers of the list below the plot:*

# %% tags=["demo"]
measured = []


def measure(method: str, kind: str, bits: int, quantized: nn.Module, total: int) -> None:
    size = total / sum(p.numel() for p in model.parameters())
    measured.append(pareto.Point(method, kind, bits, size, perplexity(quantized)))
    print(f"{bits} bits, {method}, {kind}: {size:.2f} bits a parameter, ", end="")
    print(f"perplexity {measured[-1].cost:.2f}")


for bits in (8, 4, 3, 2):
    for granularity, kind in (("tensor", "tensor"), ("channel", "channel"), (32, "group 32")):
        measure("linear", kind, bits, *quantize_model(model, bits, granularity))


# %% tags=["demo"]
def kmeans_model(bits: int) -> tuple[nn.Module, int]:
    """The model with your codebook in each linear layer, and its total size in bits."""
    quantized, total = copy.deepcopy(model), float_bits(model)
    for name in linears:
        weight = quantized.get_submodule(name).weight.detach()  # shares the layer's memory
        total += codebook_bits(weight.shape, bits, 1) - 16 * weight.numel()
        weight.copy_(kmeans_weight(weight, bits, "tensor", iterations=25, every=8))
    return quantized, total


for bits in (8, 4, 3, 2):
    measure("k-means", "tensor", bits, *kmeans_model(bits))


# %% tags=["demo"]
def kmeans_of_the_course(bits: int, granularity: str | int) -> tuple[nn.Module, int]:
    """Your function fits one table, and 12 000 rows would take minutes: efflib fits all at once."""
    from efflib.quantization import ptq

    return ptq.quantize_model(model, bits, granularity, method="kmeans")


for bits, granularity in ((3, "channel"), (2, "channel"), (2, 32)):
    kind = "group 32" if granularity == 32 else granularity
    measure("k-means", kind, bits, *kmeans_of_the_course(bits, granularity))

# %% tags=["demo"]
best = pareto.front(measured)
good = [p for p in best if p.cost <= 1.1 * found["perplexity"]]
found["smallest"] = min(good, key=lambda p: p.size) if good else best[-1]
p = found["smallest"]
style.show(
    pareto.tradeoff(
        measured,
        f"Smallest within 10 % of fp16: {p.bits} bits, {p.method}, {p.granularity} ({p.size:.1f} "
        "bits a parameter)",
        "total bits per parameter: codes, scales, tables; the rest in 16 bits",
        "perplexity on held-out code",
        reference=(16, found["perplexity"]),
        ceiling=2.5 * found["perplexity"],
    ),
    alt="Perplexity against total bits per parameter for all measured settings, with the fp16 "
    "model as a dotted line. "
    + "; ".join(f"{p.bits} bits {p.method} {p.granularity} {p.cost:.1f}" for p in measured),
)
at = {(p.method, p.granularity, p.bits): p for p in measured}
found["control"] = {g: at["linear", g, 2].cost for g in ("group 32", "channel", "tensor")}
print("Control: the codes keep their 2 bits, only the scales get coarser; perplexity")
for kind, value in found["control"].items():
    print(f"  {kind:9s}{value:8.1f}")


def purchases(bits: int, finer: int) -> str:
    """What the model costs and gives with `bits` bits per tensor, and with each purchase."""
    start = at["linear", "tensor", bits]
    ways = {
        f"finer codes ({finer} bits)": at["linear", "tensor", finer],
        "more scales (group 32)": at["linear", "group 32", bits],
        "better places (k-means)": at["k-means", "tensor", bits],
    }
    text = f"{bits} bits per tensor, perplexity {start.cost:.1f}: "
    return text + "; ".join(
        f"{name} {p.size - start.size:+.2f} bits a parameter -> {p.cost:.1f}"
        for name, p in ways.items()
    )


found["answer"] = [purchases(bits, finer) for bits, finer in ((2, 3), (3, 4), (4, 8))]
print("\n".join(line.replace(": ", ":\n  ", 1).replace("; ", "\n  ") for line in found["answer"]))


# %% tags=["demo"]
# look closely: change bits and granularity, and watch the levels of the first row of a weight
def draw(bits: int, granularity: str):
    key = {"tensor": "tensor", "channel": "channel", "group 32": 32}[granularity]
    w_hat = quantize_weight(w, bits, key, symmetric=False)
    size = weight_bits(w.shape, bits, key, symmetric=False) / w.numel()
    text = f"{bits} bits, {granularity}: {size:.2f} bits a weight, "
    text += f"model perplexity {at['linear', granularity, bits].cost:.1f}"
    return grid.histogram_with_grid(w[0], {"first row": w_hat[0]}, text), text


explorer.explorer(draw, {"bits": [2, 3, 4, 8], "granularity": ["tensor", "channel", "group 32"]})

# %% [markdown]
# ## 5. Misconceptions
#
# **"The quantized model is now smaller."** Not here. We *simulate*: the weights take few values but
# are still stored as floats. The bits we count are those of a file with packed codes.
#
# **"Smaller is faster."** Only with a kernel that reads the codes. Turning codes back into floats
# before an ordinary product adds work. A real integer kernel multiplies codes and adds up in int32;
# its sums are exactly those of the simulation. Where it is faster depends on machine and shape:

# %% tags=["demo"]
codes_w = torch.randint(-127, 128, (1024, 1024), dtype=torch.int8)
codes_x = torch.randint(-127, 128, (32, 1024), dtype=torch.int8)
float_w, float_x = codes_w.float(), codes_x.float()


def milliseconds(function) -> float:
    """The fastest of 15 runs."""
    times = []
    for _ in range(15):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


found["ms"] = {
    "float32": milliseconds(lambda: float_x @ float_w.T),
    "int8 codes, dequantized first": milliseconds(lambda: float_x @ (codes_w.float() * 0.01).T),
    "int8 x int8 kernel": milliseconds(lambda: torch._int_mm(codes_x, codes_w.T)),
}
exact = float_x.double() @ float_w.double().T
assert torch.equal(torch._int_mm(codes_x, codes_w.T).double(), exact), "sums must be the same"
for name, value in found["ms"].items():
    print(f"{name:30s}{value:7.2f} ms")
simulated, total = quantize_model(model, 2, 32)
in_memory = sum(p.numel() * p.element_size() for p in simulated.parameters()) / 1e6
print(f"2-bit model: {in_memory:.1f} MB in memory, {total / 8e6:.2f} MB as a packed file")

# %% [markdown]
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1.** A colleague reports: "With 4 bits in groups of 32, k-means has a clearly smaller
# error than linear quantization. Both use 4 bits, so k-means is the better format." What is wrong,
# and which comparison would be fair?
# *Rubric:* total bits per weight of both formats, with the calculation (2); what has to be held
# equal, or how to compare if it cannot (2); one number of your own plots that supports it (1).

# %% [markdown] written="w1"
# A codebook of 16 entries of 16 bits for every 32 weights costs 256 / 32 = 8 bits a weight, so the
# k-means format takes 4 + 8 = 12 bits a weight and the linear one 4 + (16 + 4) / 32 = 4.625. The
# report compares a format with another that is 2.6 times as large. Total bits must be held equal,
# or, where sizes do not meet, the fronts of error against total bits compared: at 12 bits a linear
# grid is nearly lossless. In my plot k-means does well with one codebook per tensor, whose table
# costs almost nothing: it has less error there than linear at the same bits per tensor.

# %% [markdown]
# **Question 2.** The gradient of exercise 5 is not the derivative of the function. Why does
# training with it work all the same, and what does it cost compared with rounding alone?
# *Rubric:* what the true derivative is and what follows from it (1); what happens to the float
# weights and to the codes during training, and why the estimate points in a useful direction (3);
# one cost or risk, with your result of section 3 (1).

# %% [markdown] written="w2"
# The true derivative of the staircase is 0 except at the jumps, where it does not exist: gradient
# descent would never move. The estimate ignores the rounding and keeps the clamp. The optimizer
# moves the float weights a little at every step; most codes stay, but small moves in the same
# direction add up until a weight crosses a boundary and its code changes. The direction is useful
# because over a whole step x_hat does rise with x, at an average slope of 1. So errors of several
# weights can cancel in the output, which rounding each weight by itself cannot do. It costs data,
# gradients and float copies of the weights, and too large a learning rate makes codes flip back and
# forth: with 10 times the rate my layer ended no better than plain rounding.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Clip on purpose.** At 2 and 3 bits a range smaller than min..max can have less squared error:
#   a few weights are clipped, the others get a finer grid. Search a factor of 0.4 to 1 per group.
# - **Flip-flop.** Set the learning rate of section 3 ten times as high. How many codes change in
#   the last ten steps?
# - **Scales in fp16.** We count 16 bits for a scale but compute with 32. Round the scales and
#   measure what changes.
# - **Symmetric at 2 bits** has three levels. What does the fourth buy, and what does it cost?
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found. Your
# answer to the question of the first cell stands in section 4: does the last takeaway agree?

# %% tags=["demo"]
lab.report()
p, reference = found["smallest"], found["perplexity"]
takeaways = [
    f"One outlier made the mean error of all other weights {found['outlier']:.1f} times as large.",
    "3 bits in groups of 16 ({:.2f} bits a weight) had {:.1f} times the error of 4 bits per row "
    "({:.2f}).".format(found["sizes"][0], found["finer"], found["sizes"][1]),
    f"Training through the rounding left {found['training']:.0f} % of a layer's output error.",
    f"Perplexity at 2 bits (fp16 {reference:.1f}): "
    + ", ".join(f"{kind} {value:.1f}" for kind, value in found["control"].items()),
    f"Smallest within 10 % of fp16: {p.bits} bits, {p.method}, {p.granularity}; "
    f"{p.size:.2f} bits a parameter in all, {16 / p.size:.1f} times smaller.",
    "Finer codes, more scales, or levels in better places? From " + found["answer"][1] + ".",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))

# %% [markdown]
# **Next:** lab 2 quantizes activations too, where outliers are not an accident; lab 3 asks which
# weights deserve better; lab 11 uses data to decide each rounding.
#
# **Sources.** Jacob et al., *Quantization and Training of Neural Networks for Efficient
# Integer-Arithmetic-Only Inference*, 2018 (the affine grid). Krishnamoorthi, *Quantizing deep
# convolutional networks*, 2018 (granularity). Han, Mao and Dally, *Deep Compression*, 2016
# (k-means; figure 3 is the example of a public test). Bengio, Léonard and Courville, *Estimating or
# Propagating Gradients Through Stochastic Neurons*, 2013 (straight-through). Nagel et al., *A White
# Paper on Neural Network Quantization*, 2021 (an overview).
