# %% [markdown]
# # Lab 16: Adapters and prompts
#
# ![Loss on three tasks for the frozen model, for two ways A and B of training 2560 numbers, and for
# training all 640 thousand. On all three B is below A.](../../course/figures/lab16/opening.svg)
#
# **The question.** A and B both train 2560 numbers of one model, 0.4 % of it, in the same steps. A
# is a method that is widely used. B is 2560 weights, drawn by lot. B has the lower loss on all
# three tasks, and can be folded into the model, after which it costs nothing. Still many servers
# would take A. **Which way of adapting do you choose, for what, and what do you know about its
# quality?**
#
# Section 5 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | what attention and a key-value cache are; helpful: lab 10 (LoRA) |
# | Not covered | prompts in words; mixtures of adapters; encoder-decoder models |
#
# After this lab you can
# 1. put an adapter behind a frozen layer, vectors before a text, and keys into a cache;
# 2. run rows with different prompts in one batch, and say why each equals that row alone;
# 3. bill any of these ways for a model you only know the shape of, and choose by rule.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Answer predictions in their field; where no field is shown, by
# `lab.answer("wins", 5)`. Seconds that a cell announces are those of a quiet machine.
#
# ## Map and notation
#
# Section 1, behind a layer: exercise 1. Section 2, before the text: 2 and 3. Section 3, in the
# weights: 4. Section 4, bills and choices: 5 and 6.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | $W$ | [N, K] | `weight` | frozen weight of an `nn.Linear`: N outputs, K inputs |
# | $D, L$ | | `hidden`, `layers` | width of the model, number of its blocks |
# | $H, H_{kv}, d$ | | `heads`, `kv_heads`, `head_dim` | query heads, key heads, size of one |
# | $m$ | | `m` | width of an adapter |
# | $p$ | [n, D] | `prompt` | trained vectors in place of embeddings |
# | $P$ | [L, 2, $H_{kv}$, n, d] | `prefix` | trained keys (0) and values (1) of each block |
# | $b$ | [N] | `bias` | what BitFit trains |
# | $S$ | [N, K] | `delta` | change of a few weights at random places |
#
# ### Rules for all exercises
#
# No function of this lab changes its arguments.

# %%
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.models.cache import KVCache
from efflib.models.embedded import logits_of_vectors
from efflib.plots import adapters as figures
from efflib.plots import explorer, placements, style

lab = Lab("lab16_adapters")

# %% [markdown]
# ## Baseline
#
# The model is the zoo's small one, 640 thousand parameters, which writes Python. Three tasks:
#
# - **C++**: the headers that torch carries, which it has never read. Every token counts.
# - **format**: a function's head, then the same as a line of JSON. The tokens of the JSON count.
# - **label**: 12 tokens of a text, then a digit: 0 C++, 1 Python, 2 English. The digit counts.
#
# Training is 30 steps of about 320 tokens. A *run* is one seed: it draws the training text and what
# starts at random. **Three runs of every way; the spread is the largest minus the smallest.** A
# difference of two means that is not larger than the larger of the two spreads is not called one.

# %% tags=["demo", "fold"]
# the model, the tasks, and helpers: three runs of a way on a task
from efflib.finetuning.tasks import BATCH, TASKS, Score, examples, score
from efflib.finetuning.training import finetune

base_model = zoo.load("draft").requires_grad_(False)
NAMES = [n for n, m in base_model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]
BEHIND = [n for n in NAMES if n.endswith(("o_proj", "down_proj"))]
STEPS, SEEDS = 30, (0, 1, 2)
held_out = {task: examples(task, "held out", 256, 0) for task in TASKS}
embed = base_model.model.embed_tokens
runs: dict[str, dict[str, list[Score]]] = {}  # way -> task -> a score for each seed
models: dict[tuple[str, str], nn.Module] = {}  # (way, task) -> the model of seed 0
found = {}  # the numbers you find, for the takeaways at the end


def train(make, task: str, rate: float, seed: int) -> nn.Module:
    """make(seed), trained on the task."""
    drawn = examples(task, "training", STEPS * BATCH[task], seed)
    batches, scored = drawn.ids.split(BATCH[task]), drawn.scored.split(BATCH[task])
    torch.manual_seed(seed)
    return finetune(make(seed), batches, rate, seed, scored=scored)[0]


def three_runs(way: str, make, tasks=TASKS, seeds=SEEDS) -> None:
    """Trains and scores; prints losses and shares of right tokens."""
    for task in tasks:
        trained = [train(make, task, RATES[way][task], seed) for seed in seeds]
        runs.setdefault(way, {})[task] = [score(m, held_out[task]) for m in trained]
        models[way, task] = trained[0]
        print(f"{way:15s} {task:7s} loss {shown(losses_of(way, task))}", end="")
        print(f"  right {shown([s.right for s in runs[way][task]], 2)}", flush=True)


def losses_of(way: str, task: str) -> list[float]:
    return [s.loss for s in runs[way][task]]


def shown(values: list[float], digits: int = 3) -> str:
    return placements.plus_minus(values, digits)


def trained_numbers(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def words(n: int, seed: int) -> Tensor:
    """n rows of the embedding: where prompts begin. [n, D]"""
    torch.manual_seed(seed)
    return base_model.model.embed_tokens.weight[torch.randint(2048, (n,))].clone()


class Prompted(nn.Module):
    """The frozen model behind your `joined` prompt; logits of the text alone."""

    def __init__(self, prompt: Tensor) -> None:
        super().__init__()
        self.base, self.prompt = copy.deepcopy(base_model), nn.Parameter(prompt.clone())

    def forward(self, ids: Tensor) -> Tensor:
        texts = list(self.base.model.embed_tokens(ids))
        x, positions, mask = joined([self.prompt] * len(ids), texts)
        logits = logits_of_vectors(self.base, x, positions=positions, mask=mask)
        return logits[:, len(self.prompt) :]


class Prefixed(nn.Module):
    """The frozen model with a prefix in your cache."""

    def __init__(self, prefix: Tensor) -> None:
        super().__init__()
        self.base, self.prefix = copy.deepcopy(base_model), nn.Parameter(prefix.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        return self.base(ids, cache=prefix_cache([self.prefix] * len(ids)))


def with_random(n: int, seed: int, names: list[str]) -> nn.Module:
    """A copy with your `SparseLinear` for n weights of the named layers."""
    model = copy.deepcopy(base_model)
    places = draw([model.get_submodule(name).weight.numel() for name in names], n, seed)
    for name, own in zip(names, places, strict=True):
        model.set_submodule(name, SparseLinear(model.get_submodule(name), own))
    return model


# the other layout: fillings between prompt and text; positions by column, or without the gap
def filled_between(prompts: list[Tensor], texts: list[Tensor], gap: bool):
    """(x, positions, mask) of rows filling, prompt, filling, text."""
    longest = max(len(t) for t in texts)
    blank = torch.full((1, texts[0].shape[1]), math.nan)  # marks a filling
    rows = [
        torch.cat([p, blank.expand(longest - len(t), -1), t])
        for p, t in zip(prompts, texts, strict=True)
    ]
    s = max(len(r) for r in rows)
    x = torch.stack([torch.cat([blank.expand(s - len(r), -1), r]) for r in rows])
    real = ~x.isnan().any(-1)  # [B, S]
    columns = torch.arange(s).expand_as(real)
    positions = columns if gap else (real.cumsum(1) - 1).clamp(min=0)
    mask = torch.ones(s, s, dtype=torch.bool).tril() & real[:, None, None, :]
    return x.nan_to_num(), positions, mask | torch.eye(s, dtype=torch.bool)


@torch.no_grad()
def folded(model: nn.Module, task: str, means: bool = False) -> nn.Module:
    """A copy with one linear layer in place of each layer and its adapter, by least squares.

    means: W as it was, and the mean of what the adapter adds as a bias.
    """
    drawn = examples(task, "training", 96, 5)
    made, inputs = copy.deepcopy(model), {}
    for name in BEHIND:

        def note(module, args, name=name):
            inputs[name] = args[0].flatten(0, -2).double()

        handle = model.get_submodule(name).register_forward_pre_hook(note)
        model(drawn.ids[:, :-1])
        handle.remove()
        x = torch.cat([inputs[name], torch.ones(len(inputs[name]), 1, dtype=torch.float64)], 1)
        old = model.get_submodule(name)
        base = old[0] if isinstance(old, nn.Sequential) else old
        change = old(inputs[name].float()).double() - base(inputs[name].float()).double()
        x = x[:, -1:] if means else x
        fit = torch.linalg.lstsq(x.T @ x + 1e-6 * torch.eye(x.shape[1]), x.T @ change).solution
        linear = nn.Linear(base.in_features, base.out_features)
        linear.weight.copy_(base.weight if means else base.weight + fit[:-1].T)
        linear.bias.copy_(fit[-1])
        made.set_submodule(name, linear)
    return made


def gain_left(changed: nn.Module, way: str, task: str) -> float:
    """Which part of the way's gain the changed model has."""
    frozen, whole = runs["frozen"][task][0].loss, runs[way][task][0].loss
    return (frozen - score(changed, held_out[task]).loss) / (frozen - whole)


@torch.no_grad()
def written(prompts: list[Tensor], rows: list[Tensor], new: int) -> tuple[Tensor, int]:
    """(the likeliest next ids [B, new], passes of the model), in one batch."""
    x, positions, mask = joined(prompts, [embed(r) for r in rows])
    cache, ids, passes = KVCache(), [], 0
    while True:
        logits = logits_of_vectors(base_model, x, cache, positions, mask)
        passes += 1
        ids.append(logits[:, -1].argmax(-1, keepdim=True))
        if len(ids) == new:
            return torch.cat(ids, 1), passes
        x, (positions, mask) = embed(ids[-1]), go_on(positions, mask)


tokenizer = zoo.load_tokenizer()
weights = sum(p.nbytes for p in base_model.parameters())


def layouts(prompts: list[Tensor], texts: list[Tensor]) -> dict[str, tuple]:
    """(x, positions, mask) of your batch, and of four others."""
    x, positions, mask = joined(prompts, texts)
    b, s = positions.shape
    return {
        "as you did": (x, positions, mask),
        "positions from the edge": (x, torch.arange(s).expand(b, s), mask),
        "a causal mask alone": (x, positions, torch.ones(s, s, dtype=torch.bool).tril()),
        "a gap before the text": filled_between(prompts, texts, True),
        "filling there, no gap": filled_between(prompts, texts, False),
    }


@torch.no_grad()
def plain(changed: nn.Module) -> nn.Module:
    """The arrays of a Llama alone: weights as they are now, no bias."""
    model = copy.deepcopy(base_model)
    for name in NAMES:
        layer = changed.get_submodule(name)
        w = layer(torch.eye(model.get_submodule(name).in_features)).T
        model.get_submodule(name).weight.copy_(w if layer.bias is None else w - layer.bias[:, None])
    return model


# learning rates: the best of a search by factors of about three, on text of its own, for each task
RATES = {
    "all weights": {"C++": 0.001, "format": 0.001, "label": 0.001},
    "adapter": {"C++": 0.01, "format": 0.03, "label": 0.3},
    "prompt": {"C++": 0.1, "format": 0.1, "label": 0.1},
    "prefix": {"C++": 0.3, "format": 0.3, "label": 1},
    "BitFit": {"C++": 0.03, "format": 0.1, "label": 0.03},
    "random": {"C++": 0.03, "format": 0.1, "label": 0.3},
    "last block": {"C++": 0.1, "format": 0.1, "label": 0.3},
}
# LoRA's three runs, which lab 10 builds
LORA = {  # r = 2 behind o_proj and down_proj: benchmarks/lab16_runs.py
    "C++": [4.031, 4.042, 4.034],
    "format": [0.339, 0.395, 0.369],
    "label": [1.09, 1.087, 1.061],
}

# %% tags=["demo"]
drawn = examples("format", "held out", 1, 3)
print(zoo.load_tokenizer().decode(drawn.ids[0, 1:].tolist()).strip())
for task in TASKS:
    seen = score(base_model, held_out[task])
    runs.setdefault("frozen", {})[task] = [seen]
    print(f"frozen {task:7s} loss {seen.loss:.2f}, right {seen.right:.0%}")
three_runs("all weights", lambda seed: copy.deepcopy(base_model).requires_grad_(), seeds=(0,))
lab.predict(
    "wins",
    "Training all weights lowers the loss of the three tasks. Five ways will follow, each with "
    "about 2560 numbers: 15 comparisons with training as many weights at random places. How many "
    "of the 15 does a way win by more than the spread?",
)

# %% [markdown]
# ## 1. Behind a layer
#
# An adapter stands in series: what a layer puts out goes through a bottleneck of width $m$, and its
# result is added. At first it shall do nothing, or the first steps are spent on repairing what it
# has broken. Four numbers: one output $y = 2$, $m = 1$, down 0.5, up 0 and then 3.

# %% tags=["demo"]
y4, down4 = torch.tensor([2.0]), torch.tensor([0.5])
low4 = F.gelu(y4 * down4)
for up in (0.0, 3.0):
    print(f"up {up}: {(y4 + up * low4).item():.4f};  d/d up {low4.item():.4f}", end="")
    print(f",  d/d down {(up * y4).item():.1f} times the slope of gelu")
lab.predict(
    "merge",
    "After training, one weight and one bias are fitted in place of each layer with its adapter, "
    "by least squares. Which part of the gain on the format is left?",
    unit="%",
)

# %% [markdown]
# ### Exercise 1 · An adapter that begins as the identity
#
# **25 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `Adapter` and `add_adapters`.
#
# $$ \mathrm{adapter}(y) = y + \mathrm{gelu}(y\, D^T + c)\, U^T + u $$
#
# - `Adapter(size, m)` is a module with exactly the parameters `down` [m, size], `down_bias` [m],
#   `up` [size, m] and `up_bias` [size], all float32. gelu is torch's exact one.
# - It **begins as the identity**: at the start `adapter(y)` equals `y` exactly, and yet training
#   can move it: the gradient of `up` is not zero at the start. Decide which of the four begin at
#   zero; what does not is drawn by torch, uniform in $\pm 1 / \sqrt{\mathrm{size}}$.
# - `y` stays in the dtype in which it comes; the bottleneck is computed in float32, and its result
#   is rounded to the dtype of `y` before or after the sum.
# - The gradient passes through the adapter to `y`.
# - `ValueError` unless `size` and `m` are at least 1.
# - `add_adapters(model, names, m)`: a copy of the model in which an adapter stands behind each
#   named `nn.Linear`, so that the layer's output goes through it (what follows in this notebook
#   expects `nn.Sequential(layer, adapter)` in the layer's place; tests do not). **Everything** else
#   is frozen, adapters that the model had before, too. The new ones are in the mode (training or
#   eval) of the layer they stand behind. Names are all different. The model that was given stays
#   as it was.
#
# **Shapes** `y` [..., size] float32 or bfloat16, perhaps a view; numbers up to $10^{37}$ in size.


# %% solution="ex1"
class Adapter(nn.Module):
    """A bottleneck that begins as the identity.  Raises ValueError unless size, m >= 1."""

    def __init__(self, size: int, m: int) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        if size < 1 or m < 1:
            raise ValueError(f"need size={size} and m={m} of at least 1")
        bound = 1 / math.sqrt(size)
        self.down = nn.Parameter(torch.empty(m, size).uniform_(-bound, bound))
        self.down_bias = nn.Parameter(torch.zeros(m))
        self.up = nn.Parameter(torch.zeros(size, m))
        self.up_bias = nn.Parameter(torch.zeros(size))
        ### END SOLUTION

    def forward(self, y: Tensor) -> Tensor:
        """[..., size] -> [..., size], in the dtype of y."""
        ### BEGIN SOLUTION
        low = F.gelu(y.float() @ self.down.T + self.down_bias)  # [..., m]
        return y + (low @ self.up.T + self.up_bias).to(y.dtype)
        ### END SOLUTION


def add_adapters(model: nn.Module, names: list[str], m: int) -> nn.Module:
    """A frozen copy of the model with a trainable adapter behind each named linear layer."""
    ### BEGIN SOLUTION
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        base = model.get_submodule(name)
        behind = nn.Sequential(base, Adapter(base.out_features, m).to(base.weight.device))
        model.set_submodule(name, behind.train(base.training))
    return model
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")

# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** The sum vanishes if what the bottleneck puts out is zero, and for that the last of its
# matrices and its bias are enough.
#
# **By hand.** size 1, m 1, y = 2, down 0.5, up 3, no biases: gelu(1) = 0.8413, so 2 + 2.5240 =
# 4.5240.
#
# **The usual errors.** All four at zero: gelu(0) = 0, so `up` gets no gradient, and with `up`
# at zero `down` gets none either. A small random `up`: nearly the identity is not the identity. A
# model that was given and changed: `set_submodule` on it and not on a copy. A new module is in
# training mode, whatever stands around it.
# </details>
#
# **Reveal.** Adapters with $m = 2$ behind `o_proj` and `down_proj` of both blocks, before their
# sums with the stream, as their authors place them. Nine runs, about 9 s.

# %% tags=["demo"]
three_runs("adapter", lambda seed: add_adapters(base_model, BEHIND, 2))
adapted = models["adapter", "format"]
print(trained_numbers(adapted), "numbers of", sum(p.numel() for p in base_model.parameters()))

# %% [markdown]
# **Can it be folded in?** With gelu left out, $W + U D W$ would be one weight. The trivial repair:
# what a layer with its adapter does on the training text, fitted by least squares with one weight
# and one bias. The control says what the same fit does to a layer whose adapter is the identity.


# %% tags=["demo"]
for task in TASKS:
    adapted = models["adapter", task]
    found["folded", task] = gain_left(folded(adapted, task), "adapter", task)
    found["means", task] = gain_left(folded(adapted, task, means=True), "adapter", task)
    print(f"{task:7s} folded: {found['folded', task]:.0%} of the gain is left", end="")
    print(f"; by a bias alone, the mean of what adapters add: {found['means', task]:.0%}")
before = score(base_model, held_out["format"]).loss
same = score(folded(add_adapters(base_model, BEHIND, 2), "format"), held_out["format"]).loss
print(f"control, adapters as they begin: loss {same:.3f}, frozen {before:.3f}")
lab.reveal("merge", round(100 * found["folded", "format"]))

# %% [markdown]
# **Then write one sentence:** an adapter does not fold exactly, and hardly loses by folding nearly.
# What would you check before you rely on that, and what does a folded adapter cost a server of many
# tasks?
#
# *Your sentence:*
#
# ## 2. Before the text
#
# A soft prompt is $n$ vectors that stand where embeddings stand. Nothing in the model changes, so
# rows of one batch may have different prompts. But then they have different lengths, and a batch
# is a rectangle. We fill up **on the left**: all rows end together, and go on together.

# %% tags=["demo"]
# two rows by hand: a prompt of 2 before a text of 3, and no prompt before a text of 2
print("row 0:  p  p  a  b  c     positions 0 1 2 3 4")
print("row 1:  .  .  .  d  e     positions - - - 0 1")
x4 = torch.tensor([[1.0, 2.0], [0.0, 2.0]])
print("softmax over a key of filling:", x4.softmax(-1)[1].tolist())
print("over nothing at all:", torch.full((2,), -math.inf).softmax(-1).tolist())
lab.predict(
    "positions",
    "A batch with right masks, in which all rows count their positions from the left edge of the "
    "rectangle. By how much is the largest logit of a short row off?",
)

# %% [markdown]
# ### Exercise 2 · Prompts of unequal length in one batch
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `joined(prompts, texts) -> (x, positions, mask)` and `go_on(positions, mask) ->
# (positions, mask)`.
#
# - Row $i$ is `prompts[i]` [$n_i$, D] before `texts[i]` [$t_i$, D]; $n_i$ may be 0, $t_i$ is at
#   least 1. All rows are filled up **on the left** to the longest, S.
# - `x` [B, S, D]: the rows, in the dtype of the texts (prompts have the same). Fillings are zeros.
#   Gradients reach prompts and texts.
# - `positions` [B, S] int64: the first vector of a row that is no filling stands at 0, the next at
#   1. At a filling any position from 0 to S - 1 will do.
# - `mask` [B, 1, S, S] bool, True where a query may see a key: a row sees its own vectors,
#   causally, and **no filling**. What a filling sees does not matter, but it must see something:
#   softmax over nothing is NaN, and NaN times 0 is NaN.
# - `ValueError` if there is no row, or not one prompt for each text.
# - `go_on`: one more token in every row, behind a batch whose keys are kept in a cache. From the
#   `positions` [B, T] and `mask` [B, 1, T, S] of the step before, those of the new one: [B, 1] and
#   [B, 1, 1, S + 1]. Fillings may be in them as above, at any position. It is called on its own
#   result, too, again and again.
#
# So each row of the batch has the logits of that row alone, now and for all tokens that follow.
#
# **Shapes** float32, float64 or bfloat16, all of one; D at least 1.


# %% solution="ex2"
def joined(prompts: list[Tensor], texts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """(x [B, S, D], positions [B, S], mask [B, 1, S, S]): prompts[i] before texts[i], on the right.

    Raises ValueError if there is no row, or not one prompt for each text.
    """
    ### BEGIN SOLUTION
    if not texts or len(prompts) != len(texts):
        raise ValueError(f"{len(prompts)} prompts for {len(texts)} texts")
    rows = [torch.cat(pair) for pair in zip(prompts, texts, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])
    s = int(lengths.max())
    x = torch.stack([F.pad(row, (0, 0, s - len(row), 0)) for row in rows])
    positions = torch.arange(s) - (s - lengths)[:, None]  # negative: filling
    causal = torch.ones(s, s, dtype=torch.bool).tril()
    mask = causal & (positions >= 0)[:, None, None, :]
    mask = mask | torch.eye(s, dtype=torch.bool)  # a filling sees itself
    return x, positions.clamp(min=0).to(x.device), mask.to(x.device)
    ### END SOLUTION


def go_on(positions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(positions [B, 1], mask [B, 1, 1, S + 1]) of the next token of every row."""
    ### BEGIN SOLUTION
    seen = mask[:, :, -1:]
    return positions[:, -1:] + 1, torch.cat([seen, torch.ones_like(seen[..., :1])], dim=-1)
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")

# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** With lengths $l_i$, the column $s$ of row $i$ stands at $s - (S - l_i)$. Where that is
# negative there is filling: clamp the position, and hide the key from all queries but itself.
#
# **By hand.** Lengths 5 and 2: row 1 has positions 0, 0, 0, 0, 1. Its query at column 4 sees
# columns 3 and 4; its query at column 1 sees column 1, itself. The next token of row 1 stands at 2
# and sees columns 3, 4 and 5.
#
# **The usual errors.** A causal mask alone: fillings are seen. A mask without the diagonal: NaN.
# Filling between prompt and text, because texts came filled from a tokenizer, and positions by
# column: then the text stands farther from its prompt than it should. In decoding, a new row of
# ones: fillings become visible with the first token that is written; or the number of columns as
# position, which opens a gap.
# </details>
#
# **Reveal.** Seven rows of unlike prompts and texts, each alone and in a batch: yours; with
# positions from the edge; with a causal mask alone; and with texts that were filled up first, as a
# tokenizer does it, so that filling lies between prompt and text. Then prompts of 20, trained, 10
# s.


# %% tags=["demo"]
prompts = [words(n, n) for n in (0, 3, 20, 7, 1, 0, 12)]
texts = [embed(held_out["C++"].ids[i, : 6 + 5 * i]) for i in range(7)]
both = zip(prompts, texts, strict=True)
alone = torch.stack([logits_of_vectors(base_model, torch.cat(p)[None])[0, -1] for p in both])
for way, (vectors, where, seen) in layouts(prompts, texts).items():
    logits = logits_of_vectors(base_model, vectors, positions=where, mask=seen)[:, -1]
    found["rows", way] = (logits - alone).abs().max().item()
    print(f"{way:24s} largest difference of a logit: {found['rows', way]:.2g}")
lab.reveal("positions", round(found["rows", "positions from the edge"], 2))

# %% [markdown]
# Positions from the edge shift a whole row, and rotary positions are relative: nothing happens. (A
# model with learned positions, or a row that runs over the end of their table, would not forgive
# it, and so the exercise asks for positions that are right.) What must not change is the distance
# of any two vectors of a row.

# %% tags=["demo"]
three_runs("prompt", lambda seed: Prompted(words(20, seed)), ("C++", "format"))

# %% tags=["demo"]
three_runs("prompt", lambda seed: Prompted(words(20, seed)), ("label",))
for count in (1, 2):  # control: nothing is trained, examples stand before the text
    for task in TASKS:
        shots = examples(task, "training", count, 7).ids[:, 1:].flatten()
        seen = score(Prompted(embed(shots)), held_out[task])
        found["examples", count, task] = seen.loss
        print(f"control: untrained, {count} before the text: {task} loss {seen.loss:.2f}")

# %% [markdown]
# ### Exercise 3 · Prefixes: trained keys and values
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# A soft prompt reaches a block only as what the blocks before made of it. Prefix tuning puts keys
# and values into **every** block's cache, as if $n$ tokens had been read.
#
# **Deliver** three functions.
#
# - `prefix_numbers(shape, n) -> int`: how many numbers a prefix of $n$ has. `shape` is a dict with
#   the whole numbers "layers", "hidden", "mlp", "heads", "kv_heads", "head_dim". Which of them
#   matter? `n` may be 0.
# - `prefix_cache(prefixes) -> KVCache`: a new cache for a batch of B rows that holds `prefixes[i]`
#   [L, 2, Hkv, n, d] in row i: keys (0) and values (1) of each block. The model then reads its text
#   with `cache=`: position, mask, everything else follows from the cache's length, n. Gradients
#   reach every prefix. Prefixes stay as they were, whatever is done with the cache later: it may be
#   cut (`truncate`) and added to. `ValueError` if there is none, or two differ in shape.
# - `prefix_of(model, prompt) -> prefix`: **derived**. Every soft prompt [n, D] is a prefix: which?
#   For any text, the model with it in its cache has exactly the logits that it has behind the
#   prompt (to rounding). The gradient reaches `prompt`.
#
# Given are `KVCache` (`append(layer, k, v)` takes keys and values [B, Hkv, T, d]; `.keys` and
# `.values` are lists, a tensor for each block) and `logits_of_vectors(model, x, cache)`, the model
# on vectors x [B, T, D].
#
# **Shapes** float32 or float64; n, L, Hkv, d at least 1 but for `prefix_numbers`.


# %% solution="ex3"
def prefix_numbers(shape: dict[str, int], n: int) -> int:
    """How many numbers a prefix of n positions has."""
    ### BEGIN SOLUTION
    return n * shape["layers"] * 2 * shape["kv_heads"] * shape["head_dim"]
    ### END SOLUTION


def prefix_cache(prefixes: list[Tensor]) -> KVCache:
    """A cache with prefixes[i] [L, 2, Hkv, n, d] in row i.

    Raises ValueError if there is none, or their shapes differ.
    """
    ### BEGIN SOLUTION
    if not prefixes or any(p.shape != prefixes[0].shape for p in prefixes):
        raise ValueError(f"need prefixes of one shape, got {[tuple(p.shape) for p in prefixes]}")
    rows, cache = torch.stack(prefixes), KVCache()  # [B, L, 2, Hkv, n, d]
    for layer in range(rows.shape[1]):
        cache.append(layer, rows[:, layer, 0], rows[:, layer, 1])
    return cache
    ### END SOLUTION


def prefix_of(model: nn.Module, prompt: Tensor) -> Tensor:
    """The prefix [L, 2, Hkv, n, d] that does what the prompt [n, D] does."""
    ### BEGIN SOLUTION
    cache = KVCache()
    logits_of_vectors(model, prompt[None], cache)
    both = zip(cache.keys, cache.values, strict=True)
    return torch.stack([torch.stack([k[0], v[0]]) for k, v in both])
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")

# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** Text sees what is before it only through keys and values. So whatever stands before it
# can be replaced by the keys and values it has left in the cache.
#
# **By hand.** 2 blocks, 4 heads that share 2 key heads of size 8: one position is 2 · 2 · 2 · 8 =
# 64 numbers; of 4 heads it would be 128.
#
# **The usual errors.** `heads` in place of `kv_heads`, or `hidden`. Keys and values exchanged. One
# block's cache for all. Prefixes in `torch.no_grad()`, or detached. n times the same cache object
# for several batches: it grows.
# </details>
#
# **Reveal.** Your trained prompt for the format, as a prefix; then prefixes of 5 positions trained
# from real words, as many numbers as a prompt of 20. About 9 s.

# %% tags=["demo"]
soft = models["prompt", "format"]
compiled = Prefixed(prefix_of(base_model, soft.prompt.data))
ids = held_out["format"].ids[:8, :-1]
off = (compiled(ids) - soft(ids)).abs().max().item()
print(f"prompt against its prefix: logits differ by {off:.1g}; loss ", end="")
print(f"{score(soft, held_out['format']).loss:.4f}, {score(compiled, held_out['format']).loss:.4f}")
three_runs("prefix", lambda seed: Prefixed(prefix_of(base_model, words(5, seed))))

# %% [markdown]
# **Then write one sentence:** a served prompt is 20 positions of cache, as a prefix of 20 is. Which
# of the two has more to train, and what does decoding pay for each?
#
# *Your sentence:*
#
# ## 3. In the weights
#
# BitFit trains biases alone. A Llama has none, so we **add them as zeros**, which changes nothing
# at first; on the BERT of its authors they were there. And then comes the control for every method
# of this lab: **the same number of weights, at random places**, with nothing clever about them.
#
# ### Exercise 4 · Biases, and as many weights at random
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 3 of 5 ●●●○○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `add_biases`, `draw` and `SparseLinear`.
#
# - `add_biases(model, names)`: a copy of the model, the same function, in which every named
#   `nn.Linear` has a trainable `bias`: zeros in the dtype of its weight where there was none, the
#   values that were there where there was one. All else is frozen. Modes (training or eval) are
#   those of the given model, which stays as it was.
# - `draw(sizes, n, seed) -> list`: `n` weights, all different, of layers with `sizes[i]` >= 1
#   weights each: for each layer an int64 tensor of places from 0 to `sizes[i]` - 1, ascending,
#   perhaps empty. **Any n of all** weights of all layers are as likely as any other n. The same
#   seed draws the same, another one (up to 2^31 - 1) others; torch's own generator neither matters
#   nor moves, wherever it stands.
#   `ValueError` unless 0 <= `n` <= the sum of the sizes (which is at most 10 million).
# - `SparseLinear(base, places)`: a module whose weight is $W + S$, where $S$ is zero but at
#   `places` [n] int64 (a place is $i K + k$ for row $i$, column $k$). The only trainable parameter
#   is `delta` [n] float32, zeros at the start: what stands in $S$, in the order of `places`. So an
#   optimizer keeps states for n numbers. $W + S$ is summed in float32 and rounded once to the dtype
#   of $W$; the base (with or without a bias; the given module, if you like) is frozen.
#
# **Shapes** `x` [..., K] in the dtype of $W$, float32 or bfloat16; n may be 0.


# %% solution="ex4"
def add_biases(model: nn.Module, names: list[str]) -> nn.Module:
    """A copy of the same function, frozen but for a bias in each named linear layer."""
    ### BEGIN SOLUTION
    model = copy.deepcopy(model).requires_grad_(False)
    for name in names:
        layer = model.get_submodule(name)
        if layer.bias is None:
            layer.bias = nn.Parameter(layer.weight.new_zeros(layer.out_features))
        layer.bias.requires_grad_(True)
    return model
    ### END SOLUTION


def draw(sizes: list[int], n: int, seed: int) -> list[Tensor]:
    """For each layer the places, ascending, of those of the n drawn weights that are its own.

    Raises ValueError unless 0 <= n <= sum(sizes).
    """
    ### BEGIN SOLUTION
    if not 0 <= n <= sum(sizes):
        raise ValueError(f"n={n} of {sum(sizes)} weights")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.zeros(sum(sizes), dtype=torch.bool)
    chosen[torch.randperm(sum(sizes), generator=generator)[:n]] = True
    return [part.nonzero()[:, 0] for part in chosen.split(list(sizes))]
    ### END SOLUTION


class SparseLinear(nn.Module):
    """A frozen linear layer, some of whose weights have a trainable change."""

    def __init__(self, base: nn.Linear, places: Tensor) -> None:
        super().__init__()
        ### BEGIN SOLUTION
        self.base = base.requires_grad_(False)
        self.register_buffer("places", places)
        self.delta = nn.Parameter(torch.zeros(len(places)))
        ### END SOLUTION

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        ### BEGIN SOLUTION
        w = self.base.weight
        changed = w.float().flatten().index_add(0, self.places, self.delta).view_as(w)
        return F.linear(x, changed.to(w.dtype), self.base.bias)
        ### END SOLUTION


# %% check="ex4"
lab.check("ex4")

# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** Put all weights of all layers in one long row, draw places there, and cut the row at the
# layers' ends. In the layer, `delta` is scattered into a copy of $W$, so that autograd brings the
# gradient of those places back to it.
#
# **By hand.** sizes (2, 3) and drawn places 1, 2, 4 of the row: (1,) for the first layer, (0, 2)
# for the second. $W$ = (1, 2 | 3, 4), places (1, 2), delta (10, 20): $W + S$ = (1, 12 | 23, 4).
#
# **The usual errors.** As many from every layer: small layers are trained more densely. `randint`
# draws some twice. A mask on the gradient of all of $W$: the same numbers move, and AdamW keeps two
# states for each of the others too. `torch.manual_seed`.
# </details>
#
# **Reveal.** All biases of the blocks, 2560; then 2560 of the weights, anywhere, and 2560 of the
# last block alone. Two cells of about 9 s each, and one of 9 s.

# %% tags=["demo"]
three_runs("BitFit", lambda seed: add_biases(base_model, NAMES))

# %% tags=["demo"]
three_runs("random", lambda seed: with_random(2560, seed, NAMES))

# %% tags=["demo"]
LAST = [n for n in NAMES if ".layers.1." in n]
three_runs("last block", lambda seed: with_random(2560, seed, LAST))


# %% tags=["demo", "fold"]
# all ways, and how often a difference from random weights is larger than the spread
def apart_from(way: str, other: str, task: str) -> bool:
    a, b = losses_of(way, task), losses_of(other, task)
    spread = max(max(a) - min(a), max(b) - min(b))
    return abs(placements.mean(a) - placements.mean(b)) > spread


ways = ["adapter", "prompt", "prefix", "BitFit", "last block"]
better = worse = 0
for way in ways:
    for task in TASKS:
        if apart_from(way, "random", task):
            won = placements.mean(losses_of(way, task)) < placements.mean(losses_of("random", task))
            better, worse = better + won, worse + (not won)
found["better"], found["worse"] = better, worse
panels = {
    task: {way: losses_of(way, task) for way in ("all weights", *ways[:4], "random", "last block")}
    for task in TASKS
}
title = (
    f"Against random weights: of 15 comparisons {better} won, {worse} lost by more than the spread"
)
style.show(
    placements.bars(panels, title, "loss, nats a token", controls=("random", "last block")),
    alt=title,
)
lab.reveal("wins", better)

# %% [markdown]
# **Then write one sentence:** which ways can you order on which task, and which would you call
# alike?
#
# *Your sentence:*
#
# ## 4. Bills and choices
#
# What differs for certain are the costs, and those can be counted without a run.
#
# ### Exercise 5 · The bill
#
# **35 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `bill(way, size, shape) -> dict` for the ways "lora" (size is the rank r, beside all
# seven linear layers of every block), "adapter" (m; behind o_proj and down_proj of every block),
# "prompt" (n), "prefix" (n), "bitfit" (all seven; size is not looked at) and "random" (n weights,
# lying in the weights). `ValueError` for another way. Numbers are exact, however large. The keys:
#
# - `trained`: how many numbers are trained.
# - `optimizer_bytes`: AdamW keeps two float32 for each of them.
# - `flops`: what decoding one token of one row computes besides the base, unmerged: matrix
#   products, attention's among them, 2 for each multiplication with its sum. Sums of vectors and
#   gelu are not counted.
# - `read_bytes`: what it reads besides the base, 16 bits a number: trained numbers that lie beside
#   the base (BitFit's do, whatever `shape["biases"]` is), or keys and values of added positions.
# - `context`: positions that the text loses.
# - `mergeable`: True if it can be put (exactly but for rounding) into arrays that the model has,
#   and then costs nothing. Biases are arrays that the model has only if `shape["biases"]` is True.
# - `batchable`: True if every row of a batch can have its own while each of the base's weights is
#   read once for all. Random weights lie in the weights, so no.
# - `untouched`: True if every layer computes as before with its own weights, on other inputs or
#   with a longer cache.
#
# `shape` is a dict: "layers", "hidden" (D), "mlp" (F), "heads", "kv_heads", "head_dim", "biases"
# (bool). A block's linears: q [heads · head_dim, D], k and v [kv_heads · head_dim, D], o [D, heads
# · head_dim], gate and up [F, D], down [D, F]. heads · head_dim need not be D.
#
# A prompt is read once, before the text. What must **every** decoded token read of it again?


# %% solution="ex5"
def bill(way: str, size: int, shape: dict) -> dict:
    """What a way of adapting costs; whole numbers and three bools, by the keys above.

    Raises ValueError for a way that is not among the six.
    """
    ### BEGIN SOLUTION
    layers, d, f = shape["layers"], shape["hidden"], shape["mlp"]
    q, kv = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    linears = [(q, d), (kv, d), (kv, d), (d, q), (f, d), (f, d), (d, f)]
    counts = {
        "lora": layers * size * sum(n + k for n, k in linears),
        "adapter": layers * 2 * (2 * d * size + size + d),
        "prompt": size * d,
        "prefix": size * layers * 2 * kv,
        "bitfit": layers * sum(n for n, _ in linears),
        "random": size,
    }
    if way not in counts:
        raise ValueError(f"way={way!r} is none of {sorted(counts)}")
    before = size if way in ("prompt", "prefix") else 0  # positions
    beside = counts[way] if way in ("lora", "adapter", "bitfit") else before * layers * 2 * kv
    products = {"lora": 2 * counts["lora"], "adapter": layers * 8 * d * size}.get(way, 0)
    return {
        "trained": counts[way],
        "optimizer_bytes": 8 * counts[way],
        "flops": products + before * layers * 4 * q,
        "read_bytes": 2 * beside,
        "context": before,
        "mergeable": way in ("lora", "random") or (way == "bitfit" and shape["biases"]),
        "batchable": way != "random",
        "untouched": way in ("prompt", "prefix"),
    }
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")

# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Count the matrices: [N, K] times a vector is $2 N K$. A new position is one more key and
# one more value in every block: every query head has a product of $d$ with each.
#
# **By hand.** Two blocks, D = 4, 2 heads of size 2 that share 1 key head, F = 3. A prompt of 5: 20
# numbers; each token reads 5 · 2 · 2 · 1 · 2 = 40 numbers or 80 bytes again, and computes 5 · 2 · 4
# · 2 · 2 = 160 FLOPs. Adapters of m = 1: 2 · 2 (8 + 1 + 4) = 52 numbers, 64 FLOPs.
#
# **The usual errors.** A prompt billed as free in decoding, or by its own vectors. Key heads where
# every query head computes. Products that count 1. Biases of adapters forgotten, or counted as
# FLOPs. BitFit merged into layers that have no bias.
# </details>
#
# **Reveal.** The same ways for a model of which we only know the shape, Llama 3 8B, at sizes that
# people use. Its base reads 16 GB for a token.

# %% tags=["demo", "fold"]
# shapes, and the table
OWN = {"layers": 2, "hidden": 128, "mlp": 320, "heads": 4, "kv_heads": 4, "head_dim": 32}
LLAMA = {"layers": 32, "hidden": 4096, "mlp": 14336, "heads": 32, "kv_heads": 8, "head_dim": 128}
OWN, LLAMA = OWN | {"biases": False}, LLAMA | {"biases": False}
LARGE = {"lora": 4, "adapter": 64, "prompt": 100, "prefix": 100, "bitfit": 1, "random": 10**6}


def table(sizes: dict[str, int], shape: dict) -> None:
    print("way         trained   states, MB  MFLOPs a token  MB read  context  merge batch")
    for way, size in sizes.items():
        b = bill(way, size, shape)
        flags = "  ".join("yes" if b[k] else " no" for k in ("mergeable", "batchable"))
        print(f"{way:8s} {b['trained']:10,d} {b['optimizer_bytes'] / 1e6:12.2f}", end="")
        print(f"{b['flops'] / 1e6:16.2f} {b['read_bytes'] / 1e6:8.2f} {b['context']:8d}   {flags}")


# %% tags=["demo"]
table({"lora": 1, "adapter": 2, "prompt": 20, "prefix": 5, "bitfit": 1, "random": 2560}, OWN)
print("\nLlama 3 8B")
table(LARGE, LLAMA)
found["prompt read"] = bill("prompt", 100, LLAMA)["read_bytes"] / 1e6


# %% tags=["demo", "fold"]
# the same, to move
def draw_bills(model: str, column: str):
    shape = LLAMA if model == "Llama 3 8B" else OWN
    sizes = {
        "lora": (1, 4, 16, 64),
        "adapter": (1, 8, 64, 512),
        "prompt": (1, 10, 100, 1000),
        "prefix": (1, 10, 100, 1000),
        "bitfit": (1,),
        "random": (10**3, 10**4, 10**5, 10**6),
    }
    points = {
        way: [(bill(way, s, shape)["trained"], bill(way, s, shape)[column]) for s in own]
        for way, own in sizes.items()
    }
    title = f"{model}: what a token pays in {column} for the numbers that were trained"
    return figures.bills(points, title, column), title


explorer.explorer(
    draw_bills, {"model": ["Llama 3 8B", "ours"], "column": ["read_bytes", "flops", "context"]}
)

# %% [markdown]
# ### Exercise 6 · Choose
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** four functions.
#
# - `differ(a, b) -> bool`: `a` and `b` are losses of two ways, one a seed. True if the means differ
#   by **more** than the larger of the two spreads (largest minus smallest; of one run it is 0):
#   then the two are *apart*. Losses are Python floats and compared as such: nothing is rounded (in
#   tests sums and means are exact, in whichever order).
# - `fits(candidate, need) -> bool`: `candidate` is a bill; `need` is a dict with some of its keys.
#   True asks that the candidate has True there, False asks for nothing, a number is the most that
#   is allowed. An empty need is met by all.
# - `choose(candidates, need) -> name or None`: `candidates` is {name: a bill with one key more,
#   "losses", a list}; a name is any string. Of those that fit, the one with the lowest mean loss
#   (of several any) and all that are **not apart from it** count as equally good; of these the one
#   with the fewest `trained`, and of equals the one that stands first. None if nothing fits.
# - `situation(name) -> need`: **decided** by you, for the three below. A MB is $10^6$ bytes, a GB
#   $10^9$. Where two columns say the same, take either.
#
# - **"phone"**: one task goes out in the model's own file: the arrays that it has and no other.
#   (What is merged computes nothing more.) It is trained on a card with 100 MB left for the states
#   of AdamW.
# - **"shop"**: 500 customers with a task each, in any mixture in one batch. All their numbers, in
#   16 bits, lie in 20 GB. Customers use the whole context: no position is free.
# - **"engine"**: the server's layers are compiled and cannot be changed; it takes vectors as
#   inputs, and caches. Tasks are mixed in batches. At most 32 positions may go, and decoding a
#   token of a row may read at most 4 MB more.
#
# Numbers in your needs are whole. Ask for everything that is said, and for nothing else.


# %% solution="ex6"
def differ(a: list[float], b: list[float]) -> bool:
    """Whether the means differ by more than the larger spread."""
    ### BEGIN SOLUTION
    distance = abs(sum(a) / len(a) - sum(b) / len(b))
    return distance > max(max(a) - min(a), max(b) - min(b))
    ### END SOLUTION


def fits(candidate: dict, need: dict) -> bool:
    """Whether the candidate meets every entry of the need."""
    ### BEGIN SOLUTION
    for key, limit in need.items():
        if isinstance(limit, bool):
            if limit and not candidate[key]:
                return False
        elif candidate[key] > limit:
            return False
    return True
    ### END SOLUTION


def choose(candidates: dict[str, dict], need: dict) -> str | None:
    """The smallest of those that fit and are not apart from the best; None if none fits."""
    ### BEGIN SOLUTION
    fit = {name: c for name, c in candidates.items() if fits(c, need)}
    if not fit:
        return None
    best = min((c["losses"] for c in fit.values()), key=lambda a: sum(a) / len(a))
    good = [name for name, c in fit.items() if not differ(c["losses"], best)]
    return min(good, key=lambda name: fit[name]["trained"])
    ### END SOLUTION


def situation(name: str) -> dict:
    """What "phone", "shop" or "engine" needs of a bill."""
    ### BEGIN SOLUTION
    return {
        "phone": {"mergeable": True, "optimizer_bytes": 100_000_000},
        "shop": {"batchable": True, "trained": 20_000_000, "context": 0},
        "engine": {"untouched": True, "batchable": True, "context": 32, "read_bytes": 4_000_000},
    }[name]
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")

# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** First what must be, then what is measured, and of what the measurement cannot tell apart
# the cheapest.
#
# **By hand.** Losses (1.0, 1.2) and (1.1, 1.4): means 1.1 and 1.25, spreads 0.2 and 0.3, so not
# apart. 20 GB for 500 customers are 40 MB each, which are 20 million numbers of 16 bits.
#
# **The usual errors.** `True <= 1` is true in Python: a bool is a number there, so ask for bools
# first. Compared with whoever is fewest and not with whoever is best. "The arrays that it has" is
# `mergeable`, and for a Llama that leaves BitFit out. A limit that the text does not name.
# </details>
#
# **Reveal.** The rule on your own runs: losses of this model, bills for Llama 3 8B at the sizes of
# the table. (A choice for a large model should rest on its own runs. These say how the rule goes.)
# LoRA's three runs are the chapter's, on the same examples; lab 10 builds it. Then the same with
# seed 0 alone, whose spread is 0: it always names a winner.

# %% tags=["demo"]
measured = {"adapter": "adapter", "prompt": "prompt", "prefix": "prefix"}
measured |= {"bitfit": "BitFit", "random": "random"}
for name in ("phone", "shop", "engine"):
    sizes = LARGE | ({"prompt": 20, "prefix": 20} if name == "engine" else {})
    bills, need = {way: bill(way, size, LLAMA) for way, size in sizes.items()}, situation(name)
    print(f"{name}: fit {', '.join(way for way, b in bills.items() if fits(b, need))}")
    for task in TASKS:
        losses = {way: losses_of(own, task) for way, own in measured.items()} | {"lora": LORA[task]}
        three = {way: b | {"losses": losses[way]} for way, b in bills.items()}
        one = {way: b | {"losses": losses[way][:1]} for way, b in bills.items()}
        print(f"  {task:7s} three runs: {choose(three, need)}, seed 0 alone: {choose(one, need)}")

# %% [markdown]
# **Acceptance: four tasks in one batch.** Your trained prompts for C++, the format and the label,
# and a row without a prompt, which goes on writing Python. They have unlike lengths, start together
# and write together, by your `joined` and `go_on`, each pass of the model reading the weights once
# for all four. Then each row alone.


# %% tags=["demo"]
starts = ["namespace c10 {\n", "def move(self, source, target):\n", "", "import os\n\ndef "]
rows = [torch.tensor([zoo.BEGIN_ID, *tokenizer.encode(t).ids]) for t in starts]
rows[2] = held_out["label"].ids[0, :13]
prompts = [*(models["prompt", task].prompt.data for task in TASKS), torch.zeros(0, 128)]
together, passes = written(prompts, rows, 24)
singles = [written([p], [r], 24) for p, r in zip(prompts, rows, strict=True)]
same = [torch.equal(t, one[0][0]) for t, one in zip(together, singles, strict=True)]
found["same rows"], found["passes"] = sum(same), (passes, sum(n for _, n in singles))
print(f"rows that wrote the same in the batch and alone: {sum(same)} of 4")
print(f"weights read: {passes * weights / 1e6:.0f} MB, alone", end=" ")
print(f"{sum(n for _, n in singles) * weights / 1e6:.0f} MB")
for task, start, row in zip((*TASKS, "none"), rows, together, strict=True):
    print(f"--- {task}: {tokenizer.decode(start[1:].tolist())[-34:]!r} goes on with")
    print(tokenizer.decode(row[: 1 if task == "label" else 24].tolist()))

# %% [markdown]
# **What merging does, and for whom it is impossible.** Each way's model for the format, its change
# put into the model's own arrays: random weights as they are; BitFit, whose biases have no array in
# a Llama, left out or (the trivial repair) put into an array more; adapters as fitted above, with
# the bias dropped as well; a prompt, which has no place among weights at all.


# %% tags=["demo"]
sparse = copy.deepcopy(models["random", "format"])
for name in NAMES:
    sparse.get_submodule(name).bias = None
merged = {"random": plain(sparse), "BitFit": plain(models["BitFit", "format"])}
merged["adapter"] = plain(folded(models["adapter", "format"], "format"))
for way, model in merged.items():
    found["merged", way] = gain_left(model, way, "format")
    print(f"{way:8s} in the Llama's own arrays: {found['merged', way]:.0%} of the gain is left")

# %% [markdown]
# ## Misconceptions
#
# <details><summary>Three sentences, to compare yours with</summary>
#
# **Section 1.** A narrow adapter that was trained briefly is nearly linear where the text lies, and
# a fit can take it in; check it on other text, on wider adapters and after longer training. Folded,
# every task has its own copy of whole weight matrices: rows of different tasks cannot share a pass.
#
# **Section 2.** The prefix, which has its own keys and values in every block (5 positions cost as
# many numbers as a prompt of 20); per position both are read alike.
#
# **Section 3.** Only those whose means are farther apart than their spreads; ask your figure.
# </details>
#
# **"Fewer trained parameters make inference cheaper."** They make training states small. A prompt
# of 100 trains 0.4 million numbers on Llama 3 8B and reads 13 MB of keys and values again for every
# token; LoRA of rank 4 trains 25 times as many and, merged, reads nothing.
#
# **"BitFit trains what is there."** On BERT. A Llama has no biases; here they are new arrays, so
# they cannot be merged into the file that everybody else loads.
#
# **"The method that wins my table is the better method."** Ask three seeds, and ask what as many
# weights at random places do. Ask for each way's own learning rate, too.
#
# **"A batch that is right is right."** For equal lengths. Fillings that are seen, and gaps between
# prompt and text, show with unlike lengths only. A shift of a whole row never shows, with rotary
# positions.
#
# **"What cannot be merged exactly cannot be merged."** The gelu forbids the first. A fit by least
# squares kept nearly all of the gain here; whether it does, is a measurement and no theorem.
#
# ### Open task (not graded)
#
# **Beat it:** the lowest mean loss over three seeds on the *label*, with at most 2560 trained
# numbers, in 30 steps of the same text, **and apart from random weights**. Ideas: where the random
# places lie, gains of norms, a prompt from words of the task, two ways that share the numbers,
# fewer numbers in better places.


# %% tags=["demo"]
def own_way(seed: int) -> nn.Module:
    """Yours, with at most 2560 trained numbers. It starts as random weights of the last layers."""
    return with_random(2560, seed, [n for n in NAMES if n.endswith("down_proj")])


RATES["own"] = {"label": 0.3}
three_runs("own", own_way, ("label",))
found["open task"] = placements.mean(losses_of("own", "label"))
print(trained_numbers(own_way(0)), "numbers; apart from random weights:", end=" ")
print(apart_from("own", "random", "label"))

# %% [markdown]
# ## 5. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** Which way of adapting do you choose, for what, and what do
# you know about its quality? *Rubric:* for one task of yours the losses of two ways with their
# spreads (1); whether they are apart, by the rule (1); what as many random weights do there, and
# what that says about the method (1); for a model that is shipped: which way, and what merging
# leaves of the others, with a number (1); for mixed tasks in one batch: which way, and what it
# costs a token, with a number (1).
#
# **Question 2.** A colleague serves prompts of 10 to 100 vectors for 50 tasks in one batch. "It
# works in my test, where all prompts and texts have 20. And prompts are free, because a task is
# only 80 thousand numbers." What do you answer, what would you propose, and what must be measured?
# *Rubric:* which mistakes a test with equal lengths hides, two of them (1); by how much rows are
# then off, with your numbers, and which mistake does no harm with rotary positions (1); what a
# prompt of 100 costs every decoded token of Llama 3 8B, and that its own size is not it (1); a
# proposal for the test or for the server (1); what must be measured, of quality or speed, against
# what control (1).

# %% [markdown] written="w1"
# On the format a prompt of 20 had a loss of 0.867 (0.824 to 0.891) and BitFit, with as many
# numbers, 0.440 (0.421 to 0.471): the means are 0.43 apart and the larger spread is 0.07, so these
# two can be ordered. As many random weights had 0.412 (0.389 to 0.435), apart from the prompt and
# not from BitFit, so nothing of BitFit's quality is owed to its being biases; of 15 comparisons
# with random weights one was won and nine were lost. For a phone I take what merges exactly, LoRA
# or random weights, of which 100 % was left in the Llama's own arrays; of BitFit 0 %, of an adapter
# 74 %, and 99 % with a bias more. For mixed tasks in one batch whose layers nobody may touch I take
# prompts: four rows wrote what they wrote alone in 24 passes in place of 96, and 100 positions on
# Llama 3 8B cost every token 13 MB of keys and values. All of this is from 640 thousand parameters,
# 30 steps and three seeds.

# %% [markdown] written="w2"
# With equal lengths there is no filling, so neither fillings that are seen nor a gap between prompt
# and text can show. In my batch of seven unlike rows a causal mask alone put the largest logit off
# by 6.2, and a gap by 1.4, where the right layout had 9e-6; shifting whole rows did no harm, since
# rotary positions are relative. A task is 82 thousand numbers or 0.16 MB, but that is not what a
# token pays: behind a prompt of 100 every token of Llama 3 8B reads 13 MB of keys and values again,
# computes 52 MFLOPs more, and 100 positions of the context are gone. I would test with unlike
# prompts and unlike texts, each row against itself alone and some tokens on, and keep each task's
# prompt as a prefix in the cache. To be measured: the time of a token with prompts of 10 and 100
# against none, and each task's loss over some seeds against LoRA and as many random weights.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Prefixes of unlike length.** Let `prefix_cache` fill up on the left, and say what positions
#   and mask the model then needs. Which of your two functions of exercise 2 helps?
# - **(IA)³** trains a factor for each key, value and hidden channel. Is it mergeable? Batchable?
#   Add its line to `bill`.
# - **The MLP of prefix tuning.** Let a small network make the prefix while it is trained (Li and
#   Liang, section 4.3). Are three seeds apart?
# - **Ten seeds.** How many of the differences that were none become one?
#
# **Next:** lab 18 serves a model; lab 10 builds LoRA.
#
# **Sources.** Houlsby et al., *Parameter-Efficient Transfer Learning for NLP*, 2019
# (arXiv:1902.00751). Lester et al., *The Power of Scale for Parameter-Efficient Prompt Tuning*,
# 2021 (arXiv:2104.08691). Li and Liang, *Prefix-Tuning*, 2021 (arXiv:2101.00190). Ben Zaken et al.,
# *BitFit*, 2022 (arXiv:2106.10199). Liu et al., *(IA)³*, 2022 (arXiv:2205.05638). He et al.,
# *Towards a Unified View of Parameter-Efficient Transfer Learning*, 2022 (arXiv:2110.04366). Petrov
# et al., *When Do Prompting and Prefix-Tuning Work?*, 2024 (arXiv:2310.19698). Bhardwaj et al.,
# *Sparse High Rank Adapters*, 2024 (arXiv:2406.13175). Sheng et al., *S-LoRA*, 2023
# (arXiv:2311.03285). MIT 6.5940, lectures on efficient fine-tuning.
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo", "fold"]
lab.report()
f = found
takeaways = [
    f"Of 15 comparisons with random weights at equal number, {f['better']} are won and "
    f"{f['worse']} lost by more than the spread of three seeds.",
    "Loss of the format: "
    + "; ".join(f"{way} {shown(losses_of(way, 'format'))}" for way in ("frozen", *ways, "random")),
    f"Rows of unlike prompts in one batch differ from each alone by {f['rows', 'as you did']:.0e}; "
    f"a causal mask alone {f['rows', 'a causal mask alone']:.1f}, a gap before the text "
    f"{f['rows', 'a gap before the text']:.1f}, shifted as a whole "
    f"{f['rows', 'positions from the edge']:.0e}.",
    f"Four tasks in one batch: {f['same rows']} of 4 rows as alone, {f['passes'][0]} passes in "
    f"place of {f['passes'][1]}.",
    "Merged into the Llama's own arrays, of the gain on the format there is left: "
    + ", ".join(f"{way} {f['merged', way]:.0%}" for way in ("random", "BitFit", "adapter"))
    + f" (with a bias more, adapters keep {f['folded', 'format']:.0%}).",
    f"A prompt of 100 on Llama 3 8B: {f['prompt read']:.0f} MB read for every token.",
    f"Open task: {f['open task']:.3f}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
