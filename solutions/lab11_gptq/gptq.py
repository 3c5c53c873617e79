# %% [markdown]
# # Lab 11: GPTQ, and rotation

# %%
import math

import torch
from torch import Tensor

from efflib.lab import Lab

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
# ### Exercise 1 · The Hessian of a layer
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
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
#   alone.
#
# Compute in float64 before anything is squared; results are float64.
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
    """(H [K, K] that has an inverse, True for channels that were always 0 [K]).

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
# ### Exercise 2 · One weight changed, the others repaired
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
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
# - `change_one`: the best new rows, and what $e H e^T$ is then. `w_new[:, j]` is `v`, weights that
#   are not free are `w`'s, bit by bit in float64. What `free[j]` says does not matter.
# - `prices`: for each channel $j$ what a change of $e_j = 1$ costs if nothing follows (`alone`),
#   and if all other weights follow (`repaired`).
#
# `h` is symmetric and positive definite. Compute in float64; results are float64.
#
# **Shapes** `w` [N, K] float32 or float64; `h` [K, K] float64; `j` an int from 0 to K - 1; `v` [N];
# `free` [K] bool; `w_new` [N, K]; `cost` [N]; `alone`, `repaired` [K].


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
# ### Exercise 3 · GPTQ, column by column
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
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
#   channels become 0 before anything is rounded. Grids stay as they are given.
#
# **Shapes** `w` [N, K] float32, float64 or bfloat16; `h`, `U` [K, K] float64; `scale`, `zero`
# [N, 1] (a grid for each row) or [N, K] (for each weight) float64; `codes` [N, K] int64.


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
    scale, zero = scale.expand_as(w), zero.expand_as(w)
    codes = torch.zeros(w.shape, dtype=torch.int64)
    for j in range(w.shape[1]):
        at = slice(j, j + 1)
        codes[:, at] = nearest(w[:, at], scale[:, at], zero[:, at], bits)
        e = (w[:, at] - values(codes[:, at], scale[:, at], zero[:, at])) / u[j, j]
        w[:, j:] -= e * u[j, j:]
    return codes
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# ### Exercise 4 · Blocks and groups
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
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
#   kinds of grids. `ValueError` for other `grids`, and for `block` or `group` below 1.
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
    k, codes, scales = w.shape[1], torch.zeros(w.shape, dtype=torch.int64), []
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
# ### Exercise 5 · The order of the columns, and its bill
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
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
# - `dequantize`: float32.
# - `stored_bits`: all bits of a weight of this shape (N, K): its codes, a scale and a zero for each
#   group of each row, and `index_bits` for each channel, but **only** if `g_idx` says anything that
#   is not known without it.
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

    group is at least 1.  Raises ValueError as damped and inverse_factor.
    """
    ### BEGIN SOLUTION
    k, order = w.shape[1], act_order(h)
    back, g_idx = order.argsort(), torch.arange(k) // group
    w_new, h_new = w[:, order], h[order][:, order]
    if not static:
        codes, scale, zero = gptq_blocked(w_new, h_new, bits, k, group, "fresh", damping)
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
    known = torch.equal(g_idx, torch.arange(k) // group)
    grids = n * math.ceil(k / group) * (scale_bits + zero_bits)
    return n * k * bits + grids + (0 if known else k * index_bits)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# ### Exercise 6 · Turning a whole model
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
#
# $x W^T = (x Q)(W Q)^T$ for every orthogonal $Q$. A *Hadamard* matrix has only entries
# $\pm 1/\sqrt n$: it spreads one large channel over all of them.
#
# **Deliver** five functions.
#
# - `hadamard(n) -> Q`: an orthogonal matrix with entries $\pm 1/\sqrt n$, for n = 1, 2, 4, 8 ...;
#   `ValueError` for every other n. Any such matrix is right.
# - `random_rotation(n, seed) -> Q`: such a matrix, its rows or columns with random signs: another
#   seed, another matrix (not only its negative); the same seed, the same. torch's own (global)
#   generator is neither used nor moved. `ValueError` as `hadamard`.
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
# **Shapes** `Q` [n, n] float64; `state` {name: float32 or float64}; `x` [..., K], float32 or
# bfloat16, perhaps without any token.


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

# %% [markdown] written="w1"
# answer

# %% [markdown] written="w2"
# answer
