# %% [markdown]
# # Lab 7: Attention sinks
#
# ![Perplexity along a text, times that with everything kept, for two caches of twelve tokens. When
# they are full, one is several times as high, the other rises far
# less.](../../course/figures/lab07/opening.svg)
#
# **The question.** A model reads a text that never ends. Memory is bounded, so only the last keys
# and values are kept. All goes well until the cache is full, and then the model breaks, although it
# loses just one token, the oldest, which says nothing about the text. Keep that one beside the most
# recent ones, and most of the harm is gone. **What was in that token, and how can a text without
# end be read in bounded memory?**
#
# At the end you answer it with your own numbers. The answer is graded.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 and a half hours, 3 of them exercises |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | what a KV cache is ([lab 6](../lab06_paged_attention/) has one); softmax; classes |
# | Not covered | eviction by importance (lab 12), writing a kernel (lab 08), longer contexts |
#
# After this lab you can
# 1. compute attention maps from a model's weights, and say with a number how much a sink takes;
# 2. build a window, a recomputing reader and StreamingLLM, and count exactly what each costs;
# 3. say with a spread whether a cache is better than another, and which control decides it.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions and classes by
# name, so keep names and arguments as they are. Answer predictions in their field; where no field
# is shown, by `lab.answer("collapse", 2)`.
#
# ## Map and notation
#
# Section 1, where attention goes: exercise 1. Section 2, two caches of bounded size: 2 and 3.
# Section 3, the repair: 4 and 5. Section 4, models that need none: 6. Section 5: all of it live.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | T, L | ints | `tokens`, `size` | tokens of the text; tokens that the cache holds |
# | p | [H, T, T] | `p` | attention map: rows are queries, columns keys |
# | k, v | [B, Hkv, T, d] | `k`, `v` | keys and values of T new tokens |
# | R_n | | `rotate(x, n, theta)` | rotary embedding: x turned as at the positions n |
# | ids | [B, T], int64 | `ids` | tokens; `zoo.BEGIN_ID`, `<s>`, comes first |
#
# ### Rules for all exercises
#
# Functions of this lab do not change their arguments, which may be views that are not contiguous.
# Caches (exercises 2 and 4) change themselves, that is what they are for, but not what they are
# given. Only the weights of exercise 1 and what exercise 6 takes may require a gradient.

# %%
import math
from collections.abc import Callable, Collection
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib import zoo
from efflib.lab import Lab
from efflib.models.rotary import rotate
from efflib.plots import attention, explorer, style

lab = Lab("lab07_attention_sinks")

SIZE = 12  # tokens that a bounded cache holds
found = {}  # the numbers you find, for the takeaways at the end

# %% [markdown]
# ## Baseline
#
# The course's model reads pieces of held-out code, each after the begin token. `texts` are eight of
# them. With all keys and values kept, its perplexity and what they weigh:

# %% tags=["demo"]
from efflib.models.cache import KVCache
from efflib.models.llama import sdpa
from efflib.zoo.windows import Scale, windows

model, tokenizer = zoo.load("target"), zoo.load_tokenizer()
theta = model.config.rope_theta
texts = windows("code", True, Scale(8, 1, 0, length=120), seed=0)  # [8, 121]
with torch.no_grad():
    logits = model(texts[:, :-1], cache=(full := KVCache()))
losses = F.cross_entropy(logits.transpose(1, 2), texts[:, 1:], reduction="none")  # [8, 120]
found["dense"] = losses[:, 40:].mean().exp().item()
print(f"perplexity {found['dense']:.2f} of the tokens from 40 on, with everything kept")
weight = sum(x.nbytes for x in full.keys + full.values)
print(f"{weight / 1024:.0f} KB for {texts.shape[0]} texts of {full.length} tokens")
print("\nWhat it writes:\n" + zoo.sample(model, zoo.PROMPTS[1], tokens=60))

# %% [markdown]
# ## 1. Where attention goes
#
# Softmax makes every query spend a total of exactly 1:
#
# $$ p_{tj} = \frac{e^{s_{tj}}}{\sum_{i \le t} e^{s_{ti}}}, \qquad
# s_{tj} = \frac{(R_t q_t) \cdot (R_j k_j)}{\sqrt d}, \quad j \le t $$
#
# A head that finds nothing to look at cannot spend 0. What does it do? One number answers:
# the **share** of a token is the mean of its column over the queries from `first` on.

# %%
# the formula on four scores: one large number takes all, and the others keep their ratios
s = torch.tensor([6.0, 1.0, 0.0, 2.0])
print([round(x, 4) for x in s.softmax(0).tolist()], "with the first key")
print([round(x, 4) for x in s[1:].softmax(0).tolist()], "without it")
lab.predict(
    "first",
    "The head that looks at the begin token most: what share of its attention goes there?",
    unit="%",
)
lab.predict(
    "collapse",
    f"Keep only the last {SIZE} keys and values. How many times as high is the perplexity, "
    "compared with a cache of the same size that never drops the first token? (The picture above "
    "compares with everything kept.)",
    unit="times",
)

# %% [markdown]
# ### Exercise 1 · Maps and shares
#
# **30 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** three functions.
#
# - `attention_map(x, w_q, w_k, heads, theta) -> p`: the map of one layer for one text. `x` [T, D]
#   (T ≥ 1) is what its attention reads, and `w_q` [H d, D], `w_k` [Hkv d, D] are its weights:
#   the query of a token is `w_q @ x[t]`, and head h has its rows h d to (h + 1) d - 1. Token t
#   stands at position t; `rotate(q, positions, theta)` turns q [B, H, T, d]. Query head h looks at
#   key head h // (H / Hkv). No query sees a later key. Compute in float32, whatever the dtype of x
#   and of the weights, each on its own; `p` [H, T, T] is float32. Scores may have any size, also
#   those of later keys. The weights may be a model's parameters, which require a gradient; whether
#   p then carries one is up to you.
# - `share(p, token, first) -> [H]`: the mean of column `token` over the queries `first`,
#   `first + 1`, ... of p [H, T, S]: T queries and S keys, which here may be two numbers.
#   `ValueError` if p has no such column, or no such query. Negative numbers are none.
# - `even_share(queries, first) -> float`: the share of token 0 for a head that spreads its
#   attention evenly over what it sees, in a text of so many tokens. Derive it: nothing is given but
#   that query t sees t + 1 keys. `ValueError` if there is no query `first`.


# %% solution="ex1"
def attention_map(x: Tensor, w_q: Tensor, w_k: Tensor, heads: int, theta: float) -> Tensor:
    """Attention map of a layer from what it reads and its own weights: [H, T, T] float32."""
    ### BEGIN SOLUTION
    T, d, places = len(x), w_q.shape[0] // heads, torch.arange(len(x), device=x.device)
    q, k = (
        rotate((x.float() @ w.float().T).view(1, T, -1, d).transpose(1, 2), places, theta)
        for w in (w_q, w_k)
    )  # [1, H, T, d], [1, Hkv, T, d]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    scores = (q @ k.transpose(-1, -2))[0] / math.sqrt(d)  # [H, T, T]
    seen = places <= places[:, None]
    return scores.masked_fill(~seen, -math.inf).softmax(-1)
    ### END SOLUTION


def share(p: Tensor, token: int, first: int) -> Tensor:
    """Mean attention of the queries from `first` on to one token; p [H, T, S] -> [H].

    Raises ValueError for a token or a first query that p does not have.
    """
    ### BEGIN SOLUTION
    if not (0 <= token < p.shape[2] and 0 <= first < p.shape[1]):
        raise ValueError(f"p {tuple(p.shape)} has no token {token} or no query {first}")
    return p[:, first:, token].mean(-1)
    ### END SOLUTION


def even_share(queries: int, first: int) -> float:
    """The share of token 0 if every query spreads its attention evenly.

    Raises ValueError unless there is a query `first`.
    """
    ### BEGIN SOLUTION
    if not 0 <= first < queries:
        raise ValueError(f"a text of {queries} tokens has no query {first}")
    return sum(1 / (t + 1) for t in range(first, queries)) / (queries - first)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** All queries at once are one matrix product; cut into heads they are a view, and the
# heads must come before the tokens when `rotate` gets them. What no query may see gets the score
# -inf *before* the softmax.
#
# **By hand.** Three queries, and a head that spreads evenly: rows 1 0 0, 1/2 1/2 0, 1/3 1/3 1/3.
# The share of token 0 from query 1 on is (1/2 + 1/3) / 2 = 0.4167; from query 0 on it would be
# 0.6111. That is why `first` is there.
#
# **The usual errors.** `view(heads, T, d)` without a transpose: it mixes tokens and heads. `repeat`
# in place of `repeat_interleave`. Zeros in place of -inf: e^0 is 1. Later keys cut off behind the
# softmax: one with a far larger score has left nothing for the others. The mean of all of
# `p[:, :, token]`: the queries before `first` are in it.
# </details>
#
# **Reveal.** Your map for every layer: what each layer reads is caught on the way. And the same
# shares without the begin token: is it the *place* that attracts, or the token? (A first answer;
# section 3 moves the token to another place.)

# %% tags=["demo", "fold"]


@torch.no_grad()
def all_maps(ids: Tensor) -> Tensor:
    """Your maps of every layer for ids [1, T]: [layers, H, T, T]."""
    maps, heads = [], model.config.num_attention_heads
    hooks = [
        layer.self_attn.register_forward_pre_hook(
            lambda attn, a: maps.append(
                attention_map(a[0][0], attn.q_proj.weight, attn.k_proj.weight, heads, theta)
            )
        )
        for layer in model.model.layers
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(maps)


def mean_shares(rows: Tensor) -> Tensor:
    """Your share of the first token, the mean over texts: [layers, H]."""
    each = [torch.stack([share(p, 0, 32) for p in all_maps(ids[None])]) for ids in rows]
    return torch.stack(each).mean(0)


def three_heads(maps: Tensor, shares: Tensor) -> dict[str, Tensor]:
    """Maps of the heads that look most widely (by entropy), at the token before, at the first."""
    entropy = -(maps * maps.clamp(min=1e-9).log()).sum(-1).mean(-1)  # [layers, H]
    near = maps.diagonal(-1, 2, 3).mean(-1)
    found = (divmod(int(x.argmax()), shares.shape[1]) for x in (entropy, near, shares))
    return {f"layer {i}, head {h}": maps[i, h, :48, :48] for i, h in found}


@torch.no_grad()
def hidden_of_first() -> list[float]:
    """How long the hidden state of the first token is behind each layer, in medians of all."""
    seen, layers = [], model.model.layers
    hooks = [layer.register_forward_hook(lambda m, a, out: seen.append(out)) for layer in layers]
    model(texts[:, :-1])
    for hook in hooks:
        hook.remove()
    return [(h[:, 0].norm(dim=-1) / h.norm(dim=-1).median()).mean().item() for h in seen]


def show_head(layer: str, head: str):
    """One map, large."""
    p = maps[int(layer.split()[1]), int(head.split()[1]), :64, :64]
    return attention.maps({f"{layer}, {head}": p}, "One head, one text")


# %% tags=["demo"]
maps = all_maps(texts[:1])
shares, bare = mean_shares(texts), mean_shares(texts[:, 1:])  # without the begin token
found |= {"first": 100 * shares.max().item(), "even": 100 * even_share(texts.shape[1], 32)}
title = "Looking most widely, most at the token before, at the first"
style.show(*attention.maps(three_heads(maps, shares), title))
title = f"One head gives the first token {found['first']:.0f} % of its attention"
style.show(*attention.layers(shares, title, found["even"] / 100))
print(f"most without the begin token in front: {100 * bare.max():.0f} %")
sizes = torch.stack([v[:, :, :1].norm(dim=-1) / v.norm(dim=-1).median() for v in full.values])
print(f"its value is {sizes.min():.2f} to {sizes.max():.2f} times as long as a layer's median")
print("its hidden state, layer by layer:", ", ".join(f"{x:.1f}" for x in hidden_of_first()))
lab.reveal("first", found["first"])
counts = zip(("layer", "head"), shares.shape, strict=True)
explorer.explorer(show_head, {name: [f"{name} {i}" for i in range(n)] for name, n in counts})

# %% [markdown]
# The maps are the first 48 queries of one text; shares are means over queries from 32 on, in eight.
# The share of a head that spreads its attention evenly is the dashed line. In Llama-2-7B the first
# token takes most of the attention in nearly all heads above the first two layers (Xiao et al.,
# figure 2). In our small model it does in few heads, when 120 tokens are in view; section 3
# measures it again with twelve, where it matters.
#
# **Then write one sentence** for question 1 at the end: the begin token says nothing about the
# text. Why is it *this* token that heads of several layers have come to look at?
#
# *Your sentence:*
#
# ## 2. Caches of bounded size
#
# The obvious cure for memory is a **window**: keep the last L keys and values.
#
# ### Exercise 2 · The window
#
# **25 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `WindowCache`. The model calls `append` of one and the same cache once in
# every layer, layer 0 first, for every token (or for a few tokens together, as a prompt; one token
# or more). Memory is the point: however long the text, all tensors that the cache keeps alive weigh
# at most four times `size` tokens of each layer.
#
# | call | does |
# |---|---|
# | `WindowCache(size)` | an empty cache; `ValueError` for a size below 1 |
# | `append(layer, k, v) -> (k, v)` | takes new ones, returns those to attend to |
# | `length` (a property) | how many tokens have been **seen**: the model turns the next one by it |
# | `bytes()` | what the kept keys and values of all layers weigh |
#
# - `k`, `v` [B, Hkv, T, d] are new; the keys are turned by their position in the text. Returned are
#   the last `size` of all that came to this layer, in the order of the text, the new ones included.
#   That is also what is kept.
# - `ValueError` if T > size, in whichever layer: then nothing has changed, and the text may go on.
# - What was returned stays as it is when the cache goes on. Two caches know nothing of each other.
#   `k` and `v` themselves may be kept: nobody changes them afterwards, and they are no small parts
#   of larger tensors.
# - `length` grows when layer 0 has taken the tokens, also while the other layers still wait.
# - `bytes()` counts numbers times their width of those last `size`, in any dtype; keys and values
#   may have two. 0 for an empty cache. (The room of a buffer is not counted; the limit above is for
#   that.)


# %% solution="ex2"
class WindowCache:
    """The last `size` keys and values of every layer."""

    def __init__(self, size: int) -> None:
        ### BEGIN SOLUTION
        if size < 1:
            raise ValueError(f"size={size} must be at least 1")
        self.size, self.seen = size, 0
        self.keys, self.values = {}, {}  # by layer [B, Hkv, <= size, d]
        ### END SOLUTION

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k, v [B, Hkv, T, d]; return the last `size` of this layer.

        Raises ValueError for more than `size` new tokens, in any layer; nothing has changed then.
        """
        ### BEGIN SOLUTION
        if k.shape[2] > self.size:
            raise ValueError(f"{k.shape[2]} new tokens, but size is {self.size}")
        if layer == 0:
            self.seen += k.shape[2]
        for kept, new in ((self.keys, k), (self.values, v)):
            both = torch.cat([kept[layer], new], dim=2) if layer in kept else new
            kept[layer] = both[:, :, -self.size :]
        return self.keys[layer], self.values[layer]
        ### END SOLUTION

    @property
    def length(self) -> int:
        """How many tokens have been seen."""
        ### BEGIN SOLUTION
        return self.seen
        ### END SOLUTION

    def bytes(self) -> int:
        """Bytes of all kept keys and values."""
        ### BEGIN SOLUTION
        kept = [*self.keys.values(), *self.values.values()]
        return sum(x.numel() * x.element_size() for x in kept)
        ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Each layer has its own two tensors. Put the new ones behind the old ones along the
# dimension of tokens, and keep the end of it.
#
# **By hand.** size 3, one token at a time, a b c d: returned are a, a b, a b c, b c d. Seen: 4.
# Then two together, e f: d e f. A model with two layers calls `append` twice for each of
# these; `length` is 6 and not 12.
#
# **The usual errors.** `length` as the number of kept tokens: then every new key is turned as at
# position `size`, though the older ones are not. `[-size:]` along the wrong dimension. A buffer
# that is written over, while somebody still holds what was returned.
# </details>
#
# **Reveal.** The model reads eight texts token by token through your cache. The figure has the
# perplexity over that with everything kept, for the same tokens: the mean over texts and over the
# last four tokens.


# %% tags=["demo"]
@torch.no_grad()
def read(cache, ids: Tensor) -> Tensor:
    # losses [B, T] of ids [B, 1 + T], read one token at a time
    logits = torch.cat([model(token, cache=cache) for token in ids[:, :-1].split(1, 1)], dim=1)
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


window = WindowCache(SIZE)
through = read(window, texts)


def along(a: Tensor, b: Tensor, of: int = 4) -> list[float]:
    """Perplexity of a over that of b along the text: the mean over texts and `of` tokens."""
    return (a - b).mean(0).unfold(0, of, 1).mean(-1).exp().tolist()


title, curve = f"A window of {SIZE}: what happens when it is full?", along(through, losses)
label = "perplexity, times that\nwith everything kept"
style.show(*attention.along({"window": curve}, {SIZE: "full"}, title, 4, label))
print(f"window {through[:, 40:].mean().exp():.2f}, everything kept {found['dense']:.2f}")
print(f"{window.bytes() / 1024:.0f} KB in place of {weight / 1024:.0f} KB")

# %% [markdown]
# Two things are mixed in this curve: a window has less to look at than the whole text, which is no
# surprise and grows with the text, and something else breaks at once. To tell them apart, compare
# caches of one size. One candidate is **recomputation**: for every token the model reads the last L
# tokens anew, from position 0 on. Nothing is kept but the ids. In the paper this reads well;
# whether it does in our model is measured in section 3, with your code.
#
# ### Exercise 3 · Recomputation, and what it costs
#
# **25 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** two functions.
#
# - `recomputed(forward, ids, size) -> logits [T, V]`: the logits after each token of `ids` [T],
#   from the last `size` tokens only (fewer at the beginning). `forward(window)` is the model: ids
#   [1, n] to logits [1, n, V], whose dtype yours have. Call it once for each token, in the order of
#   the text. T and `size` are at least 1.
# - `cost(way, tokens, size) -> (forwarded, scores)`: what reading a text costs, in exact ints.
#   `forwarded`: how many tokens go through the model, summed over its passes. `scores`: how many
#   products of a query and a key a head computes, summed as well; a query has one with each key
#   that it sees, its own included. Ways: `"dense"` (a cache that keeps everything; `size` has no
#   meaning, and may be 0), `"window"` and `"recompute"` (`size` is at least 1); `ValueError` for
#   others. `tokens` may be 0, or smaller than `size`, and both may be 10^15: so derive a closed
#   form, no loop.


# %% solution="ex3"
def recomputed(forward: Callable[[Tensor], Tensor], ids: Tensor, size: int) -> Tensor:
    """Logits [T, V] after each of ids [T], each from the last `size` tokens, computed anew."""
    ### BEGIN SOLUTION
    rows = []
    for t in range(len(ids)):
        window = ids[max(0, t + 1 - size) : t + 1]
        rows.append(forward(window[None])[0, -1])
    return torch.stack(rows)
    ### END SOLUTION


def cost(way: str, tokens: int, size: int) -> tuple[int, int]:
    """(tokens through the model, products of a query and a key) of reading a text.

    Raises ValueError for an unknown way.
    """
    ### BEGIN SOLUTION
    if way == "dense":
        return tokens, tokens * (tokens + 1) // 2
    n = min(tokens, size)  # windows of 1, 2, ... n tokens, then all of n
    seen = n * (n + 1) // 2 + (tokens - n) * n
    if way == "window":
        return tokens, seen
    if way == "recompute":
        return seen, n * (n + 1) * (n + 2) // 6 + (tokens - n) * (n * (n + 1) // 2)
    raise ValueError(f"way={way!r} is not known")
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** A text has two parts: while the window fills up, and when it is full. Add up 1 + 2 + ...
# over the first part; the second is a product. For recomputation each pass is a small dense reading
# of its own, so its scores are again a sum 1 + 2 + ..., and you add up such sums.
#
# **By hand.** Five tokens, size 3: windows of 1, 2, 3, 3, 3 tokens. A window cache sends 5 tokens
# through the model and computes 1 + 2 + 3 + 3 + 3 = 12 scores. Recomputation sends 12 tokens, and
# computes 1 + 3 + 6 + 6 + 6 = 22 scores. Dense: 5 tokens, 15 scores.
#
# **The usual errors.** `ids[-size:]`, the end of the text for every token. The window without the
# token itself. T L for the scores of a window, as if it were full from the start. `/` in place of
# `//`: a float has 53 bits.
# </details>

# %% tags=["demo"]
T, L = 4_000_000, 1024  # the paper's longest text, and a cache of its size
for way in ("dense", "window", "recompute"):
    forwarded, scores = cost(way, T, L)
    print(f"{way:10s} {forwarded:15,} tokens through the model, {scores:22,} scores a head")
found["recompute"] = cost("recompute", T, L)[0] / cost("window", T, L)[0]

# %% [markdown]
# In the lecture's words: T², T L and T L².
#
# **Then write one sentence:** from about which length of text on does recomputation compute fewer
# scores than dense reading, and why does it lose all the same? (An answer is folded behind the next
# cell.)
#
# *Your sentence:*
#
# ## 3. The repair
#
# Keep the first few tokens besides the last ones: **StreamingLLM**. There is one difficulty. After
# a thousand tokens the text goes on at position 1000, and the first token stands at 0. The model
# has never seen such a distance. So positions are given **in the cache**, not in the text: the
# cache keeps keys that are *not turned*, and turns them by their place when they are read.
#
# $$ \text{kept: } 0, 1, 2, 3,\; 96, 97, 98, 99 \qquad
# \text{positions: } 0, 1, 2, 3,\; 4, 5, 6, 7 $$

# %%
# only distances count: the product of a query and a key, both moved by 50 places
q, k = torch.randn(2, 1, 1, 1, 8)
for m, n in ((7, 3), (57, 53), (57, 3)):
    turned = [rotate(x, torch.tensor([place]), 1e4) for x, place in ((q, m), (k, n))]
    print(f"query at {m}, key at {n}: {(turned[0] * turned[1]).sum():.4f}")
EARLY = ["lower: an old token is worth more than one more recent one", "not lower"]
lab.predict(
    "early",
    f"One token is kept for ever beside the last {SIZE - 1}, but not the first: token 5, 9 or 14. "
    f"The perplexity, compared with a window of {SIZE}?",
    options=EARLY,
)

# %% [markdown]
# <details><summary>The length from which on recomputation computes fewer scores</summary>
#
# T L² / 2 against T² / 2: from about T = L² on, a million tokens for L = 1024. It loses because
# attention is only part of the work. All the rest is done per token, and there it pays L times for
# what a cache pays once.
# </details>
#
# ### Exercise 4 · StreamingLLM
#
# **40 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** a class `StreamingCache`.
#
# | call | does |
# |---|---|
# | `StreamingCache(size, pinned, theta)` | an empty cache that will keep the tokens `pinned` |
# | `keeps_raw_keys = True` | tells the model to hand over keys that are not turned |
# | `append(layer, k, v) -> (k, v)` | takes new ones, returns those to attend to |
# | `tokens()` | the numbers in the text of the kept tokens, ascending: a new list of ints |
# | `length` (a property) | how many tokens are **kept** |
# | `next_position` (a property) | the position of the query of the next single token |
#
# - `pinned` is any collection of token numbers: `range(4)` for four sinks, `()` for a window,
#   `{5, 9}` for a control; a number that comes twice is one token. A pinned token stays for ever
#   once it has come; until then it takes no place, and it may never come. Nobody changes `pinned`
#   afterwards. `ValueError` from the constructor unless `size` is larger than the number of pinned
#   tokens.
# - However long the text, all tensors that the cache keeps alive weigh at most four times `size`
#   tokens of each layer. Layers are called as in exercise 2.
# - If there is no place for a single new token, the oldest one that is not pinned leaves.
# - Several tokens together (a prompt) must find place without any leaving, or it is a `ValueError`
#   in whichever layer, and nothing has changed.
# - `append` returns all kept tokens of this layer in the order of the text: keys [B, Hkv, n, d]
#   turned by their place among those, 0 to n - 1, and values as they came. Keys stay in the dtype
#   in which they came, and so do values, which may be another.
# - In exercise 2 the model took positions from `length`, so it had to count what was seen. Here it
#   asks for `next_position` instead.
# - `next_position` is not given here. Before a token goes through the layers, the model asks for
#   it, and turns the new query by it. The query must stand where its own key will stand.
# - What was returned stays as it is, and so do `k` and `v`, which may be kept as in exercise 2. Two
#   caches know nothing of each other: each has its own size, pinned tokens and theta.
# - `tokens()`, `length` and `next_position` say what layer 0 has, also while the other layers still
#   wait for the token.


# %% solution="ex4"
class StreamingCache:
    """The pinned tokens and the most recent others; positions are places in the cache."""

    keeps_raw_keys = True

    def __init__(self, size: int, pinned: Collection[int], theta: float) -> None:
        ### BEGIN SOLUTION
        if len(set(pinned)) >= size:
            raise ValueError(f"size={size} must be larger than the number of pinned {pinned}")
        self.size, self.pinned, self.theta = size, set(pinned), theta
        self.numbers, self.keys, self.values = {}, {}, {}  # by layer
        self.seen = {}
        ### END SOLUTION

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take k (not turned) and v [B, Hkv, T, d]; return all that is kept, keys turned.

        Raises ValueError for several tokens that find no place.
        """
        ### BEGIN SOLUTION
        new, numbers = k.shape[2], self.numbers.get(layer, [])
        if new > 1 and len(numbers) + new > self.size:
            raise ValueError(f"{new} tokens, but {len(numbers)} of {self.size} places are taken")
        keep = list(range(len(numbers)))
        if len(numbers) + new > self.size:
            keep.remove(next(i for i in keep if numbers[i] not in self.pinned))
        start = self.seen.get(layer, 0)
        self.seen[layer] = start + new
        self.numbers[layer] = [numbers[i] for i in keep] + list(range(start, start + new))
        for kept, fresh in ((self.keys, k), (self.values, v)):
            old = kept[layer][:, :, keep] if layer in kept else fresh[:, :, :0]
            kept[layer] = torch.cat([old, fresh], dim=2)
        places = torch.arange(len(self.numbers[layer]), device=k.device)
        return rotate(self.keys[layer], places, self.theta), self.values[layer]
        ### END SOLUTION

    def tokens(self) -> list[int]:
        """Numbers of the kept tokens in the text, ascending."""
        ### BEGIN SOLUTION
        return list(self.numbers.get(0, []))
        ### END SOLUTION

    @property
    def length(self) -> int:
        """How many tokens are kept."""
        ### BEGIN SOLUTION
        return len(self.tokens())
        ### END SOLUTION

    @property
    def next_position(self) -> int:
        """Where the query of the next single token stands."""
        ### BEGIN SOLUTION
        return min(self.length, self.size - 1)
        ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Keep, for each layer, a list of token numbers beside the keys and values: what leaves is
# found in the list, and the same places are taken from all three. Turn a copy on return; what you
# keep stays raw.
#
# **By hand.** size 4, pinned 0. Tokens 0 to 3 fill the cache. Token 4: the oldest that is not
# pinned is 1, so 0 2 3 4 stay, at the places 0 1 2 3. Where was the query of token 4 to stand? Its
# key is at place 3, so 3; for token 2 it was 2. Then 0 3 4 5, again at 0 1 2 3.
#
# **The usual errors.** Turned keys kept and turned again in the next step. `tokens()` used as
# places. Old keys dropped in layer 0 and not in the others. `next_position` one too far as soon as
# the cache is full: every distance is then off by one.
# </details>
#
# ### Exercise 5 · A fair ablation
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A perplexity from eight texts has a large spread: some texts are easy. Two caches on the *same*
# texts can be compared much better than either can be measured.
#
# **Deliver** two functions.
#
# - `stream_losses(step, ids) -> losses [B, T - 1]`: `step(token)` takes the next tokens [B, 1] of
#   all texts and returns logits [B, 1, V], in float32 or bfloat16, of any size. Losses are -ln p of
#   every token of `ids` [B, T] (T ≥ 2) but the first, in float32. No token is read that is not
#   needed: `step` is called T - 1 times.
# - `compare(a, b) -> (ratio, low, high)`: losses [n, T] (T ≥ 1) of two caches on the same n texts,
#   in float32 or float64, of any size: a difference that the digits of float64 show counts. `ratio`
#   is the perplexity of a over that of b, over all tokens together. `low` and `high` say how far to
#   trust it: the natural logarithm of the ratio has a value for each text alone; take the standard
#   error of their mean (with n - 1), and go two of them down and up. Three floats, none so large
#   that a float could not hold it. `ValueError` unless a and b have two dimensions and the same
#   shape, and for fewer than two texts.
#
# Decide what is averaged before what. With a = b + 1 everywhere the result has no spread at all.


# %% solution="ex5"
def stream_losses(step: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """-ln p of ids[:, 1:], one token read at a time: [B, T - 1] float32."""
    ### BEGIN SOLUTION
    losses = []
    for t in range(ids.shape[1] - 1):
        logits = step(ids[:, t : t + 1])[:, -1].float()  # [B, V]
        losses.append(F.cross_entropy(logits, ids[:, t + 1], reduction="none"))
    return torch.stack(losses, dim=1)
    ### END SOLUTION


def compare(a: Tensor, b: Tensor) -> tuple[float, float, float]:
    """(ratio of the perplexities of a and b, two standard errors below, two above).

    Losses [n, T] of the same n texts.  Raises ValueError for other shapes and for n < 2.
    """
    ### BEGIN SOLUTION
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError(f"two losses [n, T] with n >= 2: {tuple(a.shape)}, {tuple(b.shape)}")
    per_text = (a.double() - b.double()).mean(1)  # [n]
    middle, error = per_text.mean(), per_text.std() / math.sqrt(len(a))
    return tuple(float((middle + k * error).exp()) for k in (0, -2, 2))
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** A ratio of perplexities is e to the difference of mean losses. Take the difference token
# by token, where both caches had the same text; what is left differs from text to text much less
# than the losses do.
#
# **By hand.** Two texts of two tokens, a = (2, 5), (6, 8) and b = (2, 3), (5, 5). Differences: 0, 2
# and 1, 3. Per text 1 and 2, mean 1.5: the ratio is e^1.5 = 4.48. Their standard deviation is
# 0.707, the error 0.707 / √2 = 0.5, so from e^0.5 = 1.65 to e^2.5 = 12.18. The losses alone
# have means 3.5 and 7: nothing could be said from them.
#
# **The usual errors.** The mean of ratios in place of the ratio. The standard deviation in place of
# the error, or over all tokens as if neighbours were independent. A variance as the mean of squares
# less the square of the mean: where nothing spreads it may fall below 0. A softmax in bfloat16. The
# last token read although nothing follows it.
# </details>
#
# **Reveal.** 0, 1 and 4 first tokens and the most recent ones, always twelve in all, through your
# code. And the controls that a sceptic asks for:
#
# - *early + 11*: one early token that is not the first, beside as many recent ones as one sink has;
# - *line break*: a line break stands in place of `<s>`, and is kept. Is it the place?
# - *`<s>` at 5*: `<s>` stands behind the first five tokens, and is kept. Is it the token?
# - *value 0*, *key 0*: one sink, but its values or its keys are set to zero in every layer;
# - *recompute*: your exercise 3 with the last 12 tokens, and with `<s>` in front of the last 11;
# - *scaled*: a repair **without** any sink. When `<s>` leaves, the weight that it took goes to the
#   other keys, and what a head gives grows. So take the window, and multiply every head's output by
#   one number, 1 - its share of `<s>` in the cache of twelve, measured on other texts.
#
# **What was in that token?** Nothing of the text: no token stands before it, so its keys and values
# are the same numbers in all texts. The last cell checks that, and then does what no memory could
# survive: a window of eleven has long lost `<s>`, and at token 60 these constants, taken from
# another text, are put back in front of it.

# %% tags=["demo"]
# about 5 s
FIRST = 40  # losses from here on count: all early tokens have left every window


@torch.no_grad()
def streamed(pinned, kind: type = StreamingCache, ids: Tensor = texts, size: int = SIZE) -> Tensor:
    """Losses of all tokens, through your cache."""
    return stream_losses(partial(model, cache=kind(size, pinned, theta)), ids)


def said(ratio: tuple[float, float, float]) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio)


runs = {f"{n} + {SIZE - n}": streamed(range(n)) for n in (0, 1, 4)}
early = {token: streamed((token,)) for token in (5, 9, 14)}
runs["early + 11"] = sum(early.values()) / 3
window, one = runs[f"0 + {SIZE}"], runs[f"1 + {SIZE - 1}"]

# %% tags=["demo"]


class NoValue(StreamingCache):
    """The values of token 0 are zero."""

    zero = 1  # of the pair (keys, values)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        pair = list(super().append(layer, k, v))
        first = torch.tensor(self.tokens())[:, None] == 0
        pair[self.zero] = pair[self.zero].masked_fill(first, 0.0)
        return tuple(pair)


runs["value 0"] = streamed((0,), NoValue)
runs["key 0"] = streamed((0,), type("NoKey", (NoValue,), {"zero": 0}))
[newline] = tokenizer.encode("\n").ids
runs["line break"] = streamed((0,), ids=texts.index_fill(1, torch.tensor([0]), newline))
moved = torch.cat([texts[:, 1:6], texts[:, :1], texts[:, 6:]], dim=1)
runs["<s> at 5"] = streamed((5,), ids=moved)

# %% tags=["demo"]


@torch.no_grad()
def anew(front: list[int], size: int) -> Tensor:
    """Losses by your recomputation, for all texts at once: its `ids` are places in them."""

    def forward(places: Tensor) -> Tensor:  # [1, n] -> the logits of all texts, [1, n, 8 V]
        return model(texts[:, [*front, *places[0].tolist()]]).transpose(0, 1).flatten(1)[None]

    rows = recomputed(forward, torch.arange(FIRST - size + 1, texts.shape[1] - 1), size)
    logits = rows[size - 1 :].unflatten(1, (len(texts), -1))  # [T, 8, V]
    lost = F.cross_entropy(logits.permute(1, 2, 0), texts[:, FIRST + 1 :], reduction="none")
    return F.pad(lost, (FIRST, 0))


runs["recompute"], runs["<s>, recompute"] = anew([], SIZE), anew([0], SIZE - 1)

# %% tags=["demo", "fold"]


BACK = 60


class PutBack(StreamingCache):
    """From token BACK on, the constants of `<s>` stand before the first place."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().append(layer, k, v)
        if self.tokens()[-1] < BACK:
            return keys, values
        key, value = full.keys[layer][:1, :, :1], full.values[layer][:1, :, :1]
        key = rotate(key, torch.tensor([-1]), theta).expand(len(keys), -1, -1, -1)
        return torch.cat([key, keys], 2), torch.cat([value.expand_as(key), values], 2)


def noting(scores: list[Tensor]):
    """Attention that notes a query's scores with the keys of the cache."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        wide = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        scores.append((q @ wide.transpose(-1, -2))[:, :, 0] / math.sqrt(q.shape[-1]))
        return sdpa(q, k, v, mask)

    return attend


def in_model(functions, pinned, ids: Tensor = texts) -> Tensor:
    """Losses through your cache, with an attention function for each layer."""
    for layer, function in zip(model.model.layers, functions, strict=True):
        layer.self_attn.attention = function
    try:
        return streamed(pinned, ids=ids)
    finally:
        model.set_attention(sdpa)


# %% tags=["demo"]
practice = windows("code", True, Scale(8, 1, 0, length=120), seed=2)
notes = [[] for _ in model.model.layers]
in_model([noting(note) for note in notes], (0,), practice)
scores = torch.stack([torch.stack(note[FIRST:]) for note in notes])  # [layers, T, B, H, 12]
rests = scores.softmax(-1)[..., 0].mean((1, 2))  # [layers, H]: shares of `<s>`
print(f"`<s>` among {SIZE}: {rests.mean():.0%} on average, evenly {1 / SIZE:.0%}; ", end="")
print(f"over half in {(rests > 0.5).sum()} of {rests.numel()} heads")
smaller = [lambda q, k, v, m, f=f: sdpa(q, k, v, m) * f[:, None, None] for f in 1 - rests]
runs["scaled"] = in_model(smaller, ())

# %% tags=["demo"]
ratios = {name: compare(run[:, FIRST:], one[:, FIRST:]) for name, run in runs.items()}
for name, ratio in ratios.items():
    print(f"{name:15s} {runs[name][:, FIRST:].mean().exp():6.2f}, times one sink {said(ratio)}")
for token, run in early.items():
    ratio = compare(run[:, FIRST:], window[:, FIRST:])
    print(f"token {token} and the last 11, times the window {said(ratio)}")
found |= {name: ratios[name] for name in ("value 0", "key 0", "line break", "<s> at 5", "scaled")}
found["window"] = ratios[f"0 + {SIZE}"]
found["early"] = compare(runs["early + 11"][:, FIRST:], window[:, FIRST:])
title = f"A window is about {found['window'][0]:.0f} times worse than one sink and eleven tokens"
controls = list(runs)[3:]
style.show(*attention.caches(ratios, title, controls=controls, ylabel="perplexity, times one sink"))
lab.reveal("collapse", found["window"][0])
lab.reveal("early", EARLY[0] if found["early"][2] < 1 else EARLY[1])

# %% tags=["demo"]
print(max((x[:, :, 0] - x[:1, :, 0]).abs().max().item() for x in full.keys + full.values), "apart")
back = streamed((), PutBack, size=SIZE - 1)
curves = {"window of 11, put back": along(back, one), "window of 12": along(window, one)}
marks = {SIZE: "full", BACK: "put back"}
title = "The constants of the begin token, put back after 48 tokens"
style.show(*attention.along(curves, marks, title, 4, "perplexity, times one sink"))
for name, start, stop in (("before", FIRST, BACK), ("behind", BACK + 6, 120)):
    found[name] = compare(back[:, start:stop], one[:, start:stop])
    print(f"tokens {start} to {stop}: times one sink {said(found[name])}")
with torch.no_grad():
    logits = model(texts[:, 1:-1]).transpose(1, 2)
bare = F.cross_entropy(logits, texts[:, 2:], reduction="none")[:, FIRST - 1 :]
found["bare"] = compare(bare, losses[:, FIRST:])
print(f"everything kept: without <s> over with it {said(found['bare'])}")

# %% [markdown]
# Intervals are two standard errors either way; with eight texts they cover about 91 %, not 95.
#
# **What the controls say.** Compare with your own numbers.
#
# - *Not memory.* Another early token beside the same eleven recent ones reads no better than the
#   window, and the constants, put back from another text, repair it within a few tokens.
# - *The token, not its place.* A line break in the place of `<s>` does nothing, and `<s>` behind
#   five tokens does as well as in front. In the paper it is the other way round: four line breaks
#   in place of the first tokens give 5.60 beside 5.40. Those models saw texts that begin anywhere,
#   and learned to rest on a place; every text of ours began with one and the same token.
# - *Its key, not its value.* With values of zero most of the repair is there, with keys of zero
#   nothing.
# - *Outputs that are too large.* One number a head and no sink at all does nearly as much as a sink
#   without values. So most of the collapse is not that a head looks at the wrong tokens, but that
#   it adds too much of them. (The chapter has the same numbers given to other heads: that does
#   less.)
# - *Not old keys.* Recomputation has none, and collapses like the window, until `<s>` stands in
#   front. In the paper it does not collapse, for the reason above.
#
# **What stays open.** Without `<s>` and with everything kept the model reads quite well, though no
# head then gives the first token much. So a sink is needed when little else is in view. Attention
# that has no place to rest falls on few tokens where few are there, and evens out over many; or a
# short view without `<s>` is just what the model has never seen in training. To tell these apart,
# models must be trained in another way; section 4 has some.
#
# More sinks do not help here, with as many tokens in all, nor with as many recent ones (the chapter
# has both). The paper's caches are a hundred times as long:
#
# | cache | 0 sinks | 1 | 2 | 4 | 8 |
# |---|---|---|---|---|---|
# | Llama-2-7B, 4096 | 3359.95 | 11.88 | 10.51 | 9.59 | 9.54 |
# | Falcon-7B, 2048 | 17.90 | 12.12 | 12.12 | 12.12 | 12.12 |
# | Pythia-12B, 2048 | 21.62 | 11.95 | 12.09 | 12.09 | 12.02 |
#
# (Xiao et al., table 2; Llama-2-13B with 1024 goes from 5158.07 to 5.40 with four sinks.) Our model
# is small and saw little text, so the collapse is a factor and not an explosion.
#
# **Then write one sentence:** the values of `<s>` matter little, its key does. What does the key do
# for the *other* tokens when it is kept? (Question 1 asks for it.)
#
# *Your sentence:*
#
# ## 4. Models that need no sink
#
# A head must look somewhere because probabilities sum to 1. Two changes of a model let it rest.
# Put a token of its own in front of every text and train with it (a **learnable sink token**: our
# begin token is one). Or let the softmax spend less than 1:
#
# $$ p_j = \frac{e^{s_j}}{e^{b} + \sum_i e^{s_i}} $$
#
# With b = 0 this is the softmax with an **extra zero**; with a number b for each head that is
# learned, it is what gpt-oss has in every layer; with b = -∞ it is the plain softmax. The sink
# without values above was such a softmax too: b was its score.

# %%
# the formula on three scores, for three biases
s = torch.tensor([1.0, 0.0, 2.0])
for b in (-math.inf, 0.0, 3.0):
    p = s.exp() / (math.exp(b) + s.exp().sum())
    print(f"b = {b}: {[round(x, 3) for x in p.tolist()]}, in all {p.sum():.3f}")

# %% [markdown]
# ### Exercise 6 · A softmax that may rest
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** two functions.
#
# - `sink_softmax(scores, bias) -> p`: the formula for every row. `scores` [B, H, T, S], `bias` [H],
#   one for each head; `p` [B, H, T, S]; all of one dtype: float32, float64 or bfloat16. S ≥ 1.
#   Scores and biases may be as large as 1e4 either way. A masked score is -inf: its p is 0. A row
#   without any key is all 0 (for finite b). A head with a bias of -inf has the plain softmax,
#   whatever the other heads have. In bfloat16 p may be off by roundings, a few hundredths of
#   itself, but a sum must not stop growing: there may be hundreds of keys.
# - `sink_attention(q, k, v, mask, bias) -> out` [B, H, T, d]: attention with it. q [B, H, T, d]; k,
#   v [B, Hkv, S, d], in float32 or float64; query head h has key and value head h // (H / Hkv).
#   `mask` [T, S] bool, True where a key is seen. Scores are divided by √d. All that is said of rows
#   and sizes above holds here too: a row without any key gives 0.
# - Both can be trained: gradients reach scores and bias (q, k, v and bias). For finite b they are
#   numbers, also in rows without any key and for the largest scores and biases.


# %% solution="ex6"
def sink_softmax(scores: Tensor, bias: Tensor) -> Tensor:
    """exp(s_j) / (exp(b) + sum of exp(s_i)); scores [B, H, T, S], bias [H]."""
    ### BEGIN SOLUTION
    b = bias.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]
    ### END SOLUTION


def sink_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
    """Attention of q [B, H, T, d] over k, v [B, Hkv, S, d] with a bias for each head."""
    ### BEGIN SOLUTION
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # [B, H, T, S]
    return sink_softmax(scores.masked_fill(~mask, -math.inf), bias) @ v
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** e^b is one more term of the denominator. So it is the plain softmax over a row with one
# more score, b, of which you throw one column away.
#
# **By hand.** Scores ln 1, ln 3 and b = ln 4: the terms are 1, 3 and 4, so p = 1/8, 3/8, and half
# of the attention goes nowhere. With scores of -inf only: 0 and 0.
#
# **The usual errors.** The formula as it stands: e^89 is no float32. The largest *score* taken off
# and b forgotten: with scores of -1e4 and b = 0, the row must be 0, and e^(b - max) overflows. The
# same b for all heads, or b in a row for each token. `bias.item()`: no gradient.
# </details>
#
# **Reveal.** Your softmax in the shipped model, which was never trained with it: a window without
# `<s>`, and for each of the 36 heads one number b, the mean score that `<s>` had with its queries
# on the other texts of above. Beside it b = 0 for all.

# %% tags=["demo"]


def resting(biases: Tensor) -> list:
    """Your attention for each layer; biases [layers, H]."""
    return [lambda q, k, v, mask, b=b: sink_attention(q, k, v, mask, b) for b in biases]


learned = scores[..., 0].mean((1, 2))  # [layers, H]
runs = {"window": window, "scaled": runs["scaled"], "value 0": runs["value 0"]}
runs |= {"b = 0": in_model(resting(0 * learned), ()), "b a head": in_model(resting(learned), ())}
ratios = {name: compare(run[:, FIRST:], one[:, FIRST:]) for name, run in runs.items()}
title = "One number for each head in the softmax repairs most of the window"
style.show(*attention.caches(ratios, title, ["scaled"], "perplexity, times one sink"))
found["b a head"] = ratios["b a head"]
print(", ".join(f"{name} {said(ratio)}" for name, ratio in ratios.items()))

# %% [markdown]
# No token, no training, and most of the collapse is gone; but b must be the head's own. (One of the
# twelve places is free, so a recent token more is kept than beside a sink. That helps a little: the
# chapter has the same with eleven.)
#
# And how does a sink come into a model? **Watch one grow.** The task (Guo et al., 2024): tokens
# follow a chain, but after some *trigger* tokens the token before comes again. One layer with one
# head: the MLP learns the chain, and the head is needed after triggers only. Elsewhere it has
# nothing to say. Two models of one size: with a begin token in front (a learnable sink token), and
# without.

# %% tags=["demo", "fold"]
from efflib.zoo import backcopy

task = backcopy.make_task(seed=0)
chains = backcopy.sample(task, 48, 24, torch.Generator().manual_seed(1000))  # [48, 25]
late = ~task.is_trigger[chains[:, 13:-1]]  # queries where the head is not needed


@torch.no_grad()
def late_queries(net, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Late queries: your maps of the only head [48, n, T], and how much it gives [48, n]."""
    attn = net.model.layers[0].self_attn
    x = net.model.layers[0].input_layernorm(net.model.embed_tokens(ids))
    weights = attn.q_proj.weight, attn.k_proj.weight
    p = torch.cat([attention_map(row, *weights, 1, net.config.rope_theta) for row in x])
    given = (p @ attn.v_proj(x)).norm(dim=-1)
    return p[:, -late.shape[1] :], given[:, -late.shape[1] :]


# %% tags=["demo"]
# about 5 s for each of two models
nets, curves = {}, {}


def grow(name: str, steps: int = 300) -> None:
    """Train a model of one head, and note how its first token's share grows."""
    net, begin = backcopy.one_head_model(seed=0), name == "begin token"
    curves[name] = [], []
    for step, _ in backcopy.train(net, task, steps, begin=begin):
        if step == 1 or step % 50 == 0:
            curves[name][0].append(step)
            p, _ = late_queries(net, chains[:, 0 if begin else 1 : -1])
            curves[name][1].append(p[..., 0][late].mean().item())
    nets[name] = net.eval()


grow("begin token")

# %% tags=["demo"]
grow("no sink")
style.show(*attention.training(curves, "A sink grows on the begin token, and only there"))
for name, net in nets.items():
    p, given = late_queries(net, (chains if name == "begin token" else chains[:, 1:])[:, :-1])
    entropy = -(p * p.clamp(min=1e-9).log()).sum(-1)[late].mean()
    found[name] = p[..., 0][late].mean().item()
    print(f"{name}: idle queries give the first token {found[name]:.2f}, ", end="")
    print("look as widely as ", end="")
    print(f"{entropy.exp():.1f} tokens evenly; output {given[late].mean():.2f}, ", end="")
    print(f"after triggers {given[~late].mean():.2f}")

# %% tags=["demo"]
idle = late / late.sum(1, keepdim=True)  # [48, T]: the mean over a text's idle queries
for name, net in nets.items():
    ids, rows = chains if name == "begin token" else chains[:, 1:], {}
    for kept, pinned in (("all", range(99)), ("window", ()), ("first", (0,)), ("other", (2,))):
        cache = StreamingCache(100 if kept == "all" else 8, pinned, net.config.rope_theta)
        with torch.no_grad():
            lost = stream_losses(partial(net, cache=cache), ids)[:, -late.shape[1] :]
        rows[kept] = (lost * idle).sum(1, keepdim=True)  # [48, 1]
    found[f"loses {name}"] = compare(rows["window"], rows["all"])
    over = [f"{kept} {said(compare(rows[kept], rows['all']))}" for kept in list(rows)[1:]]
    print(f"{name}: {', '.join(over)}")

# %% [markdown]
# The ratios are perplexities after idle queries, through caches of 8 over those with everything
# kept, two standard errors over texts.
#
# Idle queries of the first model rest on the begin token: that is a sink, grown in a few hundred
# steps. Evict it, and the loss rises; keeping another early token does not repair that.
#
# But look at the second model. It has the plain softmax and no begin token, and it loses as good as
# nothing in a window. So a sink grows where one is offered, and is then needed; where none is, the
# model finds another way, and the cell before shows which: its idle queries look widely, and what
# the head then gives is as small as that of a head that rests. One reading: values of many tokens
# cancel in a mean. A window of 8 leaves enough of them. All this is one seed of training each, and
# a small task; with other seeds a window costs the first model more or less (the chapter has three,
# and models with an extra zero and a learned bias).
#
# The paper trained models of 160 M parameters; perplexities with 1024 places:
#
# | model | 0 first tokens | 1 | 2 | 4 |
# |---|---|---|---|---|
# | vanilla | 27.87 | 18.49 | 18.05 | 18.05 |
# | extra zero | 29214 | 19.90 | 18.27 | 18.01 |
# | learnable sink token | 1235 | 18.01 | 18.01 | 18.02 |
#
# (Xiao et al., table 3.) With a token made for it, one is enough. A large model with an extra zero
# still grew a sink: it *may* rest on the zero, but nothing makes it.
#
# In the course's own small models of these designs, only the one with a token made for it loses
# anything with it (the chapter on the models has the table). So it is not softmax alone that
# breaks: it is a model that has learned to lean on one token. In models as small as these, no sink
# has grown where none was made; in large ones it has.
#
# **Where this went.** Clipped softmax and gates were proposed against heads that do nothing already
# in 2023 (Bondarenko et al.). Since then sinks were tied to a few *massive activations* (Sun et
# al., 2024), followed through training (Gu et al., 2025), explained as a use that large models make
# of the first token (Barbero et al., 2025), and removed by a gate on the head's output (Qiu et al.,
# 2025), which Qwen3-Next has. A gate multiplies a head's output by a number, as *scaled* did above,
# but by one that each query chooses. (The hidden state of `<s>`, which you printed in section 1, is
# a small kin of massive activations: some times as long as the median one.)
#
# **Then write one sentence:** a head could also learn to look at a token whose value is zero. Why
# does a window hurt such a model, and a model with a learned bias not? (Folded behind section 5.)
#
# *Your sentence:*
#
# ## 5. Your code in the live model
#
# The model goes on writing past the end of a cache of 12: with everything kept, with your window,
# with one sink, eight samples each. A model that breaks repeats itself, so count how many of the
# last 40 tokens differ, in each sample; the first sample is printed.


# %% tags=["demo"]
@torch.no_grad()
def write(cache, tokens: int = 70) -> Tensor:
    # at temperature 0.7: [8, all tokens]
    generator = torch.Generator().manual_seed(3)
    ids = torch.tensor([zoo.BEGIN_ID, *tokenizer.encode(zoo.PROMPTS[1]).ids]).expand(8, -1)
    logits = [model(token, cache=cache) for token in ids.split(1, 1)][-1]
    for _ in range(tokens):
        drawn = torch.multinomial((logits[:, -1] / 0.7).softmax(-1), 1, generator=generator)
        ids, logits = torch.cat([ids, drawn], 1), model(drawn, cache=cache)
    return ids


kept = {"window": WindowCache(SIZE), "one sink": StreamingCache(SIZE, (0,), theta)}
for name, cache in {"everything": KVCache(), **kept}.items():
    text = write(cache)
    differ = sorted(len(set(row)) for row in text[:, -40:].tolist())
    print(f"--- {name}, of 40 tokens differ {differ}\n{tokenizer.decode(text[0, 1:].tolist())}\n")

# %% [markdown]
# <details><summary>Why a window hurts a model with a sink, and not one with a bias</summary>
#
# The token is in the cache, and can be evicted; then its weight falls on tokens whose values are
# not zero. The bias is a weight of the model: no cache can lose it.
# </details>
#
# ## 6. Misconceptions
#
# **"StreamingLLM gives the model a longer context."** It does not. What has left the cache is
# forgotten; ask about it, and the model does not know. It only does not break.
#
# **"The first tokens matter because they say what the text is about."** Then another early token
# would do something of the kind, and a sink without values nothing. Constants from another text
# repaired the window of section 3. (Nor is it always the *place*: in the paper it is, in this model
# it is the token. You measured both.)
#
# **"Softmax needs a sink."** A model that was trained with one does, most of all when it sees
# little else. The others above do not.
#
# **"Keep the positions of the text, they are the true ones."** Then the distance to the sink grows
# without end, and at last it is one that the model has never seen. Beyond the lengths of its
# training nothing is promised.
#
# ### Open task (not graded)
#
# **A better cache of the same size.** Which tokens would you keep? The number to beat is that of
# one sink, printed below. Ideas: pin the tokens that get most attention (H2O, lab 12), line breaks,
# or definitions; but decide before the token leaves, and from what has been seen.


# %% tags=["demo"]
class Mine(StreamingCache):
    """Yours. It starts as one sink."""


cache = Mine(SIZE, (0,), theta)
with torch.no_grad():
    mine = stream_losses(partial(model, cache=cache), texts)[:, FIRST:]
ratio, low, high = compare(mine, one[:, FIRST:])
found["open"] = mine.mean().exp().item()
print(f"one sink {one[:, FIRST:].mean().exp():.2f}, yours {found['open']:.2f}: ", end="")
print(f"{ratio:.3f} times ({low:.3f} to {high:.3f})")

# %% [markdown]
# ## 7. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** A window breaks when its first token leaves. What was in
# that token, and how can a text without end be read in bounded memory? What is lost all the same?
# *Rubric:* why a head rests on a token (1); why the first is it, with a share from your run (1);
# the window's collapse and the repair in your numbers (1); what two controls rule out, and what
# stays open (1); what is forgotten (1).

# %% [markdown] written="w1"
# A softmax must spend 1, also in a head that has nothing to look at. Such heads can learn to leave
# it on a token that every query sees and whose value does little. In this model's training that was
# the begin token: in my run the head that does it most gives it 70 % of its attention, where an
# even spread would be below 2 %. Nothing of the text is in it: its keys and values are the same in
# all texts. Without it a window has about 3 times the perplexity of a cache of the same size that
# keeps it; one sink and the last eleven tokens are enough, if keys are turned by their place in the
# cache. One other early token is no better than the window, so it is not memory of the beginning;
# a line break in its place is no better either, so it is this token and not the place. With its
# values set to zero most of the repair remains (1.2 times one sink), so it is mainly a place for
# attention. That outputs scaled by one number a head repair most (1.3) says that heads give too
# much without it. It stays open whether softmax as such needs that: with everything kept the model
# reads rather well without the token, and a model trained without it needs none. All that has left
# the cache is forgotten: the context is not longer.

# %% [markdown]
# **Question 2.** A colleague measures 20.1 for a window on ten texts, 18.9 for sinks on ten others,
# and writes "sinks are 6 % better". Another uses the same texts for both and reports the standard
# deviation over all tokens. What is wrong with each, and what would you report? And which further
# caches must be in the table before anybody may speak of *sinks*?
# *Rubric:* different texts, spread between texts (1); tokens of a text are not independent, and a
# deviation is no error (1); paired differences per text, with an error, with a ratio and spread of
# your run (2); a control with another early token and as many recent ones (1).

# %% [markdown] written="w2"
# Texts differ more than caches do: with other texts the 6 % may be the texts. The second has the
# right texts, but a standard deviation says how far single tokens spread and not how well the mean
# is known, and tokens of one text are not independent, so their number is not the number of
# measurements. I take the difference of the losses token by token, average it in each text, and
# give the mean over texts with two standard errors: in my run the window has 3 times the perplexity
# of one sink (2.4 to 3.9). Before anybody says sinks, other early tokens must be tried in their
# place, beside as many recent ones: if they helped as much, any old context would do. In my run one
# of them is no better than the window. I add the sink with a value of zero: it shows whether the
# token is needed for what it says or as a place for attention.

# %% [markdown]
# ## Stretch (not graded)
#
# - **In blocks.** Sinks and paged memory (lab 6): the first block stays, the others go round. How
#   many blocks of B tokens are held at most, for L tokens of which n are sinks? The chapter has the
#   answer.
# - **Long prompts.** Let several tokens push others out in one `append`. What must `next_position`
#   be then? Only distances count: who has to move, the sinks or the others?
# - **When does it grow?** Train with other seeds (`grow` above), or with a value that cannot become
#   small: does the sink still grow?
#
# **Next:** lab 12 chooses what to keep by attention, lab 18 joins caches into an engine.
#
# **Sources.** Xiao et al., *Efficient Streaming Language Models with Attention Sinks*, 2023
# (arXiv:2309.17453). Guo et al., *Active-Dormant Attention Heads*, 2024 (arXiv:2410.13835). Miller,
# *Attention is off by one*, 2023. OpenAI, *gpt-oss*, 2025. MIT 6.5940, lecture on long contexts. On
# what came since, see the end of section 4; the chapter has the titles.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo"]
lab.report()
f = found
takeaways = [
    f"A head gives the first token {f['first']:.0f} % of its attention; evenly: {f['even']:.1f} %.",
    f"Times one sink: a window {said(f['window'])}, another early token {said(f['early'])} of it.",
    f"Value zero {said(f['value 0'])}, key zero {said(f['key 0'])}.",
    f"A line break in its place {said(f['line break'])}, <s> elsewhere {said(f['<s> at 5'])}.",
    f"Constants from another text, put back: from {said(f['before'])} to {said(f['behind'])}.",
    f"No sink: outputs scaled {said(f['scaled'])}, a b for each head {said(f['b a head'])}.",
    f"Recomputation in windows of 1024 sends {f['recompute']:.0f} times the tokens.",
    f"Idle queries look at a begin token: {f['begin token']:.2f}; without one: {f['no sink']:.2f}.",
    f"A window's cost: {said(f['loses begin token'])}; without one {said(f['loses no sink'])}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
