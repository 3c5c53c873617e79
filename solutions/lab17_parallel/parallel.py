# %% [markdown]
# # Lab 17: One model on several devices
#
# ![Tokens per second of one sequence on 1, 2, 4 and 8 GPUs: 105, 169, 254 and 328. Eight GPUs are
# about three times as fast as one.](../../course/figures/lab17/opening.svg)
#
# **The question.** Eight GPUs read eight times as many bytes a second as one, and reading weights
# is what one token costs. Yet eight of them are 3.13 times as fast. **Where do the others go, and
# when is it better to cut a model between its layers than through them?**
#
# Section 4 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about four hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | attention with heads and groups; softmax; what a roofline is (lab 0 helps) |
# | Not covered | GPUs (processes stand for them); training in parts; experts in parts (a stretch) |
#
# After this lab you can
# 1. cut every matrix of a Llama so that ranks meet as rarely as possible, and show it is the same;
# 2. count what travels: calls and bytes of a layer, of a loss, of a ring;
# 3. decide from a batch and a network whether to cut through layers or between them.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Answer predictions in their field; where no field is shown, by
# `lab.answer("calls", 6)`. Seconds that a cell announces are those of a quiet machine.
#
# ## Map and notation
#
# Section 1, cutting layers: exercises 1 and 2. Section 2, what travels: 3 and 4. Section 3, cutting
# between layers, and which plan: 5 and 6.
#
# | symbol | in code | meaning |
# |---|---|---|
# | $p$ | `size` | ranks: devices, here processes |
# | $r$ | `rank` | number of one of them, 0 to p - 1 |
# | $W$ | `w` [N, K] | weight of a linear layer: N outputs, K inputs; `b` [N] its bias or None |
# | $x$ | `x` [..., K] | inputs, whole in every rank unless said otherwise |
# | $H, H_{kv}, d$ | `heads`, `kv_heads`, `d` | query heads, key heads, size of a head |
# | $V$ | | entries of the vocabulary |
# | $m$ | `micro` | micro-batches of a pipeline |
# | $\alpha, \beta$ | `alpha`, `beta` | seconds of a message, and of each of its bytes |
#
# **All ranks run the same function.** Its last argument says who one is, and is the only way to
# the others:
#
# | call | returns |
# |---|---|
# | `comm.rank`, `comm.size` | who one is, and how many there are |
# | `comm.all_reduce(x)`, `comm.all_reduce(x, "max")` | the sum, or maximum, of everybody's x |
# | `comm.all_gather(x)` | the list of everybody's x, in the order of ranks |
# | `comm.reduce_scatter(parts)` | the sum of everybody's `parts[rank]` |
# | `comm.all_to_all(parts)` | the list of everybody's `parts[rank]` |
# | `comm.send(x, to)` | nothing, **when the other one has received** |
# | `comm.recv(like, source)` | what `source` sends, of the shape and dtype of `like` |
#
# Every rank must make the same collective calls in the same order. In tests all ranks run in one
# process, one at a time, and every call is counted; who waits for ever is named. In experiments
# they are real processes.
#
# ### Rules for all exercises
#
# No function changes its arguments; numbers are finite. Lists that are returned are the caller's to
# write into: each call makes new ones, and none stands in a result twice.

# %%
import math
import time

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib import zoo
from efflib.lab import Lab
from efflib.parallel.processes import Processes
from efflib.parallel.together import Deadlock, run_together
from efflib.plots import explorer, style
from efflib.plots import parallel as figures

lab = Lab("lab17_parallel")


# %%
# given: who gets what of n things, and causal attention with rotary positions
def share(n: int, rank: int, size: int) -> tuple[int, int]:
    """(start, stop) of a rank's part of n things: neighbours, the first n % size get one more."""
    least, more = divmod(n, size)
    start = rank * least + min(rank, more)
    return start, start + least + (rank < more)


def turned(x: Tensor) -> Tensor:
    """Queries or keys [B, h, T, d] turned by their positions 0 ... T - 1 (base 10000)."""
    half = x.shape[-1] // 2
    places, pairs = (torch.arange(n, device=x.device) for n in (x.shape[2], half))
    angle = places[:, None] * 10000.0 ** (-pairs / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # [T, d / 2]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of as many heads of q as of k and v, all [B, h, T, d].  [B, h, T, d]"""
    return F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)


# %% [markdown]
# ## Baseline
#
# The shipped model: 6 layers, 6 heads of 32 (every head has its own keys), 512 inner channels, a
# vocabulary of 2048 whose table is also the head. Everything below must give its losses again.

# %% tags=["demo"]
from efflib.zoo.evaluation import held_out_segments

model = zoo.load("target")
config = model.config
ids = max(held_out_segments("code", 8192), key=len)[:257][None].long()  # [1, 257]
with torch.no_grad():
    right = F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="none")
weights = sum(p.numel() for p in model.parameters())
found = {}  # the numbers you find, for the takeaways at the end
print(f"loss {right.mean():.4f} over {len(right)} tokens; {weights:,} weights, ", end="")
print(f"{4 * weights / 1e6:.1f} MB in float32; one token between layers: {4 * 192} bytes")
print("\n" + zoo.sample(model, zoo.PROMPTS[1], tokens=40))

# %% [markdown]
# ## 1. Cutting layers
#
# A product can be cut in two ways. By outputs (rows of $W$) every rank makes a part of $y$. By
# inputs (columns of $W$) every rank makes a term of all of $y$:
#
# $$ x W^T = [\,x W_0^T,\; x W_1^T\,] \qquad\text{or}\qquad x W^T = x_0 W_0^T + x_1 W_1^T $$
#
# Four numbers, by both ways:

# %% tags=["demo"]
x4, w4 = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
print("whole", (w4 @ x4).tolist())
print("by outputs", [(w4[r] @ x4).item() for r in (0, 1)], "side by side")
print("by inputs", [(w4[:, r] * x4[r]).tolist() for r in (0, 1)], "to be added")
lab.predict(
    "calls",
    "A layer has seven matrices: q, k, v, o, gate, up, down. In how many calls do ranks have to "
    "meet in one layer, if all seven are cut as well as can be?",
)

# %% [markdown]
# ### Exercise 1 · Two cuts and one meeting
#
# **25 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions.
#
# - `column_part(w, b, rank, size) -> (w_part, b_part)`: the rank's `share` of the **outputs** of a
#   layer. `b_part` is None where `b` is.
# - `row_part(w, rank, size) -> w_part`: the rank's `share` of its **inputs**.
# - `row_linear(x, w, b, comm) -> y`: `x` [..., k] and `w` [N, k] are the rank's own, `b` [N] or
#   None is the **whole** bias in every rank. `y` [..., N] is that of the whole layer, in every
#   rank.
# - `parallel_mlp(x, gate, up, down, comm) -> y`: $W_{down}(\mathrm{silu}(x W_{gate}^T + b) \cdot
#   (x W_{up}^T + b))^T + b$. `x` [..., D] is whole; each layer is a pair (weight, bias or None):
#   gate's and up's are column parts, down's weight is a row part and its bias whole.
#
# `row_linear` and `parallel_mlp` make **one call each**, an `all_reduce` of as many numbers as `y`
# has. Parts have **memory of their own**: a view would keep the whole weight alive. There may be
# more ranks than outputs or inputs: then some have nothing (parts with a size of 0), and call all
# the same. `x` may hold no token.
#
# **Shapes** all tensors of one dtype, float32, float64 or bfloat16, which is also the result's; `x`
# has one dimension or more; any layout.


# %% solution="ex1"
def column_part(w: Tensor, b: Tensor | None, rank: int, size: int) -> tuple[Tensor, Tensor | None]:
    """(rows of w [N, K], entries of b [N] or None) for this rank's share of the N outputs."""
    ### BEGIN SOLUTION
    start, stop = share(w.shape[0], rank, size)
    return w[start:stop].clone(), None if b is None else b[start:stop].clone()
    ### END SOLUTION


def row_part(w: Tensor, rank: int, size: int) -> Tensor:
    """Columns of w [N, K] for this rank's share of the K inputs."""
    ### BEGIN SOLUTION
    start, stop = share(w.shape[1], rank, size)
    return w[:, start:stop].clone()
    ### END SOLUTION


def row_linear(x: Tensor, w: Tensor, b: Tensor | None, comm) -> Tensor:
    """y [..., N] of the whole layer, from own inputs x [..., k], columns w [N, k], whole b [N]."""
    ### BEGIN SOLUTION
    y = comm.all_reduce(F.linear(x, w))
    return y if b is None else y + b
    ### END SOLUTION


def parallel_mlp(x: Tensor, gate: tuple, up: tuple, down: tuple, comm) -> Tensor:
    """The whole MLP's output [..., D]; gate and up: column parts, down: (row part, whole bias)."""
    ### BEGIN SOLUTION
    inner = F.silu(F.linear(x, *gate)) * F.linear(x, *up)
    return row_linear(inner, *down, comm)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")
# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** The outputs of a layer that is cut by outputs are exactly the inputs that a layer cut by
# inputs wants. What stands between them (silu, a product) works on each number for itself. So
# nobody has to know the others' inner channels.
#
# **By hand.** w = (3, 4 | 5, 6), b = (1, 1), x = (1, 2), two ranks. Rank 0 has the column (3, 5)
# and the input 1: its term is (3, 5). Rank 1: (8, 12). Sum (11, 17), with the bias (12, 18).
#
# **The usual errors.** The bias in every rank's term: p times. The bias cut as well. The sum taken
# before the activation, or after each of three layers. `w[a:b]` is a view and keeps all of `w`.
# A call that a rank without channels leaves out: all others wait for it.
# </details>
#
# ### Exercise 2 · Heads, also over more devices than key heads
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Query head $h$ reads key head $\lfloor h / (H / H_{kv}) \rfloor$. A rank gets its `share` of the
# **query** heads, and a copy of every key and value head which these read, and of no other.
#
# **Deliver** five functions.
#
# - `heads_of(rank, size, heads, kv_heads) -> (own, kept, reads)`, lists of ints: the rank's query
#   heads and its key heads, both rising; and for each of `own` the **place in `kept`** of the key
#   head that it reads. `ValueError` unless `heads` is a multiple of `kv_heads`.
# - `qkv_part(qkv, rank, size, heads, kv_heads) -> part`: `qkv` is the fused weight, first the rows
#   of all query heads, then of all key heads, then of all value heads, d rows each. The part is
#   built in the same way from the rank's heads.
# - `out_part(out, rank, size, heads) -> part`: the columns of $W_o$ for the rank's query heads.
# - `parallel_attention(x, qkv, out, reads, d, comm) -> y`: from the rank's parts and its `reads`
#   the output [B, T, D] of the whole attention, in every rank. Use `attend`. **One call**, an
#   `all_reduce` of B T D numbers.
# - `cached_numbers(size, heads, kv_heads, d) -> (fullest, all)`: how many numbers a token leaves in
#   a layer's cache of keys and values, on the fullest rank and in all ranks together.
#
# Parts have memory of their own. There may be more ranks than query heads: those beyond have
# none, and their parts a size of 0.
#
# **Shapes** `qkv` [(H + 2 Hkv) d, D]; `out` [D, H d]; `x` [B, T, D], at least one token; d even.
# All float32, float64 or bfloat16, of one dtype, which is the result's; any layout.


# %% solution="ex2"
def heads_of(
    rank: int, size: int, heads: int, kv_heads: int
) -> tuple[list[int], list[int], list[int]]:
    """(query heads, key heads, for each query head where in the key heads stands what it reads).

    Raises ValueError unless heads is a multiple of kv_heads.
    """
    ### BEGIN SOLUTION
    if heads % kv_heads:
        raise ValueError(f"heads={heads} must be a multiple of kv_heads={kv_heads}")
    group = heads // kv_heads
    own = list(range(*share(heads, rank, size)))
    kept = sorted({h // group for h in own})
    return own, kept, [kept.index(h // group) for h in own]
    ### END SOLUTION


def qkv_part(qkv: Tensor, rank: int, size: int, heads: int, kv_heads: int) -> Tensor:
    """The rank's rows [(h + 2 hkv) d, D] of the fused weight qkv [(H + 2 Hkv) d, D]."""
    ### BEGIN SOLUTION
    own, kept, _ = heads_of(rank, size, heads, kv_heads)
    blocks = qkv.unflatten(0, (heads + 2 * kv_heads, -1))  # [H + 2 Hkv, d, D]
    keys = [heads + k for k in kept]
    chosen = torch.tensor(own + keys + [kv_heads + k for k in keys], dtype=torch.int64)
    return blocks[chosen.to(qkv.device)].flatten(0, 1)
    ### END SOLUTION


def out_part(out: Tensor, rank: int, size: int, heads: int) -> Tensor:
    """The columns [D, h d] of out [D, H d] for the rank's query heads."""
    ### BEGIN SOLUTION
    start, stop = share(heads, rank, size)
    d = out.shape[1] // heads
    return out[:, start * d : stop * d].clone()
    ### END SOLUTION


def parallel_attention(
    x: Tensor, qkv: Tensor, out: Tensor, reads: list[int], d: int, comm
) -> Tensor:
    """The whole attention's output [B, T, D] for x [B, T, D], from this rank's parts."""
    ### BEGIN SOLUTION
    own = len(reads)
    parts = F.linear(x, qkv).unflatten(-1, (-1, d)).transpose(1, 2)  # [B, h + 2 hkv, T, d]
    kept = (parts.shape[1] - own) // 2
    q, k, v = parts.split([own, kept, kept], 1)
    y = attend(q, k[:, reads], v[:, reads]).transpose(1, 2).flatten(2)  # [B, T, h d]
    return comm.all_reduce(F.linear(y, out))
    ### END SOLUTION


def cached_numbers(size: int, heads: int, kv_heads: int, d: int) -> tuple[int, int]:
    """Numbers a token leaves in a layer's cache: (on the fullest rank, on all together)."""
    ### BEGIN SOLUTION
    kept = [2 * d * len(heads_of(rank, size, heads, kv_heads)[1]) for rank in range(size)]
    return max(kept), sum(kept)
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")
# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Deal out query heads; what keys a rank needs follows from them. If a group of query
# heads is cut, both ranks keep its key head. Then attention is local, as every head is for itself,
# and $W_o$ is cut by inputs, as in exercise 1.
#
# **By hand.** 8 query heads, 2 key heads, so groups of 4. Four ranks: rank 1 has the query heads 2
# and 3, the key head 0, and reads is (0, 0). Three ranks: rank 1 has 3, 4 and 5, the key heads 0
# and 1, and reads is (0, 1, 1). The fused weight has 12 blocks of d rows: rank 1 of three takes the
# blocks 3, 4, 5, then 8, 9, then 10, 11.
#
# **The usual errors.** A slice of the fused weight's rows: then the first ranks have queries only.
# The number of the key head in place of its place among those kept. `repeat_interleave`, which is
# right only where no group is cut. An index of an empty list that is not an integer.
# </details>
#
# **Reveal.** What a token leaves in the cache of one layer, 32 query heads and 8 key heads of 128
# (Llama-3-8B), and the calls of one layer of the shipped model in 4 ranks.

# %% tags=["demo", "fold"]
# the shipped model in parts, by your functions; Alone stands in where there is one rank
EPS = config.rms_norm_eps


class Alone:
    """A communicator of one rank: nobody to meet."""

    rank, size = 0, 1

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        return x


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS))


def layer_part(state: dict, i: int, rank: int, size: int) -> dict:
    """What a rank holds of layer i."""
    at, c = f"model.layers.{i}.", config
    heads = c.num_attention_heads
    qkv = torch.cat([state[f"{at}self_attn.{n}_proj.weight"] for n in "qkv"])
    mlp = {n: state[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up", "down")}
    return {
        "qkv": qkv_part(qkv, rank, size, heads, c.num_key_value_heads),
        "out": out_part(state[f"{at}self_attn.o_proj.weight"], rank, size, heads),
        "gate": column_part(mlp["gate"], None, rank, size),
        "up": column_part(mlp["up"], None, rank, size),
        "down": (row_part(mlp["down"], rank, size), None),
        "before": state[f"{at}input_layernorm.weight"],
        "between": state[f"{at}post_attention_layernorm.weight"],
        "reads": heads_of(rank, size, heads, c.num_key_value_heads)[2],
        "d": c.head_dim,
    }


def model_part(rank: int, size: int) -> dict:
    """What a rank holds of the model."""
    state = {n: p.detach() for n, p in model.state_dict().items()}
    start, stop = share(config.vocab_size, rank, size)
    return {
        "layers": [layer_part(state, i, rank, size) for i in range(config.num_hidden_layers)],
        "norm": state["model.norm.weight"],
        "table": state["model.embed_tokens.weight"][start:stop].clone(),
        "start": start,
    }


def through_layer(x: Tensor, part: dict, comm) -> Tensor:
    """x [B, T, D] through one layer."""
    y = rms(x, part["before"])
    x = x + parallel_attention(y, part["qkv"], part["out"], part["reads"], part["d"], comm)
    return x + parallel_mlp(rms(x, part["between"]), part["gate"], part["up"], part["down"], comm)


def numbers_in(part) -> int:
    """Numbers of all tensors in a part."""
    if isinstance(part, Tensor):
        return part.numel()
    inside = part.values() if isinstance(part, dict) else part
    inside = inside if isinstance(inside, list | tuple | type({}.values())) else []
    return sum(map(numbers_in, inside))


# %% tags=["demo"]
for size in (1, 2, 4, 8, 16, 32):
    fullest, everywhere = cached_numbers(size, 32, 8, 128)
    print(f"{size:2d} ranks: {fullest:5d} numbers on the fullest, {everywhere:6d} in all")
x = torch.randn(1, 16, 192, generator=torch.Generator().manual_seed(0))
state = {n: p.detach() for n, p in model.state_dict().items()}
args = [(x, layer_part(state, 0, rank, 4)) for rank in range(4)]
ys, calls, _ = run_together(through_layer, args)
alone = through_layer(x, layer_part(state, 0, 0, 1), Alone())
print(f"off by {(ys[3] - alone).abs().max():.0e}, of outputs up to {alone.abs().max():.0f}")
print("rank 3 called", ", ".join(map(str, calls[3])))
found["calls"] = len(calls[3])
lab.reveal("calls", found["calls"])

# %% [markdown]
# **Then write one sentence:** a server has 16 devices and a model with 8 key heads. What do the
# last 8 of them save of the cache, and what do they save of the weights?
#
# *Your sentence:*
#
# ## 2. What travels
#
# The vocabulary is cut too: a rank has some rows of the table, so it can look up some tokens, and
# knows some of each token's logits. 128 000 logits a token are more than all of a layer's
# activations. So they must not travel.
#
# $$ -\log p_y = \log \sum_v e^{l_v - m} - (l_y - m), \qquad m = \max_v l_v $$
#
# ### Exercise 3 · A vocabulary in parts
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions. `start` is the number of the table's first row of this rank; the
# ranks' parts are a `share` each, and a rank may have no row at all.
#
# - `embed(ids, table, start, comm) -> x`: the whole table's rows of `ids`, in every rank, exactly.
#   **One call**, an `all_reduce` of as many numbers as `x` has.
# - `cross_entropy(hidden, head, targets, start, comm) -> loss`: of every token, natural logarithm,
#   in every rank; from logits $hidden \cdot head^T$, which may be as large as 1e4 or as small as
#   1e-8. A rank hands over **at most three numbers a token**, all its calls together.
#   Logits of bfloat16 may be rounded to it; what is made of them (exp, sums, the loss) may not.
# - `next_token(hidden, head, start, comm) -> ids`: for each token the entry with the largest logit,
#   of equal ones the first, in every rank. **At most two numbers a token.** Compared are the
#   logits as each rank computes them (a product's last bit may depend on how many rows it has).
#
# **Shapes** `ids` int64 of any shape, from 0 to V - 1; `table`, `head` [v, D]; `hidden` [T, D];
# `targets` [T] int64; `loss` [T] float32, or float64 where `hidden` is; `next_token` [T] int64. T
# and the shape of `ids` may hold no token; any layout. Floats of one call have one dtype: float32,
# float64 or bfloat16; nothing of float64 is rounded to float32.
# V is less than 2^24, so that every id is a float32 too.


# %% solution="ex3"
def embed(ids: Tensor, table: Tensor, start: int, comm) -> Tensor:
    """Rows [..., D] of the whole table for ids [...], from this rank's rows table [v, D]."""
    ### BEGIN SOLUTION
    here = (ids >= start) & (ids < start + len(table))
    x = table.new_zeros(*ids.shape, table.shape[1])
    x[here] = table[ids[here] - start]
    return comm.all_reduce(x)
    ### END SOLUTION


def cross_entropy(hidden: Tensor, head: Tensor, targets: Tensor, start: int, comm) -> Tensor:
    """The loss [T] of targets [T] for hidden [T, D], from this rank's rows head [v, D]."""
    ### BEGIN SOLUTION
    logits = F.linear(hidden, head).to(torch.promote_types(hidden.dtype, torch.float32))
    lowest = logits.new_full((len(hidden), 1), -math.inf)  # of a rank without rows
    top = comm.all_reduce(torch.cat([logits, lowest], 1).amax(1), "max")
    shifted = logits - top[:, None]  # [T, v]
    here = (targets >= start) & (targets < start + len(head))
    known = torch.zeros_like(top)
    known[here] = shifted[here, targets[here] - start]
    total, target = comm.all_reduce(torch.stack([shifted.exp().sum(1), known]))
    return total.log() - target
    ### END SOLUTION


def next_token(hidden: Tensor, head: Tensor, start: int, comm) -> Tensor:
    """The id [T] int64 of the largest logit, of equal ones the first, for hidden [T, D]."""
    ### BEGIN SOLUTION
    logits = F.linear(hidden, head).double()
    lowest = logits.new_full((len(hidden), 1), -math.inf)
    value, at = torch.cat([logits, lowest], 1).max(1)
    values, places = torch.stack(comm.all_gather(torch.stack([value, at + start]))).unbind(1)
    return torch.where(values == values.amax(0), places, math.inf).amin(0).long()
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")
# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** A maximum is the maximum of the parts' maxima, a sum the sum of their sums. And exactly
# one rank has the target's row: it gives that logit, all others give 0.
#
# **By hand.** Logits (0, ln 2 | ln 5), two ranks, target 1. Maxima ln 2 and ln 5, so m = ln 5. Sums
# 1/5 + 2/5 and 1, in all 8/5. The target's logit less m: ln (2/5) from rank 0, and 0 from rank 1.
# Loss ln (8/5) - ln (2/5) = ln 4, and 2 of 8 is a quarter.
#
# **The usual errors.** Each rank its own maximum: then sums do not fit. exp without a maximum: at
# 1e4 it is infinite. An id that is not in this rank used as an index: -1 is the last row. A maximum
# over no rows raises.
# </details>
#
# **All of the model, in real processes.** Your functions travel to programs of their own, as text.
# (They can be interrupted: nothing stays behind.) Starting four takes about 8 s, once.


# %% tags=["demo"]
def losses_in_parts(ids: Tensor, part: dict, comm) -> Tensor:
    """The loss of every next token of ids [B, T]."""
    x = embed(ids[:, :-1], part["table"], part["start"], comm)
    for layer in part["layers"]:
        x = through_layer(x, layer, comm)
    hidden = rms(x, part["norm"]).flatten(0, 1)
    return cross_entropy(hidden, part["table"], ids[:, 1:].flatten(), part["start"], comm)


world = Processes(4)
print("processes", world.pids())

# %% tags=["demo"]
for size in (2, 4):
    parts = [model_part(rank, size) for rank in range(size)]
    ran = world.run(losses_in_parts, [(ids, part) for part in parts])
    off = max((losses - right).abs().max().item() for losses in ran.values)
    held = [numbers_in(part) / 1e6 for part in parts]
    print(f"{size} processes: loss {ran.values[0].mean():.4f}, off by at most {off:.1e} per token")
    print(f"  weights held, millions: {', '.join(f'{n:.2f}' for n in held)} of {weights / 1e6:.2f}")
    print(f"  a rank's calls and bytes: {ran.calls[0]}")
    found["off", size] = off
made, handed = ran.calls[0]["all_reduce"]
found["all_reduce"] = (made, handed)
print(f"logits gathered would be {4 * 256 * 2048 / 4:,.0f} bytes from each rank")
lab.predict("speed", "Four processes, and this machine's cores: how many times as fast as one?")

# %% [markdown]
# Rank 0 has two of the six heads, rank 3 has one: four does not divide six, and everybody waits for
# the rank with the most. Norms are in every rank.
#
# Now look into `all_reduce` itself. It is made of messages.
#
# ### Exercise 4 · A ring
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# The p ranks stand in a ring and talk to their neighbours only. `x` is cut into p chunks. First
# chunks go around and gather terms, until every rank has one chunk's whole sum. Then these go
# around once more.
#
# **Deliver** `ring_all_reduce(x, comm) -> y` and `sent_bytes(kind, n, size) -> bytes`.
#
# - `ring_all_reduce`: the sum of everybody's `x`, with `send` and `recv` **only**, to and from
#   neighbours in the ring ($r \pm 1$ modulo p). Each rank sends at most $2 (p - 1)$ messages, none
#   of more than $\lceil n / p \rceil$ of the n numbers. All ranks get the **same bits**. `send`
#   returns when the other one has received, so if everybody sends first, nobody goes on. And all
#   are to work at the same time: counted in ticks (a message takes one, and begins when both its
#   sides are there) it takes at most $6 (p - 1)$.
# - `sent_bytes`: how many bytes a rank sends at least, on average over the ranks, if each hands
#   over n bytes: **derive** it for `kind` "all_reduce" (n: of x), "reduce_scatter" and "all_to_all"
#   (n: of all parts together, which are equally large), "all_gather" (n: of its own x), each by the
#   best way that exists (n / p need not be whole). `ValueError` for another kind, whatever p is.
#
# **Shapes** `x` of any shape and layout, also of no number or of fewer than p; float32, float64,
# bfloat16 or int64, and sums and messages in that dtype; the same in all ranks. p is 1 or more. n
# is 0 or more.


# %% solution="ex4"
def ring_all_reduce(x: Tensor, comm) -> Tensor:
    """The sum over ranks of x, by send and recv between neighbours."""
    ### BEGIN SOLUTION
    p, r = comm.size, comm.rank
    chunks = list(torch.tensor_split(x.flatten(), p))

    def shift(gone: int, come: int) -> Tensor:
        if r % 2 == 0:  # even ranks send first, odd ones receive first
            comm.send(chunks[gone], (r + 1) % p)
        got = comm.recv(chunks[come], (r - 1) % p)
        if r % 2:
            comm.send(chunks[gone], (r + 1) % p)
        return got

    for step in range(p - 1):
        come = (r - step - 1) % p
        chunks[come] = chunks[come] + shift((r - step) % p, come)
    for step in range(p - 1):
        come = (r - step) % p
        chunks[come] = shift((r + 1 - step) % p, come)
    return torch.cat(chunks).view(x.shape)
    ### END SOLUTION


def sent_bytes(kind: str, n: float, size: int) -> float:
    """Bytes that a rank sends at least.  Raises ValueError for an unknown kind."""
    ### BEGIN SOLUTION
    if kind == "all_gather":
        return (size - 1) * n
    times = {"all_reduce": 2, "reduce_scatter": 1, "all_to_all": 1}
    if kind not in times:
        raise ValueError(f"kind={kind!r} is not known")
    return times[kind] * (size - 1) * n / size
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")
# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** In step s rank r passes on chunk r - s, and adds what comes, chunk r - s - 1, to its
# own. After p - 1 steps the chunk that came last holds everybody's term. In the second round the
# same goes on, but what comes takes the place of what is there.
#
# **By hand.** Three ranks with (1, 2, 3), (10, 20, 30), (100, 200, 300). Step 0: rank 0 sends its
# chunk 0 to rank 1, which has 11 there; rank 1 its chunk 1 to rank 2: 220; rank 2 its chunk 2 to
# rank 0: 303. Step 1: rank 0 sends 303 to rank 1: 333. Rank 1 sends 11 to rank 2: 111. Rank 2 sends
# 220 to rank 0: 222. So rank r has the sum of chunk r + 1. Two more steps bring it to the others.
#
# **The usual errors.** All send first: "rank 0 sends to rank 1, which does not receive". Rank 0
# alone receives first: correct, but the others wait in a row. A chunk added in the second round
# too. Terms added in another order in every rank: the same number, other bits.
# </details>
#
# **Try the deadlock** (it costs nothing here), and then what a message costs: seconds of a `send`,
# of gloo's own `all_reduce`, and of your ring, by bytes. About 6 s.

# %% tags=["demo"]


def all_send_first(x: Tensor, comm) -> Tensor:
    comm.send(x, (comm.rank + 1) % comm.size)
    return comm.recv(x, (comm.rank - 1) % comm.size)


try:
    run_together(all_send_first, [(torch.ones(2),)] * 3)
except Deadlock as fault:
    print(fault)

# %% tags=["demo", "fold"]
# seconds of calls in real processes: the slowest rank, in the fastest of the repetitions, as what
# else the machine does can only add


def send_one(x: Tensor, comm) -> None:
    if comm.rank == 0:
        comm.send(x, 1)
    elif comm.rank == 1:
        comm.recv(x, 0)


def reduce_one(x: Tensor, comm) -> None:
    comm.all_reduce(x)


def ring_one(x: Tensor, comm) -> None:
    ring_all_reduce(x, comm)


def seconds_of(what: str, numbers: list, times: int, comm) -> list:
    """[[seconds of each repetition] for each size]; what: send, all_reduce or ring."""
    call = {"send": send_one, "all_reduce": reduce_one, "ring": ring_one}[what]
    found = []
    for n in numbers:
        x, row = torch.zeros(n), []
        for _ in range(times):
            reduce_one(torch.zeros(1), comm)  # all begin together
            begin = time.perf_counter()
            call(x, comm)
            row.append(time.perf_counter() - begin)
        found.append(row)
    return found


def measured(what: str, size: int, numbers: list[int], times: int = 25) -> list[float]:
    ran = world.run(seconds_of, [(what, numbers, times)] * size)
    both = ran.values[:2] if what == "send" else ran.values
    return torch.tensor(both).amax(0).amin(-1).tolist()


# %% tags=["demo"]
NUMBERS = [1, 1000, 10_000, 100_000, 400_000]
BYTES = [4 * n for n in NUMBERS]
curves = {"send, 2 processes": measured("send", 2, NUMBERS)}
for size in (2, 4):
    curves[f"gloo's all_reduce, {size}"] = measured("all_reduce", size, NUMBERS)
    curves[f"your ring, {size}"] = measured("ring", size, NUMBERS)
fig, alt = figures.messages(BYTES, curves)
style.show(fig, alt)
for name, row in curves.items():
    print(f"{name:24s}", "  ".join(f"{1e6 * s:8.0f} µs" for s in row))

# %% [markdown]
# On a quiet machine two straight pieces: a message costs something although it is empty, and then
# something for every byte. (Where ranks share cores with each other or with other programs, a
# meeting waits for its last rank to get one, and the curves of four bend as they like.) That is the
# $\alpha$-$\beta$ model; exercise 6 fits it.
#
# **Then write one sentence:** a layer makes two `all_reduce` of 768 bytes for one token. Which of
# the two pieces is that, and what would halving the bytes gain?
#
# *Your sentence:*
#
# ## 3. Between layers, and which plan
#
# The other way to cut: rank 0 has the first layers, rank 1 the next. Then one message goes from
# stage to stage, no call inside a layer. But one text keeps one stage busy at a time. So the batch
# is cut into **micro-batches** that follow each other. In training each also goes back.
#
# ### Exercise 5 · Schedules of a pipeline
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A stage's **order** is a list of pairs `("F", i)` and `("B", i)`: forward and backward of
# micro-batch i, from 0. A piece of work begins when the stage is free **and** what it needs is
# done: F of stage s needs the F of the same micro-batch in stage s - 1; B needs that in stage s +
# 1, and in the last stage the F of its own. Stages take their orders one by one, and send in no
# time.
#
# **Deliver** five functions.
#
# - `gpipe(stage, stages, micro) -> order`: all forwards, then all backwards, both from 0 on.
# - `one_f_one_b(stage, stages, micro) -> order`: 1F1B. Stage s of p does $p - s$ forwards before
#   its first backward (all m, if that is fewer). From there on backwards and forwards by turns,
#   then the backwards that are left. Both kinds from 0 on.
# - `start_times(orders, forward, backward) -> list of lists`: when each piece of each stage begins
#   (floats), if a forward takes `forward` and a backward `backward`, and all begins at 0. `orders`
#   may be any, as those without backwards of inference, with a list for each stage. `ValueError`
#   where a stage would wait for ever.
# - `bubble(stages, micro) -> float`: the share of a stage's time, from 0 to the end of all, in
#   which it waits. **Derive it**, for either order: it depends on p and m alone.
# - `live(order) -> int`: a forward leaves activations, which its backward uses up. For how many
#   micro-batches does the stage hold them, at most? (Forwards without a backward keep theirs;
#   every B has its F before it.)
#
# **Sizes** stages and micro from 1 on; times are positive numbers; an order may be empty.


# %% solution="ex5"
def gpipe(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """The order of one stage: all forwards, then all backwards."""
    ### BEGIN SOLUTION
    return [("F", i) for i in range(micro)] + [("B", i) for i in range(micro)]
    ### END SOLUTION


def one_f_one_b(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """The order of one stage: forwards ahead, then one backward, one forward by turns."""
    ### BEGIN SOLUTION
    ahead = min(stages - stage, micro)
    order = [("F", i) for i in range(ahead)]
    for i in range(micro):
        order.append(("B", i))
        if ahead + i < micro:
            order.append(("F", ahead + i))
    return order
    ### END SOLUTION


def start_times(
    orders: list[list[tuple[str, int]]], forward: float, backward: float
) -> list[list[float]]:
    """When each piece of work of each stage begins.  Raises ValueError if a stage never can."""
    ### BEGIN SOLUTION
    starts, ends, last = [[] for _ in orders], {}, len(orders) - 1
    while any(len(s) < len(o) for s, o in zip(starts, orders, strict=True)):
        before = len(ends)
        for s, order in enumerate(orders):
            for kind, i in order[len(starts[s]) :]:
                need = (s - 1, "F", i) if kind == "F" else (s + 1, "B", i)
                if kind == "B" and s == last:
                    need = (s, "F", i)
                ready = 0.0 if need[0] < 0 else ends.get(need)
                if ready is None:
                    break
                free = ends[s, *order[len(starts[s]) - 1]] if starts[s] else 0.0
                starts[s].append(float(max(free, ready)))
                ends[s, kind, i] = starts[s][-1] + (forward if kind == "F" else backward)
        if len(ends) == before:
            raise ValueError("a stage waits for ever")
    return starts
    ### END SOLUTION


def bubble(stages: int, micro: int) -> float:
    """The share of a stage's time in which it waits."""
    ### BEGIN SOLUTION
    return (stages - 1) / (micro + stages - 1)
    ### END SOLUTION


def live(order: list[tuple[str, int]]) -> int:
    """The most micro-batches whose activations a stage holds at once."""
    ### BEGIN SOLUTION
    held = most = 0
    for kind, _ in order:
        held += 1 if kind == "F" else -1
        most = max(most, held)
    return most
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")
# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Count time in units of f + b. Every stage works m of them. When may the first backward
# of the first stage begin? When a micro-batch has gone to the end and back: draw three stages on
# squared paper. `start_times`: go through the stages again and again; each does what it can.
#
# **By hand.** Two stages, two micro-batches, f = b = 1. GPipe, stage 0: F0 at 0, F1 at 1, B0 at 4,
# B1 at 5; stage 1: F0 at 1, F1 at 2, B0 at 3, B1 at 4. End 6; each works 4 of 6. 1F1B, stage 1: F0
# B0 F1 B1 at 1, 2, 3, 4; stage 0 as before. Stage 1 held 2 micro-batches, now 1.
#
# **The usual errors.** One forward too few ahead: then the last stage waits. The last stage's
# backward that waits for a stage which is not there. A stage looked at once: the first stages'
# backwards come only after the last ones'.
# </details>
#
# **The picture.** Pull the sliders: what does 1F1B change, and what not?


# %% tags=["demo", "fold"]
# the schedule as a picture, and the same fixed
def schedule(way: str, stages: float, micro: float) -> tuple:
    make = {"GPipe": gpipe, "1F1B": one_f_one_b}[way]
    orders = [make(s, int(stages), int(micro)) for s in range(int(stages))]
    starts = start_times(orders, 1.0, 2.0)
    return figures.schedule(orders, starts, (1.0, 2.0), [live(o) for o in orders], way)


SIZES = {"stages": [2.0, 3.0, 4.0, 6.0, 8.0], "micro": [1.0, 2.0, 4.0, 8.0, 16.0]}
explorer.explorer(
    schedule, {"way": ["GPipe", "1F1B"], **SIZES}, first={"stages": 4.0, "micro": 8.0}
)

# %% tags=["demo"]
for way, make in (("GPipe", gpipe), ("1F1B", one_f_one_b)):
    for micro in (4, 8, 32):
        orders = [make(s, 4, micro) for s in range(4)]
        end = max(row[-1] for row in start_times(orders, 1.0, 2.0)) + 2.0
        held = [live(order) for order in orders]
        print(
            f"{way:5s} {micro:2d} micro-batches in 4 stages: waits {bubble(4, micro):.2f}", end=""
        )
        print(f" (counted {1 - 3.0 * micro / end:.2f}), alive in each stage {held}")
found["bubble"] = bubble(4, 8)

# %% [markdown]
# ### Exercise 6 · Which plan
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A message of n bytes takes $\alpha + \beta n$ seconds. A step of decoding makes one more token for
# each of B sequences. `job` is a dict:
#
# | key | meaning |
# |---|---|
# | `layers` | number of layers |
# | `weights` | bytes of all weights |
# | `cache` | bytes of keys and values that a step reads for each sequence |
# | `flops` | FLOPs of a step for each sequence |
# | `row` | bytes of one token between two layers |
# | `bandwidth`, `peak` | bytes and FLOPs a second of one device |
# | `alpha`, `beta` | of the network |
#
# A device that has 1/p of a model takes for a batch of b: the longer of reading (1/p of the weights
# and of b caches) and computing (1/p of b times the FLOPs).
#
# **Deliver** five functions.
#
# - `fit(sizes, seconds) -> (alpha, beta)`: the pair of numbers **not below 0** with the least
#   $\sum ((\alpha + \beta n_i - t_i) / t_i)^2$. `sizes` [M] int64, at least two different ones, not
#   negative; `seconds` [M] float64, positive.
# - `all_reduce_seconds(n, size, alpha, beta)`: of your ring of n bytes in p ranks, if all messages
#   of a step go at once, with n / p bytes each.
# - `tensor_step(job, batch, size)`: seconds of a step, if every layer is cut: each device its part
#   for all B sequences, and in each layer two all-reduces of B rows.
# - `pipeline_step(job, batch, size, micro)`: seconds of a step with p stages and m micro-batches of
#   B/m sequences, once the pipeline is full. A stage takes for a micro-batch its reading or
#   computing, and one message of B/m rows to the next stage (the last one's goes to the first; with
#   p = 1 there is none). **Decide** how long a step is: the stages take micro-batches in turn,
#   round after round; and a sequence can't begin its next token before its last one has left the
#   last stage. `ValueError` unless batch is a multiple of micro, and micro is 1 or more.
# - `better_plan(job, batch, size) -> (plan, micro, seconds)`: the fastest step of all: `"tensor"`,
#   with micro 1, or `"pipeline"` with the best micro, of all that divide the batch. Of equally fast
#   ones, by the floats of your own functions, tensor, then the least micro.
#
# All seconds are floats.


# %% solution="ex6"
def fit(sizes: Tensor, seconds: Tensor) -> tuple[float, float]:
    """(alpha, beta) >= 0 with the least squared relative error for sizes [M], seconds [M]."""
    ### BEGIN SOLUTION
    n, t = sizes.double(), seconds.double()
    a, b = 1 / t, n / t  # alpha a + beta b is to be 1
    aa, ab, bb = a @ a, a @ b, b @ b
    ways = [(a.sum() / aa, 0.0), (0.0, b.sum() / bb)]
    det = aa * bb - ab * ab
    if det > 0:
        both = ((a.sum() * bb - b.sum() * ab) / det, (b.sum() * aa - a.sum() * ab) / det)
        if min(both) >= 0:
            ways = [both]
    best = min(ways, key=lambda way: (way[0] * a + way[1] * b - 1).square().sum().item())
    return float(best[0]), float(best[1])
    ### END SOLUTION


def all_reduce_seconds(n: float, size: int, alpha: float, beta: float) -> float:
    """Seconds of a ring all-reduce of n bytes."""
    ### BEGIN SOLUTION
    return 2 * (size - 1) * (alpha + beta * n / size)
    ### END SOLUTION


def tensor_step(job: dict, batch: int, size: int) -> float:
    """Seconds for one more token of each of `batch` sequences, with every layer cut."""
    ### BEGIN SOLUTION
    reading = (job["weights"] + batch * job["cache"]) / job["bandwidth"]
    work = max(reading, batch * job["flops"] / job["peak"]) / size
    one = all_reduce_seconds(batch * job["row"], size, job["alpha"], job["beta"])
    return work + 2 * job["layers"] * one
    ### END SOLUTION


def pipeline_step(job: dict, batch: int, size: int, micro: int) -> float:
    """The same with `size` stages and `micro` micro-batches.

    Raises ValueError unless micro >= 1 and batch is a multiple of it.
    """
    ### BEGIN SOLUTION
    if micro < 1 or batch % micro:
        raise ValueError(f"batch={batch} must be a multiple of micro={micro}")
    rows = batch // micro
    reading = (job["weights"] + rows * job["cache"]) / job["bandwidth"]
    stage = max(reading, rows * job["flops"] / job["peak"]) / size
    if size > 1:
        stage += job["alpha"] + job["beta"] * rows * job["row"]
    return max(size, micro) * stage
    ### END SOLUTION


def better_plan(job: dict, batch: int, size: int) -> tuple[str, int, float]:
    """("tensor", 1, seconds) or ("pipeline", micro, seconds): the fastest step."""
    ### BEGIN SOLUTION
    best = ("tensor", 1, tensor_step(job, batch, size))
    for micro in range(1, batch + 1):
        if batch % micro == 0:
            seconds = pipeline_step(job, batch, size, micro)
            if seconds < best[2]:
                best = ("pipeline", micro, seconds)
    return best
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")
# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** `fit` is a straight line by least squares, each equation divided by its $t_i$; if one of
# the two comes out below 0, the best allowed pair has a 0. For the pipeline draw two rounds: with m
# < p a micro-batch that is back must not wait, but stages do; with m > p a stage has still others
# to serve.
#
# **By hand.** 2 stages, a stage takes 3 s with its message. One micro-batch: 3 + 3 = 6 s for its
# next token, and each stage idles half of the time. Two: both stages are busy, 6 s. Four: each
# waits until the other three have passed, 12 s. (But with smaller micro-batches a stage takes
# less.)
#
# **The usual errors.** Plain squares: the 4 MB message decides alone, and alpha comes out as
# anything. The bubble's formula used for decoding, where the pipeline never runs empty. Weights
# divided among micro-batches: each of them reads all of a stage's weights.
# </details>
#
# **Reveal 1: your own processes.** What a step costs with one process is measured for two batches,
# and so are the messages (always the fastest of 15 or 25 repetitions); your functions predict both
# plans. Processes here share the machine's cores: k that work at once have `min(k, cores) / k` of
# the bandwidth each. In a tensor plan all p do, in a pipeline no more than it has micro-batches.
# Beside the prediction by your ring stands one by gloo's `all_reduce`, which is what runs: 13 calls
# of it, by the line through its own curve.

# %% tags=["demo", "fold"]
# a step in parts: one token of each of B sequences, nothing cached


def tensor_seconds(tokens: Tensor, part: dict, times: int, comm) -> list[float]:
    """Seconds of each repetition of a step, every layer cut."""
    found = []
    for _ in range(times):
        comm.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        x = embed(tokens, part["table"], part["start"], comm)
        for layer in part["layers"]:
            x = through_layer(x, layer, comm)
        comm.all_reduce(torch.zeros(1))
        found.append(time.perf_counter() - begin)
    return found


def pipeline_seconds(tokens: Tensor, part: dict, micro: int, times: int, comm) -> list[float]:
    """The same, a few layers each; rows go around, the last stage's to the first."""
    p, r, found, alone = comm.size, comm.rank, [], Alone()
    layers = part["layers"][slice(*share(len(part["layers"]), r, p))]
    for _ in range(times):
        comm.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        for ids in tokens.chunk(micro):
            like = torch.empty(len(ids), 1, part["table"].shape[1])
            x = comm.recv(like, r - 1) if r else part["table"][ids]
            for layer in layers:
                x = through_layer(x, layer, alone)
            if r + 1 < p:
                comm.send(x, r + 1)
        comm.all_reduce(torch.zeros(1))
        found.append(time.perf_counter() - begin)
    return found


def fastest(rows: list) -> float:
    """Of the repetitions, each as long as in its slowest rank."""
    return torch.tensor(rows).amax(0).amin().item()


def step(plan: str, batch: int, size: int, micro: int = 1, times: int = 15) -> float:
    tokens = torch.arange(batch)[:, None] % config.vocab_size
    if plan == "tensor":
        args = [(tokens, model_part(r, size), times) for r in range(size)]
        return fastest(world.run(tensor_seconds, args).values)
    args = [(tokens, model_part(0, 1), micro, times)] * size
    return fastest(world.run(pipeline_seconds, args).values)


def quarter_seconds(tokens: Tensor, part: dict, times: int, comm) -> list[float]:
    return tensor_seconds(tokens, part, times, Alone())


def meeting_seconds(tokens: Tensor, part: dict, times: int, comm) -> list[float]:
    found, x = [], torch.zeros(len(tokens), 1, part["table"].shape[1])
    for _ in range(times):
        comm.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        for _ in range(13):
            comm.all_reduce(x)
        found.append(time.perf_counter() - begin)
    return found


# predictions, in seconds: of a tensor step by a ring of messages and by gloo's own calls, of a lap
def among(working: int) -> dict:
    """A job on cores that so many processes share."""
    return own | {k: own[k] * min(working, cores) / working for k in ("bandwidth", "peak")}


def predicted(plan: str, batch: int, size: int, micro: int) -> tuple[float, float]:
    if plan == "pipeline":
        lap = pipeline_step(among(min(size, micro)), batch, size, micro)
        return (lap * (micro + size - 1) / max(size, micro),) * 2
    sizes, row = torch.tensor(BYTES), curves[f"gloo's all_reduce, {size}"]
    call, byte = fit(sizes, torch.tensor(row).double())
    free = among(size) | {"alpha": 0, "beta": 0}
    calls_ = 13 * (call + byte * batch * own["row"])
    return tensor_step(among(size), batch, size), tensor_step(free, batch, size) + calls_


# %% tags=["demo"]
import os

cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
alpha, beta = fit(torch.tensor(BYTES), torch.tensor(curves["send, 2 processes"]).double())
FEW, MANY = 1, 256
one = {batch: step("tensor", batch, 1) for batch in (FEW, MANY)}
own = {"layers": 6, "weights": 4 * weights, "cache": 0, "flops": 2 * weights, "row": 768}
own |= {"bandwidth": 4 * weights / one[FEW], "peak": MANY * 2 * weights / one[MANY]}
own |= {"alpha": alpha, "beta": beta}
print(f"alpha {1e6 * alpha:.0f} µs, beta {1e9 * beta:.2f} ns a byte; {cores} cores")
print(f"one process: {1e3 * one[FEW]:.1f} ms for {FEW}, {1e3 * one[MANY]:.1f} ms for {MANY}")

# %% [markdown]
# A first round of a pipeline starts and ends empty, so what is measured is its m + p - 1 stages;
# the prediction beside it is your `pipeline_step` times (m + p - 1) / max(p, m). About 8 s.


# %% tags=["demo"]
compared = {}
for size in (2, 4):
    for batch in (FEW, MANY):
        for plan, micro in (("tensor", 1), ("pipeline", min(size, batch))):
            seen = step(plan, batch, size, micro)
            compared[plan, size, batch] = seen, *predicted(plan, batch, size, micro)
for (plan, size, batch), (seen, ring, gloo) in compared.items():
    print(f"{plan:8s} {size} processes, {batch:3d}: {1e3 * seen:7.1f} ms, ", end="")
    print(f"predicted {1e3 * ring:7.1f}" + f", by gloo {1e3 * gloo:7.1f}" * (plan == "tensor"))
found["speed"] = one[FEW] / compared["tensor", 4, FEW][0]
lab.reveal("speed", round(found["speed"], 2))

# %% [markdown]
# **The controls: what is it that was divided?** Most of a step of a small model is neither reading
# nor computing, but starting operations, and every rank of a tensor plan starts all of them. So:
# one process alone with a quarter of every layer and nobody to meet; four such quarters at once,
# still without a meeting (what that adds is the cores); and the 13 meetings of a step with nothing
# between.

# %% tags=["demo"]
CONTROLS = {"a quarter, alone": (quarter_seconds, 1), "four quarters at once": (quarter_seconds, 4)}
CONTROLS |= {"13 meetings": (meeting_seconds, 4)}
for batch in (FEW, MANY):
    tokens, parts = torch.arange(batch)[:, None] % 512, [model_part(r, 4) for r in range(4)]
    for name, (way, size) in CONTROLS.items():
        ran = world.run(way, [(tokens, parts[r], 15) for r in range(size)])
        found[name, batch] = fastest(ran.values) / one[batch]
        print(f"batch {batch:3d}, {name:21s}: {found[name, batch]:.2f} of a step of one process")
    whole_step = compared["tensor", 4, batch][0] / one[batch]
    print(f"batch {batch:3d}, the tensor plan      : {whole_step:.2f}")
world.close()

# %% [markdown]
# **Then write one sentence:** how much of the distance between your four processes and a quarter of
# the time is the cores, how much the messages, how much what isn't divided?
#
# *Your sentence:*
#
# **Reveal 2: real devices.** Llama-2-7B on A100s, one sequence, as gpt-fast's authors measured it,
# beside your model. Its bandwidth is what one of these GPUs reached (so what one GPU does is no
# prediction), and its network is NVLink's 300 GB/s each way. $\alpha$ was not measured by anybody
# here: three guesses.

# %% tags=["demo"]
GPT_FAST = {1: 104.9, 2: 168.8, 4: 254.0, 8: 328.4}  # tokens/s, its README
llama = {"layers": 32, "weights": 13.2e9, "cache": 0, "flops": 13.2e9, "row": 8192}
llama |= {"bandwidth": 13.2e9 * GPT_FAST[1], "peak": 312e12, "alpha": 0, "beta": 0}
alone = tensor_step(llama, 1, 1)


def doubled(job: dict, batch: int, size: int) -> float:
    """A tensor step by an all-reduce of log2(p) turns with all of x: the partner at 1, 2, 4, ..."""
    one = math.log2(size) * (job["alpha"] + job["beta"] * batch * job["row"])
    return tensor_step(job | {"alpha": 0, "beta": 0}, batch, size) + 2 * job["layers"] * one


# %% tags=["demo"]
lines = {"measured": [GPT_FAST[p] / GPT_FAST[1] for p in GPT_FAST]}
for micros in (0, 3, 10):
    job = llama | {"alpha": micros * 1e-6, "beta": 1 / 300e9}
    lines[f"ring, alpha {micros} µs"] = [alone / tensor_step(job, 1, p) for p in GPT_FAST]
turn = (1 / GPT_FAST[8] - alone / 8) / 64 / 3 - 8192 / 300e9  # chosen to give 8 GPUs
job["alpha"] = turn
lines[f"doubling, alpha {1e6 * turn:.1f} µs"] = [alone / doubled(job, 1, p) for p in GPT_FAST]
same = (GPT_FAST[1] / GPT_FAST[8] - 1 / 8) / (1 - 1 / 8)  # of a step; chosen to give 8 GPUs
lines[f"{same:.0%} not divided"] = [1 / (same + (1 - same) / p) for p in GPT_FAST]
found["same"] = same
for name, row in lines.items():
    print(f"{name:22s}", "  ".join(f"{value:.2f}" for value in row))
fig, alt = figures.speedups(list(GPT_FAST), lines)
style.show(fig, alt)

# %% [markdown]
# No single $\alpha$ of a ring fits all three: its $2 (p - 1)$ turns grow faster than what was
# measured. For 8 KB nobody uses a ring: *doubling* exchanges all of x with a partner at distance 1,
# 2, 4, so it takes $\log_2 p$ turns.
#
# **The control is the last line**: messages cost nothing, and a fixed share of a step is not
# divided. Doubling and the control have one number each, chosen at 8 GPUs, and the control comes
# nearer at 2 and 4. So these three points do not say whether messages are what is missing.
#
# And the baseline hides something: one GPU does not read at full speed either. Its 13.2 GB in 9.5
# ms are 1.38 of the 2.04 TB/s of its data sheet. The model above takes this for a slower memory,
# which is then divided. Below both ways: what is left over, if all of it were messages (a bound on
# $\alpha$ and no measurement), and what is left of a token beyond reading at the data sheet's rate.

# %% tags=["demo"]
for p in (2, 4, 8):
    rest = (1 / GPT_FAST[p] - 1 / GPT_FAST[1] / p) / 64
    found["rest", p] = 1e6 * rest
    print(f"{p} GPUs: {1e6 * rest:.0f} µs over an even share for each of 64; ", end="")
    print(
        f"{5e5 * rest / (p - 1):.1f} a turn of a ring, {1e6 * rest / math.log2(p):.1f} of doubling"
    )
beyond = [f"{1e3 * (1 / rate - 13.2 / 2039 / p):.2f}" for p, rate in GPT_FAST.items()]
print(f"beyond reading at 2.04 TB/s, ms on 1, 2, 4, 8 GPUs: {', '.join(beyond)}")
QUESTION = "Llama-2-7B on four H100 over PCIe (10 µs, 50 GB/s): from which batch on is a pipeline "
lab.predict("batch", QUESTION + "better than tensor? Tried are 1, 4, 16, ... 4096, powers of 4.")

# %% [markdown]
# **Reveal 3: the map.** The same model on four H100, by batch and network. Cells say how many times
# as fast the better plan is. Each network has two rows: your ring for every size, and the control,
# the better one of ring and doubling for each batch. A second control stands below it: a model that
# fits one device, as this one does, can also stand on all four whole.
#
# **Three more** follow behind it: the border by all batches and not by powers of 4. A model that
# *needs* four devices (70B: 80 layers, 140 GB, rows of 16 KB). And the plan that the map leaves
# out: **both** cuts, two stages of two devices each.

# %% tags=["demo"]
NETWORKS = {"NVLink 3 µs, 450 GB/s": (3e-6, 450e9), "PCIe 10 µs, 50 GB/s": (1e-5, 50e9)}
NETWORKS |= {"Ethernet 50 µs, 3 GB/s": (5e-5, 3e9)}
BATCHES, table = [1, 4, 16, 64, 256, 1024, 4096], {}
for name, (alpha_, speed) in NETWORKS.items():
    job = llama | {"bandwidth": 3.35e12, "peak": 989e12, "alpha": alpha_, "beta": 1 / speed}
    for b in BATCHES:
        cut = min(pipeline_step(job, b, 4, m) for m in (1, 2, 4, 8, 16) if b % m == 0)
        ring = tensor_step(job, b, 4)
        table[f"{name}, ring", b] = ring, cut
        table[f"{name}, best", b] = min(ring, doubled(job, b, 4)), cut
fig, alt = figures.plans(table, "Four H100, Llama-2-7B, no cache: the better plan")
style.show(fig, alt)

# %% tags=["demo", "fold"]
# where it changes; four devices by tensor, pipeline and both
LARGE = {"layers": 80, "weights": 140e9, "flops": 140e9, "row": 16384}


def tensor_best(job: dict, b: int, p: int) -> float:
    return min(tensor_step(job, b, p), doubled(job, b, p))


def pipeline_best(job: dict, b: int) -> float:
    return min(pipeline_step(job, b, 4, m) for m in (1, 2, 4, 8, 16) if b % m == 0)


def both_cuts(job: dict, b: int) -> float:
    """Two stages of two devices: each has half of the layers, cut in two."""
    half = job | {k: job[k] / 2 for k in ("weights", "cache", "flops")}
    half["layers"] = job["layers"] // 2

    def turn_of(m: int) -> float:
        return tensor_best(half, b // m, 2) + job["alpha"] + job["beta"] * job["row"] * b / m

    return min(max(2, m) * turn_of(m) for m in (1, 2, 4) if b % m == 0)


for label, model_ in (("7B", {}), ("70B", LARGE)):
    for name, (alpha_, speed) in NETWORKS.items():
        job = llama | {"bandwidth": 3.35e12, "peak": 989e12, "alpha": alpha_, "beta": 1 / speed}
        job |= model_
        cut = {
            b: pipeline_best(job, b) < tensor_best(job, b, 4) for b in (1, 4, *range(16, 4097, 16))
        }
        first = next((b for b in cut if all(cut[c] for c in cut if c >= b)), None)
        print(
            f"{label}, {name}: pipeline before tensor from a batch of about {first} on; ms a step:"
        )
        for b in (1, 16, 64, 256, 1024):
            row = {"tensor": tensor_best(job, b, 4), "pipeline": pipeline_best(job, b)}
            row["both"] = both_cuts(job, b)
            if label == "7B":  # it fits one device: whole copies, a quarter of the sequences each
                row["four copies"] = tensor_step(job, math.ceil(b / 4), 1)
            told = ", ".join(f"{way} {1e3 * t:.2f}" for way, t in row.items())
            print(f"   {b:4d}: {told}; least: {min(row, key=row.get)}")
for name in NETWORKS:
    for way in ("ring", "best"):
        better = [
            b for b in BATCHES if table[f"{name}, {way}", b][1] < table[f"{name}, {way}", b][0]
        ]
        found["batch", name[:4], way] = better[0]
lab.reveal("batch", found["batch", "PCIe", "best"])

# %% [markdown]
# **Then write one sentence:** why does a pipeline not help one sequence at all, on any network?
#
# *Your sentence:*
#
# ## Misconceptions
#
# <details><summary>Four sentences, to compare yours with</summary>
#
# **Section 1.** Of the cache nothing: from 8 devices on each keeps one key head, and 16 hold it
# twice. Of the weights half again, but for the copied keys and values.
#
# **Section 2.** The flat piece: only $\alpha$ counts, and half the bytes gain nothing.
#
# **Section 3, processes.** By the three controls: a quarter alone over 0.25 is what isn't divided
# (for one token far more than a quarter, as starting operations is not); four quarters at once over
# one alone is the cores; the 13 meetings are the messages, each of which also waits until the other
# process gets a core. On a machine with two cores the meetings are most of it for one token.
#
# **Section 3, map.** Its token must pass all stages one after the other: all layers are read, one
# device at a time, and messages come on top. Nor does it beat whole copies of a model that fits one
# device: a pipeline's gain is that each device holds a quarter of the weights. Where both
# plans come near each other, two stages of two devices can be faster than either.
# </details>
#
# **"p devices have p times the memory for the cache."** Only as far as there are key heads to deal
# out.
#
# **"All-reduce sends p times as much with p ranks."** Each rank sends less than 2n, whatever p is.
# What grows is the number of turns.
#
# **"1F1B has a smaller bubble than GPipe."** The same one. It holds fewer activations, which lets m
# be larger.
#
# **"A pipeline makes decoding faster."** It makes a model fit, and serves more sequences. One
# sequence is as slow as on one device.
#
# ### Open task (not graded)
#
# **Beat it:** an all-reduce for *small* messages. The ring takes $2 (p - 1)$ turns of almost
# nothing. Make one for 768 bytes with fewer ticks in 8 ranks, by `send` and `recv`. To beat: what
# your ring takes. Ideas: recursive doubling (partners at distance 1, 2, 4); everybody to everybody;
# a tree and back.


# %% tags=["demo"]
def small_all_reduce(x: Tensor, comm) -> Tensor:
    """Yours.  It starts as the ring."""
    return ring_all_reduce(x, comm)


xs = [torch.full((192,), float(rank)) for rank in range(8)]
for way in (ring_all_reduce, small_all_reduce):
    ys, _, ticks = run_together(way, [(x,) for x in xs])
    same = all(torch.equal(y, sum(xs)) for y in ys)
    print(f"{way.__name__}: {max(ticks)} ticks, {'right' if same else 'wrong'}")
found["open task"] = max(ticks)

# %% [markdown]
# ## 4. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** Where do the other five of eight devices go, and when is it
# better to cut between layers than through them? *Rubric:* what is divided and what is not, in one
# token (1); your number of calls or bytes of a layer, and whether it is $\alpha$ or $\beta$ that
# counts (1); a number of your own machine that shows one of: cores, messages, what isn't divided
# (1); what a pipeline does for one sequence, and why (1); a batch and a network at which the
# pipeline is better, from your map, with the reason (1).
#
# **Question 2.** A colleague has two servers of 8 GPUs, NVLink inside and Ethernet between them,
# and a model with 64 query heads and 8 key heads that does not fit into one server. "We cut every
# layer into 16. Then each GPU holds a sixteenth of the weights and of the cache, and a token takes
# a sixteenth of the time." What is wrong, what would you propose, and what must be measured?
# *Rubric:* the cache with 16 devices, with a number (1); what each layer's calls would travel over
# (1); a plan that uses both cuts, and where each (1); what this plan costs one sequence, or how
# many micro-batches it needs (1); what to measure before it is decided (1).

# %% [markdown] written="w1"
# Reading weights is divided by p; the meetings are not, they take more turns, and neither is what
# every rank does anew (norms, starting operations). A layer made 2 calls of 768 bytes a token, so
# $\alpha$ is all of it. gpt-fast's 8 GPUs have 29 µs over an even share for each of 64 calls, 1.85
# ms of 3.05. On my machine a quarter of every layer, alone and without any message, took 0.52 of a
# step of one token, and four processes on two cores were slower than one. A pipeline gives one
# sequence nothing, as its token passes all stages in turn and adds messages. Over PCIe the map has
# the pipeline better from 256 sequences on, because a tensor step then makes 64 all-reduces of 2
# MB, where the pipeline sends the same rows once from stage to stage.

# %% [markdown] written="w2"
# With 8 key heads 16 devices each keep one, so the cache on a device is an eighth and not a
# sixteenth, and all together hold it twice. Every layer would make two all-reduces over Ethernet,
# at some 50 µs a message, where the reading of a layer's part takes less than that. I would cut
# every layer into 8 inside a server and put half of the layers on each server: one message between
# servers a token. One sequence then takes twice the time of 8 devices that could hold it all, and
# at least two micro-batches are needed to keep both busy. I would measure alpha and beta inside and
# between servers, and then time per token and tokens per second of both plans at the batches that
# are expected.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Sequence parallel.** Replace each `all_reduce` by a `reduce_scatter`, and an `all_gather`
#   before the next product. Norms are then computed once. What travels?
# - **Experts in parts.** Lab 13's mixture: each rank has some experts; tokens go there and back by
#   `all_to_all`.
# - **Overlap.** Cut the batch in two, so that one half computes while the other one meets.
# - **A cache.** Give `parallel_attention` one, and decode in real processes with `next_token`.
#
# **Next:** lab 18 puts a server together.
#
# **Sources.** Shoeybi et al., *Megatron-LM*, 2019 (arXiv:1909.08053). Korthikanti et al., 2022
# (arXiv:2205.05198), sequence parallel. Huang et al., *GPipe*, 2019 (arXiv:1811.06965). Narayanan
# et al., 2021 (arXiv:2104.04473), 1F1B. Pope et al., 2022 (arXiv:2211.05102). Patarasuk and Yuan,
# 2009, the ring. gpt-fast, README (Llama-2-7B, A100-80GB). The lecture on hardware: NVLink 900
# GB/s, PCIe 128 GB/s, 8 key heads on more than 8 devices.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo", "fold"]
lab.report()
f = found
takeaways = [
    f"A layer cut by heads and inner channels makes {f['calls']} calls; all of the model, with its "
    f"loss, {f['all_reduce'][0]} calls of {f['all_reduce'][1]:,} bytes for 256 tokens.",
    f"In 2 and 4 processes losses are off by {f['off', 2]:.0e} and {f['off', 4]:.0e} at most.",
    f"Four stages, 8 micro-batches: {f['bubble']:.2f} of the time waiting, in either order.",
    f"Four processes on {cores} cores: {f['speed']:.2f} times as fast for one token (with fewer "
    "cores than processes less than 1, and the less the busier the machine is); a quarter "
    f"of every layer alone takes {f['a quarter, alone', FEW]:.2f} of a step, "
    f"{f['a quarter, alone', MANY]:.2f} for {MANY}.",
    "gpt-fast: 1.61, 2.42, 3.13 times with 2, 4, 8 GPUs; over an even share "
    + ", ".join(f"{f['rest', p]:.0f}" for p in (2, 4, 8))
    + f" µs for each all-reduce, or {f['same']:.0%} of a step not divided and no message at all.",
    f"PCIe, 4 GPUs: pipeline from a batch of {f['batch', 'PCIe', 'ring']} on with a ring alone, of "
    f"{f['batch', 'PCIe', 'best']} with the better all-reduce.",
    f"Open task: {f['open task']} ticks.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
