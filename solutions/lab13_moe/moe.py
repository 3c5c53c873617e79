# %% [markdown]
# # Lab 13: Which experts to wake
#
# ![Bytes that a step of decoding reads for each token, against the batch, for two models A and B
# that compute as much for a token: they begin together, B stays far above A for batches in the
# middle.](../../course/figures/lab13/opening.svg)
#
# **The question.** A and B compute the same number of products for a token. B has four times the
# weights in its feed-forward layers and takes for each token a quarter of them; which quarter, it
# has learnt. **When does B cost what A costs, when more, and what has it learnt to tell apart?**
#
# Section 6 asks this again. You will answer it with your own numbers.
#
# ## Card
#
# | | |
# |---|---|
# | Time | about 3 and a half hours |
# | Points | 90 from six exercises (15 each), 10 from two written questions |
# | You need | softmax and its gradient; a Llama's MLP; lab 0's roofline helps |
# | Not covered | kernels for grouped products; upcycling; routing by experts' choice |
#
# After this lab you can
# 1. write router, capacity, dispatch and balance of a mixture, with its gradients;
# 2. count what a batch reads and sends, and say when a mixture is cheap;
# 3. skip neurons of a dense layer, and say what a predictor has to beat.
#
# `lab.check("ex1")` runs the public tests (6 of 15 points) and names the kinds of hidden tests
# (9 of 15). `lab.hint("ex1")` gives one hint at a time. Tests call your functions by name, so keep
# names and arguments as they are. Answer predictions in their field; where no field is shown, by
# `lab.answer("busiest", 30)`. Seconds that a cell announces are those of a quiet machine.
#
# ## Map and notation
#
# Section 1, who goes where: exercises 1 and 2. Section 2, the layer and its balance: 3 and 4.
# Section 3, bytes: 5. Section 4, dense layers that skip: 6. Section 5: what is wrong.
#
# | symbol | shape | in code | meaning |
# |---|---|---|---|
# | $T, B$ | | `tokens`, `batch` | tokens that a layer sees at once |
# | $E, k$ | | `count`, `k` | experts; how many a token goes to |
# | $s$ | [T, E] | `logits` | what the router says |
# | | [T, k] int64 | `experts` | where each token goes: its first choice, second, ... |
# | $g$ | [T, k] | `gates` | the weight of each choice in the sum |
# | | [T, k] bool | `kept` | False for a choice that found no place |
# | $f_i$ | [E] | `share` | share of all $T k$ choices that expert $i$ gets |
# | $P_i$ | [E] | | mean over the tokens of $\mathrm{softmax}(s)_i$ |
# | $N$ | | | neurons of a dense MLP: rows of gate and up, columns of down |
#
# ### Rules for all exercises
#
# No function changes its arguments. Numbers are finite; where a shape is not restricted, T may be 0
# and tensors may be views. Floats are float32 unless a card says more.

# %%
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib import zoo
from efflib.lab import Lab
from efflib.plots import explorer, placements, style
from efflib.plots import mixtures as figures

lab = Lab("lab13_moe")

# %% [markdown]
# ## Baseline
#
# Three models of the zoo, trained on the same tokens in the same order, 4 layers of width 128:
#
# | | feed-forward | of it for a token | balancing loss |
# |---|---|---|---|
# | `dense` (the zoo's `learnable_sink`) | 320 | 320 | |
# | `moe` | 8 experts of 160 | 2 · 160 | 0.02 of it |
# | `uneven` (`moe_unbalanced`) | 8 experts of 160 | 2 · 160 | none |
#
# What else differs: the mixtures have 4 times the feed-forward weights and a router, and were
# trained in float32, `dense` in bfloat16 autocast. A dense model with as many weights **in all**
# as a mixture is not among them: where a mixture is better, this cannot say whether 1280 neurons
# for every token were better still. Perplexities are those of four slices of held-out text, 1024
# tokens each: **a difference within their spread says nothing**, unless it is there slice by slice.
# And slices are no seeds: of each kind one model was trained.

# %% tags=["demo", "fold"]
# the models; helpers of the experiments: slices, router logits, your layer in the model, batches
from efflib.zoo.evaluation import held_out_segments, token_losses

names = {"dense": "learnable_sink", "moe": "moe", "uneven": "moe_unbalanced"}
models = {name: zoo.load(key) for name, key in names.items()}
relu = zoo.load("relu")
mlps = [layer.mlp for layer in relu.model.layers]
held_out = {kind: held_out_segments(kind, 4096) for kind in ("code", "prose")}  # [16, 256]


def slices(model: nn.Module, kind: str = "code") -> list[float]:
    """The loss of each of four slices of held-out text, nats per token."""
    losses = token_losses(model, held_out[kind], context=256, stride=256).double()
    return losses.view(4, -1).mean(1).tolist()


def perplexity(losses: list[float]) -> float:
    return math.exp(placements.mean(losses))


def spread(losses: list[float]) -> str:
    """The perplexity of all slices together, and those of the best and of the worst."""
    ends = (math.exp(min(losses)), math.exp(max(losses)))
    return f"{perplexity(losses):.3g} ({ends[0]:.3g} to {ends[1]:.3g})"


@torch.no_grad()
def router_logits(model: nn.Module, ids: Tensor) -> list[Tensor]:
    """What the router of each layer says, [B T, E]."""
    model(ids)
    return [m.logits for m in model.mixtures()]


def chosen_by(model: nn.Module, ids: Tensor) -> list[Tensor]:
    """The experts [B T, k] of each layer, by your exercise 1."""
    return [route(s, 2)[0] for s in router_logits(model, ids)]


def with_layer(
    model: nn.Module, factor: float = 0.0, order: str = "tokens", by_lot: bool = False
) -> nn.Module:
    """A copy that runs on your exercises 1 to 3; factor: of the capacity, 0 for no limit.

    by_lot: the tokens stand in the queue in random order, and not as in the text.
    """

    def mix(x: Tensor, logits: Tensor, k: int, experts) -> Tensor:
        chosen, gates = route(logits, k)
        kept = torch.ones(chosen.shape, dtype=torch.bool)
        if factor:
            places = capacity(len(x), len(experts), k, factor)
            queue = torch.arange(len(x))
            if by_lot:
                queue = torch.randperm(len(x), generator=torch.Generator().manual_seed(5))
            kept[queue] = admitted(chosen[queue], places, order)
        return dispatch_combine(x, chosen, gates, kept, lambda e, rows: experts[e](rows))

    changed = copy.deepcopy(model)
    changed.set_mix(mix)
    return changed


def numbers(model: nn.Module) -> tuple[int, int]:
    """Parameters in all, and those that a token is multiplied with (embedding rows apart)."""
    total = sum(p.numel() for p in model.parameters())
    idle = 0
    for m in getattr(model, "mixtures", list)():
        idle += (1 - m.k / len(m.experts)) * sum(p.numel() for p in m.experts.parameters())
    return total, total - int(idle)


g = torch.Generator().manual_seed(0)
both = torch.cat([held_out["code"][:8], held_out["prose"][:8]])  # [16, 256]
places = torch.rand(both.shape, generator=g).argsort(1)
back, anyone = places.argsort(1), torch.randperm(both.numel(), generator=g)


def alike(a: Tensor, b: Tensor) -> float:
    """The share of experts that a and b [T, k] have in common."""
    return (a[:, :, None] == b[:, None, :]).any(-1).float().mean().item()


def in_order(mixed: Tensor) -> Tensor:
    """Experts of the shuffled tokens, brought back to the tokens' own places."""
    return mixed.view(*both.shape, 2).gather(1, back[..., None].expand(-1, -1, 2)).flatten(0, 1)


BATCHES = [1, 2, 4, 8, 16, 32, 64]
EXPERT_BYTES = 2 * 3 * 128 * 160  # three matrices in 16 bits


def groups(kind: str) -> Tensor:
    """Places of tokens in batches, [batches, 64]: of each the first B are taken."""
    g = torch.Generator().manual_seed(1)
    at = torch.arange(both.numel())
    if kind == "by lot":
        at = at[torch.randperm(len(at), generator=g)]
    if kind == "many texts":  # from each text one token, at a place of its own, and so on
        at = at.view(both.shape).gather(1, places).T
        at = at.gather(1, torch.rand(at.shape, generator=g).argsort(1)).flatten()
    return at.view(-1, 64)


def measured(model: nn.Module, kind: str) -> list[list[float]]:
    """[layer][batch]: experts woken, mean over 64 batches, by your step_bytes."""
    layers, rows = chosen_by(model, both), groups(kind)
    read = [[[step_bytes(e[r[:b]], EXPERT_BYTES) for r in rows] for b in BATCHES] for e in layers]
    return [[placements.mean(v) / EXPERT_BYTES for v in layer] for layer in read]


FACTORS = [0.5, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0]


def dropped(layers: list[Tensor], order: str = "tokens") -> list[list[float]]:
    """[layer][factor]: the share of choices without a place, batches of 256 tokens."""
    rows = []
    for experts in layers:
        batches = experts.view(-1, 256, 2)
        places = [capacity(256, 8, 2, f) for f in FACTORS]
        kept = [torch.cat([admitted(b, p, order) for b in batches]) for p in places]
        rows.append([1 - k.float().mean().item() for k in kept])
    return rows


def who_is_dropped(order: str) -> None:
    """At factor 1: perplexities, and whose choices are dropped in batches of 256, all layers."""
    quarters = [f"{math.exp(v):.3g}" for v in capped["as it comes", order]]
    print(f"order {order!r}: {spread(capped['by lot', order])} in random order;")
    print(f"- as it comes, by quarter of the queue: {', '.join(quarters)}")
    experts = torch.cat(chosen_by(models["moe"], held_out["code"])).view(-1, 256, 2)
    gone = ~torch.stack([admitted(b, capacity(256, 8, 2, 1.0), order) for b in experts])
    first, second = gone.double().mean((0, 1)).tolist()
    print(f"- in batches of 256: {first:.0%} of first choices, {second:.0%} of second are dropped;")
    late = [f"{v:.0%}" for v in gone.double().view(-1, 4, 128).mean((0, 2)).tolist()]
    print(f"  {gone.all(2).double().mean():.1%} of tokens lose both; by quarter: {', '.join(late)}")


@torch.no_grad()
def mlp_inputs(ids: Tensor) -> list[Tensor]:
    """What the MLP of each layer reads, [B T, 128]."""
    seen: list[Tensor] = []
    hooks = [
        m.register_forward_pre_hook(lambda _, x: seen.append(x[0].flatten(0, 1))) for m in mlps
    ]
    relu(ids)
    for hook in hooks:
        hook.remove()
    return seen


def bill(experts: int, k: int) -> tuple:
    """The figure for k of so many experts, and what it shows."""
    bills = {f"mixture, {k} of {experts}": [seconds(woken(experts, k, b), k, b) for b in MANY]}
    bills["dense, as much work"] = [seconds(k, k, b) for b in MANY]
    bills["dense, as many weights"] = [seconds(experts, experts, b) for b in MANY]
    mixture, twin, _ = bills.values()
    dear = [m / d for m, d in zip(mixture, twin, strict=True)]
    found["dear", experts] = dict(zip(MANY, dear, strict=True))
    title = f"{k} of {experts}: up to {max(dear):.1f} times the dense layer of equal work"
    return figures.bill(MANY, bills, dear, title), title


def moved_share(own: Tensor) -> float:
    """How much of the load the second half of the tokens has at other experts than the first."""
    halves = own.split(len(own) // 2)
    a, b = (torch.bincount(half.flatten(), minlength=8) / half.numel() for half in halves)
    return 0.5 * (a - b).abs().sum().item()


def moved_tokens(own: Tensor, order: Tensor | None = None) -> float:
    """As moved_share, but for tokens that stand in both halves, as often as in the second.

    order: of the windows; the first half of them against the second.
    """
    order = torch.arange(len(both)) if order is None else order
    rows = F.one_hot(own, 8).double().mean(1).view(*both.shape, 8)[order].flatten(0, 1).chunk(2)
    ids = both[order].flatten().chunk(2)
    size = 1 + int(both.max())
    often = [torch.bincount(x, minlength=size).double() for x in ids]
    sums = [
        torch.zeros(size, 8).double().index_add(0, x, y) for x, y in zip(ids, rows, strict=True)
    ]
    each = [s / n.clamp(min=1)[:, None] for s, n in zip(sums, often, strict=True)]  # of a token
    weight = often[1] * (often[0] > 0)
    return 0.5 * (weight / weight.sum() @ (each[0] - each[1])).abs().sum().item()


def subjects(layers: list[Tensor]) -> None:
    """What the loads of code and prose differ by, and halves of the windows dealt by lot."""
    g = torch.Generator().manual_seed(3)
    deals = [torch.randperm(len(both), generator=g) for _ in range(100)]
    for own in layers:  # by lot: what code and prose would differ by if they were alike
        lots = [moved_tokens(own, deal) for deal in deals]
        seen = moved_tokens(own)
        print(
            f"code and prose {moved_share(own):.2f}; the same tokens {seen:.3f}, in windows dealt "
            f"by lot {placements.plus_minus(lots, 2)}: as much in {sum(v >= seen for v in lots)} "
            f"of {len(lots)}"
        )


def with_partner(layers: list[Tensor]) -> None:
    """Experts in common with the same token in another window, by the token before it."""
    ids, window = both.flatten(), torch.arange(both.numel()) // both.shape[1]
    fellow = (ids[:, None] == ids) & (window[:, None] != window)
    alike_before = ids.roll(1)[:, None] == ids.roll(1)
    inside = torch.arange(len(ids)) % both.shape[1] > 0  # has a token before it
    g = torch.Generator().manual_seed(4)
    lots = torch.rand(fellow.shape, generator=g)
    ways = {
        "the same one": fellow & alike_before & inside,
        "another": fellow & ~alike_before & inside,
    }
    rows = inside & torch.stack([way.any(1) for way in ways.values()]).all(0)
    print(f"{int(rows.sum())} tokens with the same token in another window; before it stands")
    for told, way in ways.items():
        partner = (lots * way)[rows].argmax(1)
        shown = [f"{alike(own[rows], own[partner]):.2f}" for own in layers]
        print(f"- {told:13s}", "  ".join(shown))


def evened(s: Tensor) -> float:
    """The busiest expert's share with a bias that 300 steps of your rule have moved."""
    bias = torch.zeros(8)
    for _ in range(300):
        bias = moved_bias(bias, load(route(s, 2, "deepseek", bias)[0], 8), 0.005)
    return load(route(s, 2, "deepseek", bias)[0], 8).max().item()


def woken_figure(touched: dict, formula: list[float]) -> tuple:
    """The figure of experts woken, and what it shows."""
    eight = {
        n: {k: placements.mean([r[3] for r in v]) for k, v in t.items()} for n, t in touched.items()
    }
    found["eight"] = eight
    panels = {n: {"formula": [formula]} | t for n, t in touched.items()}
    title = f"8 tokens wake {formula[3]:.1f} of 8 experts by the formula; of one text "
    title += (
        f"{eight['moe']['one text']:.1f} with the loss, {eight['uneven']['one text']:.1f} without"
    )
    labels = ("tokens in the batch", "experts woken, of 8")
    return placements.curves(BATCHES, panels, title, *labels), title


found = {}  # the numbers you find, for the takeaways at the end

# %% tags=["demo"]
for name, model in models.items():
    found[name] = {kind: slices(model, kind) for kind in held_out}
    total, active = numbers(model)
    told = ", ".join(f"{spread(v)} on {kind}" for kind, v in found[name].items())
    print(f"{name:6s} {total / 1e6:.2f} M, {active / 1e6:.2f} M for a token; {told}")
pairs = [zip(found["moe"][kind], found["dense"][kind], strict=True) for kind in held_out]
better = sum(m < d for pair in pairs for m, d in pair)
print(f"moe has less loss than dense in {better} of 8 slices (one pair of models: no other seeds)")
print("\n" + zoo.sample(models["moe"], zoo.PROMPTS[1], tokens=40))
lab.predict(
    "busiest",
    "In training without a balancing loss: at the end, which share of a layer's choices goes to "
    "its busiest expert? (In %. Even is 12.5, and 50 is all there is: a token takes two.)",
)

# %% [markdown]
# ## 1. Who goes where
#
# The router is one matrix: a logit for each expert. What is made of the logits differs, and in
# what differs sits what the router can learn.
#
# | convention | chosen by | gates |
# |---|---|---|
# | `"mixtral"` | logits | softmax over the $k$ chosen logits |
# | `"switch"` | logits | softmax over **all** $E$; those of the chosen, as they are |
# | `"deepseek"` | sigmoid **plus a bias** | sigmoids of the chosen **without** bias, by their sum |
#
# Four logits, two choices:

# %% tags=["demo"]
s = torch.tensor([2.0, 1.0, 0.5, -1.0])
everyone = s.softmax(-1)
print("softmax of all ", [f"{v:.3f}" for v in everyone.tolist()])
print("of the two     ", [f"{v:.3f}" for v in s[:2].softmax(-1).tolist()])
print("renormalized   ", [f"{v:.3f}" for v in (everyone[:2] / everyone[:2].sum()).tolist()])
lab.predict(
    "gradient",
    "One expert a token (k = 1), Mixtral's convention. How large is the gradient of the loss with "
    "respect to the logits, beside that of Switch's? (0: none; 1: as large)",
)

# %% [markdown]
# ### Exercise 1 · The router
#
# **20 minutes · 15 points** · difficulty 2 of 5 ●●○○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `route(logits, k, convention, bias) -> (experts, gates)` in the three conventions of
# the table.
#
# - `experts`: choice 0 is the largest of what is compared, then the next. Of equal ones any may be
#   taken, none twice.
# - `gates`: in the order of `experts`. Gradients flow through them into the logits.
# - `bias` [E], of size up to 1e4: only `"deepseek"` has one, or None for none. It decides who is
#   chosen (and in which order), and never how much they count.
# - `ValueError` unless $1 \le k \le E$, for another convention, and for a bias where there is none.
#   All that also where there is no token.
#
# **Shapes** `logits` [T, E] float32 or bfloat16, of size up to 1e4 (up to 10 for `"deepseek"`), T
# may be 0; `experts` [T, k] int64; `gates` [T, k] float32, right to 4e-6: turn `logits` to float32
# (or wider) before anything else. What is compared is equal, or differs by more than float32 rounds
# it.


# %% solution="ex1"
def route(
    logits: Tensor, k: int, convention: str = "mixtral", bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(experts [T, k] int64, gates [T, k] float32) of the router's logits [T, E].

    Raises ValueError for k out of range, an unknown convention, a bias that has no use.
    """
    ### BEGIN SOLUTION
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k={k} of {logits.shape[1]} experts")
    if convention not in ("mixtral", "switch", "deepseek"):
        raise ValueError(f"convention={convention!r} is not known")
    if bias is not None and convention != "deepseek":
        raise ValueError(f"{convention} has no bias")
    logits = logits.float()
    if convention == "mixtral":
        largest, experts = logits.topk(k, dim=-1)
        return experts, largest.softmax(-1)
    if convention == "switch":
        experts = logits.topk(k, dim=-1).indices  # far behind the first every softmax is 0
        return experts, logits.softmax(-1).gather(-1, experts)
    scores = logits.sigmoid()
    experts = (scores if bias is None else scores + bias).topk(k, dim=-1).indices
    gates = scores.gather(-1, experts)
    return experts, gates / gates.sum(-1, keepdim=True)
    ### END SOLUTION


# %% check="ex1"
lab.check("ex1")
# %% [markdown]
# <details><summary>Help for exercise 1</summary>
#
# **Idea.** First who: `topk` of what is compared gives values and indices. Then how much: `gather`
# takes the numbers of the chosen out of [T, E].
#
# **By hand.** Logits (ln 4, ln 2, ln 2), k = 2. Mixtral: 4 and 2, so 2/3 and 1/3. Switch: softmax
# is 1/2, 1/4, 1/4, so the gates are 1/2 and 1/4. DeepSeek: sigmoids 4/5, 2/3, 2/3, so 6/11 and
# 5/11. With the bias (0, 0, 1): experts 2 and 0, gates 5/11 and 6/11.
#
# **The usual errors.** The biased score used as a gate. Softmax before the choice and no
# renormalization called Mixtral. A sum over the tokens, not over the choices. bfloat16 logits
# turned to float32 after the softmax.
# </details>
#
# **Reveal.** The gradient at the logits for k = 1, from your gates:

# %% tags=["demo"]
sizes = {}
for convention in ("switch", "mixtral"):
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    experts, gates = route(logits, 1, convention)
    (gates * torch.linspace(-1, 1, 64)[:, None]).sum().backward()
    sizes[convention] = logits.grad.norm().item()
print("norm of the gradient:", {name: f"{size:.2g}" for name, size in sizes.items()})
lab.reveal("gradient", round(sizes["mixtral"] / sizes["switch"], 2))

# %% [markdown]
# **Then write one sentence:** why can a router with one choice and renormalized gates not learn
# from the model's loss, and what still moves it when a balancing loss is there?
#
# *Your sentence:*
#
# **Collapse.** What the training of the two mixtures noted on its way: the share of the choices
# that the busiest expert of each layer got.

# %% tags=["demo"]
logs = {name: zoo.training_log(names[name]) for name in ("moe", "uneven")}
busiest = {n: [[layer[0] for layer in e["load"]] for e in log] for n, log in logs.items()}
steps = [entry["step"] for entry in logs["moe"]]
ends = {name: placements.plus_minus(rows[-1]) for name, rows in busiest.items()}
idle = {n: sum(s < 0.01 for la in log[-1]["load"] for s in la) for n, log in logs.items()}
print(f"busiest at the end, mean over layers (least to most): {ends}")
print(f"experts with less than 1 % of the choices, of 32: {idle}")
lab.reveal("busiest", round(100 * max(busiest["uneven"][-1])))
title = f"Busiest expert at the end: {ends['moe']} with the loss, {ends['uneven']} without"
style.show(figures.busiest(steps, busiest, title), alt=title)

# %% [markdown]
# **Then write one sentence:** which layers collapsed, what do the first entries of the log (step
# 250) say of when, what do they not, and does the perplexity of the baseline tell you?
#
# *Your sentence:*
#
# ### Exercise 2 · Places, and who finds none
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# Hardware likes buffers of one size: every expert gets the same number of places, and a choice
# that finds its expert full is dropped.
#
# **Deliver** `capacity(tokens, count, k, factor) -> int` and
# `admitted(experts, places, order, real) -> kept`.
#
# - `capacity`: places of one expert, `factor` (0 or more) times its even share of all choices,
#   rounded up.
# - `admitted`: first come, first served, `places` for each expert. Order `"tokens"`: token by
#   token, its first choice, then its second (Switch). Order `"choices"`: the first choices of all
#   tokens, then all second ones, and so on (GShard, DeepSpeed). Within a choice, token by token.
# - `real` [T] bool, or None: False marks padding, which takes no place and is not kept.
# - `ValueError` for a negative number (the factor included), a `count` or `k` below 1, a `factor`
#   that is not finite; for another `order`. All that also where there is no token.
#
# **Shapes** `experts` [T, k] int64, those of a token all different, T may be 0, T k up to 1e4; ids
# up to 255; `places` an int, from 0 to more than there are tokens; `kept` [T, k] bool. `tokens` up
# to 1e6, may be 0; in whatever order you multiply and divide in float64, it rounds up to the same.


# %% solution="ex2"
def capacity(tokens: int, count: int, k: int, factor: float) -> int:
    """The places of each of `count` experts for `tokens` tokens with k choices each.

    Raises ValueError for numbers out of range.
    """
    ### BEGIN SOLUTION
    if tokens < 0 or count < 1 or k < 1 or not 0 <= factor < math.inf:
        raise ValueError(f"tokens={tokens}, count={count}, k={k}, factor={factor}")
    return math.ceil(tokens * k * factor / count)
    ### END SOLUTION


def admitted(
    experts: Tensor, places: int, order: str = "tokens", real: Tensor | None = None
) -> Tensor:
    """Which choices [T, k] find a place at their expert. [T, k] bool

    Raises ValueError for another order than "tokens" and "choices", or places below 0.
    """
    ### BEGIN SOLUTION
    if order not in ("tokens", "choices") or places < 0:
        raise ValueError(f"order={order!r}, places={places}")
    kept = torch.zeros_like(experts, dtype=torch.bool)
    lines = experts if order == "tokens" else experts.T
    taken = {}
    for i, line in enumerate(lines.tolist()):
        for j, expert in enumerate(line):
            t, choice = (i, j) if order == "tokens" else (j, i)
            if (real is None or real[t]) and taken.get(expert, 0) < places:
                taken[expert] = taken.get(expert, 0) + 1
                kept[t, choice] = True
    return kept
    ### END SOLUTION


# %% check="ex2"
lab.check("ex2")
# %% [markdown]
# <details><summary>Help for exercise 2</summary>
#
# **Idea.** Walk through the choices in their order and count for each expert how many places are
# taken. Without a loop: a 1 in [T k, E] where a choice asks for an expert; its cumulative sum says
# the how-manieth it is.
#
# **By hand.** 6 tokens, 3 experts, k = 1: experts 0, 1, 0, 2, 0, 1. Factor 1: 2 places, the fifth
# token is the third at expert 0 and is dropped. Factor 1.5: 3 places, nobody is. Two tokens that
# choose (0, 1) and (1, 0), one place each: by tokens the first keeps both; by choices each keeps
# its first.
#
# **The usual errors.** Positions counted from 0 and compared with `<=`. Padding that is dropped but
# counted. Rounding down. `transpose` on the way in and not on the way out.
# </details>
#
# **Reveal.** Which share of the choices is dropped, in batches of 256 tokens of held-out code, by
# factor. The four layers are the spread. Two controls, *by lot*: the balanced model's tokens dealt
# out anew, so that neighbours in a batch are no longer alike; and choices of a router whose loads
# are even (four draws in the place of the layers).

# %% tags=["demo"]
layers = {name: chosen_by(models[name], held_out["code"]) for name in ("moe", "uneven")}
drops = {(n, o): dropped(e, o) for n, e in layers.items() for o in ("tokens", "choices")}
tokens = len(layers["moe"][0])
lot = torch.randperm(tokens, generator=torch.Generator().manual_seed(2))
drops["moe", "by lot"] = dropped([experts[lot] for experts in layers["moe"]])
g = torch.Generator().manual_seed(6)
drops["even", "by lot"] = dropped(
    [torch.rand(tokens, 8, generator=g).argsort(1)[:, :2] for _ in range(4)]
)
for (name, order), rows in drops.items():
    shown = [placements.plus_minus([r[i] for r in rows], 2) for i in (1, 3, 4)]
    print(f"{name:6s} {order:7s} factors 1, 1.5, 2: {'; '.join(shown)}")

# %% tags=["demo", "fold"]
# drops against the capacity factor
panels = {n: {o: drops[n, o] for o in ("tokens", "choices")} for n in ("moe", "uneven")}
at_one = {n: placements.mean([r[1] for r in drops[n, "tokens"]]) for n in ("moe", "uneven")}
title = f"Dropped at factor 1: {at_one['moe']:.0%} with the loss, {at_one['uneven']:.0%} without"
style.show(
    placements.curves(FACTORS, panels, title, "capacity factor", "share of choices dropped"),
    alt=title + "; both orders drop equally many",
)
lab.predict(
    "factor 1",
    f"The balanced model has {perplexity(found['moe']['code']):.1f} on code. With capacity factor "
    "1, token by token, in batches of 4096 tokens in random order, so that what is dropped adds "
    "nothing to its token?",
)

# %% [markdown]
# **Then write one sentence:** even the balanced model drops something at factor 1. How much of it
# is luck, how much uneven loads, how much neighbours that are alike, and which of these would a
# larger batch mend? (And why do both orders drop exactly as many?)
#
# *Your sentence:*
#
# ## 2. The layer, and its balance
#
# $y = \sum_e g_e\, \mathrm{Expert}_e(x)$ over the $k$ chosen. As a loop over tokens this is $T k$
# small products. *Dispatch*: bring the tokens of an expert together, so that it is one product.
# *Combine*: put what comes out where it belongs, times its gate. A choice that was dropped adds
# nothing; a token without any gets $y = 0$, and goes on by the residual connection alone.
#
# ### Exercise 3 · Dispatch and combine
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `dispatch_combine(x, experts, gates, kept, run) -> y`.
#
# - `run(e, rows)` is expert `e` (an int or a tensor of one): rows [n, D] of tokens in, [n, D] out,
#   row by row. Call it **at most once for each expert**, with a row for each token that has a kept
#   choice of it (equal ones, too) and no others, and not at all for an expert that has none. Their
#   order is yours.
# - `y[t]` is the sum over the kept choices of token `t` of gate times output. The gates of what is
#   left are **not** divided by their sum. A token without a kept choice gets exactly 0.
# - Gradients flow to `x`, to `gates`, and into whatever `run` computes with.
#
# **Shapes** `x`, `y` [T, D] float32 or bfloat16, T may be 0; `experts` [T, k] int64, those of a
# token all different, ids up to 255; `gates` [T, k] float32; `kept` [T, k] bool. What `run` gives
# has the dtype of `x`. In bfloat16 gate, product and sums may each be rounded.


# %% solution="ex3"
def dispatch_combine(x: Tensor, experts: Tensor, gates: Tensor, kept: Tensor, run) -> Tensor:
    """y [T, D]: for each token of x [T, D] the sum over its kept experts of gate run(e, row)."""
    ### BEGIN SOLUTION
    y = torch.zeros_like(x)
    for e in experts[kept].unique().tolist():
        token, choice = ((experts == e) & kept).nonzero(as_tuple=True)
        out = run(e, x[token]) * gates[token, choice, None].to(x.dtype)
        y = y.index_add(0, token, out)
    return y
    ### END SOLUTION


# %% check="ex3"
lab.check("ex3")
# %% [markdown]
# <details><summary>Help for exercise 3</summary>
#
# **Idea.** For an expert, `nonzero` of "this choice is this expert, and kept" gives the tokens and
# which of their choices it was. `x[token]` brings them together, `index_add` takes them back: it
# adds, and a token comes once for every expert it has.
#
# **By hand.** x = (1, 10), experts (0, 1) and (1, 2), gates (0.75, 0.25) and (0.5, 0.5), expert e
# multiplies by e + 1, the second token's choice of 1 is dropped. y = 0.75 · 1 + 0.25 · 2 = 1.25,
# and 0.5 · 30 = 15.
#
# **The usual errors.** Assignment in place of addition: the last expert wins. The gate of choice 0
# for all. Gates of all choices, although some were dropped, divided by the sum of the rest. An
# empty batch sent to an expert that nobody asked for.
# </details>
#
# **Acceptance: your layer in the live model.** Your exercises 1 to 3 take the place of the model's
# own mixture, which lets every expert compute every token. Then with capacity, the tokens of all
# texts in a queue in random order. About 8 s.

# %% tags=["demo"]
ids = held_out["code"][:2]
with torch.no_grad():
    off = (with_layer(models["moe"])(ids) - models["moe"](ids)).abs().max().item()
print(f"largest difference of a logit: {off:.1e}")
capped = {}
for name in ("moe", "uneven"):
    for factor in (1.0, 1.5, 2.0):
        capped[name, factor] = slices(with_layer(models[name], factor, by_lot=True))
        print(f"{name:6s} factor {factor}: {spread(capped[name, factor])} on code", flush=True)
    print(f"{name:6s} no limit:   {spread(found[name]['code'])}")
lab.reveal("factor 1", round(perplexity(capped["moe", 1.0]), 1))

# %% [markdown]
# **Whose tokens are dropped, and which of their choices?** In random order everybody pays alike.
# Now the queue as the texts come, one behind the other (the four slices are its quarters), and the
# other order, `"choices"`, which drops exactly as many. First come, first served is not private
# either: what others in the batch wrote decides who finds a place. So change one token, the
# **last** of 256: how far do logits of those **before** it move? In a causal model not at all.
# About 6 s.

# %% tags=["demo"]
a = held_out["code"][:1].clone()
moved = {}
for order in ("tokens", "choices"):
    capped["as it comes", order] = slices(with_layer(models["moe"], 1.0, order))
    capped["by lot", order] = slices(with_layer(models["moe"], 1.0, order, by_lot=True))
    who_is_dropped(order)
    capped_model, moved[order] = with_layer(models["moe"], 1.0, order), 0.0
    before = capped_model(a).detach()
    for token in range(100, 1100, 100):  # ten others in the last place
        after = capped_model(torch.cat([a[:, :-1], torch.tensor([[token]])], 1)).detach()
        moved[order] = max(moved[order], (after - before)[0, :-1].abs().max().item())
    print(f"- logits of earlier tokens move by up to {moved[order]:.2g}", flush=True)

# %% [markdown]
# **Then write one sentence:** what does each order cost, and whom? Which of the two would you
# train with, and why do mixtures that serve (Mixtral, DeepSeek-V3) drop nothing?
#
# *Your sentence:*
#
# **What do experts divide?** Names like "expert" suggest subjects. Three measurements, each the
# mean over tokens of how many of a token's 2 experts are the same:
#
# - *same token, context shuffled*: the text as it is, against the same tokens in random order;
# - *other token, same context*: each token against the next one in the text;
# - *chance*: each token against one drawn from all texts.
#
# Then the same token in another window, by the token before it. Last, subjects: code and prose load
# the experts differently, but they have other tokens too. So take tokens that stand in both, each
# as often as in prose. What is left has a control: the same windows dealt by lot into two halves,
# 100 times, a line for each layer. About 6 s.

# %% tags=["demo"]
divided = {"same token, context shuffled": [], "other token, same context": [], "chance": []}
plain = chosen_by(models["moe"], both)
for own, mixed in zip(plain, chosen_by(models["moe"], both.gather(1, places)), strict=True):
    for way, other in zip(divided, (in_order(mixed), own.roll(-1, 0), own[anyone]), strict=True):
        divided[way].append(alike(own, other))
for way, values in divided.items():
    print(f"{way:30s}", "  ".join(f"{v:.2f}" for v in values))
kept_share, by_chance = (placements.mean(divided[w]) for w in list(divided)[::2])
title = f"Same token, other context: {kept_share:.2f} of its experts; by chance {by_chance:.2f}"
style.show(figures.alike(divided, title), alt=title)
with_partner(plain)
subjects(plain)

# %% [markdown]
# **Then write one sentence:** is it the token or the context (and how much of it the token before),
# in which layers, and by how much more than chance? In which layers is there something like a
# subject?
#
# *Your sentence:*
#
# **Balance.** A router that is left alone is said to send more to whoever is good already, who so
# gets better (our logs begin when that is over). Switch adds a loss:
#
# $$ L = E \sum_i f_i P_i $$
#
# $f$ counts choices and has no gradient; $P$, the mean probability, has one.
#
# ### Exercise 4 · Balance
#
# **35 minutes · 15 points** · difficulty 4 of 5 ●●●●○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `load(experts, count, real) -> share`, `balancing_loss(logits, experts) -> loss`,
# `moved_bias(bias, share, speed) -> bias_new` and `fooled(tokens) -> logits`.
#
# - `load`: $f$, float32 quotients of two counts; padding (`real` False; None: no padding) is not
#   counted. Without any token, zeros.
# - `balancing_loss`: a scalar float32 through which gradients reach the logits. It gets real tokens
#   only.
# - `moved_bias`: no loss, no gradient (DeepSeek-V3): the bias of an expert with more than the even
#   share falls by `speed`, with less it rises by `speed`, with exactly the share, as `load` gives
#   it, it stays. The even share is $1/E$, rounded to float32: without any token all biases rise.
# - `fooled`: **derive it.** $L$ is 1 where all is even. Is that its least value? Give logits
#   [tokens, 2] of two experts, k = 1, with $L < 0.9$ although at least 70 % of the tokens go to one
#   of them. No row may be a tie: its two logits differ by 1e-6 at least.
#
# **Shapes** `experts` [T, k] int64; `real` [T] bool; `share`, `bias` [E] float32; `logits` [T, E]
# float32 or bfloat16, computed in float32, of size up to 1e4; T is at least 1 for the loss;
# `tokens` is from 4 to 1e5; `fooled` gives float32.


# %% solution="ex4"
def load(experts: Tensor, count: int, real: Tensor | None = None) -> Tensor:
    """f [count]: the share of the choices [T, k] of real tokens [T] that each expert gets."""
    ### BEGIN SOLUTION
    if real is not None:
        experts = experts[real]
    return torch.bincount(experts.flatten(), minlength=count) / max(1, experts.numel())
    ### END SOLUTION


def balancing_loss(logits: Tensor, experts: Tensor) -> Tensor:
    """E sum f P of logits [T, E] and the experts [T, k] chosen by them; a scalar."""
    ### BEGIN SOLUTION
    count = logits.shape[1]
    return count * (load(experts, count) * logits.float().softmax(-1).mean(0)).sum()
    ### END SOLUTION


def moved_bias(bias: Tensor, share: Tensor, speed: float) -> Tensor:
    """The bias [E] after a step in which the experts got the shares [E]."""
    ### BEGIN SOLUTION
    even = torch.full_like(share, 1 / len(share))
    return bias - speed * torch.sign(share - even)
    ### END SOLUTION


def fooled(tokens: int) -> Tensor:
    """Logits [tokens, 2], 70 % or more to one expert, with a balancing loss below 0.9."""
    ### BEGIN SOLUTION
    logits = torch.tensor([[1e-3, 0.0]]).repeat(tokens, 1)  # by a hair
    logits[int(0.75 * tokens + 0.5) :] = torch.tensor([0.0, 30.0])  # the others are sure
    return logits
    ### END SOLUTION


# %% check="ex4"
lab.check("ex4")
# %% [markdown]
# <details><summary>Help for exercise 4</summary>
#
# **Idea.** If $P$ were $f$, then $E \sum f^2 \ge 1$, and 1 only where all is even. But $P$ need not
# be $f$: a token that goes to an expert by a hair adds 1 to its $f$ and hardly 1/2 to its $P$. Let
# a share $a$ of the tokens do that, and let the others be sure of their expert: write $f$, $P$ and
# $L$ as functions of $a$, and look for the least.
#
# **By hand.** Experts 0, 0, 0, 1 of four tokens: f = (3/4, 1/4). P = (3/8, 5/8), if the three are
# undecided and the fourth is sure. L = 2 (9/32 + 5/32) = 7/8. With everybody sure, P = f and
# L = 2 (9/16 + 1/16) = 5/4.
#
# **The usual errors.** $f$ summed over the choices and not divided by $k$: then even is $k$ (that
# is what transformers computes). Softmax over the tokens. Counts of the chosen experts only, which
# forget those that nobody asked. The bias of the busy one raised.
# </details>
#
# **Reveal.** The loss of the trained layers beside their loads, and the bias at work: routers of
# the uneven model get a bias each, moved 300 times by your rule, and the gates stay the logits'.

# %% tags=["demo"]
for name in ("moe", "uneven"):
    layers = router_logits(models[name], held_out["code"][:8])
    losses = [balancing_loss(s, route(s, 2)[0]).item() for s in layers]
    most = [load(route(s, 2)[0], 8).max().item() for s in layers]
    print(f"{name:6s} loss {[f'{v:.2f}' for v in losses]}, busiest {[f'{v:.2f}' for v in most]}")
print("busiest of the uneven model with a bias:", [f"{evened(s):.2f}" for s in layers])
lab.predict("woken", "8 tokens, 2 of 8 experts each, by lot: how many wake, in the mean?")
lab.predict("one text", "And by 8 neighbours of one text, in the balanced model?")

# %% [markdown]
# (What the bias does to the model's *quality* this does not show: these experts were trained with
# other loads. In DeepSeek-V3 the bias moves while the experts train.)
#
# **Then write one sentence:** a colleague watches the balancing loss alone, sees 0.95 and says
# "better than even". What do you answer?
#
# *Your sentence:*
#
# ## 3. Bytes
#
# At one token a mixture reads $k$ experts. At thousands it reads all $E$, once for all tokens. In
# between every new token wakes experts that nobody else needs.
#
# ### Exercise 5 · What a batch reads, and sends
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 5 of 5 ●●●●●
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `woken(count, k, batch) -> float`, `step_bytes(experts, expert_bytes) -> int` and
# `sent(experts, home, place, devices, row, once) -> bytes`.
#
# - `woken`: **derive it**: the mean number of experts that a batch wakes if each token draws its
#   `k` different experts by lot, all sets alike, independent of the others; right to 1e-9 of it.
#   `ValueError` unless $1 \le k \le$ `count` and `batch` is not negative, whatever the others are;
#   a batch of 0 is no error.
# - `step_bytes`: bytes of the experts that these choices really wake, each read once.
# - `sent`: experts live on devices. Token `t` is on device `home[t]`, expert `e` on `place[e]`;
#   `bytes[p, q]` is what device `p` sends to `q` (on the way there, not back) so that all choices
#   can be computed: `row` bytes for each choice, or, with `once`, for each *device* that a token
#   needs. What stays at home is not sent.
#
# **Shapes** `experts` [T, k] int64, those of a token all different, T may be 0; `home` [T], `place`
# [E] int64, from 0 to `devices` - 1; `bytes` [devices, devices] int64; `row`, `expert_bytes` ints
# up to 1e9; `batch` up to 1e6; `count` up to 1e4.


# %% solution="ex5"
def woken(count: int, k: int, batch: int) -> float:
    """The mean number of `count` experts that `batch` tokens wake, k each, drawn by lot.

    Raises ValueError for numbers out of range.
    """
    ### BEGIN SOLUTION
    if not 1 <= k <= count or batch < 0:
        raise ValueError(f"k={k} of {count} experts, batch={batch}")
    return count * (1 - (1 - k / count) ** batch)
    ### END SOLUTION


def step_bytes(experts: Tensor, expert_bytes: int) -> int:
    """Bytes of the experts that the choices [T, k] wake."""
    ### BEGIN SOLUTION
    return len(set(experts.flatten().tolist())) * expert_bytes
    ### END SOLUTION


def sent(
    experts: Tensor, home: Tensor, place: Tensor, devices: int, row: int, once: bool
) -> Tensor:
    """Bytes from each device to each other, [devices, devices] int64, 0 on the diagonal."""
    ### BEGIN SOLUTION
    moved = home.new_zeros(devices, devices, dtype=torch.int64)
    for at, targets in zip(home.tolist(), place[experts].tolist(), strict=True):
        for to in set(targets) if once else targets:
            if to != at:
                moved[at, to] += row
    return moved
    ### END SOLUTION


# %% check="ex5"
lab.check("ex5")
# %% [markdown]
# <details><summary>Help for exercise 5</summary>
#
# **Idea.** Ask one expert: what is the chance that one token does *not* choose it? That a whole
# batch does not? A mean of counts is the sum of chances, also where they depend on each other.
#
# **By hand.** 4 experts, k = 2: a token misses a given one with chance 1/2, two tokens with 1/4.
# Woken by two: 4 · 3/4 = 3. And by hand: the second token's pair brings 0, 1 or 2 new ones, one in
# the mean. `sent`: a token on device 0 with experts on 1, 1 and 0, rows of 10 bytes: 20 bytes from
# 0 to 1, or 10 with `once`.
#
# **The usual errors.** $k \cdot$ batch experts, whatever $E$ is. Chances for draws *with*
# replacement, $(1 - 1/E)^{kB}$. Bytes of every choice in place of every expert. Rows and columns
# exchanged.
# </details>
#
# **Reveal.** Experts really touched, in three kinds of batches, beside your formula: *one text*:
# consecutive tokens, as when a prompt is read; *many texts*: one token from each of 16, at places
# of their own, as when a server decodes (beyond 16 tokens a text comes again); *by lot*: the tokens
# of all texts dealt out anew, so that some are of one text by chance. The layers are the spread.

# %% tags=["demo"]
kinds = ("one text", "many texts", "by lot")
touched = {n: {kind: measured(models[n], kind) for kind in kinds} for n in ("moe", "uneven")}
formula = [woken(8, 2, b) for b in BATCHES]
fig, title = woken_figure(touched, formula)
style.show(fig, alt=title)
for name, own in found["eight"].items():
    print(f"{name:6s} 8 tokens wake", {kind: f"{v:.2f}" for kind, v in own.items()})
lab.reveal("woken", round(formula[3], 1))
lab.reveal("one text", round(found["eight"]["moe"]["one text"], 1))

# %% [markdown]
# **The bill at the size of real models.** One layer of Mixtral 8x7B (width 4096, experts of 14336),
# 16 bits, on an H100 by its data sheet: the time of a step is the larger of bytes over bandwidth
# and FLOPs over peak. Beside it the dense layer of as much work for a token (2 experts wide), and
# the dense layer of as many weights (8 experts wide). Choices by your formula. Turn the menus:
# DeepSeek-V3 has 8 of 256 (smaller) experts.

# %% tags=["demo"]
from efflib.meter.roofline import GPUS

H100, EXPERT = GPUS["H100"], 3 * 4096 * 14336  # weights of an expert


def seconds(read: float, used: float, batch: int) -> float:
    """A step: `read` experts' weights from memory, `used` experts' products for each token."""
    bytes_, flops = 2 * EXPERT * read, 2 * EXPERT * used * batch
    return max(bytes_ / H100.bandwidth, flops / H100.tensor["bf16"])


MANY = [1, 2, 4, 8, 16, 64, 256, 1024, 2048, 4096]
explorer.explorer(bill, {"experts": [8, 64, 256], "k": [2, 1, 6, 8]})
print({b: f"{r:.2f}" for b, r in found["dear", 8].items()})

# %% tags=["demo", "fold"]
# what goes between four devices, two experts on each, tokens in equal parts
for name in ("moe", "uneven"):
    experts = chosen_by(models[name], both)[2]
    place, home = torch.arange(8) // 2, torch.arange(len(experts)) * 4 // len(experts)
    for once in (False, True):
        moved = sent(experts, home, place, 4, 2 * 128, once)
        each, into = int(moved.sum()) / len(experts), moved.sum(0).double()
        print(
            f"{name:6s} once={once!s:5s} {each:.0f} bytes a token on the way there (a row: 256); ",
            end="",
        )
        print(f"the busiest device receives {into.max() / into.mean():.2f} times the mean")

# %% [markdown]
# **Then write one sentence:** from which batch on is the mixture as cheap as its dense twin again,
# and why so late? (Compare bytes with FLOPs of *one* expert.)
#
# *Your sentence:*
#
# ## 4. A dense layer that skips
#
# The zoo's `relu` has $y = W_{down} (\mathrm{relu}(W_{gate} x) \cdot W_{up} x)$. Where the gate is
# not above 0, a neuron is exactly 0: its rows need not be read, if one knew. **DejaVu** (Liu et
# al., 2023) trains for each layer a small predictor: two thin matrices that say which neurons will
# be active. The next cell reads calibration text, about 8 s.

# %% tags=["demo"]
train_x = mlp_inputs(zoo.calibration("code", n=32, length=256))  # 8192 tokens
awake = [(x @ m.gate_proj.weight.T > 0).detach() for x, m in zip(train_x, mlps, strict=True)]
density = [a.float().mean().item() for a in awake]
found["relu"] = slices(relu)
print("active neurons of a token, by layer:", [f"{d:.0%}" for d in density])
print(f"{spread(found['relu'])} on code (dense, with silu: {spread(found['dense']['code'])})")
lab.predict(
    "skip",
    "Half of the MLPs' bytes, the predictor's own included, neurons chosen by a predictor: loss "
    "added, in nats per token?",
)

# %% [markdown]
# ### Exercise 6 · Skipped neurons
#
# **30 minutes · 15 points** · difficulty 3 of 5 ●●●○○ · importance 4 of 5 ●●●●○
# · [rules for all exercises](#Rules-for-all-exercises)
#
# **Deliver** `predictor_loss(scores, active) -> loss`, `recall(chosen, active) -> float`,
# `skipping_mlp(x, gate, up, down, chosen) -> y` and
# `bytes_read(chosen, width, number, predictor) -> int`.
#
# - `predictor_loss`: binary cross-entropy of sigmoid(score) against `active`, the mean over all
#   T · N entries, where an active neuron weighs 1 and a silent one as much as the share of active
#   neurons in `active`, plus 0.005. Gradients reach the scores (at a score of exactly 0 any will
#   do: some right forms have a corner there). The loss may be off by float32's rounding of a score.
# - `recall`: of all active neurons the share that was chosen, to 1e-6; 1.0 if none is active.
# - `skipping_mlp`: for each token the sum over **its** chosen neurons. Rows that no token of the
#   batch chose are **not used**: they may hold NaN, and no product reads them, or zeros in their
#   place. How often the others are used is yours; no gradient is asked.
# - `bytes_read`: what a step for these tokens reads: three rows or columns of `width` numbers for
#   each neuron that **any** token chose, and always the `predictor` numbers of the predictor,
#   `number` bytes each.
#
# **Shapes** `scores` [T, N], of size up to 1e4; `active`, `chosen` [T, N] bool; T may be 0, except
# for the loss; `x`, `y` [T, D]; `gate`, `up` [N, D]; `down` [D, N], of sizes at which no product
# overflows, also none that a token did not choose; `loss` a scalar. `bytes_read`:
# N up to 1e5, `width` up to 2e4.


# %% solution="ex6"
def predictor_loss(scores: Tensor, active: Tensor) -> Tensor:
    """Weighted binary cross-entropy of scores [T, N] for active [T, N]; a scalar."""
    ### BEGIN SOLUTION
    silent = active.float().mean() + 0.005
    weight = torch.where(active, 1.0, silent)
    return F.binary_cross_entropy_with_logits(scores, active.float(), weight=weight)
    ### END SOLUTION


def recall(chosen: Tensor, active: Tensor) -> float:
    """The share of the active neurons [T, N] that was chosen [T, N]."""
    ### BEGIN SOLUTION
    hits, all_of_them = int((chosen & active).sum()), int(active.sum())
    return hits / all_of_them if all_of_them else 1.0
    ### END SOLUTION


def skipping_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, chosen: Tensor) -> Tensor:
    """The MLP of x [T, D] with only the neurons that are chosen [T, N]. [T, D]"""
    ### BEGIN SOLUTION
    used = chosen.any(0)
    inner = torch.relu(x @ gate[used].T) * (x @ up[used].T)
    return (inner * chosen[:, used]) @ down[:, used].T
    ### END SOLUTION


def bytes_read(chosen: Tensor, width: int, number: int, predictor: int) -> int:
    """Bytes of a step for the tokens of chosen [T, N]."""
    ### BEGIN SOLUTION
    return number * (3 * width * int(chosen.any(0).sum()) + predictor)
    ### END SOLUTION


# %% check="ex6"
lab.check("ex6")
# %% [markdown]
# <details><summary>Help for exercise 6</summary>
#
# **Idea.** `chosen.any(0)` is the union: what has to be read. Within it a token's own neurons are
# kept by multiplying with its row of `chosen`.
#
# **By hand.** Two neurons, one active: the silent one weighs 0.505. Scores 0 and 0: each has a
# cross-entropy of ln 2, so the loss is (1 + 0.505) / 2 · ln 2 = 0.522. Two tokens that choose
# neurons {0, 1} and {1, 2}, width 8, 2 bytes, no predictor: 3 · 8 · 3 · 2 = 144 bytes.
#
# **The usual errors.** All rows computed and then multiplied by 0: nothing is saved. The union used
# for every token, which is more than the token chose. Recall divided by what was chosen: that is
# precision. The sigmoid before a loss that takes scores.
# </details>
#
# **Reveal.** A predictor of rank 32 for each layer, trained with your loss on what the MLPs read.
# Each layer may use its share of active neurons times a factor. Controls at the same number of
# neurons a token: *fixed*, those that were active most often; *random*, others for each token; and
# the two a sceptic asks for. *The gate itself* is a third of the layer's weights; whoever reads it
# knows exactly who is active, and takes the largest. *The gate in 4 bits* (rounded to nearest in
# groups of 32, scales counted) is a predictor without any training; rows that it chooses are then
# read in 16 bits. About 15 s in two cells.


# %% tags=["demo", "fold"]
# predictors; ways to score neurons; a model that skips; its bytes for one token
def train_predictor(x: Tensor, active: Tensor, rank: int, steps: int = 300) -> list[Tensor]:
    """[D, r], [r, N], [N]: scores are x a b + c."""
    g = torch.Generator().manual_seed(0)
    shapes = ((128, rank), (rank, 320))
    parts = [torch.randn(s, generator=g) / s[0] ** 0.5 for s in shapes] + [torch.zeros(320)]
    optimizer = torch.optim.AdamW([p.requires_grad_() for p in parts], lr=5e-3, weight_decay=0.01)
    for _ in range(steps):
        rows = torch.randint(len(x), (512,), generator=g)
        optimizer.zero_grad()
        predictor_loss(x[rows] @ parts[0] @ parts[1] + parts[2], active[rows]).backward()
        optimizer.step()
    return [p.detach() for p in parts]


RANK = 32
predictors = [train_predictor(x, a, RANK) for x, a in zip(train_x, awake, strict=True)]
often = [a.float().mean(0) for a in awake]


def in_4_bits(w: Tensor) -> Tensor:
    """[320, 128] rounded to nearest, a scale for each group of 32 inputs."""
    groups = w.detach().view(320, 4, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scale).round() * scale).view(320, 128)


coarse = [in_4_bits(m.gate_proj.weight) for m in mlps]


def scores_of(way: str, i: int, x: Tensor) -> Tensor:
    """Of layer i's neurons for x [T, D]: [T, N]."""
    if way == "predictor":
        a, b, c = predictors[i]
        return x @ a @ b + c
    if way == "the gate itself":
        return x @ mlps[i].gate_proj.weight.T
    if way == "the gate in 4 bits":
        return x @ coarse[i].T
    if way == "fixed":
        return often[i].expand(len(x), -1)
    return torch.rand(len(x), 320, generator=torch.Generator().manual_seed(i))


def largest(scores: Tensor, budget: int) -> Tensor:
    return torch.zeros(scores.shape, dtype=torch.bool).scatter(1, scores.topk(budget).indices, True)


def budget_of(i: int, factor: float) -> int:
    return max(1, min(320, round(factor * density[i] * 320)))


def skipping(way: str, factor: float) -> nn.Module:
    """The relu model on your skipping_mlp."""
    changed = copy.deepcopy(relu)
    for i, layer in enumerate(changed.model.layers):
        m = layer.mlp
        weights = [w.weight.detach() for w in (m.gate_proj, m.up_proj, m.down_proj)]

        def forward(x: Tensor, i=i, weights=weights) -> Tensor:
            rows = x.flatten(0, 1)
            chosen = largest(scores_of(way, i, rows), budget_of(i, factor))
            return skipping_mlp(rows, *weights, chosen).view_as(x)

        m.forward = forward
    return changed


def share_of_bytes(way: str, factor: float) -> float:
    """Of one token, over all layers: bytes read by bytes of the whole MLPs."""
    extra = {"predictor": sum(p.numel() for p in predictors[0]), "the gate itself": 128 * 320}
    extra["the gate in 4 bits"] = 128 * 320 // 4 + 4 * 320  # in numbers of 16 bits, with scales
    total = 0.0
    for i in range(4):
        n = budget_of(i, factor)
        one = largest(scores_of(way, i, train_x[i][:1]), n)
        total += bytes_read(one, 128, 2, extra.get(way, 0))
        if way == "the gate itself":  # its rows are read already
            total -= 2 * 128 * n
    return total / (4 * 2 * 3 * 128 * 320)


# %% tags=["demo"]
base = placements.mean(found["relu"])
WAYS = ("predictor", "the gate itself", "the gate in 4 bits", "fixed", "random")
curves = {way: [] for way in WAYS}
for way, points in curves.items():
    for factor in (0.5, 0.75, 1.0, 1.25, 1.5):
        lost = placements.mean(slices(skipping(way, factor))) - base
        points.append((share_of_bytes(way, factor), lost))
    shown = ", ".join(f"{size:.0%} {lost:+.2f}" for size, lost in points)
    print(f"{way:18s} {shown}", flush=True)

# %% tags=["demo", "fold"]
# recall on held-out text; the figure; at half of the bytes
held_x = mlp_inputs(held_out["code"])
truth = [x @ m.gate_proj.weight.T > 0 for x, m in zip(held_x, mlps, strict=True)]
for way in curves:
    hits = [
        recall(largest(scores_of(way, i, x), budget_of(i, 1.0)), truth[i])
        for i, x in enumerate(held_x)
    ]
    print(f"{way:18s} recall with as many neurons as are active: {[f'{h:.2f}' for h in hits]}")


def at_half(points: list[tuple[float, float]]) -> float:
    """The loss where a straight line between the measured points crosses half of the bytes."""
    for (a, u), (b, v) in zip(points, points[1:], strict=False):
        if a <= 0.5 <= b:
            return u + (v - u) * (0.5 - a) / (b - a)
    return math.nan


found["half"] = {way: at_half(points) for way, points in curves.items()}
title = "At half of the MLPs' bytes: " + ", ".join(
    f"{w} {v:+.2f}" for w, v in found["half"].items()
)
style.show(figures.skipped(curves, title), alt=title)
lab.reveal("skip", round(found["half"]["predictor"], 2))

# %% [markdown]
# (*Random* draws for each token anew, *fixed* leaves the same neurons out for all; the chapter has
# one random set for all, too.)
#
# **And in a batch?** What must be read is the union. If neurons were active by lot, each with its
# share $p$, it would be $N (1 - (1 - p)^B)$: exercise 5 again.

# %% tags=["demo"]
for i in (1, 3):
    rows = truth[i].view(-1, 64, 320)
    unions = [placements.mean([bytes_read(r[:b], 128, 2, 0) for r in rows]) for b in BATCHES]
    whole = 2 * 3 * 128 * 320
    by_lot = [1 - (1 - truth[i].float().mean().item()) ** b for b in BATCHES]
    print(
        f"layer {i}: read of the MLP",
        {b: f"{u / whole:.0%}" for b, u in zip(BATCHES, unions, strict=True)},
    )
    print("   by lot           ", {b: f"{v:.0%}" for b, v in zip(BATCHES, by_lot, strict=True)})

# %% [markdown]
# **Then write one sentence:** for whom is contextual sparsity of neurons, for whom a mixture, and
# what did the sceptic's control do to the predictor?
#
# *Your sentence:*
#
# ## 5. Misconceptions
#
# <details><summary>Sentences to compare yours with</summary>
#
# **Section 1, gradient.** A single renormalized gate is 1 whatever the logits are, so nothing flows
# back; only a balancing loss, which reads the probabilities, still moves the router.
#
# **Section 1, drops.** Even loads drop a few percent by luck alone: a queue with exactly as many
# places as its mean overflows about as often as not. Larger batches come nearer to their mean and
# mend that, and they mix neighbours that are alike. But most of what the balanced model drops is
# that its loads are *not* even, and no batch mends that. The order says who, not how many: an
# expert that is asked more often than it has places drops what is too much.
#
# **Section 2, who pays.** Token by token: whoever stands late in the batch, for what others wrote,
# and with first choices as often as with second ones. By choices the second ones pay, which have
# the smaller gates, and hardly anybody is left with nothing: as many drops, and far less lost, in
# random order too. But that is not causal, and an answer that depends on strangers in the batch is
# neither fair nor reproducible: fine for training, while servers give every choice a place and pay
# with uneven work.
#
# **Section 2, token or context.** See your table: the same token in a shuffled text keeps far more
# of its experts than chance, most in the first layer; deeper the context has a say, and most of
# that is the token before. In the first layer code and prose differ as their tokens do: what is
# left for the same tokens, windows dealt by lot often have too. In the last two most of the
# difference is left, two or three times what such deals have: something like a subject, which a
# difference of loads alone would not have shown. (The chapter has three seeds of it.)
#
# **Section 2, balance.** The loss has its least value elsewhere: below 1 is no sign of balance, and
# 1 none either. Watch the loads.
#
# **Section 3.** The weights of an expert are read for the tokens that it gets, $B k / E$ of them;
# an expert is bound by arithmetic only when *its* tokens reach the ridge, so $E / k$ times later
# than the dense layer.
# </details>
#
# **"A mixture saves memory."** It saves arithmetic, and bytes at batch 1. All experts have to lie
# somewhere.
#
# **"Experts are experts."** A name from 1991. Look at the table of section 2 before you use it.
#
# **"As much work, so as fast."** At one token and at thousands. A server that decodes 8 to 64
# sequences reads nearly all experts for each token's two.
#
# **"Recall of 90 % is good."** It depends on which neurons are missed and on what the prediction
# costs. Your tables: the gate itself misses some 10 % and loses nothing, for what it misses is the
# smallest; its copy in 4 bits, which nobody trained, does as well for a quarter of its bytes, and
# beats the trained predictor at every number of bytes. The predictor learnt signs, as DejaVu's did,
# so it does not know which active neurons count. In a model without a gate
# (OPT, for which DejaVu was made) the first matrix would be half of the layer; and a predictor that
# reads the layer *before* hides its time, which bytes do not show.
#
# ### Open task (not graded)
#
# **Beat it:** the `relu` model with at most 0.05 nats added on code, at the fewest bytes of its
# MLPs for one token. To beat is the gate in 4 bits: find the factor at which it just stays below.
# Ideas: other factors for other layers (layer 0 is hardly sparse: leave it whole?); 3 or 2 bits
# (lab 1); an SVD of the gate in place of the trained predictor; rows that are always active need
# no prediction; a loss that knows how much a neuron counts.


# %% tags=["demo"]
def own(factor: float = 0.75) -> tuple[float, float]:
    """(share of bytes, loss added) of yours. It starts as the gate in 4 bits."""
    way = "the gate in 4 bits"
    return share_of_bytes(way, factor), placements.mean(slices(skipping(way, factor))) - base


found["open task"] = own()
size, lost = found["open task"]
print(f"yours: {size:.1%} of the bytes, {lost:+.3f} nats")

# %% [markdown]
# ## 6. Written questions
#
# Five points each, graded by a person. Three to six sentences and your own numbers are enough.
#
# **Question 1, the one of the title.** When does B cost what A costs, when more, and what has it
# learnt to tell apart? *Rubric:* equal at one token, and why, in bytes (1); your numbers for the
# middle, by the formula and as touched (1); from where on it is cheap again, and why so late (1);
# what the router divides, with your number beside chance (1); whether B is better, with the spread,
# and what the comparison lacks (1).
#
# **Question 2.** A colleague: "Our balancing loss is 0.98, so the router is even. We serve with
# capacity factor 1 and drop nothing to speak of. And in the dense layers a predictor with 90 %
# recall halves the bytes for free." What do you answer? *Rubric:* what the loss does not say, with
# an example (1); your drops at factor 1 and what they cost (1); who is dropped, or that others'
# tokens decide (1); your loss at half of the bytes beside the controls (1); what must be measured
# on the real model (1).

# %% [markdown] written="w1"
# At one token both read the weights of two experts' worth of neurons, so as many bytes as products.
# Eight tokens drawn by lot wake 8 (1 - (3/4)^8) = 7.2 experts for the same work; of one text I
# measured 6.4, of many texts 6.9, and the bill on an H100 was 3.6 times the dense layer's, 4 times
# at 64. It is equal again at 2048 tokens: an expert sees only a quarter of the batch, so it reaches
# the ridge four times later than the dense layer. The router mostly knows the token: in a shuffled
# context 0.97 of its experts stay in layer 0 and 0.65 in the last, where chance is 0.28 and the
# next token has 0.41; most of what the context says is the token before. For the same tokens code
# and prose differ by 0.10 in the last layer, and by 0.05 if windows are dealt by lot: a little of a
# subject. On code B has 12.2 against 13.5, better in all 8 slices of one pair of models, but it
# also has 2.5 times the parameters; a dense model with as many was not there, and the dense one was
# trained in bfloat16.

# %% [markdown] written="w2"
# The loss does not say that the router is even: with three tokens of four by a hair at one expert
# and the fourth sure of the other it is 7/8, so look at the loads. At factor 1 my balanced model
# dropped 16 % of its choices in batches of 256, and its perplexity went from 12.2 to 42 in batches
# of 4096 in random order; with the order of choices, as many drops, to 18. The uneven one dropped
# 43 %. Token by token who is dropped stands late in the batch (49 % of the last quarter, none of
# the first), so answers depend on other people's tokens, and by choices even on later ones. A
# predictor at half of the bytes lost 0.04 nats, and fixed neurons 0.83, but the gate itself lost
# 0.02 and its copy in 4 bits nothing: recall says little of what is lost, the predictor is not the
# best there is, and in a batch of 16 nearly all neurons are read. I would measure loads and drops
# on the real traffic, and time and quality of the predictor against the gate on the real model.

# %% [markdown]
# ## Stretch (not graded)
#
# - **Renormalize after drops** (DeepSpeed does): whose perplexity is better at factor 1?
# - **Places by gates** (Riquelme et al., 2021): the largest gates first. Who is dropped then, and
#   is it causal?
# - **Experts' choice** (Zhou et al., 2022): each expert takes its best tokens. Who sees the
#   future?
# - **Fewer devices**: choose the two experts of a token on one device where scores allow it. What
#   does `sent` save, and what does the perplexity say?
#
# **Next:** lab 14 fills the batches; lab 17 puts experts on devices that talk.
#
# **Sources.** Shazeer et al., 2017 (arXiv:1701.06538). Lepikhin et al., *GShard*, 2020
# (arXiv:2006.16668). Fedus et al., *Switch*, 2021 (arXiv:2101.03961). Zoph et al., *ST-MoE*, 2022
# (arXiv:2202.08906). Jiang et al., *Mixtral*, 2024 (arXiv:2401.04088). *DeepSeek-V3*, 2024
# (arXiv:2412.19437). Wang et al., *Auxiliary-Loss-Free Load Balancing*, 2024 (arXiv:2408.15664).
# Liu et al., *Deja Vu*, 2023 (arXiv:2310.17157).
#
# ## Report and takeaways
#
# What the public tests gave, your predictions, and the takeaways with the numbers you found.

# %% tags=["demo", "fold"]
lab.report()
half = ", ".join(f"{w} {v:+.2f}" for w, v in found["half"].items())
takeaways = [
    "Perplexity on code: "
    + ", ".join(f"{n} {perplexity(found[n]['code']):.2f}" for n in models)
    + "; as much work for a token.",
    f"Busiest expert, mean over layers (least to most): {ends['moe']} with the loss, "
    f"{ends['uneven']} without.",
    f"Dropped at factor 1: {at_one['moe']:.0%} and {at_one['uneven']:.0%}; perplexity then "
    f"{perplexity(capped['moe', 1.0]):.3g} and {perplexity(capped['uneven', 1.0]):.3g}; with the "
    f"order of choices {perplexity(capped['by lot', 'choices']):.3g} in the balanced one.",
    "Experts in common, mean over layers: "
    + ", ".join(f"{w} {placements.mean(v):.2f}" for w, v in divided.items())
    + ".",
    f"8 tokens wake {formula[3]:.1f} by lot; {found['eight']['moe']['one text']:.1f} of one text, "
    f"{found['eight']['moe']['many texts']:.1f} of many.",
    f"Half of the MLPs' bytes: {half}.",
]
print("\n".join(f"{i}. {line}" for i, line in enumerate(takeaways, start=1)))
