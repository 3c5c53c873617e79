# %% [markdown]
# # Lab 5: The key-value cache
#
# **The question.** A model that writes a text of 1000 tokens could read all of it again for each
# new token. It keeps the keys and values instead, and every token then costs about the same. But
# what it keeps is half a megabyte a token for a model of 7 billion parameters, and one of 70
# billion gets along with less. **What does the cache cost, what makes it smaller, and in which
# direction may one round it?**
#
# ![Seconds for each new token of this lab's model against the tokens before it: reading everything
# again grows, with a cache it stays flat. Beside it the bytes that the cache takes, which
# grow.](../../course/figures/lab05/opening.svg)
#
# Section 6 asks this again, and you answer it with your own numbers.

# %% [markdown]
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | attention ($q$, $k$, $v$, causal mask); lab 1 (scale, groups) |
# | Not covered | blocks of memory (lab 6), evicting tokens (labs 7, 12), kernels (lab 8) |
#
# After this lab you can
# 1. state the bytes of a cache from a model's config, and say what fits on a GPU;
# 2. build a cache whose decoding equals recomputation, also for rows of unequal length;
# 3. round keys per channel and values per token, and show with a control why.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions and classes by
# name, so keep names and arguments as they are. Answer predictions in their field; where no field
# is shown, by `lab.answer("grow", 10)`.
#
# ## Map and notation
#
# Section 1, what a cache costs: exercise 1. Section 2, a cache that decodes: 2. Section 3, fewer
# heads and what fits: 3 and 4. Section 4, rounding: 5 and 6. Section 5: misconceptions.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | $B, H, H_{kv}$ | | | rows of a batch, query heads, key and value heads |
# | $T, S$ | | | new tokens, tokens attended to |
# | $d$ | | | size of a head |
# | $q$ | [B, H, T, d] | `q` | queries |
# | $k, v$ | [B, Hkv, S, d] | `k`, `v` | keys and values, keys after the rotary embedding |
# | $G$ | | `group_size` | values that share a scale and a smallest value |
# | $s, m, c$ | | `scale`, `low`, `codes` | scale, smallest value and codes of a group |
# | $R$ | | `residual` | tokens that wait in floating point |
#
# KiB and GiB are powers of two. So are the lectures' KB and GB of a cache, but not their 14 GB of
# weights (7 billion times 2 bytes): these are 12.6 GiB here.
#
# ### Rules for all exercises
#
# No function of this lab changes its arguments, or what an earlier call returned: work on new
# tensors. What you get may be views, which need not be contiguous.
#
# ## Baseline
#
# The model is the course's `target`, 6 layers with 6 heads of 32. Quality is the loss on 12 windows
# of held-out code, in nats per token. Where differences are small, the mean over the windows comes
# with its standard error, written ±.

# %%
import copy
import time

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import cache as pictures
from efflib.plots import explorer, style

lab = Lab("lab05_kv_cache")
KiB, MiB, GiB = 2**10, 2**20, 2**30

# %% tags=["demo", "fold"]
from efflib.models.cache import KVCache
from efflib.zoo.key_outlier import channel_spread, with_key_outlier
from efflib.zoo.windows import QUICK, windows


@torch.no_grad()
def losses(model: nn.Module, cache=None, piece: int = 16) -> Tensor:
    """Nats per token of each window, with a cache in pieces: what is in it is seen through it."""
    pieces = held_out[:, :-1].split(piece if cache is not None else 256, dim=1)
    logits = torch.cat([model(p, cache=cache) for p in pieces], dim=1)
    return nn.functional.cross_entropy(logits.mT, held_out[:, 1:], reduction="none").mean(1)


def loss(model: nn.Module, cache=None) -> float:
    return losses(model, cache).mean().item()


def spread(added: Tensor) -> str:
    """Mean over windows, and its standard error."""
    return f"{added.mean():+.4f} ± {added.std() / len(added) ** 0.5:.4f}"


# %% tags=["demo"]
model = zoo.load("target")
held_out = windows("code", True, QUICK, seed=0)  # [12, 257] ids, begin token first
PROMPT = "import json\n\n\ndef load_json(path):\n"
found = {"heads": {}, "lever": {}}  # the numbers you find, for the takeaways at the end

exact = losses(model)
found["float"] = exact.mean().item()
plain = KVCache()
loss(model, plain)
held = sum(x.numel() for x in (*plain.keys, *plain.values))
print(f"loss {found['float']:.4f}; keys and values of {held_out[:, :-1].numel()} tokens: {held:,}")
print(zoo.sample(model, PROMPT, tokens=32))

# %% [markdown]
# ## 1. What a cache costs
#
# To make token $t$, attention needs the keys and values of all tokens before it, and they never
# change: a token cannot see what comes later. So they are kept. For each token, layer and key head
# that is one vector $k$ and one vector $v$:
#
# $$ \text{values a token} = 2 \, L \, H_{kv} \, d $$

# %%
# the formula on four numbers: Llama-2-7B in 16 bits
layers, kv_heads, d, byte = 32, 32, 128, 2
per_token = 2 * layers * kv_heads * d * byte
print(f"{per_token / KiB:.0f} KiB a token, {2048 * per_token / GiB:.0f} GiB for 2048 tokens")
assert per_token == 512 * KiB

# models of the lectures, by the names of exercise 1
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
LLAMA_13B = {"num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40}
LLAMA_70B = {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
GQA_70B = LLAMA_70B | {"num_key_value_heads": 8}  # the real one; above, "if it used MHA"
GQA_405B = {"num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128}
GQA_405B |= {"num_key_value_heads": 8}
DEEPSEEK_V3 = {"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128}
DEEPSEEK_V3 |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
PARAMETERS = 6_738_415_616  # of Llama-2-7B
SMALLER = {n: PARAMETERS - 2 * 32 * 4096 * (32 - n) * 128 for n in (32, 8, 4, 1)}  # n key heads
W4 = (16 * 2 * 32000 * 4096 + 4.15625 * (PARAMETERS - 2 * 32000 * 4096)) / PARAMETERS

GEMMA = {"num_hidden_layers": 48, "hidden_size": 3840, "num_attention_heads": 16}  # as 12B
GEMMA |= {"num_key_value_heads": 8, "head_dim": 256, "sliding_window": 1024}
GEMMA["layer_types"] = (["sliding_attention"] * 5 + ["full_attention"]) * 8

lab.predict("70b", "A token of the 70B with 8 key heads takes how many times one of the 7B?")
lab.predict("slide", "32768 tokens, 8 layers full, 40 with a window of 1024: share of 48 full?")

# %% [markdown]
# ### Exercise 1 · Bytes of a token
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `bytes_per_token(config, bits=16, group_size=None) -> float`, the bytes that one token
# adds to the cache of all layers, and `cache_bytes(config, lengths, ...) -> float`, those of
# sequences of such lengths together.
#
# `config` is a dictionary with Hugging Face's names, all its numbers at least 1:
# `num_hidden_layers`, `hidden_size`, `num_attention_heads`, and perhaps
# - `num_key_value_heads`: without it every query head has its own key head;
# - `head_dim`: without it the hidden size is divided among the query heads, evenly;
# - `kv_lora_rank` and `qk_rope_head_dim`, always both: a DeepSeek model. Each layer keeps for
#   each token *one* vector of `kv_lora_rank` values, from which all heads make their keys and
#   values, and *one* key of `qk_rope_head_dim` values that all heads share, whatever the size of
#   a head. Derive the count;
# - `sliding_window`: a layer keeps no more than the last that many tokens;
# - `layer_types`: a list with a name for each layer, never empty. The window is then that of the
#   layers called `"sliding_attention"`; those called `"full_attention"` keep everything.
#
# Any of the optional fields may be there and be `None`, which means the same as if it were missing.
# The last two are for `cache_bytes` alone. In `bytes_per_token` no layer has a window; it may
# refuse `layer_types` that do not fit, or not look at them.
#
# In `bits` bits a value takes that many, and with a `group_size` $G$ each group of $G$ values has
# 32 bits more (a scale and a smallest value in 16 bits each); count 32 / G for each value.
# `ValueError` in both functions for `bits` or `group_size` below 1, whatever the lengths; in
# `cache_bytes` for a negative length, and for `layer_types` with another number of names than
# there are layers or with another name.


# %% solution="ex1"
def bytes_per_token(config: dict, bits: int = 16, group_size: int | None = None) -> float:
    """Bytes that one token adds to the cache, in all layers.

    Raises ValueError for bits < 1 or group_size < 1.
    """
    ### BEGIN SOLUTION
    if bits < 1 or (group_size is not None and group_size < 1):
        raise ValueError(f"bits={bits} and group_size={group_size} must be at least 1")
    heads = config["num_attention_heads"]
    if config.get("kv_lora_rank") is not None:
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        kv_heads = config.get("num_key_value_heads") or heads
        values = 2 * kv_heads * (config.get("head_dim") or config["hidden_size"] // heads)
    each = bits if group_size is None else bits + 32 / group_size
    return config["num_hidden_layers"] * values * each / 8
    ### END SOLUTION


def cache_bytes(
    config: dict, lengths: list[int], bits: int = 16, group_size: int | None = None
) -> float:
    """Bytes of the caches of sequences of these lengths.

    Raises ValueError for bits < 1 or group_size < 1, for a negative length, and for layer_types
    that do not fit.
    """
    ### BEGIN SOLUTION
    if any(n < 0 for n in lengths):
        raise ValueError(f"lengths {lengths} must not be negative")
    layers, window = config["num_hidden_layers"], config.get("sliding_window")
    kinds = config.get("layer_types")
    kinds = ["sliding_attention"] * layers if kinds is None else kinds
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise ValueError(f"layer_types {kinds} of {layers} layers")
    sliding = 0 if window is None else kinds.count("sliding_attention")
    kept = sum((layers - sliding) * n + sliding * min(n, window or n) for n in lengths)
    return kept * bytes_per_token(config, bits, group_size) / layers
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** Count the numbers that a layer has to keep for one token, then multiply by layers and by
# bytes. The query is not kept: it is used once.
#
# **By hand.** 2 layers, hidden size 8, 4 query heads, 2 key heads: d = 2, so a layer keeps 2 keys
# and 2 values of 2 numbers each, 8 in all; two layers 16, and in 16 bits 32 bytes. In 4 bits with
# groups of 8: 16 (4 + 32 / 8) / 8 = 16 bytes.
#
# **The usual error.** The number of *query* heads; or d from the number of *key* heads. With a
# latent, a factor of 2 or of the heads that is not there any more.
# </details>

# %% [markdown]
# **Reveal.** The figures of the lectures by your function. Two slips are among them: a lecture
# prints 8 GB for 8K tokens of Llama-2-7B and 32 GB for four such sequences. Its conclusion for
# four, "larger than the model's parameters (14 GB)", holds for the right number too.
#
# Configs of several families mix layers (Gemma 3: every 6th keeps everything; gpt-oss: every
# 2nd). Who takes the window for all layers is off by the line below: with a window everywhere it
# would be a sixth of what it is. (Other families say the same in other fields: Qwen2.5 switches
# its window off by `use_sliding_window`. Read a config's code before you trust a formula.)

# %% tags=["demo"]
named = {"Llama-2-7B": LLAMA_7B, "Llama-2-13B": LLAMA_13B, "Llama-2-70B with MHA": LLAMA_70B}
named |= {"Llama-2-70B, 3.1-70B": GQA_70B, "Llama-3.1-405B": GQA_405B, "DeepSeek-V3": DEEPSEEK_V3}
for name, config in named.items():
    print(f"{name:22s} {bytes_per_token(config) / KiB:7.1f} KiB a token")
for n, tokens in ((1, 512), (1, 4096), (16, 4096)):
    print(f"70B with MHA, {n:2d} x {tokens}: {cache_bytes(LLAMA_70B, [tokens] * n) / GiB:g} GiB")
for lengths in ([2048], [8192], [8192] * 4):
    print(f"7B, {len(lengths)} x {lengths[0]}: {cache_bytes(LLAMA_7B, lengths) / GiB:g} GiB")
kinds = (GEMMA, GEMMA | {"sliding_window": None}, GEMMA | {"layer_types": None})
mixed, full, short = (cache_bytes(config, [32768]) / MiB for config in kinds)
print(f"48 layers, 32768 tokens: {mixed:g} MiB; all full {full:g}, all with the window {short:g}")
lab.reveal("70b", bytes_per_token(GQA_70B) / bytes_per_token(LLAMA_7B))
lab.reveal("slide", mixed / full)
lab.predict("grow", "Without a cache, how many times as long does token 1000 take as token 100?")

# %% [markdown]
# ## 2. A cache that decodes
#
# What a cache must do is said in one sentence: **attention through it gives what attention over the
# whole text gives.** In which pieces the text came must not matter.
#
# In a batch, rows have unequal lengths. Here every row's tokens stand from slot 0 upwards, and what
# is behind its end is filling, which nobody may see. A row may get fewer new tokens than another,
# or be cut back (a rejected draft, lab 9):
#
# ```text
# row 0   a b c d e        append 2 new tokens to row 0 and 1 to row 1, S = 7:
# row 1   f g . . .        row 0   a b c d e A B      query A sees 6 slots, B sees 7
#                          row 1   f g F . . . .      query F sees 3 slots
# ```

# %% [markdown]
# ### Exercise 2 · A cache of unequal rows
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `RowCache` and a function `attend(q, k, v, mask) -> out`.
#
# - `RowCache()` is empty. `append(k, v, counts)` takes `k` and `v` [B, Hkv, T, d] and adds the
#   first `counts[b]` tokens of row `b`; the rest of its T are filling. It returns `(keys, values,
#   mask)`: both [B, Hkv, S, d] with $S$ the length of the longest row afterwards, and `mask` [B,
#   T, S] bool: new token $i$ of a row sees every older token of this row, and the new ones up to
#   itself. For filling ($i \ge$ `counts[b]`) a query may see whatever you like; nobody reads it.
# - The first `append` decides B, Hkv and d (each at least 1; T and S may be 0) and the dtype:
#   float32, bfloat16 or float16, the same ever after. `counts` is a list of B integers;
#   `ValueError` unless there are B of them, each from 0 to T. `ValueError` also for other B, Hkv or
#   d than before, and where `k` and `v` differ in shape.
# - `truncate(lengths)` keeps the first `lengths[b]` tokens of each row; a row that is shorter stays
#   as it is. `ValueError` for a negative length, or a number of lengths other than B.
# - `lengths` (an attribute or a property) is the list of the rows' lengths. Others only read it,
#   and ask anew after each call. It is `[]` before the first `append`, and nobody truncates before
#   that.
# - What was returned earlier, and what was passed in, may be changed by others, and is not changed
#   by the cache: it keeps tensors and lists of its own. After an error nobody uses it any more.
# - All numbers are finite, the filling that comes in and the filling that you return too (zeros,
#   say, but not what `torch.empty` happens to hold: 0 times NaN is NaN).
# - `attend` is $\mathrm{softmax}(q k^T / \sqrt d)\, v$ over the slots that `mask` [B, T, S] shows,
#   for `q` [B, H, T, d]. $H$ is a multiple of $H_{kv}$: query head $h$ reads key head
#   $\lfloor h \, H_{kv} / H \rfloor$. Compute in float32, return the dtype of `q`, which may be
#   another than that of `k` and `v`. Numbers are up to 1e4 in size, so that a score may lie below
#   -1e9. A query that sees nothing gives zeros.


# %% solution="ex2"
class RowCache:
    """Keys and values of rows of unequal length; `lengths` is the list of these lengths."""

    def __init__(self) -> None:
        ### BEGIN SOLUTION
        self.lengths: list[int] = []
        self.k = self.v = None  # [B, Hkv, S, d]
        ### END SOLUTION

    def append(self, k: Tensor, v: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Adds the first counts[b] of T tokens; (keys, values [B, Hkv, S, d], mask [B, T, S]).

        Raises ValueError for counts, or shapes, that do not fit.
        """
        ### BEGIN SOLUTION
        b, h, t, d = k.shape
        if k.shape != v.shape or len(counts) != b or not all(0 <= c <= t for c in counts):
            raise ValueError(f"k {tuple(k.shape)}, v {tuple(v.shape)}, counts {counts}")
        if self.k is None:
            self.k, self.v, self.lengths = k[:, :, :0], v[:, :, :0], [0] * b
        elif (b, h, d) != (*self.k.shape[:2], self.k.shape[3]):
            raise ValueError(f"{tuple(k.shape)} does not fit {tuple(self.k.shape)}")
        before = self.lengths
        self.lengths = [n + c for n, c in zip(before, counts, strict=True)]
        size = max(self.lengths)
        room = self.k.new_zeros(b, h, size, d)
        keys, values = room.clone(), room
        for row, (n, c) in enumerate(zip(before, counts, strict=True)):
            for new, old, x in ((keys, self.k, k), (values, self.v, v)):
                new[row, :, :n] = old[row, :, :n]
                new[row, :, n : n + c] = x[row, :, :c]
        self.k, self.v = keys, values
        sees = torch.tensor(before)[:, None] + torch.arange(t) + 1  # [B, T] slots
        mask = torch.arange(size) < sees[:, :, None]
        return keys.clone(), values.clone(), mask.to(k.device)
        ### END SOLUTION

    def truncate(self, lengths: list[int]) -> None:
        """Keeps the first lengths[b] tokens of each row.  Raises ValueError for wrong lengths."""
        ### BEGIN SOLUTION
        if len(lengths) != len(self.lengths) or any(n < 0 for n in lengths):
            raise ValueError(f"{lengths} for rows of {self.lengths}")
        self.lengths = [min(n, m) for n, m in zip(lengths, self.lengths, strict=True)]
        ### END SOLUTION


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v over the slots of mask [B, T, S]. [B, H, T, d], dtype of q"""
    ### BEGIN SOLUTION
    times = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(times, dim=1) for x in (k, v))
    scores = q.float() @ k.mT / q.shape[-1] ** 0.5  # [B, H, T, S]
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    weights = scores.softmax(-1).nan_to_num()  # a row of -inf gives NaN
    return (weights @ v).to(q.dtype)
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** The length of each row *before* the append says everything: where the new tokens go, and
# what each of them sees. A row that was cut back holds old numbers behind its end; the next tokens
# are written over them, and the mask never reaches further.
#
# **By hand.** Lengths (5, 2), counts (2, 1), T = 2: token $i$ of row $b$ sees the slots below
# length + i + 1, so (6, 7) and (3, 4). The 4 is filling. Afterwards the lengths are (7, 3), S = 7.
#
# **The usual error.** The slot after the longest row for all rows; a mask from the lengths *after*
# the append, in which a token sees the next one; filling of a row kept as if it were a token.
# Softmax over nothing is 0 / 0.
# </details>

# %% [markdown]
# **Reveal.** The time of one more token, by reading all of it again and through a cache in your
# hands. (Six layers, one `RowCache` each; yours copies what it holds at each step.) This takes
# about 10 seconds, and other programs disturb the times.
#
# **Derive it first**: a layer's matrices take $12 D^2$ multiplications for each token (hidden size
# $D = 192$), and a token that sees $i$ tokens takes $2 i D$ in attention. How many times as much
# work are 1000 tokens as 100, and through a cache token 1000 as token 100? The first is the
# prediction above: change it if you like.


# %% tags=["demo", "fold"]
class InModel:
    """One RowCache for each layer, as the model asks for it: rows of one length."""

    def __init__(self) -> None:
        self.layers = []

    @property
    def length(self) -> int:
        return max(self.layers[0].lengths) if self.layers else 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if layer == len(self.layers):
            self.layers.append(RowCache())
        keys, values, _ = self.layers[layer].append(k, v, [k.shape[2]] * len(k))
        return keys, values


@torch.no_grad()
def seconds_of_a_token(tokens: int, kind) -> float:
    """Fastest of 12 runs; kind: a class of caches, or None to read everything again (of 3)."""
    ids, times = held_out[:4].reshape(1, -1)[:, : tokens + 1], []
    cache = None
    if kind is not None:
        model(ids[:, :-1], cache=(cache := kind()))
    for _ in range(3 if kind is None else 12):
        own, start = copy.deepcopy(cache), time.perf_counter()
        model(ids if own is None else ids[:, -1:], cache=own)
        times.append(time.perf_counter() - start)
    return min(times)


# %% tags=["demo"]
with torch.no_grad():
    whole = model(held_out[:, :-1])
    ours = InModel()
    pieces = [model(p, cache=ours) for p in held_out[:, :-1].split([100, 1, 55, 100], dim=1)]
    print(f"in pieces through your cache: off by {(torch.cat(pieces, 1) - whole).abs().max():.1e}")
sizes = [100, 400, 700, 1000]
paths = {"read again": None, "your cache": InModel, "the model's cache": KVCache}
taken = {name: [seconds_of_a_token(n, kind) for n in sizes] for name, kind in paths.items()}
found["grow"] = taken["read again"][-1] / taken["read again"][0]
found["flat"] = taken["the model's cache"][-1] / taken["the model's cache"][0]
style.show(*pictures.growth(sizes, taken))
lab.reveal("grow", found["grow"])

# %% [markdown]
# <details><summary>The derivation</summary>
#
# Read again, $n$ tokens take $12 n D^2 + n^2 D$ (the sum of $2 i D$): for 1000 and 100 tokens
# 13.7 times. The measured number is near it and not equal: a product of large matrices runs at a
# better rate than one of small ones, and the rest of a step costs something too. Through a cache
# token $n$ takes $12 D^2 + 2 n D$, 1.7 times as much at 1000 as at 100; what does not depend on
# $n$ at all, such as Python, makes the measured ratio smaller still. The curve is flat as long as
# the first term is larger, here up to $n = 6 D = 1152$, and not for ever.
# </details>
#
# ## 3. Fewer heads, and what fits
#
# The cache depends on the key heads, not on the query heads. In grouped-query attention (GQA)
# several query heads share a key head; in multi-query attention (MQA) all do. A model with a head
# each (MHA) can be turned into one: each group of key heads becomes their mean. That is another
# function, and the model must be trained on for a while (Ainslie et al.: 5 % of its steps).

# %% [markdown]
# ### Exercise 3 · From MHA to GQA
#
# **15 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `pool_heads(weight, heads, groups) -> pooled`: `weight` [heads · d, ...] is the weight (or bias)
#   of `k_proj` or `v_proj`, a head's rows stand together. Each group of neighbouring heads becomes
#   their mean: [groups · d, ...]. The mean is taken in float32, for a float64 weight in float64;
#   the dtype stays as it was (one of these, bfloat16 or float16).
# - `repeat_heads(weight, heads, times) -> repeated`: the other way, each head `times` times, in the
#   order in which grouped attention (exercise 2) reads them, so that the function stays the same.
# - `pooled_error(weight, heads, groups) -> float`: the share of the weight that pooling loses: the
#   squared distance between the weight and what `repeat_heads` makes of the pooled one, divided by
#   the sum of the squares of the weight. 0 if all heads of each group are equal, and small but not
#   0 if they are nearly equal. (This weight is float32 or float64, its largest absolute value
#   between 1e-8 and 1e4; differences in float32 are exact enough for both.)
#
# Where nothing is pooled or repeated (`groups` = `heads`, `times` = 1) you may return `weight`
# itself. `ValueError`, in all three, unless `heads`, `groups` and `times` are at least 1, `groups`
# divides `heads`, and `heads` the rows.


# %% solution="ex3"
def pool_heads(weight: Tensor, heads: int, groups: int) -> Tensor:
    """The mean of each group of neighbouring heads. [heads d, ...] -> [groups d, ...]"""
    ### BEGIN SOLUTION
    if heads < 1 or groups < 1 or heads % groups or weight.shape[0] % heads:
        raise ValueError(f"{groups} groups, {heads} heads, {weight.shape[0]} rows")
    by_head = weight.unflatten(0, (groups, heads // groups, -1))  # [groups, share, d, ...]
    wide = torch.promote_types(weight.dtype, torch.float32)
    return by_head.to(wide).mean(1).to(weight.dtype).flatten(0, 1)
    ### END SOLUTION


def repeat_heads(weight: Tensor, heads: int, times: int) -> Tensor:
    """Each head `times` times, side by side. [heads d, ...] -> [heads times d, ...]"""
    ### BEGIN SOLUTION
    if heads < 1 or times < 1 or weight.shape[0] % heads:
        raise ValueError(f"{heads} heads, {times} times, {weight.shape[0]} rows")
    return weight.unflatten(0, (heads, -1)).repeat_interleave(times, dim=0).flatten(0, 1)
    ### END SOLUTION


def pooled_error(weight: Tensor, heads: int, groups: int) -> float:
    """The share of the squares of weight that is lost when its heads are pooled."""
    ### BEGIN SOLUTION
    wide = weight.double()
    back = repeat_heads(pool_heads(wide, heads, groups), groups, heads // groups)
    return ((wide - back).square().sum() / wide.square().sum()).item()
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Give heads and groups dimensions of their own: rows are (group, head of the group,
# channel). The mean goes over the middle one.
#
# **By hand.** Four heads of one row, 1, 3, 10, 20, two groups: 2 and 15. Repeated twice: 2, 2, 15,
# 15, because query heads 0 and 1 read key head 0. Lost: (1 + 1 + 25 + 25) / (1 + 9 + 100 + 400).
#
# **The usual error.** `reshape(share, groups, ...)`: heads that are `groups` apart are averaged. Or
# `weight.repeat(times, 1)`: 2, 15, 2, 15.
# </details>

# %% [markdown]
# **Reveal.** The shipped model with fewer key heads, without any further training. Beside the share
# that is lost stands what heads would lose that have nothing to do with each other: of $H / n$ such
# heads of equal size the mean keeps one part in $H / n$, so $1 - n / H$ is lost. The other way is
# exact: three heads repeated to six are the same function. This takes about 5 seconds.
#
# A share of squares depends on a basis: turn the channels of one head (and those of its queries),
# and the function stays while the share changes. So the last lines ask without one: of the
# directions in the input that one head's keys read, how much lies in those of another? 1 if both
# read the same, and 32 / 192 = 0.17 by chance. What do neighbours have in common, and what must a
# training that follows therefore do?

# %% tags=["demo", "fold"]
from dataclasses import replace


def with_kv_heads(model: nn.Module, change, kv_heads: int) -> nn.Module:
    """A copy of the model whose k_proj and v_proj have the weights change(weight)."""
    made = copy.deepcopy(model)
    made.config = replace(model.config, num_key_value_heads=kv_heads)
    for layer in made.model.layers:
        layer.self_attn.config = made.config
        for linear in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            linear.weight = nn.Parameter(change(linear.weight.detach()), requires_grad=False)
    return made


def shared_directions(weight: Tensor) -> Tensor:
    """Of the directions that a head reads, the share that another one reads. [heads, heads]"""
    rows = weight.unflatten(0, (model.config.num_attention_heads, -1))
    spans = torch.stack([torch.linalg.qr(head.T).Q for head in rows])  # [H, D, d], orthonormal
    return torch.einsum("gik, hil -> ghkl", spans, spans).square().sum((2, 3)) / rows.shape[1]


# %% tags=["demo"]
heads = model.config.num_attention_heads
for n in (6, 3, 2, 1):
    pooled = with_kv_heads(model, lambda w, n=n: pool_heads(w, heads, n), n)
    lost = pooled_error(model.model.layers[0].self_attn.k_proj.weight.detach(), heads, n)
    found["heads"][n] = loss(pooled)
    print(f"key heads {n}: loss {found['heads'][n]:.3f}, share of k_proj lost {lost:.2f}", end="")
    print(f" ({1 - n / heads:.2f} of unrelated heads)")
three = with_kv_heads(model, lambda w: pool_heads(w, 6, 3), 3)
six = with_kv_heads(three, lambda w: repeat_heads(w, 3, 2), 6)
print(f"3 heads {loss(three):.4f}, repeated to 6 {loss(six):.4f}")
for number, layer in enumerate(model.model.layers):
    shared = shared_directions(layer.self_attn.k_proj.weight.detach())
    (a, b), next_to = divmod(int(shared.tril(-1).argmax()), heads), shared.diagonal(1).mean()
    print(f"layer {number}: neighbours {next_to:.2f}, most heads {b} and {a}, {shared[a, b]:.2f}")

# %% [markdown]
# <details><summary>What neighbours have in common</summary>
#
# Neighbours share about as much as chance gives them. But two heads that are no neighbours read
# nearly half of the same directions in layer 4, and two in layer 5 more than a third: "nothing in
# common" would be wrong, and which heads form a group is a choice (see the stretch). So the mean of
# neighbours is a start and no more, and training on has to find a head that serves a whole group.
# The paper trains on and comes close to MHA; nothing here does.
# </details>

# %% [markdown]
# ### Exercise 4 · What fits
#
# **15 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions. `memory` is in bytes, what may be used of the GPU; the weights take
# `parameters * weight_bits / 8` of it, and the rest is for caches. `weight_bits` need not be whole
# (4.15625 are 4 bits and metadata), and a byte too many is too many. Python's own floats are exact
# where group sizes are powers of two, `weight_bits` is a multiple of 1/32, and whole numbers are
# multiplied first; tests look at the last byte only there. (`W4` is rounded: no such multiple.)
#
# - `max_batch(config, parameters, memory, context, weight_bits=16, bits=16, group_size=None) ->
#   int`: how many sequences of `context` tokens (at least 1) fit; 0 where not even the weights do.
# - `crossover(config, parameters, weight_bits=16, bits=16, group_size=None) -> int`: the smallest
#   number of cached tokens, of all sequences together, that takes *more* bytes than the weights.
#   (The config has no window.) Derive it.
# - `best_lever(config, parameters, memory, context, levers) -> str`: `levers` is a dictionary
#   {name: changes}, where `changes` is a dictionary with new values for arguments of `max_batch` by
#   name, such as `{"bits": 4, "group_size": 32}`, `{"context": 2048}` or
#   `{"config": another_config}` (which takes the place of the first, whole). Return the name of the
#   lever with the largest batch, the first of equal ones; `ValueError` for an empty dictionary.


# %% solution="ex4"
def max_batch(
    config: dict,
    parameters: int,
    memory: int,
    context: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """How many sequences of `context` tokens fit into `memory` bytes beside the weights."""
    ### BEGIN SOLUTION
    left = memory - parameters * weight_bits / 8
    return max(0, int(left // cache_bytes(config, [context], bits, group_size)))
    ### END SOLUTION


def crossover(
    config: dict,
    parameters: int,
    weight_bits: float = 16,
    bits: int = 16,
    group_size: int | None = None,
) -> int:
    """The fewest cached tokens that take more bytes than the weights."""
    ### BEGIN SOLUTION
    weights = parameters * weight_bits / 8
    return int(weights // bytes_per_token(config, bits, group_size)) + 1
    ### END SOLUTION


def best_lever(
    config: dict, parameters: int, memory: int, context: int, levers: dict[str, dict]
) -> str:
    """The name of the lever with the largest batch, the first of equal ones."""
    ### BEGIN SOLUTION
    if not levers:
        raise ValueError("no levers")
    asked = {"config": config, "parameters": parameters, "memory": memory, "context": context}
    counts = {name: max_batch(**(asked | changes)) for name, changes in levers.items()}
    return max(counts, key=counts.get)  # max keeps the first
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Bytes that are left, divided by the bytes of one sequence, rounded down: a sequence fits
# whole or not at all.
#
# **By hand.** 100 parameters in 16 bits are 200 bytes. A token of 32 bytes and a context of 10 make
# 320 a sequence. 1000 bytes: 800 left, 2 sequences. The cache is larger than the weights from token
# 7 on (6 take 192). Were a token 50 bytes, 4 tokens would take as much and 5 more.
#
# **The usual error.** Rounding to nearest; a negative number of sequences; `ceil` for the
# crossover, which is one too few where the division comes out even.
# </details>

# %% [markdown]
# **Reveal.** A lecture's example: Llama-2-7B on an RTX 4090 with 24 GiB. It says that 1 GB of cache
# holds at most 1k tokens and 10 GB 10k, which serve 3 requests of 4k. By the formula it is twice as
# many tokens, and whole requests are rounded down. And four levers: what each does alone depends on
# what is scarce. (8 key heads also make `k_proj` and `v_proj` smaller, by 0.8 billion parameters;
# weights in 4 bits leave the table of tokens and the head in 16.)
#
# The last lines are bytes that a step reads for each new token: the weights once for all sequences
# of a batch, the cache once for each. **Before you look:** which of the two does a larger batch
# make cheaper?
#
# The planner below turns all of this. **To find out with it:** which single lever (weights in 4
# bits, cache in 4 bits, 8 key heads) lets a sequence of 32768 tokens into 16 GiB, and why does
# neither of the others?

# %% tags=["demo"]
one, ten = (int(n * GiB // bytes_per_token(LLAMA_7B)) for n in (1, 10))
print(f"1 GiB of cache: {one} tokens; 10 GiB: {ten}, which is {ten // 4096} requests of 4096")
print(f"cache larger than weights from {crossover(LLAMA_7B, PARAMETERS):,} tokens on")
levers = {
    "weights in 4 bits": {"weight_bits": W4},  # groups of 128: 20 bits more for each
    "cache in 4 bits": {"bits": 4, "group_size": 32},
    "8 key heads": {"config": LLAMA_7B | {"num_key_value_heads": 8}, "parameters": SMALLER[8]},
    "half the context": {"context": 2048},
}
for room in (13, 24, 80):  # GiB
    asked = {"config": LLAMA_7B, "parameters": PARAMETERS, "memory": room * GiB, "context": 4096}
    counts = {lever: max_batch(**(asked | new)) for lever, new in levers.items()}
    found["lever"][room] = best_lever(**asked, levers=levers)
    print(f"{room} GiB, sequences that fit: {max_batch(**asked)}; {counts}")


# %% tags=["demo", "fold"]
each = cache_bytes(LLAMA_7B, [4096])
for batch in (1, 4, 16, 64):
    weights = 2 * PARAMETERS / batch
    read = (
        f"weights {weights / GiB:5.2f}, cache {each / GiB:.2f}, in all {(weights + each) / GiB:.2f}"
    )
    print(f"batch of {batch:2d}, GiB read for each new token: {read}")


def planned(memory: int, context: int, weights: int, cache: int, heads: int):
    config = LLAMA_7B | {"num_key_value_heads": heads}
    weight_bits = {16: 16, 8: 8.1875, 4: W4}[weights]  # with metadata of groups of 128
    group = None if cache == 16 else 32
    batch = max_batch(config, SMALLER[heads], memory * GiB, context, weight_bits, cache, group)
    each = cache_bytes(config, [context], cache, group)
    return pictures.planner(batch, SMALLER[heads] * weight_bits / 8, each, memory * GiB)


choices = {"memory": [24, 16, 48, 80], "context": [4096, 1024, 2048, 8192, 32768]}
choices |= {"weights": [16, 8, 4], "cache": [16, 8, 4, 2], "heads": [32, 8, 4, 1]}
explorer.explorer(planned, choices)

# %% [markdown]
# <details><summary>What the planner says, and the batch</summary>
#
# Only 8 key heads let it in. Weights in 4 bits leave room for 12 GiB of cache, and the sequence
# takes 16; a cache in 4 bits takes 5 GiB beside weights that leave 3.4. Fewer heads shrink both: 11
# GiB of weights leave 5, and the sequence takes 4.
#
# A batch shares the weights, never the cache: what is read for a token falls towards the cache of
# its own sequence and not below. That is why servers shrink caches once their batches are large.
# </details>
#
# ## 4. Rounding the cache
#
# Keys and values can be rounded like weights (lab 1), with a difference: they arrive token by
# token. A group has the codes $c$ of an asymmetric grid with a smallest value $m$ in floating
# point:
#
# $$ \begin{gathered} s = \frac{\max - \min}{2^b - 1}, \qquad m = \min, \\
# c = \mathrm{clamp}\Big(\mathrm{round}\Big(\frac{x - m}{s}\Big), 0, 2^b - 1\Big), \qquad
# \hat x = s\,c + m \end{gathered} $$
#
# A group can lie in two directions: $G$ channels of one **token**, or $G$ tokens of one
# **channel**. In large models some channels of the keys are much larger than the rest, in all
# tokens. Ours has next to none, so we put one in: a pair of channels of $k$ is multiplied by 16
# and that of $q$ divided by 16. $q k^T$ stays as it was, so it is the same function. The model
# without is the **control**.

# %%
# both directions on four numbers, 1 bit: token 0 is (0, 8), token 1 is (1, 9); channels are columns
x = torch.tensor([[0.0, 8.0], [1.0, 9.0]])
print("per token, each group's two levels are", [[0.0, 8.0], [1.0, 9.0]], "steps of 8")
print("per channel they are", [[0.0, 1.0], [8.0, 9.0]], "steps of 1")
assert (x.amax(1) - x.amin(1)).tolist() == [8, 8] and (x.amax(0) - x.amin(0)).tolist() == [1, 1]

lab.predict(
    "worse", "2 bits with large key channels: how much does rounding per token add?", unit="nats"
)

# %% tags=["demo"]
outlier = with_key_outlier(model, 16.0)
probe = KVCache()
with torch.no_grad():
    outlier(held_out[:1, :128], cache=probe)
k, v = probe.keys[3][0, 0], probe.values[3][0, 0]  # layer 3, head 0: [128, 32]
print(f"loss {loss(outlier):.4f}, {found['float']:.4f} without: the same function")
print("largest channel / median:", end=" ")
print(*(f"{channel_spread(m, held_out[:, :-1]):.1f}" for m in (model, outlier)))
style.show(*pictures.states(k, v))

# %% [markdown]
# ### Exercise 5 · Codes in two directions
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `quantize(x, bits, group_size, direction) -> (codes, scale, low)` and
# `dequantize(codes, scale, low, direction) -> x_hat`.
#
# - `x` [B, H, S, d], each at least 1; `direction` is `"channel"` (groups of $G$ consecutive tokens
#   of one channel) or `"token"` ($G$ neighbouring channels of one token); `ValueError` for anything
#   else, and unless $G \ge 1$ divides that dimension.
# - `codes` [B, H, S, d] uint8. `scale` and `low` are **float16**, [B, H, S/G, d] per channel and
#   [B, H, S, d/G] per token. Codes belong to what is stored: round $s$ and $m$ to float16 first.
#   Which way a code goes that lies in the middle between two is up to you.
#   `low` is the smallest value of the group, rounded to float16 and to nothing else.
# - A group of equal values has scale 0 and codes 0, and comes back as its `low`. So does one whose
#   range is so small that its scale is 0 in float16.
# - `x` is float32 or bfloat16 with numbers from -30,000 to 30,000 (so that float16 holds their
#   range), $b$ from 1 to 8; compute in float32. `x_hat` is float32. Results of two
#   calls share no memory.


# %% solution="ex5"
def quantize(x: Tensor, bits: int, group_size: int, direction: str) -> tuple:
    """(codes [B, H, S, d] uint8, scale, low), the latter float16 and one for each group.

    Raises ValueError for another direction, and unless group_size is at least 1 and divides the
    dimension.
    """
    ### BEGIN SOLUTION
    if direction not in ("channel", "token"):
        raise ValueError(f"direction={direction!r}")
    dim = 2 if direction == "channel" else 3
    if group_size < 1 or x.shape[dim] % group_size:
        raise ValueError(f"groups of {group_size} do not divide {tuple(x.shape)}")
    groups = x.float().unflatten(dim, (-1, group_size))
    low, high = (f(dim + 1, keepdim=True) for f in (groups.amin, groups.amax))
    scale, low = ((high - low) / (2**bits - 1)).half(), low.half()
    step = torch.where(scale > 0, scale.float(), 1.0)
    codes = ((groups - low.float()) / step).round().clamp(0, 2**bits - 1)
    codes = torch.where(scale > 0, codes, 0)
    return codes.reshape(x.shape).to(torch.uint8), scale.squeeze(dim + 1), low.squeeze(dim + 1)
    ### END SOLUTION


def dequantize(codes: Tensor, scale: Tensor, low: Tensor, direction: str) -> Tensor:
    """x_hat [B, H, S, d], float32."""
    ### BEGIN SOLUTION
    dim = 2 if direction == "channel" else 3
    groups = codes.float().unflatten(dim, (scale.shape[dim], -1))
    x_hat = groups * scale.float().unsqueeze(dim + 1) + low.float().unsqueeze(dim + 1)
    return x_hat.reshape(codes.shape)
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Give the groups a dimension of their own, in the right place: dimension 2 becomes
# [S/G, G], or dimension 3 becomes [d/G, G]. The rest is the same for both.
#
# **By hand.** 2 bits, the group 5, 6, 7, 8: m = 5, s = 1, codes 0, 1, 2, 3. With 0.0 in the range,
# as for weights, s would be 8 / 3 and the codes 2, 2, 3, 3.
#
# **The usual error.** Codes for the float32 scale, float16 stored: up to 255 times the difference.
# 0 / 0 in a constant group. A reshape of [.., S, d] to [.., d, S/G, G], which mixes tokens and
# channels.
# </details>

# %% [markdown]
# ### Exercise 6 · The cache with a window
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A group along time is complete only after $G$ tokens. So the newest tokens wait in floating point
# (KIVI's *residual window*): **keys** wait until $R$ of them are together, and then these $R$ are
# rounded at once, per channel; **values** are rounded per token, all but the newest $R$, which
# wait.
#
# **Deliver** a class `QuantizedCache(bits, group_size, residual, keys="channel")` for one layer,
# and `waiting(tokens, residual) -> (keys, values)`.
#
# - `append(k, v)` adds tokens [B, H, T, d] (T may be 0, also in the first call; $G$ divides $d$)
#   and returns all keys and all values [B, H, S, d] in their dtype, float32 or bfloat16, the same
#   for both. New tokens, and those that wait, come back as they are, bit by bit (-0.0 is not 0.0);
#   the rest comes from codes. *What is due is rounded after the call*: a prompt attends to itself
#   exactly.
# - No token is rounded twice: its codes are made from the value that came, and stay. Of an old
#   token the cache keeps nothing but these: with $G \ge 8$, behind a float32 text of at least
#   ten times $R$ tokens and one more, all that it keeps takes less than half of the bytes of the
#   keys and values that came. (`quantize` gives one byte a value and four a group: easy without the
#   floats, impossible with them. A view keeps all of its tensor.) As in exercise 2 others may
#   change what went in and came out, and the cache does not: what waits is its own, and no later
#   call writes over what an earlier one returned.
# - `keys="token"` treats keys as values are treated (for comparison).
# - `bits_held() -> int` counts the bits of all that is kept: `bits` for each code, 32 for each
#   group, and 16 for each value that waits; 0 at first. (It counts what a kernel would store: codes
#   of 2 bits lie in bytes here, and float32 waits in 32 bits.)
# - `waiting(tokens, residual)`: how many keys (per channel) and values wait when so many tokens
#   have come, one by one or at once. Derive it.
# - `ValueError` unless `group_size` is at least 1, `residual` a positive multiple of it, and `keys`
#   one of the two: at once, before any token comes.


# %% solution="ex6"
class QuantizedCache:
    """Old keys and values of one layer as codes, the newest as they came."""

    def __init__(self, bits: int, group_size: int, residual: int, keys: str = "channel") -> None:
        """Raises ValueError unless residual is a positive multiple of group_size, at least 1."""
        ### BEGIN SOLUTION
        if group_size < 1 or residual < 1 or residual % group_size:
            raise ValueError(f"residual={residual} must be a multiple of group_size={group_size}")
        if keys not in ("channel", "token"):
            raise ValueError(f"keys={keys!r}")
        self.bits, self.group_size, self.residual = bits, group_size, residual
        self.directions = (keys, "token")
        self.old = ([], [])  # of keys and of values: pieces (codes, scale, low)
        self.recent = [None, None]
        ### END SOLUTION

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds tokens [B, H, T, d]; all keys and all values [B, H, S, d], in their dtype."""
        ### BEGIN SOLUTION
        return self._add(0, k), self._add(1, v)

    def _add(self, i: int, x: Tensor) -> Tensor:
        direction, recent = self.directions[i], self.recent[i]
        recent = x.clone() if recent is None else torch.cat([recent, x], dim=2)
        past = [dequantize(*piece, direction).to(x.dtype) for piece in self.old[i]]
        n, r = recent.shape[2], self.residual
        due = n // r * r if direction == "channel" else max(0, n - r)
        if due:
            new = quantize(recent[:, :, :due], self.bits, self.group_size, direction)
            self.old[i].append(new)
        self.recent[i] = recent[:, :, due:]
        return torch.cat([*past, recent], dim=2)
        ### END SOLUTION

    def bits_held(self) -> int:
        """Bits of all that is kept: codes, 32 for each group, 16 for each value that waits."""
        ### BEGIN SOLUTION
        total = sum(16 * recent.numel() for recent in self.recent if recent is not None)
        for codes, scale, _ in (*self.old[0], *self.old[1]):
            total += self.bits * codes.numel() + 32 * scale.numel()
        return total
        ### END SOLUTION


def waiting(tokens: int, residual: int) -> tuple[int, int]:
    """How many keys and how many values are still in floating point."""
    ### BEGIN SOLUTION
    return tokens % residual, min(tokens, residual)
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** Two lists: finished pieces as codes, and a tensor of what waits. Build the result first,
# from the old pieces and everything that waits, and only then move what is due into a new piece.
#
# **By hand.** R = 4, 11 tokens, one by one: keys were rounded after 4 and after 8 tokens, 3 wait.
# Values: from token 5 on the oldest leaves at each step, 7 are codes and 4 wait.
#
# **The usual error.** Rounding first and returning the rounded tokens; keys in pieces of G, or of
# what came, in place of R; forgetting what waits when a piece is finished; keeping a view of a
# tensor that was returned, or of a long prompt. (Decoding the history, whole or in part, and
# rounding it again is work for nothing, and harm if the groups move.)
# </details>

# %% [markdown]
# **Reveal.** Your cache in the live model: text in pieces of 16 tokens, groups and window of 32.
# The control is the model without large channels. This takes about 10 seconds.
#
# The bits are counted by your `bits_held` and depend on the length: every 32nd token no key waits,
# one token earlier 31 do. So they are a mean over the 32 lengths from 225 to 256. (Per token all 32
# keys wait at any time: that is the difference in bits between the directions, not the codes.)


# %% tags=["demo", "fold"]
class Rounded(InModel):
    """One QuantizedCache for each layer, as the model asks for it."""

    def __init__(self, bits: int, keys: str) -> None:
        super().__init__()
        self.bits, self.keys, self.seen = bits, keys, 0

    @property
    def length(self) -> int:
        return self.seen

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if layer == len(self.layers):
            self.layers.append(QuantizedCache(self.bits, 32, 32, self.keys))
        self.seen += k.shape[2] if layer == 0 else 0
        return self.layers[layer].append(k, v)


class Blocks(KVCache):
    """Keys or values in 2 bits, in blocks of 32 tokens that are whole, all else exact.

    So the same tokens are rounded in either direction.  change, back: layer -> what is done to
    them before they are rounded, and afterwards.
    """

    def __init__(self, direction: str, group: int = 32, which: int = 0, change=None, back=None):
        super().__init__()
        self.settings, self.which, self.done = (2, group, direction), which, {}
        self.change, self.back = change or (lambda x, layer: x), back or (lambda x, layer: x)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        both = list(super().append(layer, k, v))
        x, done = both[self.which], self.done.get(layer, k[:, :, :0])
        old = (x.shape[2] - k.shape[2]) // 32 * 32
        if old > done.shape[2]:
            new = self.change(x[:, :, done.shape[2] : old], layer)
            new = dequantize(*quantize(new, *self.settings), self.settings[2])
            done = self.done[layer] = torch.cat([done, self.back(new, layer)], dim=2)
        both[self.which] = torch.cat([done, x[:, :, old:]], dim=2)
        return both[0], both[1]


def bits_a_value(bits: int, keys: str) -> float:
    """Bits held for each key and value of a head, mean over 225 to 256 tokens."""
    cache, tokens = QuantizedCache(bits, 32, 32, keys), torch.zeros(1, 1, 256, 32)
    counts = []
    for start, end in [(0, 224), *((n, n + 1) for n in range(224, 256))]:
        cache.append(tokens[:, :, start:end], tokens[:, :, start:end])
        counts.append(cache.bits_held() / (2 * 32 * end))
    return sum(counts[1:]) / 32


@torch.no_grad()
def sizes_of_channels(m: nn.Module) -> list[Tensor]:
    """Mean |k| of every key channel on prose, [1, Hkv, 1, d] for each layer."""
    cache = KVCache()
    m(windows("prose", True, QUICK, seed=0)[:4, :-1], cache=cache)
    return [k.abs().mean((0, 2), keepdim=True) for k in cache.keys]


@torch.no_grad()
def written(cache) -> str:
    """What the model with large channels writes after 192 tokens of held-out text: 32 more."""
    out, new = [], held_out[4:5, :193]
    for _ in range(32):
        new = outlier(new, cache=cache)[:, -1:].argmax(-1)
        out.append(new.item())
    return zoo.load_tokenizer().decode(out)


turn = torch.ones(1, 1)
for _ in range(5):
    turn = torch.cat([torch.cat([turn, turn], 1), torch.cat([turn, -turn], 1)]) / 2**0.5
size = sizes_of_channels(outlier)
WAYS = {
    "per channel": Blocks("channel"),
    "per token": Blocks("token"),
    "per token, divided": Blocks(
        "token", 32, 0, lambda x, i: x / size[i], lambda x, i: x * size[i]
    ),
    "per token, turned": Blocks("token", 32, 0, lambda x, i: x @ turn, lambda x, i: x @ turn.T),
    "per token, groups of 8": Blocks("token", 8),
}

# %% tags=["demo"]
points, added = {}, {}  # (model, direction) -> [(bits a value, nats)]; the same for each window
for name, m in (("control", model), ("large channels", outlier)):
    for keys in ("channel", "token"):
        for bits in (4, 2):
            new = losses(m, Rounded(bits, keys)) - exact
            held = bits_a_value(bits, keys)
            points.setdefault((name, keys), []).append((held, new.mean().item()))
            print(f"{name}, keys per {keys}, {bits} bits ({held:.2f} in all): {spread(new)} nats")
            added[name, keys] = new  # of 2 bits, which come last
style.show(*pictures.against_bits(points))
lab.reveal("worse", added["large channels", "token"].mean().item())

# %% [markdown]
# **What to make of it.** With a range of its own a large channel spoils no other one: per channel
# the two models give the same, and their curves coincide. Per token its range is that of the whole
# group, and at 2 bits the small channels have one level left. The bits are not 2: metadata and the
# waiting tokens count, the more the shorter the text.
#
# Without large channels the directions look close. **Are they?** Ask what else differs between the
# two: per token the newest 32 keys are always exact, per channel 0 to 31 of them, 16 on average. So
# look again with *the same tokens* rounded: blocks of 32 that are whole, values exact. **Which way
# will the difference on the control go?**
#
# And somebody may object: you put in a factor and forbade taking it out again. So three repairs of
# rounding per token: divide each key channel by *one fixed number*, its mean size on prose, and
# multiply again; *turn* the 32 channels of a head by an orthogonal matrix of +1 and -1
# (Hadamard), which spreads a large channel over all, and turn back; or *smaller groups*, 8 channels
# in place of 32. And the other half of the rule: values in both directions. Below the numbers
# stands what the model with large channels writes after a long prompt. It repeats itself in any
# case, being small; look at what is still text. About 10 seconds.

# %% tags=["demo"]
same = {}  # (model, way): nats of each window, the same tokens rounded
for name, m in (("control", model), ("large channels", outlier)):
    for way, cache in WAYS.items():
        if name == "large channels" or way in ("per channel", "per token"):
            same[name, way] = new = losses(m, copy.deepcopy(cache)) - exact
            above = spread(new - same[name, "per channel"])
            print(f"{name}, keys {way}: {spread(new)}; above keys per channel {above}")
for way in ("channel", "token"):
    same["values", way] = new = losses(model, Blocks(way, which=1)) - exact
    print(f"values per {way}: {spread(new)}")
print("values per channel above per token:", spread(same["values", "channel"] - new))
for way, cache in {way: Rounded(2, way) for way in ("channel", "token")}.items():
    print(f"\n--- 2 bits, keys per {way}, with the window:\n{written(cache)}")

# %% [markdown]
# With the same tokens rounded the direction matters on the control too: the window had hidden it,
# because per token it keeps more keys exact. A null result is believed when nothing else differs.
#
# Large channels make the same effect many times as large, and what hurts is a *shared range*. There
# are several ways out of it. The fixed number repairs most here, and has to be known beforehand,
# from other text, here from prose. Turning needs no text; it shares the large channel out among
# all, so here, where it is 16 times as large, it repairs a part only (QuaRot and SpinQuant, 2024,
# and TurboQuant, 2025, are rotations; a real model's channels are for you to try). Groups of 8 take
# 4 bits of metadata for each code, 6 in all. A group per channel measures its range itself, every
# 32 tokens, for 3 bits in all, and makes tokens wait.
#
# Values per channel are no better: they have no large channels, and a token that gets little
# attention keeps its error to itself.
#
# KVQuant rounds keys *before* the rotary embedding (one large channel becomes two by it) and keeps
# 1 % of the values apart. The chapter has both for this model. The embedding cannot matter much
# here: our factor makes both channels of a pair large, before it and after it.
#
# ## 5. Misconceptions
#
# **"The cache saves memory."** It saves computing and costs memory: at long contexts and large
# batches more than the weights.
#
# **"A 70B model needs a larger cache than a 7B."** Not with 8 key heads.
#
# **"2 bits are 8 times smaller than 16."** Count metadata and window: your bits a value say it.
#
# **"Smaller caches decode faster."** Reading is what takes the time of a step at long contexts, so
# yes, with a kernel that reads the codes. Here each step decodes them all into floats first, and
# codes of 2 bits lie in bytes: `bits_held` counts what a kernel would store. (What servers store
# most is none of this, but 8-bit floats, which need no groups and no window.)
#
# **"With a cache a token always costs the same."** The matrices do. Attention still reads every
# key.
#
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1.** What does the cache cost, and what makes it smaller? Compare the four levers of
# section 3 at two memories that give different winners, and say for each memory why. Two levers are
# nowhere ahead of 8 key heads: which, and why can they not be?
# *Rubric:* the formula of a token's bytes, with key heads (1); the bytes of a token of your model
# (1); the counts of all four levers at two memories (1); that smaller weights win while weights
# fill the memory, and a smaller cache once there is room (1); the two levers that never win, with
# their factors beside that of 8 key heads (1).

# %% [markdown] written="w1"
# A token takes 2 L H_kv d values: 512 KiB for Llama-2-7B in 16 bits, so 4096 tokens are 2 GiB. With
# 13 GiB the weights (12.6) leave no room for one sequence: with weights in 4 bits 4 fit, with 8 key
# heads 3, since two matrices shrink too, with a cache in 4 bits or half the context none. With 24
# GiB it is 5 as it is, 10 with weights in 4 bits, 11 with half the context, 18 with a cache in 4
# bits (5 with metadata) and 25 with 8 key heads. So smaller weights win while the weights fill the
# memory; once there is room, what divides the cache multiplies the sequences. Half the context and
# the cache in 4 bits are nowhere ahead of 8 key heads: they divide the cache by 2 and by 3.2, these
# by 4, and the weights shrink besides.

# %% [markdown]
# **Question 2.** In which direction should one round keys, in which values, and why is there a
# window? Which experiment shows it, and what does one learn without the large channels?
# *Rubric:* the direction of keys and that of values (1); large channels, and whose range they set
# (1); your numbers for both directions with large channels (1); those without, from the comparison
# that rounds the same tokens, and why the window would hide it (1); why a group along time makes
# tokens wait (1).

# %% [markdown] written="w2"
# Keys per channel, values per token. Some channels of the keys are large in all tokens. Per token
# they set the range of the whole group, and the small channels lose their levels; per channel each
# has a range of its own. At 2 bits with large channels, the same tokens rounded, keys per token
# added 2.87 nats and keys per channel 0.03. Without large channels it was 0.08 and 0.03, 0.05 ±
# 0.01 more, so the direction matters there too, only less. With the window the two looked alike
# there (0.01 ± 0.01), because per token the newest 32 keys are always exact and per channel 16 of
# them on average. Values have no such channels, and per token each can be rounded when it leaves
# the window. A group along time is complete only after G tokens, so the newest keys wait in
# floating point.

# %% [markdown]
# ## An open task (not graded)
#
# **The best loss on the model with large channels, at no more bits than keys per channel in 2 bits
# take.** Window and metadata count, as in `bits_a_value`: the mean over 225 to 256 tokens. Ideas:
# other groups, fewer bits for values than for keys, layers of unequal width, the first token apart.
# The number to beat is the one above: keys per channel, 2 bits, large channels.
#
# ## Stretch (not graded)
#
# - **The last of unequal rows.** Three prompts of unequal length in one batch through `RowCache`:
#   give the model `positions` and `mask`. Each row must write what it writes alone.
# - **Which heads share?** Pool heads that read the same directions instead of neighbours (section 3
#   prints the pairs), and turn one into the other's basis first. Does it help?
# - **Train on.** 200 steps with 3 key heads: how much of the loss comes back?
# - **A config of your own.** `cache_bytes` on the `config.json` of a model that you use.
#
# ## Report and takeaways

# %% tags=["demo"]
lab.report()
takeaways = [
    f"Llama-2-7B: {bytes_per_token(LLAMA_7B) / KiB:.0f} KiB a token; a 70B with 8 key heads "
    f"{bytes_per_token(GQA_70B) / KiB:.0f}.",
    f"Token 1000 against token 100: {found['grow']:.1f} times without a cache, "
    f"{found['flat']:.1f} times with the model's.",
    f"The best of four levers: {'; '.join(f'{n} GiB, {x}' for n, x in found['lever'].items())}.",
    f"3 of 6 key heads, untrained: loss {found['heads'][3]:.2f} in place of {found['float']:.2f}.",
    f"2 bits, large key channels: {added['large channels', 'token'].mean():+.2f} nats per token, "
    f"{added['large channels', 'channel'].mean():+.2f} per channel.",
    f"The same tokens rounded, without large channels: per token "
    f"{spread(same['control', 'per token'] - same['control', 'per channel'])} above per channel.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))

# %% [markdown]
# **Next:** lab 6 puts the cache into blocks, lab 7 drops tokens from it, lab 9 cuts it back.
#
# **Sources.** Pope et al., *Efficiently Scaling Transformer Inference*, 2022 (arXiv:2211.05102).
# Shazeer, *Fast Transformer Decoding: One Write-Head is All You Need*, 2019 (arXiv:1911.02150).
# Ainslie et al., *GQA*, 2023 (arXiv:2305.13245). DeepSeek-AI, *DeepSeek-V2*, 2024
# (arXiv:2405.04434). Liu et al., *KIVI*, 2024 (arXiv:2402.02750). Hooper et al., *KVQuant*, 2024
# (arXiv:2401.18079). Rotations: Ashkboos et al., *QuaRot*, 2024 (arXiv:2404.00456); Liu et al.,
# *SpinQuant*, 2024 (arXiv:2405.16406); Zandieh et al., *TurboQuant*, 2025 (arXiv:2504.19874). The
# figures of section 1: MIT 6.5940, lecture on LLM deployment.
