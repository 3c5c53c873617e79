# %% [markdown]
# # Lab 0: The roofline
#
# **The question.** A model writes one token for you. Then it writes one token each for you and
# seven others at once, in far less than eight times the time. **Who pays for the other seven, and
# when does that end?**
#
# ![Milliseconds of a step that writes one more token for each reader, measured for 1 to 64 readers
# at once, beside a line for what it would take if every reader cost as much as the
# first.](../../course/figures/lab00/opening.svg)
#
# Section 4 predicts this picture for *your* machine, by functions that you write, and only then
# measures it. Section 8 asks the question again.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | Python; what attention and an MLP are; no other lab |
# | Not covered | how anything is made faster: that is what the other labs are for |
#
# After this lab you can
# 1. state what a pass over a model computes and moves, and which of the two takes the time;
# 2. measure the two ceilings of a machine, and say how far a model is from them;
# 3. read a server's log, and a perplexity, without falling for the usual mistakes.
#
# ## Map and notation
#
# Section 1, is the model any good: exercise 1. Section 2, what a pass costs: 2 and 3. Section 3,
# what users get: 4. Section 4, when does it end: 5. Section 5, what it takes to make and to run: 6.
# Section 6: which lab helps.
#
# | symbol | in code | meaning |
# |---|---|---|
# | $p, b$ | `base` | probability of a token, base of its loss $-\log_b p$ |
# | $D, H, H_{kv}, d$ | `config` | hidden size, query heads, key and value heads, size of a head |
# | $B$ | `batch` | sequences that one pass serves |
# | | `new`, `cached` | tokens that a pass reads, tokens whose keys and values are kept |
# | $F, M$ | `flops`, `moved` | FLOPs and bytes of a pass |
# | $\pi, \beta$ | `peak`, `bandwidth` | FLOPs and bytes per second, at most |
# | TTFT, TPOT, ITL | `"ttft"`, ... | time to first token, per further token, between two tokens |
#
# A *product* is a multiplication with its addition and counts as 2 FLOPs. GB and GFLOP are powers
# of ten here.
#
# ### Rules for all exercises
#
# Keep names and arguments as they are: tests call your functions by name. No function changes its
# arguments. A count may come back as a float or as a number of numpy's, if it is the same number to
# 12 digits. Lists may have some thousand entries.

# %%
import math
import os
from functools import partial

import torch
from torch import Tensor

from efflib import zoo
from efflib.lab import Lab
from efflib.lab.toy import Toy
from efflib.plots import explorer, style
from efflib.plots import roofline as pictures
from efflib.traffic.one_card import serve
from efflib.zoo.evaluation import held_out_segments
from efflib.zoo.passes import losses_in_passes

lab = Lab("lab00_roofline")
GB, GFLOP = 1e9, 1e9

# models by Hugging Face's names; H100: dense rates, the lecture's 1,979 teraFLOPS are with sparsity
LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008}
LLAMA_7B |= {"num_hidden_layers": 32, "num_attention_heads": 32}
LLAMA_8B = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336}
LLAMA_8B |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
H100 = (989.4e12, 3.35e12)  # FLOP/s in 16 bits, bytes/s

# %% [markdown]
# ### How a lab works: check, hint, prediction
#
# The card above says what this machine has, and whether the course is whole. The next cell is a
# toy: nothing in it is graded. Its function is **wrong on purpose.** Run it, read the card, mend
# the function, run it again. A card says what was seen, what was expected, the rule, and the usual
# cause.
#
# `toy.hint("toy")` gives one hint at a time; take it when you are stuck. A **prediction** is asked
# before the answer can be known. Write it into its field (where none is shown:
# `toy.answer("rate", 7)`) and run on; a later cell puts it beside what came out. Nothing
# depends on it, but a number that you have guessed is one that you remember.
#
# In an exercise, `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of
# hidden tests (9 of 15). It stops the notebook when it fails, the toy does not.
#
# ### Baseline
#
# The cell after the toy asks this machine what it has, cuts a sentence into tokens (lectures say
# that 100 ms a token are "about 450 words a minute", so 1.3 tokens a word), and lets `target`
# write, the model of most labs, of 3 million parameters. Its tokenizer has 2,048 entries; those of
# large models have 32,000 to 256,000, and need fewer tokens a word.

# %%
toy = Toy()
toy.predict("rate", "Reading aloud is about 3 words a second. How many tokens?", unit="tokens/s")


def tokens_per_second(milliseconds: float) -> float:
    """Tokens per second, if one takes so many milliseconds. ValueError unless above 0."""
    return 100 / milliseconds  # mend me


toy.check("toy")

# %% tags=["demo"]
prose = "A model writes one token at a time, and every token asks for all of its weights once more."
ids, words = zoo.load_tokenizer().encode(prose).ids, len(prose.split())
print(f"{os.cpu_count()} processors, torch uses {torch.get_num_threads()} threads;", end=" ")
print(f"vectors: {torch.backends.cpu.get_cpu_capability()}")
print(f"{words} words, {len(ids)} tokens, {len(prose.encode())} bytes")
toy.reveal("rate", 3 * len(ids) / words)
target = zoo.load("target")
stored = sum(p.numel() * p.element_size() for p in target.parameters())
print(f"target: {stored / 1e6:.1f} MB of weights in float32; it writes")
print(zoo.sample(target, "import json\n\n\ndef load_json(path):\n", tokens=32))
found = {}  # the numbers that you find, for the takeaways at the end

# %% [markdown]
# ## 1. Is the model any good?
#
# Speed is worth nothing if the text gets worse, so every lab has to say how good a model is. The
# **loss** of a token is $-\log_b p$ of the probability that the model gave it, and perplexity
#
# $$ \mathrm{PPL} = b^{\,\frac1N \sum_{i=1}^N -\log_b p_i} $$
#
# over the $N$ tokens of *all* texts. It is the number of tokens among which a fair die would have
# to choose. A slide of the lectures writes $e^{-\frac1N \sum \log_2 p_i}$. **Is that the same?**

# %%
# the formula on four numbers
chances = [0.5, 0.25, 0.25, 0.125]
by_hand = math.prod(1 / p for p in chances) ** (1 / 4)  # a mean of factors
in_bits = sum(-math.log2(p) for p in chances) / 4
print(f"1 / p: {[1 / p for p in chances]}, their geometric mean {by_hand:.3f} = 2 ** {in_bits:g}")

lab.predict("slide", "LLaMA-7B has perplexity 5.68. What does the slide's formula make of it?")

# %% [markdown]
# ### Exercise 1 · Perplexity
#
# **25 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `perplexity(losses, base=e) -> float`: `losses` is a list with one tensor [tokens] for each
#   text, a loss in this base for each token. Texts have unequal lengths, and some may be empty:
#   every *token* counts once. `ValueError` for a base of at most 1, and if there is no token at
#   all.
# - `bits_per_byte(losses, text_bytes, base=e) -> float`: bits of all tokens, divided by the bytes
#   of all texts. So models with different tokenizers can be compared. `ValueError` for a base of at
#   most 1 and for less than 1 byte; without tokens it is 0.
# - `strided_windows(tokens, window, stride) -> list`: a model reads at most `window` tokens at a
#   time. Return a tuple `(start, end, first)` for each pass over a text: it reads the tokens from
#   `start` to before `end`, and scores those from `first` to before `end`. Token 0 is scored in no
#   pass, for nothing stands before it; all others are scored once. The first pass reads from 0 as
#   many as the window holds. Each further pass scores the next `stride` tokens, or what is left,
#   *and reads before them whatever the window has room for*. No passes for fewer than 2 tokens.
#   `ValueError` for `tokens` below 0, and unless 1 ≤ `stride` < `window`.
#
# Losses are float32, float64, bfloat16 or float16 (all of one call alike), at least 0, and may be
# `inf` (a token that the model holds impossible): so is the result. Add up in float64, whatever
# comes. The mean loss is at most 100 and the base at most 1000, so no power overflows.


# %% solution="ex1"
def perplexity(losses: list[Tensor], base: float = math.e) -> float:
    """base ** (mean loss of all tokens of all texts), computed in float64.

    losses: one tensor [tokens] for each text, -log_base of each token's probability, base > 1.
    Raises ValueError for base <= 1, and where there is no token at all.
    """
    ### BEGIN SOLUTION
    tokens = sum(x.numel() for x in losses)
    if base <= 1 or tokens == 0:
        raise ValueError(f"base {base} must be above 1, and there are {tokens} tokens")
    return base ** (sum(x.double().sum().item() for x in losses) / tokens)
    ### END SOLUTION


def bits_per_byte(losses: list[Tensor], text_bytes: int, base: float = math.e) -> float:
    """Bits that all tokens cost together, for each of the texts' bytes; 0 without tokens.
    losses as above.

    Raises ValueError for base <= 1 or text_bytes < 1.
    """
    ### BEGIN SOLUTION
    if base <= 1 or text_bytes < 1:
        raise ValueError(f"base {base} must be above 1, text_bytes {text_bytes} at least 1")
    return sum(x.double().sum().item() for x in losses) * math.log2(base) / text_bytes
    ### END SOLUTION


def strided_windows(tokens: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """(start, end, first) of each pass: it reads tokens [start, end) and scores [first, end).

    The first pass reads up to `window` tokens; each further one scores the next `stride` tokens
    (the last one what is left), and in front of them reads as many as the window has room for.
    Raises ValueError for tokens < 0, and unless 1 <= stride < window.
    """
    ### BEGIN SOLUTION
    if tokens < 0 or not 1 <= stride < window:
        raise ValueError(f"tokens {tokens}, window {window}, stride {stride}")
    passes, first = [], 1
    while first < tokens:
        end = min(tokens, window if first == 1 else first + stride)
        passes.append((max(0, end - window), end, first))
        first = end
    return passes
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** A mean over tokens is *one* division: all losses, by all tokens. And what undoes a
# logarithm is a power with the same base.
#
# **By hand.** Base 2, losses [1, 1, 1] and [5]: 8 bits for 4 tokens, perplexity $2^2 = 4$. The mean
# of the texts' means would be 3, and 8. If the texts have 16 bytes, it is 0.5 bits per byte.
# Nine tokens, window 4, stride 2: (0, 4, 1), (2, 6, 4), (4, 8, 6), and for the last token (5, 9,
# 8), not (6, 9, 8): there is room for one more in front of it.
#
# **The usual error.** $e$ to a loss in bits. The mean of perplexities. A window that begins at a
# multiple of the stride and is cut at the end of the text.
# </details>
#
# **Reveal.** First the slide. Then one model, one text, and strides from a whole window down: how
# much of a perplexity is the *measuring*? The model is `vanilla`, which was trained without a begin
# token, so that a window may begin anywhere (one that was trained with it, like `target`, would be
# asked for what it has never seen). About 5 seconds.

# %% tags=["demo"]
wrong = math.e ** math.log2(5.68)
print(f"the slide's formula: e ** log2(5.68) = {wrong:.2f}, which is 5.68 ** {1 / math.log(2):.3f}")
lab.reveal("slide", wrong)
vanilla, text = zoo.load("vanilla"), held_out_segments("code", 16 * 512)[:4]
rows = []  # tokens read for each one scored, perplexity, name
for stride in (127, 64, 16, 8):
    passes = strided_windows(text.shape[1], 128, stride)
    losses = losses_in_passes(vanilla, text, passes)  # [texts, tokens - 1] nats
    read = sum(end - start for start, end, _ in passes) / losses.shape[1]
    rows.append((read, perplexity(list(losses)), f"stride {stride}"))
style.show(*pictures.by_passes(*zip(*rows, strict=True)))
found["strides"], each = (rows[0][1], rows[-1][1]), [perplexity([row]) for row in losses]
print(f"stride 8, text by text {[round(x, 2) for x in each]}: their mean {sum(each) / 4:.2f}")
lab.predict("prefill", "One pass over 1000 tokens on an H100: how many times one over 1 token?")

# %% [markdown]
# The power of the slide's formula is the same for every model, so it keeps their order, and makes
# every difference look larger: that is why nobody notices. A perplexity without its window and
# stride is no number to compare, and neither is one that was averaged over texts. In all labs
# windows, text and model are the same on both sides of a comparison, and the begin token stands in
# front. **A sentence to write:** which of two models with equal loss per token and tokenizers of
# 2,000 and 100,000 entries is the better one?
#
# ## 2. What a pass costs
#
# A pass over a model reads some *new* tokens behind some *cached* ones. Each new token is
# multiplied with every weight of every matrix, one product each. And it attends: $q \cdot k$ for
# every token that it sees, and a weight times $v$ for each of them. The lectures count for a layer
# whose MLP has two matrices and is 4 times as wide
#
# $$ \underbrace{4 d^2}_{q,\,k,\,v,\,o} + \underbrace{8 d^2}_{\text{MLP}} + L d = 12 d^2 + L d
#    \qquad\text{and}\qquad 12 L d^2 + L^2 d $$
#
# for one more token behind $L$ and for a whole prompt of $L$ (in products, with $d$ for the hidden
# size). A prompt is read at once, but it is the same work as making its tokens one by one.
# **Do the two formulas agree?** Your functions will say.
#
# On four numbers: 7 billion weights in 2 bytes are the lectures' 14 GB. An H100 reads 3.35 TB/s and
# computes 989 TFLOP/s: 4.2 ms to read them for one token, 0.014 ms to compute with them.

# %% [markdown]
# ### Exercise 2 · FLOPs and bytes of a pass
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions. `config` is a dictionary with Hugging Face's names: `vocab_size`,
# `hidden_size`, `intermediate_size`, `num_hidden_layers`, `num_attention_heads`, and perhaps
# - `num_key_value_heads`: without it every query head has its own key and value head;
# - `head_dim`: without it the hidden size is divided among the query heads; with it that need not
#   come out even;
# - `gated_mlp` (our name): `False` for an MLP of two matrices, up and down. Else it has three;
# - `tie_word_embeddings`: `True` if the token table is also `lm_head`, the matrix of `vocab_size`
#   rows behind the last layer. Does that change what a pass computes, or what it reads?
#
# Optional fields may be there and be `None`, which means the same as if they were missing.
#
# - `layer_weights(config) -> int`: weights of the matrices of one layer.
# - `pairs(new, cached=0) -> int`: pairs of a query and a key that causal attention computes. A new
#   token sees the cached ones, the new ones before it, and itself.
# - `step_flops(config, new, cached=0, batch=1) -> int`: FLOPs (2 for a product) of one pass over
#   `new` tokens in each of `batch` sequences. All new tokens go through the layers, but **only the
#   last one of each sequence through `lm_head`**. Norms, softmax and activations do not count.
# - `step_bytes(config, new, cached=0, batch=1, bits=16, kv_bits=16) -> float`: bytes of the same
#   pass: the matrices of all layers and `lm_head` once, in `bits` each, and in `kv_bits` each the
#   keys and values of the cached tokens, which are read, and of the new ones, which are written.
#   The token table's rows, norms and activations do not count: they are little for a few tokens,
#   and for a long prompt, where they are not, computing takes longer.
#
# `ValueError` for `new` or `batch` below 1, `cached` below 0, `bits` or `kv_bits` not above 0 (they
# need not be whole: 4.15625 are 4 bits and their metadata).


# %% solution="ex2"
def layer_weights(config: dict) -> int:
    """Weights of the matrices of one layer (q, k, v, o and the MLP's): products for each token.

    config: Hugging Face's names; gated_mlp (True unless it says False) is ours.
    """
    ### BEGIN SOLUTION
    width, heads = config["hidden_size"], config["num_attention_heads"]
    d = config.get("head_dim") or width // heads
    kv_heads = config.get("num_key_value_heads") or heads
    matrices = 2 if config.get("gated_mlp") is False else 3
    return width * (2 * heads * d + 2 * kv_heads * d + matrices * config["intermediate_size"])
    ### END SOLUTION


def pairs(new: int, cached: int = 0) -> int:
    """Pairs of a query and a key that causal attention computes: each new token sees all cached
    ones, the new ones before it, and itself.  Raises ValueError for new < 1 or cached < 0.
    """
    ### BEGIN SOLUTION
    if new < 1 or cached < 0:
        raise ValueError(f"new {new} must be at least 1, cached {cached} at least 0")
    return new * cached + new * (new + 1) // 2
    ### END SOLUTION


def step_flops(config: dict, new: int, cached: int = 0, batch: int = 1) -> int:
    """FLOPs of one pass over `new` tokens in each of `batch` sequences, 2 for each product.

    All new tokens go through the layers, the last one of each sequence through lm_head.
    Raises ValueError for new or batch < 1, or cached < 0.
    """
    ### BEGIN SOLUTION
    if batch < 1:
        raise ValueError(f"batch {batch} must be at least 1")
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    width = heads * (config.get("head_dim") or config["hidden_size"] // heads)
    matrices = new * layers * layer_weights(config) + config["vocab_size"] * config["hidden_size"]
    attention = 2 * layers * width * pairs(new, cached)  # q k, and weights times v
    return 2 * batch * (matrices + attention)
    ### END SOLUTION


def step_bytes(
    config: dict,
    new: int,
    cached: int = 0,
    batch: int = 1,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Bytes that this pass moves: the layers' matrices and lm_head once, keys and values of the
    cached tokens read and of the new ones written.

    bits of a weight, kv_bits of a key or value.  Raises ValueError as step_flops, and for bits or
    kv_bits <= 0.
    """
    ### BEGIN SOLUTION
    if min(new, batch) < 1 or cached < 0 or min(bits, kv_bits) <= 0:
        raise ValueError(f"new {new}, cached {cached}, batch {batch}, bits {bits}, {kv_bits}")
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    d = config.get("head_dim") or config["hidden_size"] // heads
    values = 2 * layers * (config.get("num_key_value_heads") or heads) * d  # of a token
    weights = layers * layer_weights(config) + config["vocab_size"] * config["hidden_size"]
    return weights * bits / 8 + batch * (cached + new) * values * kv_bits / 8
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Draw one layer with the shapes of its matrices. Count a token's way through it, then
# multiply: tokens, layers, sequences. For bytes the same picture, but a matrix is read *once*.
#
# **By hand.** Hidden size 8, 4 heads (d = 2), 2 key heads, MLP of 16, gated: q and o have 64
# weights each, k and v 32 each, the MLP 3 · 128: 576. Two new tokens behind three cached ones: 4 +
# 5 = 9 pairs; each costs 2 · 4 · 2 = 16 products in a layer. A token's keys and values are 2 · 2 ·
# 2 = 8 numbers in a layer.
#
# **The usual error.** Key heads in attention's FLOPs: *every query head* attends, they only share
# keys. A new token that does not see itself. `lm_head` for all tokens of a prompt.
# </details>
#
# ### Exercise 3 · The roofline
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A machine computes at most `peak` FLOPs per second and moves at most `bandwidth` bytes per second.
# If both go on at the same time, the slower one decides.
#
# **Deliver** six functions.
#
# - `intensity(flops, moved) -> float`: FLOPs for each byte. Without bytes it is `inf`, or 0 if
#   there are no FLOPs either.
# - `ridge(peak, bandwidth) -> float`: the intensity from which on a machine can compute at its
#   peak.
# - `attainable(flops_per_byte, peak, bandwidth) -> float`: FLOPs per second at this intensity. It
#   may be anything from 0 to `inf`.
# - `seconds(flops, moved, peak, bandwidth) -> float`: the least time of such work.
# - `limit(flops, moved, peak, bandwidth) -> str`: `"memory"` where moving the bytes takes longer
#   than computing, else `"compute"`. (No test asks where only rounding decides.)
# - `in_turn(parts, peak, bandwidth) -> float`: the least time of parts `(flops, moved)` of which
#   each waits for the one before. 0 for no parts.
#
# `ValueError` for anything negative, and for a `peak` or `bandwidth` of 0, in every function that
# takes it, whatever else it is given.


# %% solution="ex3"
def intensity(flops: float, moved: float) -> float:
    """FLOPs for each byte moved; without bytes inf, or 0.0 if there are no FLOPs either.

    Raises ValueError for negative ones.
    """
    ### BEGIN SOLUTION
    if flops < 0 or moved < 0:
        raise ValueError(f"flops {flops} and moved {moved} must not be negative")
    if moved == 0:
        return math.inf if flops else 0.0
    return flops / moved
    ### END SOLUTION


def ridge(peak: float, bandwidth: float) -> float:
    """FLOPs a byte from which on a machine computes at its peak (FLOP/s, bytes/s).

    Raises ValueError unless both are above 0.
    """
    ### BEGIN SOLUTION
    if peak <= 0 or bandwidth <= 0:
        raise ValueError(f"peak {peak} and bandwidth {bandwidth} must be above 0")
    return peak / bandwidth
    ### END SOLUTION


def attainable(flops_per_byte: float, peak: float, bandwidth: float) -> float:
    """FLOP/s at most, at this intensity (0 to inf).  Raises ValueError as ridge, or if negative."""
    ### BEGIN SOLUTION
    if flops_per_byte < 0:
        raise ValueError(f"an intensity of {flops_per_byte}")
    return peak if flops_per_byte >= ridge(peak, bandwidth) else flops_per_byte * bandwidth
    ### END SOLUTION


def seconds(flops: float, moved: float, peak: float, bandwidth: float) -> float:
    """Seconds at least, if computing and moving bytes overlap.  Raises ValueError as above."""
    ### BEGIN SOLUTION
    if flops < 0 or moved < 0 or peak <= 0 or bandwidth <= 0:
        raise ValueError(f"flops {flops}, moved {moved}, peak {peak}, bandwidth {bandwidth}")
    return max(flops / peak, moved / bandwidth)
    ### END SOLUTION


def limit(flops: float, moved: float, peak: float, bandwidth: float) -> str:
    """ "memory" where moving bytes takes longer than computing, else "compute"."""
    ### BEGIN SOLUTION
    return "memory" if seconds(flops, moved, peak, bandwidth) > flops / peak else "compute"
    ### END SOLUTION


def in_turn(parts: list[tuple[float, float]], peak: float, bandwidth: float) -> float:
    """Seconds at least for parts (flops, moved) that come one after the other; 0.0 for none."""
    ### BEGIN SOLUTION
    ridge(peak, bandwidth)  # refuses what is no machine, also where there are no parts
    return float(sum(seconds(flops, moved, peak, bandwidth) for flops, moved in parts))
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Two taps fill two buckets at once; you wait for the later one.
#
# **By hand.** 8 FLOP/s, 2 bytes/s: the ridge is 4. Work of 80 FLOPs and 4 bytes takes 10 s, work of
# 8 FLOPs and 40 bytes takes 20 s, one after the other 30 s. All of it at once would be 88 FLOPs and
# 44 bytes: 22 s, if what one part leaves unused could serve the other.
#
# **The usual error.** The sum of both times; 0 / 0; sums first, and then the larger of them.
# </details>
#
# **Reveal.** The lectures' formulas by your functions, and an H100 on paper.

# %% tags=["demo"]
ONE = {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 8, "vocab_size": 1}
ONE |= {"num_hidden_layers": 1, "gated_mlp": False}
lecture = {100: 100 * (12 * 64**2 + 100 * 64), 1: 12 * 64**2 + 100 * 64}
for new in (100, 1):  # of a prompt of 100; less the 64 products of lm_head, which has one row
    products = step_flops(ONE, new, 100 - new) // 2 - 64
    print(f"the last {new:3d} of 100: {products:,} products, the lecture {lecture[new]:,}")
times = {}
for new, cached, batch in ((1, 1000, 1), (1, 1000, 32), (1000, 0, 1), (1, 0, 1)):
    work = step_flops(LLAMA_8B, new, cached, batch), step_bytes(LLAMA_8B, new, cached, batch)
    times[new] = 1e3 * seconds(*work, *H100)
    print(f"8B, {batch} x {new} behind {cached}: {intensity(*work):.1f} FLOPs a byte", end=", ")
    print(f"{times[new]:.2f} ms, limit: {limit(*work, *H100)}")
lab.reveal("prefill", times[1000] / times[1])

# %% [markdown]
# The second formula is right but for $L d$ (a token sees itself). The first has $2 L d$ in truth:
# $q \cdot k$ *and* the sum of the values. Add up $12 d^2 + L d$ over a prompt and you get half of
# the attention that the other formula counts. A thousand tokens at once cost a few times what one
# does, because one leaves nearly the whole machine idle.
#
# **Now your own machine.** First its two ceilings: the fastest product, the largest copy. (If the
# smallest product is far faster than the largest, other programs compute too: run it again.) Copies
# come in several sizes, since a small one never leaves the processor's caches: *that* is another
# ceiling, and the largest copy is the one that counts for a model larger than the caches.
#
# Then a model for it. Its weights are random, for a processor takes the same time for all numbers,
# and it must be *large*: `target` with its 12 MB lies in the caches of most machines, and would
# measure those. It is in float32 (many processors have no arithmetic for 16 bits), so `bits=32`.
# Its size is said before it is made; with less than 4 GB free all measurements of this lab are left
# out.
#
# The folded cell puts your functions together: `predicted` takes one roofline for a whole pass,
# `parts_of` matrices, attention and `lm_head` of a step one by one, `on_paper` an H100. Ceilings
# take about 5 seconds.

# %% tags=["demo", "fold"]
from efflib.meter.controls import EMPTY, matrices_alone, once, with_threads
from efflib.meter.this_machine import (
    LARGE,
    copy_rate,
    has_room,
    pass_seconds,
    product_rate,
    random_model,
)

REPEATS = 3  # of a measurement; more where other programs disturb it
BATCHES, CONTEXT = (1, 2, 4, 8, 16, 32, 64), 32
BIG, TARGET = LARGE.to_dict(), target.config.to_dict()


def predicted(new: int, cached: int, batch: int = 1, config: dict = BIG) -> float:
    """Seconds of a pass in float32 on this machine, by your functions."""
    flops = step_flops(config, new, cached, batch)
    return seconds(flops, step_bytes(config, new, cached, batch, 32, 32), *HERE)


def parts_of(batch: int) -> list[tuple[float, float]]:
    """(FLOPs, bytes) of a step's matrices, attention and lm_head, by your functions."""
    head, layers = BIG["vocab_size"] * BIG["hidden_size"], LARGE.num_hidden_layers
    layers *= layer_weights(BIG)
    flops, moved = step_flops(BIG, 1, CONTEXT, batch), step_bytes(BIG, 1, CONTEXT, batch, 32, 32)
    attention = flops - 2 * batch * (layers + head), moved - 4 * (layers + head)
    return [(2 * batch * layers, 4 * layers), attention, (2 * batch * head, 4 * head)]


def off(real: float, said: float) -> float:
    """By which factor, at least 1."""
    return max(real / said, said / real)


def on_paper(new: int, cached: int, batch: int, bits: float = 16, faster: float = 1) -> float:
    """Seconds of a pass of Llama-3-8B on an H100, or on one that computes so many times as fast."""
    work = step_flops(LLAMA_8B, new, cached, batch), step_bytes(LLAMA_8B, new, cached, batch, bits)
    return seconds(*work, faster * H100[0], H100[1])


def line(rate: float, s: dict) -> str:
    """What `summarize` found, of section 3."""
    milliseconds = [f"{name} {1e3 * s[name]:5.1f}" for name in ("tpot", "itl", "itl_p99")]
    return (
        f"{rate:2d} a second: TTFT {s['ttft']:.2f} s, {', '.join(milliseconds)} ms, "
        f"{s['throughput']:4.0f} tokens/s, good {s['goodput']:4.1f} a second"
    )


def past_the_knee() -> None:
    """Which limit requests miss at 20 a second, and what two repairs and a longer log change."""
    log, (first, further) = serve(on_paper, 20), (0, 0)
    for t in map(timings, log):
        first, further = first + (t["ttft"] > 1.0), further + ((t["tpot"] or 0) > 0.02)
    span = max(request["times"][-1] for request in log) - log[0]["arrival"]
    print(
        f"20 a second: {first} of {len(log)} miss TTFT, {further} TPOT; passes over prompts",
        end=" ",
    )
    print(f"take {len(log) * on_paper(2048, 0, 1) / span:.0%} of the time")
    for name, change in {"weights in 4 bits": {"bits": 4}, "twice the peak": {"faster": 2}}.items():
        print(line(20, summarize(serve(partial(on_paper, **change), 20), 1.0, 0.02)), f"({name})")
    print(line(26, summarize(serve(on_paper, 26, requests=1000), 1.0, 0.02)), "(1,000 requests)")


# %% tags=["demo"]
speeds = {n: product_rate(n, repeats=REPEATS) for n in (128, 512, 1536)}
copies = {mib: copy_rate(mib * 2**20, repeats=REPEATS) for mib in (1, 16, 256)}
print("products:", ", ".join(f"{n} x {n}: {s / GFLOP:.1f} GFLOP/s" for n, s in speeds.items()))
print("copies:", ", ".join(f"{m} MiB: {s / GB:.1f} GB/s" for m, s in copies.items()))
HERE = max(speeds.values()), copies[256]
print(
    f"ridge {ridge(*HERE):.1f} FLOPs a byte; of an H100 {ridge(*H100):.0f}, and with the", end=" "
)
print(f"lecture's 1,979 teraFLOPS, which are with sparsity, {ridge(1979e12, H100[1]):.0f}")
print(f"the model: {step_bytes(BIG, 1, 0, 1, 32, 32) / 1e6:.0f} MB of weights in a step", end=", ")
print(f"predicted {1e3 * predicted(1, 32):.0f} ms; a prompt of 64: {1e3 * predicted(64, 0):.0f} ms")
lab.predict("here", "Measured: a prompt of 64 tokens takes how many times one step, here?")

# %% tags=["demo"]
# about 10 seconds
enough, points = has_room(), {}
if enough:
    large = random_model()
    print(f"the very first pass: {1e3 * once(large):.0f} ms, the next {1e3 * once(large):.0f}")
    for name, (new, cached) in {"a step": (1, 32), "a prompt of 64": (64, 0)}.items():
        took = pass_seconds(large, new, cached, repeats=REPEATS)
        work = step_flops(BIG, new, cached), step_bytes(BIG, new, cached, 1, 32, 32)
        points[name] = intensity(*work), work[0] / took
        print(f"{name}: predicted {1e3 * predicted(new, cached):.0f} ms, measured {1e3 * took:.0f}")
    style.show(*pictures.roof(*HERE, points, "This machine"))
    lab.reveal("here", took / pass_seconds(large, 1, 32, repeats=REPEATS))
print("" if enough else "less than 4 GB are free: the measurements are left out")
lab.predict("knee", "From how many requests a second on does the server below not keep up?")

# %% [markdown]
# What lies *below* a ceiling is time that the model does not account for; section 4 looks for it.
# A point *above* it is possible too: a copy writes, and decoding only reads.
#
# ## 3. What users get
#
# A server does many requests at once, and its log has three kinds of times: when a request arrived,
# when its first token came, and when each further one did. From these
#
# - **TTFT**, time to first token: waiting, and reading the prompt;
# - **TPOT**, time per output token: the mean gap of *one request's* further tokens;
# - **ITL**, inter-token latency: each single gap;
# - **throughput**, tokens per second of all together; **goodput**, requests per second that kept
#   *all* their limits (DistServe, 2024).
#
# A lecture has latency = TTFT + TPOT · (number of tokens). **Count the gaps of three
# tokens** that came at 2.0, 2.5 and 3.0 s, asked for at 0: TTFT 2, TPOT 0.5, and 3.0 = 2 + 2 · 0.5.

# %% [markdown]
# ### Exercise 4 · Metrics from a server's log
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A request is a dictionary `{"arrival": seconds, "times": [seconds of each token], "finished":
# bool}`. It may have no token yet, or have been broken off: then `finished` is `False`. Several
# tokens may come at the same time. The clock may count from 1970. Limits may be 0 or `inf`, and
# need no tolerance: where a test meets one, the differences are exact. **Deliver** three functions.
#
# - `timings(request) -> dict`: `"ttft"`, `"tpot"` and `"latency"` (from the arrival to the last
#   token) in seconds; `None` for what it does not have: TTFT without a token, TPOT with fewer than
#   two, latency unless it is finished. `ValueError` for a first token that is not *later* than the
#   arrival, or a token earlier than the one before it.
# - `percentile(values, q) -> float`: sort the $n$ values; percentile $q$ stands at place
#   $\frac{q}{100} (n - 1)$, counted from 0. Between two places, a straight line. `ValueError`
#   without values and unless 0 ≤ q ≤ 100.
# - `summarize(log, ttft_limit, tpot_limit) -> dict`, `log` a list of requests in any order:
#   `"ttft"`, `"tpot"`: means over the requests that have one. `"itl"`, `"itl_p99"`: mean and 99th
#   percentile over all gaps of all requests. `"throughput"`: all tokens, per second of the time
#   from the first arrival to the last token. `"goodput"`: finished requests with TTFT and TPOT at
#   most their limits, per second of the same time; with one token there is no TPOT, and its
#   limit is kept. `None` for means and percentiles of nothing; without a token both rates are 0.
#   `ValueError` as `timings`.


# %% solution="ex4"
def timings(request: dict) -> dict:
    """{"ttft", "tpot", "latency"} of one request in seconds, None for what it does not have.

    request: {"arrival": seconds, "times": [seconds at which each token came], "finished": bool}
    Raises ValueError for a first token that is not later than the arrival, or a token earlier than
    the one before it.
    """
    ### BEGIN SOLUTION
    arrival, times = request["arrival"], request["times"]
    if times and times[0] <= arrival or any(b < a for a, b in zip(times, times[1:], strict=False)):
        raise ValueError(f"arrival {arrival}, times {times}")
    steps = len(times) - 1
    return {
        "ttft": times[0] - arrival if times else None,
        "tpot": (times[-1] - times[0]) / steps if steps > 0 else None,
        "latency": times[-1] - arrival if times and request["finished"] else None,
    }
    ### END SOLUTION


def percentile(values: list[float], q: float) -> float:
    """The value at place q / 100 (n - 1) of the n sorted ones (from 0), linear between two.

    Raises ValueError without values, and unless 0 <= q <= 100.
    """
    ### BEGIN SOLUTION
    if not values or not 0 <= q <= 100:
        raise ValueError(f"percentile {q} of {len(values)} values")
    place = q / 100 * (len(values) - 1)
    below, rows = int(place), sorted(values)
    above = min(below + 1, len(rows) - 1)
    return rows[below] + (place - below) * (rows[above] - rows[below])
    ### END SOLUTION


def summarize(log: list[dict], ttft_limit: float, tpot_limit: float) -> dict:
    """What the requests of a log took, in seconds, and what the server did per second.

    "ttft", "tpot": means over requests (that have one).  "itl", "itl_p99": mean and 99th percentile
    over the gaps between neighbouring tokens of all requests.  "throughput": tokens per second,
    from the first arrival to the last token.  "goodput": per second of the same time, finished
    requests with TTFT <= ttft_limit and TPOT <= tpot_limit (one token meets any TPOT limit).
    None where there is nothing to take a mean of; both rates are 0.0 without a token.
    Raises ValueError as timings.
    """
    ### BEGIN SOLUTION
    rows = [(r, timings(r)) for r in log]
    gaps = [b - a for r in log for a, b in zip(r["times"], r["times"][1:], strict=False)]
    ttfts, tpots = ([t[name] for _, t in rows if t[name] is not None] for name in ("ttft", "tpot"))
    good = [
        t["latency"] is not None and t["ttft"] <= ttft_limit and (t["tpot"] or 0) <= tpot_limit
        for _, t in rows
    ]
    tokens = [time for r in log for time in r["times"]]
    span = max(tokens) - min(r["arrival"] for r in log) if tokens else math.inf
    return {
        "ttft": sum(ttfts) / len(ttfts) if ttfts else None,
        "tpot": sum(tpots) / len(tpots) if tpots else None,
        "itl": sum(gaps) / len(gaps) if gaps else None,
        "itl_p99": percentile(gaps, 99) if gaps else None,
        "throughput": len(tokens) / span,
        "goodput": sum(good) / span,
    }
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Each request first, then the log. What a request does not have takes part in no mean.
#
# **By hand.** A has tokens at 1 and 3, B at 1, 1.5, 2, 2.5 (both arrived at 0): TPOT is the mean of
# 2 and 0.5, so 1.25; ITL the mean of 2, 0.5, 0.5, 0.5, so 0.875. Six tokens in 3 s: throughput 2.
# Percentile 99 of [0, 10] stands at place 0.99: 9.9.
#
# **The usual error.** TPOT over n tokens; one mean for TPOT and ITL; a request that waits and is
# left out of the count of arrivals; time from 0.
# </details>
#
# **Reveal.** A server of Llama-3-8B on an H100, whose passes take what *your* `seconds` says: a
# prompt of 2048 tokens is read in a pass of its own, all running requests (64 at most) get a token
# in the next one. Requests come at random and want 20 to 200 tokens. Limits: 1 second to the first
# token, 20 ms for each further one.

# %% tags=["demo"]
rates, rows = (5, 10, 12, 14, 16, 18, 20, 22, 26), []
for rate in rates:
    log = serve(on_paper, rate)
    s, tokens = summarize(log, 1.0, 0.02), sum(len(request["times"]) for request in log)
    rows.append((s["throughput"] * len(log) / tokens, s["goodput"]))
    print(line(rate, s))
found["good"] = max((good, rate) for (_, good), rate in zip(rows, rates, strict=True))
style.show(*pictures.served(rates, *zip(*rows, strict=True), "TTFT 1 s, TPOT 20 ms"))
lab.reveal("knee", next(r for r, (_, good) in zip(rates, rows, strict=True) if good < 0.8 * r))
past_the_knee()  # which limit do they miss at 20 a second, and what helps?
lab.predict(
    "batch", "Llama-2-7B on an H100, 50 cached tokens: bound by computing from which batch?"
)
lab.predict("never", "And from how many cached tokens on is no batch large enough?", unit="tokens")

# %% [markdown]
# Throughput never falls, and that is the trap: past the knee the server works as hard as ever on
# requests that miss a limit, here first TPOT. Two different repairs help: so *what* is it bound by?
# (At 26 a second a line forms, and grows: a TTFT there depends on how many requests were counted.)
# And a mean hides something: at 16 requests a second TPOT is well below its limit, while one gap in
# a hundred is many times as long. **Which pass stands in that gap, and why does no user see it in
# TPOT?** (The numbers are bounds: nothing but FLOPs and bytes takes time.)
#
# ## 4. When does it end?
#
# A step of decoding computes $B f$ FLOPs and moves $W + B k$ bytes: the weights once for all, keys
# and values for each. As long as moving takes longer, one more sequence costs only its own keys and
# values. So where is the batch $B^*$ at which computing takes as long as moving,
#
# $$ \frac{B f}{\pi} = \frac{W + B k}{\beta} $$
#
# and does it exist? Both $f$ and $k$ grow with the context.

# %% [markdown]
# ### Exercise 5 · When decoding stops being bound by memory
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Derive** and deliver two functions, in terms of exercises 2 and 3. A step makes one token for
# each sequence, `step_flops(config, 1, context, batch)` and `step_bytes(config, 1, context, batch,
# ...)`, and the roofline is that of the whole step (`seconds`, not `in_turn`).
#
# - `ridge_batch(config, context, peak, bandwidth, bits=16, kv_bits=16) -> float`: the batch, a real
#   number (perhaps below 1), at which a step takes as long to compute as to move its bytes. `inf`
#   if moving takes longer for every batch, however large.
# - `ridge_context(config, peak, bandwidth, kv_bits=16) -> float`: the context, a real number, from
#   which on no batch is large enough: where `ridge_batch` has become `inf`. `inf` if that happens
#   at no context, 0 if no batch is large enough even at context 0.
#
# `ValueError` for a `context` below 0, and for bits and machines that exercises 2 and 3 refuse.


# %% solution="ex5"
def ridge_batch(
    config: dict,
    context: int,
    peak: float,
    bandwidth: float,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """The batch, a real number, at which a step that makes one token for each sequence takes as
    long to compute as to move its bytes; inf if moving takes longer for every batch.

    context: cached tokens of each sequence, an integer.  Raises ValueError for context < 0, and as
    step_bytes and ridge.
    """
    ### BEGIN SOLUTION
    flops = step_flops(config, 1, context)  # of one more sequence
    two = step_bytes(config, 1, context, 2, bits, kv_bits)
    one = step_bytes(config, 1, context, 1, bits, kv_bits)
    each = two - one  # bytes of one more sequence
    lead = flops / ridge(peak, bandwidth) - each  # in bytes
    return (one - each) / lead if lead > 0 else math.inf
    ### END SOLUTION


def ridge_context(config: dict, peak: float, bandwidth: float, kv_bits: float = 16) -> float:
    """The context, a real number, from which on no batch is bound by computing; inf if there is
    none, 0.0 if none is at context 0.

    Raises ValueError as ridge, and for kv_bits <= 0.
    """
    ### BEGIN SOLUTION
    least, more = step_flops(config, 1, 0), step_flops(config, 1, 1)
    fixed = 2 * least - more  # FLOPs of a sequence that do not grow with what it sees
    each = step_bytes(config, 1, 1, 1, 1, kv_bits) - step_bytes(config, 1, 0, 1, 1, kv_bits)
    lead = each * ridge(peak, bandwidth) - (more - least)  # of a token that is seen, in FLOPs
    return max(0.0, fixed / lead - 1) if lead > 0 else math.inf
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Two straight lines over B. One starts at 0, the other at the time of the weights. They
# meet if the first is steeper, and only then. Over the context both slopes are straight lines too.
#
# **By hand.** $W = 1184$ bytes, $f = 1216$ FLOPs, $k = 32$ bytes; ridge 2. So
# $1216 B / 2 = 1184 + 32 B$ and $B^* = 1184 / 576 = 2.06$. For each token that is seen $f$ grows by
# 32 and $k$ by 32, from 1184 and 0: $1184 + 32 s = 2 \cdot 32 s$ at $s = 37$. A token sees itself:
# 36 cached ones.
#
# **The usual error.** Keys and values left out, so that $B^*$ is always there; a negative batch;
# the weights' bits in the second function, where they have dropped out.
# </details>
#
# **Reveal.** On paper first. Attention does $2 \cdot 2 H d$ FLOPs for $2 H_{kv} d$ numbers: in 16
# bits that is $H / H_{kv}$ FLOPs a byte, *whatever the batch*. With a key head for each head it is
# 1, below the ridge of usual machines; with one for all 32 it is 32, far below that of an H100.

# %% tags=["demo"]
MQA = LLAMA_7B | {"num_key_value_heads": 1}
for name, config in {"Llama-2-7B": LLAMA_7B, "Llama-3-8B": LLAMA_8B, "7B, 1 key head": MQA}.items():
    batches = [f"{ridge_batch(config, n, *H100):.0f}" for n in (0, 50, 300, 2000)]
    never = ridge_context(config, *H100)
    print(f"{name:15s} behind 0, 50, 300, 2000 tokens: batch {', '.join(batches)}", end="; ")
    print(f"never from {never:.0f} on, with keys in 8 bits {ridge_context(config, *H100, 8):.0f}")
print(f"weights in 4 bits, 50 tokens: batch {ridge_batch(LLAMA_7B, 50, *H100, 4):.0f}")
lab.reveal("batch", ridge_batch(LLAMA_7B, 50, *H100))
lab.reveal("never", ridge_context(LLAMA_7B, *H100))
found["never"] = ridge_context(LLAMA_7B, *H100), ridge_context(LLAMA_8B, *H100)


# %% tags=["demo", "fold"]
# your two lines, to move: a step on an H100 over the batch
def draw_lines(model: str, context: float, weights: str, keys: str):
    config, tokens = {"7B": LLAMA_7B, "8B": LLAMA_8B, "7B, 1 key head": MQA}[model], int(context)
    bits = float(weights.split()[0]), float(keys.split()[0])
    batches = [2**i for i in range(13)]
    computing = [step_flops(config, 1, tokens, b) / H100[0] for b in batches]
    moving = [step_bytes(config, 1, tokens, b, *bits) / H100[1] for b in batches]
    meet = ridge_batch(config, tokens, *H100, *bits)
    return pictures.two_lines(batches, computing, moving, meet, f"{model}, {tokens} cached tokens")


explorer.explorer(
    draw_lines,
    {
        "model": ["7B", "8B", "7B, 1 key head"],
        "context": [0.0, 50.0, 84.0, 85.0, 300.0, 400.0, 2000.0],
        "weights": ["16 bits", "8 bits", "4 bits"],
        "keys": ["16 bits", "8 bits", "4 bits"],
    },
    first={"context": 50.0},
)
lab.predict("off", "Batches 1 to 64: the worst prediction below is off by which factor?")

# %% [markdown]
# The rule of thumb "from batch 300 on an H100 computes" holds for the *matrices*. A whole step of
# these models never gets there from a few hundred cached tokens on, with 32 key heads from 85 on:
# larger batches share the weights, and nobody shares keys and values. That is what fewer key heads
# are for (lab 5). **Move the figure:** which line do fewer bits of the weights turn, and which bits
# make the lines meet where they do not?
#
# **Acceptance, on your machine.** Your functions predict the step's time for batches from 1 to 64,
# in two ways: one roofline for the whole step, and matrices, attention and `lm_head` `in_turn`. The
# figure is only drawn when the times have been measured. Before you run the next cell: **by which
# factor will the worst prediction be off?** About 10 seconds.

# %% tags=["demo"]
guess = {"whole step": [predicted(1, CONTEXT, b) for b in BATCHES]}
guess["in turn"] = [in_turn(parts_of(b), *HERE) for b in BATCHES]
edge = ridge_batch(BIG, CONTEXT, *HERE, 32, 32)
if enough:
    taken = [pass_seconds(large, 1, CONTEXT, b, repeats=2) for b in BATCHES]
    style.show(*pictures.over_batch(BATCHES, guess, taken, edge))
    for b, said, real in zip(BATCHES, guess["in turn"], taken, strict=True):
        print(f"batch {b:2d}: predicted {1e3 * said:4.0f} ms, measured {1e3 * real:4.0f}", end=", ")
        print(f"{real / said:.2f} times; {b / real:.0f} tokens/s")
    worst = max(off(real, said) for real, said in zip(taken, guess["in turn"], strict=True))
    found["batch"] = taken[3] / taken[0], taken[-1] / taken[0], worst
    lab.reveal("off", worst)

# %% [markdown]
# Eight take nowhere near eight times as long as one; and how far the predictions are off is
# printed, not hidden. **What else differs** between the points? The suspects, one by one:
#
# - *Python and small operations*: a model with as many layers and hardly any weights;
# - *the products themselves*: all matrices of the model one after the other, and nothing else. A
#   library multiplies a matrix with one vector in another way than with several;
# - *threads*: one in place of all;
# - *the type of the numbers*: a product in bfloat16, which has half the bytes.
#
# (The first pass was timed above, apart from the others, and every measurement has a run before it
# that does not count.) And the cell behind them has the control that should **not** follow:
# `target`, by the same functions and ceilings. About 5 seconds.

# %% tags=["demo"]
empty = 1e3 * pass_seconds(random_model(EMPTY), 1, CONTEXT, repeats=REPEATS)
print(f"as many layers without weights: {empty:.1f} ms a step")
for b in (1, 2, 8, 64) if enough else ():
    alone, whole = 1e3 * matrices_alone(large, b), 1e3 * taken[BATCHES.index(b)]
    said = 1e3 * in_turn(parts_of(b)[::2], *HERE)
    print(f"batch {b:2d}: matrices alone {alone:4.0f} ms of {whole:4.0f}, predicted {said:4.0f}")
one = with_threads(1, lambda: (product_rate(512), copy_rate(2**28, REPEATS)))
print(f"one thread: {one[0] / GFLOP:.1f} GFLOP/s, {one[1] / GB:.1f} GB/s; all:", end=" ")
print(f"{speeds[512] / GFLOP:.1f} and {copies[256] / GB:.1f}")
half, full = product_rate(256, torch.bfloat16, repeats=1), product_rate(256, repeats=1)
print(f"256 x 256 in bfloat16: {half / GFLOP:.1f} GFLOP/s, in float32 {full / GFLOP:.1f}")

# %% tags=["demo"]
small = [pass_seconds(target, 1, CONTEXT, b, repeats=9) for b in BATCHES]
for b, real in zip(BATCHES, small, strict=True):
    said = predicted(1, CONTEXT, b, TARGET)
    print(f"batch {b:2d}: predicted {1e3 * said:5.2f} ms, measured {1e3 * real:5.2f}", end=", ")
    print(f"{real / said:4.1f} times")
layers = TARGET["num_hidden_layers"] / BIG["num_hidden_layers"]
print(f"without weights {empty * layers:.1f} ms; 12 MB from the cache", end=" ")
print(f"{1e3 * step_bytes(TARGET, 1, CONTEXT, 1, 32, 32) / copies[1]:.2f} ms")
found["target"] = off(small[0], predicted(1, CONTEXT, 1, TARGET))
lab.predict("share", "32 sentences in a batch: one takes which part of the joules it takes alone?")

# %% [markdown]
# **What to make of it.** Where the products alone are off from their prediction too, it is the
# library: neither Python nor the idea of a roofline. What the whole step takes beyond them is
# attention, norms and Python. And a type of numbers that a processor has no arithmetic for costs
# far more than its bytes save.
#
# At 12 MB the weights come from a cache or nearly, and the time goes into starting a hundred small
# operations. Nothing that saves bytes can be *timed* on such a model: so the other labs count bytes
# and passes on it, and time only what takes time.
#
# ## 5. What it takes to make and to run
#
# Three calculators. A model's **parameters** follow from its config. Training takes about 6 FLOPs
# for each parameter and token (2 forward, 4 backward), $C = 6 N D$, and the best model for a given
# $C$ has about 20 tokens for each parameter (Hoffmann et al., "Chinchilla"). And a pass takes
# **energy**: for each FLOP, for each byte, and for as long as the machine is on,
#
# $$ E = e_F F + e_M M + P \cdot t $$
#
# On four numbers: a token of 7 billion weights in 16 bits, alone, computes 14 GFLOP at 0.75 pJ,
# 0.01 J, and moves 14 GB at 31 pJ, 0.44 J; and 4.2 ms of 100 W are 0.42 J.

# %% [markdown]
# ### Exercise 6 · Parameters, tokens and joules
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `parameters(config) -> int`: all parameters of a model without biases: the token table,
#   `lm_head` unless `tie_word_embeddings`, the matrices of all layers, and its norms, two for each
#   layer and one at the end, of `hidden_size` numbers each.
# - `chinchilla(compute, ratio=20.0) -> (N, D)`: parameters and tokens (real numbers) that spend
#   `compute` FLOPs with `ratio` tokens for each parameter. `ValueError` unless both are above 0.
# - `sentence_joules(config, prompt, new, machine, batch=1, bits=16, kv_bits=16) -> float`: joules
#   of *one* of `batch` sentences that are made together: each reads a prompt of `prompt` tokens and
#   writes `new`. `machine` is a dictionary with `"peak"`, `"bandwidth"`, `"joules_per_flop"`,
#   `"joules_per_byte"` and `"idle_watts"` (the last three 0 or more). Each pass takes the energy of
#   the formula above, with the FLOPs, bytes and `seconds` of your exercises 2 and 3. **How many
#   passes are there, and what has each of them in its cache?** `ValueError` for `prompt` or `new`
#   below 1, and for what those exercises refuse.


# %% solution="ex6"
def parameters(config: dict) -> int:
    """Parameters of a model without biases: the token table, lm_head unless it is the same table
    (tie_word_embeddings), the layers' matrices, two norms a layer and one at the end.
    """
    ### BEGIN SOLUTION
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    tables = 1 if config.get("tie_word_embeddings") else 2
    norms = (2 * layers + 1) * width
    return tables * config["vocab_size"] * width + layers * layer_weights(config) + norms
    ### END SOLUTION


def chinchilla(compute: float, ratio: float = 20.0) -> tuple[float, float]:
    """(parameters N, tokens D) that spend `compute` FLOPs of training, C = 6 N D, at D = ratio N.

    Raises ValueError unless both are above 0.
    """
    ### BEGIN SOLUTION
    if compute <= 0 or ratio <= 0:
        raise ValueError(f"compute {compute} and ratio {ratio} must be above 0")
    n = math.sqrt(compute / (6 * ratio))
    return n, ratio * n
    ### END SOLUTION


def sentence_joules(
    config: dict,
    prompt: int,
    new: int,
    machine: dict,
    batch: int = 1,
    bits: float = 16,
    kv_bits: float = 16,
) -> float:
    """Joules for each of `batch` sentences of `new` tokens behind a prompt of `prompt` tokens.

    The pass over the prompt gives the first token, each further pass reads the token before.
    machine: {"peak", "bandwidth", "joules_per_flop", "joules_per_byte", "idle_watts"}; a pass takes
    joules_per_flop flops + joules_per_byte bytes + idle_watts seconds, by exercises 2 and 3.
    Raises ValueError for prompt or new < 1, and as step_bytes and seconds.
    """
    ### BEGIN SOLUTION
    if prompt < 1 or new < 1:
        raise ValueError(f"prompt {prompt} and new {new} must be at least 1")
    passes = [(prompt, 0), *((1, cached) for cached in range(prompt, prompt + new - 1))]
    total = 0.0
    for tokens, cached in passes:
        flops = step_flops(config, tokens, cached, batch)
        moved = step_bytes(config, tokens, cached, batch, bits, kv_bits)
        total += machine["joules_per_flop"] * flops + machine["joules_per_byte"] * moved
        took = seconds(flops, moved, machine["peak"], machine["bandwidth"])
        total += machine["idle_watts"] * took
    return total / batch
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** The pass over the prompt ends with the first new token. Each further pass reads the
# token that was made last, and has all before it in the cache.
#
# **By hand.** Prompt 3, 3 new tokens: passes of 3 new tokens behind 0, 1 behind 3, 1 behind 4.
# Three passes, not four. 480 FLOPs at 20 tokens a parameter: $480 = 6 N \cdot 20 N$, so $N = 2$, $D
# = 40$.
#
# **The usual error.** `new` passes behind the prompt; the same context in all of them; joules of
# the batch in place of a sentence's.
# </details>
#
# **Reveal.** The lectures' numbers by your functions. One line of the table is off by a misprint
# and one by its rounding: which?
#
# Joules: prices from Horowitz (2014; 16-bit product and sum, 1.5 pJ together) and O'Connor et al.
# (2017; HBM2, 3.9 pJ a bit). The 100 W at rest are an **assumption**: put in your own.

# %% tags=["demo"]
size = parameters(LLAMA_7B)
print(f"Llama-2-7B: {size:,} parameters, {2 * size / GB:.1f} GB in fp16")
assert parameters(TARGET) == sum(p.numel() for p in target.parameters())
table = [(4e8, 1.92e19, "1/29,968", 8.0e9), (1e9, 1.21e20, "1/4.761", 20.2e9)]
table += [(67e9, 5.76e23, "1", 1.5e12), (280e9, 9.90e24, "17.2", 5.9e12)]
for n, compute, gopher, tokens in table:
    print(
        f"{n / 1e9:5.1f}e9: 6 N D = {6 * n * tokens:.2e}, printed {compute:.2e}; that of", end=" "
    )
    print(f"Gopher {compute / 5.76e23:.2g} times, printed {gopher}; {tokens / n:.1f} tokens each")
best = chinchilla(6 * size * 2e12)
print(f"Llama-2-7B saw 2e12 tokens, {2e12 / size:.0f} each; for its compute Chinchilla", end=" ")
print(f"would take {best[0] / 1e9:.0f}e9 parameters and {best[1] / 1e9:.0f}e9 tokens")

# %% tags=["demo"]
CARD = {"peak": H100[0], "bandwidth": H100[1], "idle_watts": 100.0}
CARD |= {"joules_per_flop": 0.75e-12, "joules_per_byte": 8 * 3.9e-12}
joules = {b: sentence_joules(LLAMA_8B, 100, 100, CARD, b) for b in (1, 32)}
for name in ("joules_per_flop", "joules_per_byte", "idle_watts"):
    only = CARD | dict.fromkeys(("joules_per_flop", "joules_per_byte", "idle_watts"), 0.0)
    parts = [sentence_joules(LLAMA_8B, 100, 100, only | {name: CARD[name]}, b) for b in (1, 32)]
    print(f"{name:15s} {parts[0]:6.2f} J alone, {parts[1]:5.2f} J in a batch of 32")
full = dict.fromkeys(CARD, 0.0) | {"peak": H100[0], "bandwidth": H100[1], "idle_watts": 700.0}
print(f"all {joules[1]:.1f} and {joules[32]:.2f}; 700 W for as long", end=" ")
print(", ".join(f"{sentence_joules(LLAMA_8B, 100, 100, full, b):.1f} J" for b in (1, 32)))
lab.reveal("share", joules[32] / joules[1])
found["joules"] = joules[1], joules[32]

# %% [markdown]
# "1/4.761" is 1/4,761 with another country's comma; 67 billion and 1.5 trillion are rounded, and 5
# % above the printed compute. And Llama-2-7B has seen fifteen times as many tokens as the rule
# gives it: a rule for the best model of a *training* budget. Who serves a model pays for its size
# with every token, and takes a smaller one, trained longer.
#
# Alone it is moving weights and waiting for them; in a batch both are shared, and what is left is
# computing. What the formula leaves out:
# caches, wires and instructions on the chip, time above the least (the second estimate, a card at
# its full 700 W, is the other end), the rest of the server, cooling, idle servers, and making the
# hardware and the model. Between the two estimates lies a factor that no formula here decides.
#
# ## 6. What limits you, and which lab helps
#
# Your functions once more: four situations of Llama-3-8B on an H100, and what each lever would
# gain, **at most**, if it cost nothing. (The open question of every lab is what it does cost.)
# Speculation is counted with 3 tokens for a pass over 5 and a draft for free; the step of 8 bits
# computes in FP8, at twice the peak.

# %% tags=["demo", "fold"]
# a table of what each lever gains; rate_of says how it is counted
SITUATIONS = {  # new, cached, batch
    "1 reader, 500 tokens": (1, 500, 1),
    "32 readers, 500": (1, 500, 32),
    "32 readers, 8000": (1, 8000, 32),
    "a prompt of 8000": (8000, 0, 1),
}
HALF = {"intermediate_size": 7168, "num_attention_heads": 16, "num_key_value_heads": 4}
LEVERS = {  # name: what changes
    "weights in 4 bits (labs 1, 3, 11)": {"bits": 4},
    "all in 8 bits (lab 2)": {"bits": 8, "kv_bits": 8, "peak": 2 * H100[0]},
    "half of each layer (lab 4)": {"config": LLAMA_8B | HALF | {"head_dim": 128}},
    "keys and values in 4 bits (lab 5)": {"kv_bits": 4},
    "2 key heads in place of 8 (lab 5)": {"config": LLAMA_8B | {"num_key_value_heads": 2}},
    "1000 tokens kept (labs 7, 12)": {"kept": 1000},
    "speculation (lab 9)": {"drafted": 4, "accepted": 3},
    "twice the readers (labs 6, 14)": {"times": 2},
}


def rate_of(
    new,
    cached,
    batch,
    config=LLAMA_8B,
    bits=16,
    kv_bits=16,
    peak=H100[0],
    kept=None,
    drafted=0,
    accepted=1,
    times=1,
) -> float:
    """Tokens, or prompts, per second."""
    cached = cached if kept is None else min(cached, kept)
    if new > 1:
        drafted, accepted = 0, 1
    batch, new = batch * times, new + drafted
    flops = step_flops(config, new, cached, batch)
    moved = step_bytes(config, new, cached, batch, bits, kv_bits)
    return batch * accepted / seconds(flops, moved, peak, H100[1])


print(f"{'':36s}" + "".join(f"{name:>22s}" for name in SITUATIONS))
rates_now = {name: rate_of(*at) for name, at in SITUATIONS.items()}
limits = [
    limit(step_flops(LLAMA_8B, *a), step_bytes(LLAMA_8B, *a), *H100) for a in SITUATIONS.values()
]
print(f"{'limit':36s}" + "".join(f"{name:>22s}" for name in limits))
gains = {
    lever: [rate_of(*at, **change) / rates_now[name] for name, at in SITUATIONS.items()]
    for lever, change in LEVERS.items()
}
for lever, row in gains.items():
    print(f"{lever:36s}" + "".join(f"{gain:21.2f}x" for gain in row))

# %% [markdown]
# | what limits you | what helps | labs |
# |---|---|---|
# | bytes of weights: few readers | fewer bits, fewer weights | 1, 2, 3, 4, 11, 15 |
# | the same | more tokens for each pass | 9, 14 |
# | bytes of keys and values: long contexts | fewer heads, bits, tokens | 5, 7, 12 |
# | computing: prompts, training | narrow arithmetic, better kernels, fewer experts | 2, 8, 13 |
# | memory that is full, before speed is asked | blocks, sharing prefixes | 5, 6 |
# | waiting: requests that come at the wrong time | scheduling | 14, 18 |
# | one device | several | 17 |
# | memory of training | adapters | 10, 16 |
#
# ## 7. Misconceptions
#
# **"An H100 does 1,979 teraFLOPS."** With 2:4 sparsity, which hardly any model has: half of it.
#
# **"Twice the FLOPs, twice the time."** Not left of the ridge: there, 32 readers cost little more
# than one.
#
# **"With a batch that is large enough every model computes at the peak."** Its matrices do. Keys
# and values are nobody else's, and from your `ridge_context` on no batch is enough.
#
# **"Equal loss per token, equally good."** Only with the same tokenizer. With 100,000 entries a
# token stands for more bytes, so the same loss for each of them is fewer bits per byte: the better
# model.
#
# **"High throughput, happy users."** Goodput is what they see; and a mean TPOT hides the gaps.
#
# **"I timed it on a small model."** Then you timed caches and Python.
#
# ## 8. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1.** One token each for eight readers takes far less than eight times as long as one.
# Who pays for the
# other seven, and when does that end on your machine? Which of your measurements show it, and why
# is `target` no evidence?
# *Rubric:* that weights are read once for all, with the step's bytes and FLOPs over B (1); measured
# times for 1, 8 and 64 (1); the ridge batch by your function, beside what is measured around it
# (1); two controls with their numbers, and what each rules out (1); why `target` does not follow,
# with its factor (1).

# %% [markdown] written="w1"
# A step reads the weights once for all, so it moves W + B k bytes and computes B f FLOPs. While
# moving takes longer, one more reader adds only its own keys and values: the weights' reading,
# which had to be done anyway, pays. Here a step took 68 ms for one, 187 for 8 and 509 for 64
# readers, where 64 times the first would be 4.4 s. By formula computing takes over at a batch of
# 12; measured the time grows before that, from 1 to 2 readers 1.9 times. The matrices alone do the
# same, 54 and 105 ms, so it is the library's products; a model of as many layers without weights
# takes 7 ms, so it is not Python. target took 5.6 times what the same functions predict: its 12 MB
# lie in a cache, and starting small operations takes 3 of its 4.5 ms.

# %% [markdown]
# **Question 2.** Somebody reports of the server of section 3, at 20 requests a second: "2,000
# tokens a second, the mean TPOT just keeps its limit, batches of up to 64: we are bound by
# computing, so smaller weights and caches would gain nothing." What is right, what is wrong, and
# what do you look at?
# *Rubric:* goodput there and at its best, beside throughput (1); what a mean hides: the 99th
# percentile of the gaps, and the pass that stands in them (1); that no step is bound by computing
# at 2,000 cached tokens, with your `ridge_context` (1); bytes of the weights and of keys and values
# of that step, which passes do compute, so what would gain (1); why TPOT and ITL are not the same
# mean (1).

# %% [markdown] written="w2"
# It does 2,083 tokens a second, but of 20 requests a second only 8.0 keep both limits; at 14
# nearly all did, 13.5, with fewer tokens a second. A mean TPOT of 20 ms says nothing about each
# request, and of the gaps one in a hundred is longer than 219 ms: prompts of 2048 tokens are read
# there, 29 ms each and several in a row, while all others wait. Its steps are not bound by
# computing: from 392 cached tokens on no batch of Llama-3-8B is, on an H100. A step for 64 reads
# 15 GB of weights and 18 GB of keys and values, so both would gain. The prompts do compute, in
# more than half of the time: twice the peak makes 19.0 good, as weights in 4 bits do with 19.5.
# TPOT is a mean over requests, each counts once, ITL one over gaps, in which long answers count
# more.

# %% [markdown]
# ## An open task (not graded)
#
# **A better prediction of your own machine.** `predicted_better(batch)` may use your functions and
# at most three more measured numbers (a time of no work, a rate for small products, ...), and must
# be made before it sees the batches below, none of which you have measured. The number to beat is
# the roofline's, printed here: the mean factor by which it is off. Then try it on `target`.
#
# ## Stretch (not graded)
#
# - **Another machine.** A friend's laptop, a phone, a GPU: which ridge, and which model fits?
# - **A config of your own.** `parameters`, `step_bytes` and `ridge_context` on the `config.json` of
#   a model that you use. (Some have fields of which these functions know nothing: which?)
# - **Contexts.** `pass_seconds(large, 1, 1024, 4)` against your prediction: what does attention
#   reach of the bandwidth?
# - **A better server.** Let `serve` read prompts in pieces of 256 tokens, together with the next
#   token of all others. What happens to ITL p99, and to TTFT? (Lab 14.)
#
# ## Report and takeaways

# %% tags=["demo"]
UNSEEN = (3, 6, 12, 24, 48)


def predicted_better(batch: int) -> float:
    return in_turn(parts_of(batch), *HERE)  # yours


if enough:
    real = {b: pass_seconds(large, 1, CONTEXT, b, repeats=1) for b in UNSEEN}
    factors = [off(real[b], predicted_better(b)) for b in UNSEEN]
    print(f"off by {math.prod(factors) ** (1 / len(factors)):.2f} times on average", end="; ")
    print(", ".join(f"{b}: {factor:.2f}" for b, factor in zip(UNSEEN, factors, strict=True)))

# %% tags=["demo"]
lab.report()
steps = "not measured here"
if enough:
    steps = "{:.1f} and {:.1f} times one; worst prediction off {:.1f} times".format(*found["batch"])
takeaways = [
    f"Here: {HERE[0] / GFLOP:.0f} GFLOP/s, {HERE[1] / GB:.1f} GB/s, ridge {ridge(*HERE):.1f}.",
    "One text, one model: perplexity {:.2f} or {:.2f}, by stride.".format(*found["strides"]),
    f"Steps for 8 and 64 readers: {steps}. target: off {found['target']:.1f} times.",
    "No batch is bound by computing from {:.0f} (7B) and {:.0f} (8B) cached tokens on, on an "
    "H100.".format(*found["never"]),
    "Goodput was best, {:.1f} a second, at {} requests a second.".format(*found["good"]),
    "A sentence: {:.0f} J alone, {:.1f} J in a batch of 32.".format(*found["joules"]),
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))

# %% [markdown]
# **Next:** lab 1 makes weights smaller, lab 5 keeps keys and values; section 6 says which one helps
# you.
#
# **Sources.** Williams, Waterman, Patterson, *Roofline*, CACM 2009. Pope et al., *Efficiently
# Scaling Transformer Inference*, 2022 (arXiv:2211.05102). Hoffmann et al., *Training
# Compute-Optimal Large Language Models*, 2022 (arXiv:2203.15556). Horowitz, *Computing's Energy
# Problem*, ISSCC 2014. O'Connor et al., *Fine-Grained DRAM*, MICRO 2017. Zhong et al., *DistServe*,
# 2024 (arXiv:2401.09670). NVIDIA H100 datasheet. The formulas of section 2: a tutorial on LLM
# inference; perplexity, Chinchilla's table and the metrics: MIT 6.5940, lecture on LLM deployment.
