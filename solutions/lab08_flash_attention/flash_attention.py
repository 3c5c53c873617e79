# %% [markdown]
# # Lab 8: A FlashAttention kernel
#
# ![Bars of megabytes moved by attention over 4,096, 8,192 and 16,384 tokens, three at each: scores
# stored, two walks along the keys, one walk. Not storing saves most, the single walk a third of the
# rest.](../../course/figures/lab08/opening.svg)
#
# **The question.** One head of 64 dimensions, tiles of 128 queries. All three bars compute the same
# attention, score for score, in the same tiles. The first stores its scores. The second stores
# none, but walks along the keys twice: for the maximum and the sum of each row, and then for the
# values. The third walks once. **How can one walk be right, in tiles that never see a whole row?
# What does storing nothing save, what the single walk, and what on the chip decides the rest?**
#
# At the end you answer it with the numbers of your own kernel. The answer is graded.
#
# ## Card
#
# | | |
# |---|---|
# | Time | 4 to 5 hours, 5 to 6 if Triton is new |
# | Points | 90 from seven exercises, 10 from two written questions |
# | You need | attention and softmax; no Triton, no GPU |
# | Not covered | the backward pass, tensor cores from inside, speed in seconds |
#
# After this lab you can
# 1. compute a softmax in pieces, and merge attention over parts of the keys;
# 2. write a Triton kernel that is causal, ragged and grouped, and moves no byte too many;
# 3. predict its traffic to the byte, and choose blocks for a given memory on the chip.
#
# `lab.check("ex1")` runs the public tests and names the kinds of hidden tests. `lab.hint("ex1")`
# gives one hint at a time. Tests call your functions by name, so keep names and arguments as they
# are. Answer predictions in their field; where no field is shown, by `lab.answer("reads", 3)`.
#
# Kernels run here in Triton's interpreter, under a **meter** that counts bytes and stops at any
# address that is outside of a tensor. A check also compiles your kernel for an A100 that is not
# there. Triton exists for Linux only: elsewhere exercises 3, 4, 5 and 7 are not verified.
#
# ## Map and notation
#
# Section 1, softmax in pieces: exercises 1 and 2. Section 2, kernels: 3 and 4. Section 3, causal
# and grouped: 5. Section 4, memory on the chip: 6. Section 5, decoding: 7.
#
# | symbol | in code | meaning |
# |---|---|---|
# | $T$, $S$ | `T`, `S` | queries, keys |
# | $d$ | `d`, `D` | size of a head |
# | $B_m$, $B_n$ | `BM`, `BN` | queries of a block, keys of a block |
# | $s_{ij}$ | `s` | score, scale times $q_i \cdot k_j$ |
# | $m_i$ | `m` [T] | largest score so far |
# | $\ell_i$ | `total` [T] | sum of $e^{s_{ij} - m_i}$ so far |
# | $a_i$ | `acc` [T, d] | sum of $e^{s_{ij} - m_i} v_j$ so far |
# | $\mathrm{lse}_i$ | `lse` [T] | $\log \sum_j e^{s_{ij}}$ |
#
# ### Rules for all exercises
#
# Functions change no argument, and nothing that they returned before. A result may share memory
# with an argument.

# %%
import torch
from torch import Tensor

from efflib import zoo
from efflib.kernel_lab.triton_here import Meter, tl, triton
from efflib.lab import Lab
from efflib.plots import explorer, kernels, style

lab = Lab("lab08_flash_attention")


def run(kernel, q, k, v, BM=16, BN=16, more=()):
    """(o, lse, the meter) of an attention kernel. q [H, T, d]; k and v [HKV, S, d]."""
    q, k, v = (x.contiguous() for x in (q, k, v))  # so k and v have the same strides
    (H, T, d), S = q.shape, k.shape[1]
    o, lse = torch.empty_like(q), torch.empty(H, T)
    strides = [*q.stride()[:2], *k.stride()[:2], T]
    grid = (triton.cdiv(T, BM), H)  # one program for each block of queries of each head
    with Meter() as m:
        kernel[grid](q, k, v, o, lse, *strides, T, S, *more, d**-0.5, D=d, BM=BM, BN=BN)
    return o, lse, m


# %% [markdown]
# ## Baseline
#
# The course's model with PyTorch's attention: what it writes, and what attention that stores its
# scores has to move: all $T \times S$ scores are written and read, and so are the probabilities.
# Then a first prediction.

# %% tags=["demo"]
from efflib.decoding.sampling import generate

target, tokenizer, found = zoo.load("target"), zoo.load_tokenizer(), {}
prompt = torch.tensor([[zoo.BEGIN_ID, *tokenizer.encode(zoo.PROMPTS[1]).ids]])
baseline = generate(target, prompt, 12)[0].tolist()
print(tokenizer.decode(baseline[1:]))
for n in (1024, 4096, 16384):
    tensors, scores = 4 * n * 64 * 2, 4 * n * n * 2  # bytes, d = 64 in float16
    print(f"{n:6d} tokens: q, k, v, o {tensors / 1e6:6.1f} MB, scores {scores / 1e6:7.1f} MB")
lab.predict(
    "reads",
    "128 queries, 128 keys. A program holds 32 queries and reads all keys, tile by tile. How often "
    "is each key read from memory, by all programs together?",
    unit="times",
)

# %% [markdown]
# ## 1. Softmax in pieces
#
# $e^{s}$ overflows, so a softmax subtracts the largest score of the row. If keys come in pieces,
# the largest so far may turn out too small. Then everything so far was too large by one factor:
#
# $$ m' = \max(m, \max_j s_j), \qquad \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}. $$

# %%
# four scores in two pieces; the sum of exp(s - 5) over all four is 1.2034
s = torch.tensor([1.0, 3.0, 5.0, 2.0])
first = (s[:2] - 3).exp().sum()  # their largest is 3
both = first * torch.exp(torch.tensor(3.0 - 5.0)) + (s[2:] - 5).exp().sum()
print(f"in pieces {both:.4f}, at once {(s - 5).exp().sum():.4f}")

# %% [markdown]
# ### Exercise 1 · Online softmax, and a merge
#
# **30 minutes · 12 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `online_update(m, total, acc, s, v) -> (m, total, acc)`: the state after n more keys.
# - `finish(m, total, acc) -> (o, lse)`: attention over all keys that came, and the natural
#   logarithm of the sum of all $e^{s}$.
# - `merge(o_a, lse_a, o_b, lse_b) -> (o, lse)`: attention over two disjoint sets of keys together,
#   from the results over each. Derive it before you look into the chapter.
#
# A score may be $-\infty$: that key is masked. A row that has seen nothing but such keys has m
# $-\infty$, total 0, acc 0; its o is 0 and its lse $-\infty$. No NaN, ever. At the start m is
# $-\infty$ and total and acc are 0; later total is 0 or at least 1. Other scores and lse are
# finite, of any size up to $10^{29}$, values up to $10^{30}$.
#
# A large lse has lost digits: near $10^6$ float32 has steps of 1/16. So weights of a merge may be
# as far off as a few roundings of lse make them, and no further.
#
# **Shapes** `m`, `total`, `lse` float32 [T]; `acc`, `o` float32 [T, d]; `s` float32 [T, n]; `v`
# float32 [n, d]; T, n and d from 1 on. They may be views.


# %% solution="ex1"
def online_update(m: Tensor, total: Tensor, acc: Tensor, s: Tensor, v: Tensor):
    """(m [T], total [T], acc [T, d]) after the keys of s [T, n] and v [n, d]."""
    ### BEGIN SOLUTION
    m_new = torch.maximum(m, s.amax(-1))
    safe = m_new.masked_fill(m_new == -torch.inf, 0.0)  # -inf - (-inf) would be NaN
    p = (s - safe[:, None]).exp()
    correction = (m - safe).exp()
    return m_new, total * correction + p.sum(-1), acc * correction[:, None] + p @ v
    ### END SOLUTION


def finish(m: Tensor, total: Tensor, acc: Tensor) -> tuple[Tensor, Tensor]:
    """(o [T, d], lse [T]) of a state."""
    ### BEGIN SOLUTION
    return acc / total.masked_fill(total == 0, 1.0)[:, None], m + total.log()
    ### END SOLUTION


def merge(o_a: Tensor, lse_a: Tensor, o_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """(o [T, d], lse [T]) over the keys of both."""
    ### BEGIN SOLUTION
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = torch.stack([lse_a, lse_b]).softmax(0).nan_to_num(0.0)  # NaN: no keys
    return weight_a[:, None] * o_a + weight_b[:, None] * o_b, lse
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** `acc` is a sum with the same weights as `total`, so what corrects one corrects the
# other. For the merge: o_a is a sum of $e^{s} v$ divided by $e^{lse_a}$. Undo the division, add,
# divide by the new sum; then see that only differences of lse are needed, for instance from the
# larger one. Divide by the sum of the weights that you really use.
#
# **By hand.** Scores 1, 3 with values 10, 20: m = 3, total = 0.135 + 1, acc = 1.35 + 20. A score 5
# with value 0 comes: both are multiplied by $e^{-2}$ = 0.135; total = 0.154 + 1, acc = 2.89. Merge
# of equal lse 2 and 2: the mean of both o, and lse 2 + log 2 = 2.693.
#
# **The usual errors.** acc not corrected. The new factor taken as $e^{m' - m}$. A row without keys:
# $-\infty - (-\infty)$ is NaN. The merge as a plain mean.
# </details>

# %% tags=["demo"]
scores = [2.0, 1.0, 0.5, 3.0, 2.5, 1.0, 6.0, 4.0, 1.5]


def step(keys_seen: float):
    return kernels.online_steps(scores, 3, int(keys_seen))


explorer.explorer(step, {"keys_seen": [3.0, 6.0, 9.0]})
style.show(*step(9))  # where nothing can move

# %% [markdown]
# **Then write one sentence:** between which two steps does the old sum shrink most, and why?
#
# *Your sentence:*
#
# ### Exercise 2 · Tiled attention, and what it moves
#
# **30 minutes · 12 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions. There are no tensors to index: memory is behind two functions, so
# that every access is counted.
#
# - `tiled_attention(T, S, read, write, scale, block_m, block_n)`: `read("q", start, stop)` gives
#   rows start .. stop - 1 of q, float32 [stop - start, d], and so for "k" and "v". `write(start,
#   stop, o, lse)` stores results of these queries. No read is longer than its block: `block_m` for
#   q, `block_n` for k and v. Each query is read and written once, each key and value once for every
#   block of queries. What `read` gives is memory itself: change nothing in it. What is kept may
#   grow with T, but not with S: a chip has no room for a row of scores. Keys may come up to two
#   blocks before their values, or values before their keys. T and S are at least 1 and need not be
#   multiples of the blocks; blocks and d have any size from 1 on, and `scale` is any number, 0 and
#   less as well. Scores lie between -40,000 and 40,000, values are those of exercise 1. It returns
#   nothing. Use exercise 1.
# - `attention_bytes(T, S, d, block_m, itemsize) -> int`: what that moves. q, k, v, o take
#   `itemsize` bytes an element, lse 4.
# - `stored_bytes(T, S, d, block_m, itemsize) -> int`: attention that stores its scores, in the same
#   blocks of queries. First kernel: q once, k once for every block of queries, $T \times S$ scores
#   written. Second: scores read, as many probabilities written. Third: probabilities read, v once
#   for every block of queries, o written. All in `itemsize` bytes; no lse.
# - `two_walks_bytes(T, S, d, block_m, itemsize) -> int`: nothing is stored, and nothing is ever
#   corrected. A block of queries, read once, walks along k for m and total, and then along k and v
#   again for o. It writes o and lse as `tiled_attention` does.


# %% solution="ex2"
def tiled_attention(T: int, S: int, read, write, scale: float, block_m: int, block_n: int) -> None:
    """Attention of T queries over S keys; read("q", start, stop) -> rows; write(..., o, lse)."""
    ### BEGIN SOLUTION
    for first in range(0, T, block_m):
        last = min(first + block_m, T)
        q = read("q", first, last)
        m = torch.full_like(q[:, 0], -torch.inf)
        state = m, torch.zeros_like(m), torch.zeros_like(q)
        for start in range(0, S, block_n):
            stop = min(start + block_n, S)
            s = scale * q @ read("k", start, stop).T
            state = online_update(*state, s, read("v", start, stop))
        write(first, last, *finish(*state))
    ### END SOLUTION


def attention_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that tiled attention moves."""
    ### BEGIN SOLUTION
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * blocks * S * d) + 4 * T
    ### END SOLUTION


def stored_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes that attention in blocks of queries moves if it stores its scores."""
    ### BEGIN SOLUTION
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 2 * blocks * S * d + 4 * T * S)
    ### END SOLUTION


def two_walks_bytes(T: int, S: int, d: int, block_m: int, itemsize: int) -> int:
    """Bytes of two walks along the keys: for m and total, then for o."""
    ### BEGIN SOLUTION
    blocks = -(-T // block_m)
    return itemsize * (2 * T * d + 3 * blocks * S * d) + 4 * T
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Queries outside, keys inside: then a block of queries has one state, which lives until
# its last key. Count the reads of one block of queries, and multiply.
#
# **By hand.** T = 5, S = 4, d = 2, blocks of 2 queries: 3 blocks of queries (2, 2, 1). q and o: 10
# elements each. k and v: 3 times 8 elements each. Together 68 elements, in float16 136 bytes; and
# 20 for lse: 156. Stored: these 68 and 4 times 20 elements: 148, 296 bytes. Two walks: k passes
# once more, 24 elements: 204 bytes.
#
# **The usual errors.** Keys outside: then q and the state come and go. T // block_m, which loses
# the last block. A start state of zeros for m: right, until all scores are far below 0.
# </details>
#
# <details><summary>The sentence on the steps</summary>
#
# Between the second and the third: the largest score rises from 3 to 6, so the old sum is
# multiplied by $e^{-3}$ = 0.050. From the first to the second it rises by 1 only, 0.368.
# </details>

# %% tags=["demo"]
lab.predict(
    "small",
    "Blocks of 16 queries, d = 64, many tokens. How many times the bytes of tiles does attention "
    "move that stores its scores, in the same blocks? 2 means twice as many.",
    unit="times",
)

# %% tags=["demo"]
n, sizes = 16384, [2**i for i in range(4, 10)]
ways = {"scores stored": stored_bytes, "two walks": two_walks_bytes, "one walk": attention_bytes}
curves = {name: [count(n, n, 64, b, 2) for b in sizes] for name, count in ways.items()}
head = "16,384 tokens: what is saved by storing nothing, and by walking once"
style.show(*kernels.traffic(sizes, curves, head))
stored, two, one = curves.values()
lab.reveal("small", stored[0] / one[0])
for b, *moved in zip(sizes, stored, two, one, strict=True):
    print(f"{b:3d} queries a block: " + ", ".join(f"{x / 1e6:6.0f} MB" for x in moved))
found["stored"], found["two"] = (x[sizes.index(256)] / one[sizes.index(256)] for x in (stored, two))
print(
    f"stored and tiles once each in a perfect cache: {(8 * n * 64 + 8 * n * n) / 1e6:.0f} and "
    f"{8 * n * 64 / 1e6:.0f} MB"
)

# %% [markdown]
# All three counts follow one rule: no cache, and the same blocks of queries. Then storing costs
# $4 T S$ elements more, whatever the blocks are, and that is $1 + 2 B_m / d$ times the bytes of
# tiles. The other rule is a perfect cache, in which q, k and v come once: $4 T S$ more as well. Two
# walks save nearly all of it without any correction. The online softmax saves the third reading.
#
# **Write one sentence:** with 16 queries a block storing nothing saves only a third, with 256 eight
# ninths. What else moves, that is so much with 16?
#
# *Your sentence:*
#
# ## 2. A kernel
#
# A Triton kernel is a function that runs many times, once for each **program**; `tl.program_id(0)`
# says which one. A program works on **tiles**, whose shapes are powers of two and known beforehand
# (`tl.constexpr`). Memory is reached through pointers: `X` is the address of the first element, and
# `X + offsets` a tile of addresses. Where a tile sticks out of the tensor, `mask` switches lanes
# off.
#
# | | |
# |---|---|
# | `tl.arange(0, N)` | 0 .. N - 1, as a tile |
# | `x[:, None]` | a column, as in PyTorch |
# | `tl.load(p, mask=on, other=0.0)` | reads; lanes that are off get `other`. Without it: anything |
# | `tl.store(p, x, mask=on)` | writes where `on` |
# | `tl.sum(x, 0)`, `tl.max(x, 1)` | along a dimension; `tl.max` of float16 gives float32 |
# | `tl.dot(a, b, input_precision="ieee")` | matrix product; a, b of one dtype, result float32 |
# | `tl.dot(a, b, c, input_precision="ieee")` | the product added to c |
# | `tl.trans(x)` or `x.T`; `tl.where`, `tl.exp`, `tl.log`, `tl.maximum` | as in PyTorch |
# | `tl.minimum(a, b)`, `tl.cdiv(a, b)` | of numbers too: the smaller one; a / b rounded up |
# | `range(a, b, c)` | a loop, whose ends may be computed |
# | `tl.zeros([N], tl.float32)`, `tl.full([N], 1.5, tl.float32)` | new tiles |
# | `float("-inf")` | minus infinity; a kernel knows no `torch` and no `math` |
# | `x.to(tl.float32)`, `Y.dtype.element_ty` | change the dtype; the dtype behind a pointer |


# %% tags=["demo"]
@triton.jit
def double_rows(X, Y, row_x, row_y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)  # one program for each row
    j = tl.arange(0, BLOCK)
    x = tl.load(X + r * row_x + j, mask=j < N, other=0.0)
    tl.store(Y + r * row_y + j, 2 * x, mask=j < N)


x = torch.arange(10.0).view(2, 5)
y = torch.empty_like(x)
with Meter() as m:
    double_rows[(2,)](x, y, x.stride(0), y.stride(0), 5, BLOCK=8)
print(y, m.report(), sep="\n")

# %% [markdown]
# ### Exercise 3 · Row softmax, a first kernel
#
# **40 minutes · 10 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** the kernel `row_softmax`: program r computes the softmax of row r of X [rows, N] into
# row r of Y. `row_x` and `row_y` are the distances between rows, in elements; rows may lie further
# apart than N. BLOCK is a power of two, from 1 on and at least N.
#
# - X and Y are float16 or float32, both the same; compute in float32, and store in Y's dtype. Write
#   it out: no `tl.softmax`. Every share, also a tiny one, is right but for a few roundings in
#   float32, of scores and of itself; below $2^{-126}$ it may be 0. Last it is rounded to Y's dtype.
# - Scores lie between -60,000 and 60,000, and some may be $-\infty$ (never a whole row).
# - Rows may lie so far apart that r `row_x` and r `row_y` are beyond $2^{31}$. Numbers are int32
#   and wrap round there; a product with `tl.program_id(0).to(tl.int64)` is int64.
# - Every element of X is read once, every element of Y written once, nothing else is touched.


# %% solution="ex3"
@triton.jit
def row_softmax(X, Y, row_x, row_y, N, BLOCK: tl.constexpr):
    """Row r of Y is the softmax of row r of X. Grid: (rows,)."""
    ### BEGIN SOLUTION
    r = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    x = tl.load(X + r * row_x + j, mask=j < N, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(Y + r * row_y + j, y.to(Y.dtype.element_ty), mask=j < N)
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** The cell above, with another line in the middle. What must lanes behind the end hold, so
# that they change neither the maximum nor the sum?
#
# **By hand.** Row 1, 3 and BLOCK 4, so two lanes are off. If they hold 0, the sum is $e^{-2} + 1 +
# 2 e^{-3}$ = 1.235 instead of 1.135.
#
# **The usual errors.** `other=0.0`, right for sums and wrong for softmax. r * N instead of r *
# row_x. No maximum subtracted. A product of two int32 beyond $2^{31}$.
# </details>
#
# ### Exercise 4 · FlashAttention, forward
#
# **60 minutes · 18 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** the kernel `attend`. Its first lines are given: program (i, h) has loaded BM queries
# of head h, `q` [BM, D]. Walk along the keys, BN at a time, as in exercise 2.
#
# A kernel may call a helper that stands behind `@triton.jit`, and get several tiles from it. So
# put the step from one tile to the next into `absorb`, your `online_update` of exercise 1, and
# exercises 5 and 7 will call it again. No test calls `absorb` by name; `attend` is what is checked.
#
# - Q and Out are [H, T, D] with distances `head_q` and `row_q`; K and V [H, S, D] with `head_k` and
#   `row_k`; elements of a row lie side by side. Row h of LSE [H, T] begins at `LSE + h * head_lse`.
# - The score is `scale` times q · k, multiplied in float32; `scale` is positive. lse is the natural
#   logarithm, float32. p is rounded for the product with v alone, not for total.
# - Q, K, V, Out are float16 or float32, all the same. m, total and acc are float32. Both products
#   go through `tl.dot`, with tiles of the inputs' dtype, as tensor cores need it; for float32 give
#   `input_precision="ieee"`, or a GPU rounds to 10 bits.
# - T and S are any numbers from 1 on; q, k, v are finite, and scores between $-10^{20}$ and
#   $10^{20}$. D, BM and BN are powers of two from 16 on. Heads, of LSE too, may lie further apart
#   than $2^{31}$: `h` is int64, rows of a head need not be.
# - Q is read once, Out and LSE are written once, K and V are read once for each block of queries.
#   No tile of scores is computed of whose keys none exists, and no tile has more elements than the
#   largest of BM BN, BM D and BN D.


# %% solution="ex4"
@triton.jit
def absorb(m, total, acc, s, v):
    """The state (m [BM], total [BM], acc [BM, D]) after scores s [BM, BN] and values v [BN, D]."""
    ### BEGIN SOLUTION
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp(s - m_new[:, None])
    correction = tl.exp(m - m_new)
    total = total * correction + tl.sum(p, 1)
    acc = acc * correction[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total, acc
    ### END SOLUTION


@triton.jit
def attend(
    Q,  # [H, T, D]
    K,  # [H, S, D]
    V,
    Out,  # [H, T, D]
    LSE,  # [H, T]
    head_q,  # of Q and Out
    row_q,
    head_k,  # of K and V
    row_k,
    head_lse,
    T,
    S,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Attention of queries i BM .. i BM + BM - 1 of head h. Grid: (ceil(T / BM), H)."""
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)  # [BM, D]
    ### BEGIN SOLUTION
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        at_k = h * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BM, BN]
        s = tl.where(n[None, :] < S, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    tl.store(Out + at_q, (acc / total[:, None]).to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Exercise 1 in a loop, with tiles for tensors. Before the loop m, total and acc exist
# with the dtype and shape that they have inside: the compiler allows no change.
#
# **By hand.** S = 20 and BN = 16: the second tile has keys 16 .. 31, of which 12 do not exist.
# Their rows of k are 0 by `other`, so their scores are 0 and not nothing: they would count $e^{0 -
# m}$. Set them to $-\infty$ before the maximum.
#
# **The usual errors.** Keys behind S masked in the load and not in the scores. acc not corrected,
# or divided in every step. p in float32 meets v in float16: `p.to(v.dtype)`. Addresses with T
# where S belongs.
# </details>

# %% tags=["demo"]
torch.manual_seed(0)
q, k, v = (torch.randn(2, 128, 32).half() for _ in range(3))
for block, keys in ((16, 32), (32, 32), (64, 32), (32, 64)):
    o, lse, m = run(attend, q, k, v, block, keys)
    exact = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    paper = 2 * attention_bytes(128, 128, 32, block, 2)
    print(
        f"{block} queries, {keys} keys: off by {(o - exact).abs().max():.4f}, {m.bytes:,} bytes ",
        end="",
    )
    print(f"({paper:,} on paper), each key {m.reads['K'].reuse:.0f} times")
    found[f"reads at {block}"] = m.reads["K"].reuse
lab.reveal("reads", found["reads at 32"])

# %% [markdown]
# **Then write one sentence:** which of the numbers above does `BN` change, and which does `BM`?
#
# *Your sentence:*
#
# <details><summary>The sentence before this one, on 16 queries</summary>
#
# Keys and values: without a cache every block of queries reads them all, 1,024 times at 16,384
# tokens. That is 4,295 MB in every one of the three ways, beside the 2,147 MB of scores; with 256
# queries a block it is 268 MB.
# </details>
#
# ## 3. Causal, and grouped
#
# The last query sees the last key: query i sees keys 0 .. i + S - T. Blocks of keys that no query
# of a block sees need not be read at all. With T = S that is nearly half of K, of V and of the
# FLOPs; q, o and lse move as before.

# %% tags=["demo"]
style.show(*kernels.schedule(128, 128, 32, 16, "Tiles above the diagonal are never read"))
lab.predict(
    "causal",
    "128 queries and keys, blocks of 16 both (the picture's are 32 and 16). Without skipping, a "
    "block of keys is read 8 times. With it, how often is a block of keys read on average?",
    unit="times",
)

# %% [markdown]
# ### Exercise 5 · Causal, grouped, and rows that see nothing
#
# **45 minutes · 14 points** · difficulty 5 of 5 ●●●●● · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** the kernel `attend_causal`. Begin with a copy of your `attend`; it may call your
# `absorb`, but in a tile all of whose keys are masked for a row $-\infty - (-\infty)$ lurks there:
# mend `absorb`, or what it is given. All that exercise 4 promises holds here. New:
#
# - Query i sees keys 0 .. i + S - T. T may be larger than S: then the first queries see none, and
#   have o = 0 and lse = $-\infty$.
# - Derive where the walk of a block of queries may end, so that no block of keys is read or
#   computed that none of its queries sees; queries beyond T see nothing. A block of which some are
#   seen may be read whole, but for keys behind S, or only where they are seen.
# - K and V are [HKV, S, D]: query head h uses key head h // GROUP.


# %% solution="ex5"
@triton.jit
def attend_causal(
    Q,  # [H, T, D]
    K,  # [HKV, S, D]
    V,
    Out,  # [H, T, D]
    LSE,  # [H, T]
    head_q,  # of Q and Out
    row_q,
    head_k,  # of K and V
    row_k,
    head_lse,
    T,
    S,
    GROUP,  # H / HKV
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Causal attention of BM queries of head h. Grid: (ceil(T / BM), H)."""
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)  # [BM, D]
    ### BEGIN SOLUTION
    m = tl.full([BM], -1e30, tl.float32)  # no -inf: a row may see nothing of its first tiles
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    last = tl.minimum(tl.program_id(0) * BM + BM, T) - 1
    for start in range(0, last + S - T + 1, BN):
        n = start + tl.arange(0, BN)
        at_k = h // GROUP * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BM, BN]
        s = tl.where(n[None, :] <= rows[:, None] + S - T, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(Out + at_q, o.to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Of a block of queries the last one sees most. Its number is the end of the block or T,
# whatever comes first. Then ask of rows that see nothing: what are m, total and each difference?
#
# **By hand.** T = S = 40, BM = 16, BN = 16. Queries 0 .. 15 see keys 0 .. 15: one block. Queries
# 32 .. 39 see 0 .. 39: three blocks, the last with 8 keys. T = 3, S = 1: queries 0 and 1 see
# nothing, query 2 sees key 0.
#
# **The usual errors.** The mask i >= j without S - T. An end at i BM, which loses the diagonal, or
# only a mask and no end: right, and twice the bytes. NaN in rows that see nothing.
# </details>

# %% tags=["demo"]
q, k, v = torch.randn(1, 128, 16), torch.randn(1, 128, 16), torch.randn(1, 128, 16)
whole, causal = run(attend, q, k, v)[2], run(attend_causal, q, k, v, more=(1,))[2]
maps = {"attend": whole.counts("K")[0], "attend_causal": causal.counts("K")[0]}
style.show(*kernels.reads(maps, "How often each element of K was read"))
lab.reveal("causal", causal.reads["K"].reuse)
found["flops"] = causal.flops / whole.flops
print(f"the causal kernel computes {found['flops']:.2f} of the FLOPs")

# %% [markdown]
# <details><summary>The sentence on BN and BM</summary>
#
# `BM` alone changes bytes: each key is read once for every block of queries. `BN` changes no byte,
# only the number of steps, and in the last digits the order of the sum.
# </details>
#
# **Acceptance in the live model.** Your kernel takes the place of PyTorch's attention in all layers
# of the course's model, and the model goes on with the same prompt.


# %% tags=["demo"]
# about 10 s
def mine(q, k, v, mask):
    """Attention of the model: q [1, H, T, d], k and v [1, Hkv, S, d]."""
    return run(attend_causal, q[0], k[0], v[0], 32, 32, (q.shape[1] // k.shape[1],))[0][None]


swapped = zoo.load("target")
for layer in swapped.model.layers:
    layer.self_attn.attention = mine
with torch.inference_mode():  # the prompt at once, and then token by token
    off = (swapped(prompt) - target(prompt)).abs().max().item()
    ids = generate(swapped, prompt, 6)[0].tolist()
found["same"] = ids == baseline[: len(ids)]
print(f"logits off by {off:.1e}; the same next tokens: {found['same']}")
print(tokenizer.decode(ids[1:]))

# %% [markdown]
# ## 4. Memory on the chip
#
# Larger blocks of queries read keys less often. What stops them is the memory on the chip. Count,
# in elements, what a program holds: q and acc, $B_m d$ each; a tile of k and of v, $B_n d$ each;
# the scores, $B_m B_n$.
#
# ### Exercise 6 · Choose the blocks
#
# **20 minutes · 10 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `choose_blocks(T, S, d, most) -> (block_m, block_n)`: both powers of two from 16 to
# 512, which hold at most `most` elements on the chip and move the fewest bytes, by your formula of
# exercise 2 (any itemsize gives the same choice). Of equal bytes take the smallest block_m, and
# beside it the largest block_n that fits (fewest steps). T, S and d are any numbers from 1 on. If
# not even blocks of 16 fit, raise ValueError. Decide first which of the two the bytes depend on.


# %% solution="ex6"
def choose_blocks(T: int, S: int, d: int, most: int) -> tuple[int, int]:
    """(block_m, block_n) with the fewest bytes among those that fit. Raises ValueError."""
    ### BEGIN SOLUTION
    sizes = [2**n for n in range(4, 10)]
    fit = [(m, n) for m in sizes for n in sizes if 2 * m * d + 2 * n * d + m * n <= most]
    if not fit:
        raise ValueError(f"blocks of 16 with d = {d} need more than {most} elements")
    return min(fit, key=lambda b: (attention_bytes(T, S, d, b[0], 2), b[0], -b[1]))
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** There are 36 pairs. Try them all, and sort by three things in turn.
#
# **By hand.** d = 16, most = 2048. (16, 16) holds 512 + 512 + 256 = 1280. (32, 16) holds 1024 + 512
# + 512 = 2048: it fits. (16, 32) holds 2048, too. With T = 16 both move the same, so (16, 32) wins;
# with T = 64 (32, 16) moves less.
#
# **The usual errors.** Square blocks. The scores forgotten. The bytes of q and o forgotten is no
# error here: why?
# </details>

# %% tags=["demo"]
budgets = [2**n for n in range(11, 16)]
chosen = [choose_blocks(16384, 16384, 64, 4 * most) for most in budgets]
moved = [attention_bytes(16384, 16384, 64, m, 2) for m, _ in chosen]
style.show(*kernels.law([4 * b for b in budgets], moved, "Traffic falls as one over the memory"))
for most, (m, n), each in zip(budgets, chosen, moved, strict=True):
    print(f"{4 * most:7d} elements: {m:3d} queries, {n:3d} keys, {each / 1e6:6.1f} MB")

# %% [markdown]
# The line falls as $N^2 d^2 / M$. Next, what the meter counts of your kernel, on a GPU's roofline:
# FLOPs for each byte, against what the GPU can do of both. Points come in pairs, counted by one
# rule: stored scores and yours, in the same blocks of queries, **without a cache**. A GPU has one
# (an H100 50 MB), which holds K and V of a head; the last pair is the other end, where q, k, v and
# o move once. The truth lies between. Stored scores leave that cache beyond 5,000 tokens, where
# they take more than all of it, and K and V of a head 1.3 MB.
#
# A roofline has a third roof here. Each score needs one exponential and $4 d$ FLOPs, and a
# processor of an H100 makes 16 exponentials a clock, but 4,096 FLOPs.

# %% tags=["demo"]
from efflib.meter import metered_roofline

n, d, points = 1024, 64, {}
q, k, v = (torch.randn(1, n, d).half() for _ in range(3))
for block in (16, 128):
    m = run(attend, q, k, v, block, 256)[2]
    points[f"stored, {block} queries"] = m.flops / stored_bytes(n, n, d, block, 2)
    points[f"yours, {block} queries"] = m.flops / m.bytes
points["stored, cached"] = m.flops / stored_bytes(n, n, d, n, 2)  # one block: all comes once
points["yours, cached"] = metered_roofline(m, "H100").intensity
style.show(*kernels.roofline_of(points, "H100", "Stored scores stay left of the ridge"))
for r in (metered_roofline(m, "H100"), metered_roofline(m, "B200")):
    print(f"{r.gpu.name}: products {1e9 * r.tensor:.0f} ns, exps {1e9 * r.exponentials:.0f} ns")

# %% [markdown]
# With 64 dimensions an H100 is busy with exponentials as long as with products. A B200 has more
# than twice the FLOPs and as many exponentials a clock: there exponentials are the roof, and
# FlashAttention-4 (2026) computes some of them as polynomials, and corrects old sums only where the
# maximum has risen much.
#
# Exercise 6 counts elements. On a GPU they lie in two places: tiles of k and v in shared memory, of
# which a program on an A100 has 163 KiB, and what is computed with (q, acc, scores, addresses) in
# **registers**, at most 255 a thread. A program has 32 threads a warp. What does not fit into
# registers goes to the *stack*, which is memory again. This is what a GPU's compiler makes of your
# kernel, without a GPU: for strides of which it knows nothing, and for those of a real launch,
# multiples of 16 that it may rely on. **Which of the two runs out first, and what do more warps and
# known strides change?**

# %% tags=["demo"]
# about 10 s
from efflib.kernel_lab.on_gpu import timed
from efflib.meter import compile_report

names = "head_q row_q head_k row_k head_lse T S".split()
types = dict.fromkeys(["Q", "K", "V", "Out"], "*fp16") | {"LSE": "*fp32", "scale": "fp32"}
types |= {"GROUP": 4, "D": 64, "BM": 128, "BN": 64}
known = dict(zip(names, (65536, 64, 65536, 64, 1024, 1024, 1024), strict=True))
for sizes, warps in ((dict.fromkeys(names, "i32"), 8), (known, 4), (known, 8)):
    r = compile_report(attend_causal, types | sizes, "sm_80", num_warps=warps)
    used = f"{r.registers} of 255 registers, {r.stack_bytes} bytes of stack"
    strides = "known" if sizes is known else "unknown"
    print(f"strides {strides}, {warps} warps: {used}, {r.shared_bytes / 1024:.0f} KiB shared")
print(timed(attend, (1024, 4096, 16384)))  # against PyTorch's, where there is a GPU

# %% [markdown]
# ## 5. Decoding: splits, and a merge
#
# One query and a long cache: a program for each head, and that is all there is to do at a time. An
# H100 has 132 processors. So the keys are cut into **splits**, each a program of its own, and the
# parts are merged by their lse. The GROUP query heads that share a key head are the rows of one
# tile: the cache is read once, not once for each of them.
#
# ### Exercise 7 · Split-K decoding
#
# **35 minutes · 14 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** the kernel `decode`, which may call your `absorb`, and `merge_parts(o, lse) -> (o,
# lse)` in PyTorch.
#
# - `decode`: program (i, h) attends from the GROUP queries of key head h to keys i `per_split` ..
#   (i + 1) `per_split` - 1, as far as they exist. Q is [HKV, GROUP, D] (`head_q`, `row_q`), K and V
#   [HKV, S, D], float16 or float32, all the same. Row (i HKV + h) GROUP + g of Part (`row_part`
#   apart) gets o, the same element of PartLSE lse, both float32 and not rounded. A split without
#   keys gives 0 and $-\infty$.
# - BG is a power of two from 16 on and at least GROUP: lanes behind GROUP are off. `per_split` is a
#   multiple of BN; BN and D are powers of two from 16 on. The splits cover all keys; each key and
#   value is read once in all. Heads of Q, K and V may lie further apart than $2^{31}$, rows of Part
#   not. Scores and `scale` are those of exercise 4.
# - `merge_parts`: n parts, float32 `o` [n, R, d], `lse` [n, R], to [R, d], [R], of sizes from 1 on
#   and numbers as in exercise 1. Take all at once, or one after another with your `merge`: each
#   merge may round its lse. A row that no part has keys for stays 0 and $-\infty$.


# %% solution="ex7"
@triton.jit
def decode(
    Q,  # [HKV, GROUP, D]
    K,  # [HKV, S, D]
    V,
    Part,  # [splits HKV GROUP, D]
    PartLSE,  # [splits HKV GROUP]
    head_q,
    row_q,
    head_k,  # of K and V
    row_k,
    row_part,
    HKV,
    GROUP,
    S,
    per_split,
    scale,
    D: tl.constexpr,
    BG: tl.constexpr,
    BN: tl.constexpr,
):
    """A split of the keys of key head h, for its GROUP queries. Grid: (splits, HKV)."""
    split, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    on = g[:, None] < GROUP
    q = tl.load(Q + h * head_q + g[:, None] * row_q + d[None, :], mask=on, other=0.0)  # [BG, D]
    ### BEGIN SOLUTION
    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    stop = tl.minimum(split * per_split + per_split, S)
    for start in range(split * per_split, stop, BN):
        n = start + tl.arange(0, BN)
        at_k = h * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BG, BN]
        s = tl.where(n[None, :] < S, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    row = (split * HKV + h) * GROUP + g
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(Part + row[:, None] * row_part + d[None, :], o, mask=on)
    tl.store(PartLSE + row, m + tl.log(total), mask=g < GROUP)
    ### END SOLUTION


def merge_parts(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """(o [R, d], lse [R]) over all keys, from parts o [n, R, d] and lse [n, R]."""
    ### BEGIN SOLUTION
    weight = lse.softmax(0).nan_to_num(0.0)  # NaN where no part has keys
    return (weight[..., None] * o).sum(0), lse.logsumexp(0)
    ### END SOLUTION


# %% check="ex7"
lab.check("ex7")

# %% [markdown]
# <details><summary>Help for exercise 7</summary>
#
# **Idea.** The loop of exercise 4 with another start and another end. The merge is that of exercise
# 1 for many parts: their weights are $e^{lse_i - \max lse}$, divided by the sum of all these.
#
# **By hand.** S = 40, per_split = 32: keys 0 .. 31 and 32 .. 39. With three splits the third has no
# key. Its loop never runs; total is 0, and o must be 0 and not 0 / 0.
#
# **The usual errors.** Splits that overlap, or a last one that runs beyond S. A program for each
# query head: right, and GROUP times the bytes. A mean of the parts.
# </details>

# %% tags=["demo"]
S, HKV, GROUP, d = 256, 2, 4, 32
q, k, v = torch.randn(HKV, GROUP, d), torch.randn(HKV, S, d), torch.randn(HKV, S, d)
for splits in (1, 4):
    parts, lses = torch.empty(splits, HKV * GROUP, d), torch.empty(splits, HKV * GROUP)
    steps = [*q.stride()[:2], *k.stride()[:2], d, HKV, GROUP, S, S // splits, d**-0.5]
    with Meter() as m:
        decode[(splits, HKV)](q, k, v, parts, lses, *steps, D=d, BG=16, BN=32)
    o, _ = merge_parts(parts, lses)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v).flatten(0, 1)
    merged = parts.nbytes + lses.nbytes + o.nbytes  # read and written by the merge
    found[f"splits {splits}"] = (m.bytes + merged) / (k.nbytes + v.nbytes)
    print(f"{m.programs} programs, off by {(o - exact).abs().max():.0e}, ", end="")
    print(f"{found[f'splits {splits}']:.2f} times the bytes of the cache, merge included")

# %% [markdown]
# **How many splits?** Bytes only say: few. What programs do one after another says the rest. Below
# 8 key heads, 8,192 keys, 132 processors with one program each; what does not fit waits for the
# next **wave**. Before you run it: what do 17 splits give that 16 do not?

# %% tags=["demo"]
heads, keys, processors, d = 8, 8192, 132, 64
for splits in (1, 2, 8, 16, 17, 32, 33, 64):
    programs = heads * splits
    waves = -(-programs // processors)
    row = waves * -(-keys // splits)  # keys that a processor walks along, one after another
    busy = programs / (waves * processors)
    moved = 1 + splits * 8 * (d + 1) * 4 / (2 * keys * d * 2)  # parts written and read, 4 queries
    print(
        f"{splits:2d} splits: {waves} waves, {row:5d} keys in a row, {busy:4.0%} busy, {moved:.2f}"
    )

# %% [markdown]
# ## 6. Misconceptions
#
# **"It computes less."** It computes what attention computes, and the corrections on top. A causal
# kernel computes tiles on the diagonal whole. It moves less.
#
# **"It is an approximation."** It is exact up to rounding: only the order of sums is another.
#
# **"Memory grows no more with N, so time does not."** FLOPs are still $4 N^2 d$. What is gone is
# $N^2$ of memory, and most of the traffic.
#
# **"More splits are faster."** 16 splits filled one wave; the 17th opened a second, in which nearly
# all processors wait, and every split writes its part.
#
# ### Open task (not graded)
#
# **Less work for the same attention.** Tiles on the diagonal are half wasted, and exponentials cost
# as much as products. Change blocks and kernel, and compute 128 causal queries and keys with fewer
# FLOPs *and* fewer exponentials than the reference, at no more bytes. Blocks alone beat it in all
# three. What does a kernel of yours save beyond: where is no correction needed?

# %% tags=["demo"]
q, k, v = (torch.randn(1, 128, 16) for _ in range(3))
for name, (m_block, n_block) in (("reference", (32, 64)), ("yours", (32, 64))):
    m = run(attend_causal, q, k, v, m_block, n_block, (1,))[2]
    found[name] = m.flops, m.exponentials
    print(f"{name:10s} {m.flops:,} FLOPs, {m.exponentials:,} exponentials, {m.bytes:,} bytes")

# %% [markdown]
# ## 7. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** How can one walk be right, in tiles that never see a whole
# row? What does storing nothing save, what the single walk, and what on the chip decides the rest?
# *Rubric:* what is kept of a row (1), and how a larger score corrects it (1); what moves where
# scores are stored and not where none are (1); what the single walk saves beside two, with your
# numbers (1); the block of queries, and the memory that limits it (1).

# %% [markdown] written="w1"
# The state of a row is its largest score so far, the sum of exponentials relative to it, and the
# sum of values with the same weights. If a larger score comes, both sums were too large by one
# factor, exp(m - m'), and are multiplied by it; at the end one division makes it exact. Stored
# scores are written and read, and so are probabilities: four times N squared elements, 2147 MB at
# 16,384 tokens, whatever the blocks are. Two walks store nothing either, but read the keys once
# more than one walk does: 407 MB against 273 MB with 256 queries a block, where stored scores take
# 2420 MB. What is left are keys and values, once for each block of queries. So the block of queries
# decides, and its q and acc must fit on the chip: twice the memory, half the traffic.

# %% [markdown]
# **Question 2.** A colleague's causal kernel masks rightly and passes every comparison with
# PyTorch, but is only as fast as the full one. What did the meter show you that a comparison
# cannot? And she says: "decoding has one query, so B_m is 1 and traffic is hopeless; splits will
# mend that."
# *Rubric:* reads of K by block and FLOPs, numbers of your kernels (2); where the walk may end (1);
# splits make programs, not fewer bytes; what does: heads that share (2).

# %% [markdown] written="w2"
# Results are equal whether a masked block is read or not. The meter counted that without an end of
# the walk each block of keys was read 8 times, with it 8, 7, 6 and so on down to 1, 4.5 on average,
# and 0.56 of the FLOPs. The walk of a block of queries may end behind the last key that its last
# query sees. In decoding each key is read once for one query, that is already the least: splits
# only give more processors something to do, my two settings moved the same bytes but for the
# parts. Fewer bytes come from query heads that share a key head, as the rows of one tile.

# %% [markdown]
# ## Stretch (not graded)
#
# - **exp2.** GPUs have only $2^x$. Put $\log_2 e$ into the scale, and get the lse right.
# - **Two loops.** Keys before the diagonal need no mask. Split the walk of exercise 5 in two.
# - **A window.** Let queries see only the last w keys: where does the walk begin then?
# - **Backward, to read.** FlashAttention-2, section 3: which numbers of the forward pass does the
#   backward pass ask for, and why is one number a row enough in place of all probabilities?
#
# **Next:** lab 9 makes several tokens a pass; the chapter on the meter has the roofline in full.
#
# **Sources.** Dao, Fu, Ermon, Rudra and Ré, *FlashAttention*, 2022 (arXiv:2205.14135). Rabe and
# Staats, *Self-attention does not need O(n²) memory*, 2021 (arXiv:2112.05682): nothing stored, a
# year earlier. Dao, *FlashAttention-2*, 2023 (arXiv:2307.08691). Milakov and Gimelshein, *Online
# normalizer calculation for softmax*, 2018 (arXiv:1805.02867). Dao, Haziza, Massa and Sizov,
# *Flash-Decoding*, 2023. Zadouri, Hoehnerbach, Shah, Liu, Thakkar and Dao, *FlashAttention-4*,
# 2026. Tillet, Kung and Cox, *Triton*, MAPL 2019.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
lab.report()
f = found
takeaways = [
    f"Blocks of 256 queries: stored scores move {f['stored']:.1f}, two walks {f['two']:.1f} times.",
    f"Each key is read {f['reads at 16']:.0f} times with blocks of 16, "
    f"{f['reads at 64']:.0f} times with blocks of 64.",
    f"The causal kernel computes {f['flops']:.2f} of the FLOPs.",
    f"In the model the same next tokens: {f['same']}.",
    f"Decoding and merging: {f['splits 1']:.2f} times the cache, {f['splits 4']:.2f} in 4 splits.",
    "Open task: {:,} FLOPs and {:,} exponentials.".format(*f["yours"])
    if f["yours"] != f["reference"]
    else "Open task: not tried yet.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
