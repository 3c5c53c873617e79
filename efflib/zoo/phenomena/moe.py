"""Mixtures of experts, and neurons that sleep: loads, drops, what is divided, what is read.

Two mixtures of 8 experts, 2 for a token, trained with a balancing loss and without; the share of
the busiest expert of each layer, choices without a place when every expert has as many, experts
that a batch wakes, and how many of a token's experts are the same in another context.  The model
with relu: the loss that is added when only some neurons are computed, those a predictor of rank 32
names.

Controls: for drops the same model without a limit; for what decides a token's experts, the next
token of the same text, and a token drawn from all; for experts woken, tokens dealt out by lot and
the formula; for the predictor as many neurons that are always the same or drawn at random, and the
gate itself, which knows who is active for a third of the layer's bytes.

Not claimed: that the mixture is better than its dense twin because of its experts.  It has 2.5
times the parameters, and no dense model with as many was trained; the twin was trained in bfloat16
autocast, the mixtures in float32.  Nor that a predictor beats the gate.
"""

import copy

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.models.mixture import Mixture
from efflib.moe.balance import load
from efflib.moe.capacity import admitted, capacity
from efflib.moe.layer import by_index, dispatch_combine
from efflib.moe.router import route
from efflib.moe.traffic import touched, woken
from efflib.plots.style import COLOURS
from efflib.zoo.phenomena.skipping import WAYS, Skipping
from efflib.zoo.phenomena.story import Claim, Scale, losses, windows

COUNT, K = 8, 2
SKIPPED = (0.75, 1.0)  # neurons of a token, by the mean number of active ones
MODELS = {"moe": "with a balancing loss", "uneven": "without", "relu": "dense, relu"}


@torch.no_grad()
def choices(model: Mixture, ids: Tensor) -> list[Tensor]:
    """The experts [B T, k] of each layer for ids [B, T]."""
    model(ids)
    return [route(m.logits, m.k).experts for m in model.mixtures()]


def dropped(experts: Tensor, factor: float, order: str = "tokens", batch: int = 128) -> float:
    """The share of the choices [T, k] without a place, in batches of `batch` tokens."""
    places = capacity(batch, COUNT, K, factor)
    kept = [admitted(part, places, order) for part in experts.split(batch)]
    return 1 - torch.cat(kept).float().mean().item()


def with_capacity(
    model: Mixture, factor: float, order: str = "tokens", lot: int | None = None
) -> Mixture:
    """A copy in which choices without a place add nothing; a forward pass is a batch.

    lot: the seed of a random order of the tokens in the queue; None for the text's own order.
    """

    def mix(x: Tensor, logits: Tensor, k: int, experts: nn.ModuleList) -> Tensor:
        routing = route(logits, k)
        places = capacity(len(x), len(experts), k, factor)
        queue = torch.arange(len(x))
        if lot is not None:
            queue = torch.randperm(len(x), generator=torch.Generator().manual_seed(lot))
        kept = torch.empty(routing.experts.shape, dtype=torch.bool)
        kept[queue] = admitted(routing.experts[queue], places, order)
        return dispatch_combine(x, routing, experts, kept)

    changed = copy.deepcopy(model)
    changed.set_mix(mix)
    return changed


def in_common(a: Tensor, b: Tensor) -> float:
    """The share of the experts of a [T, k] that b has for the same token, in any place."""
    return (a[:, :, None] == b[:, None, :]).any(-1).float().mean().item()


def divided(model: Mixture, ids: Tensor, seed: int) -> dict[str, list[float]]:
    """{what is compared: experts in common in each layer} for ids [B, T]."""
    g = torch.Generator().manual_seed(seed)
    places = torch.rand(ids.shape, generator=g).argsort(1)
    back = places.argsort(1)
    anyone = torch.randperm(ids.numel(), generator=g)
    found: dict[str, list[float]] = {"shuffled": [], "next": [], "chance": []}
    for own, mixed in zip(choices(model, ids), choices(model, ids.gather(1, places)), strict=True):
        rows = mixed.view(*ids.shape, K)
        mine = rows.gather(1, back[..., None].expand(rows.shape)).flatten(0, 1)
        pairs = (mine, own.roll(-1, 0), own[anyone])
        for way, other in zip(found, pairs, strict=True):
            found[way].append(in_common(own, other))
    return found


def batches(ids: Tensor, kind: str, size: int, seed: int) -> Tensor:
    """Places of the tokens ids [B, T] in batches [n, size]: of one text, of many, or by lot."""
    at = torch.arange(ids.numel()).view(ids.shape)
    if kind == "by lot":
        at = at.flatten()[
            torch.randperm(ids.numel(), generator=torch.Generator().manual_seed(seed))
        ]
    at = (at.T if kind == "many texts" else at).flatten()
    return at[: len(at) // size * size].view(-1, size)


def woken_by(experts: Tensor, rows: Tensor) -> float:
    """Experts woken, the mean over batches rows [n, B]."""
    return sum(touched(experts[row]) for row in rows) / len(rows)


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """Loads, drops and losses "<moe or uneven> <what>", experts in common, and what skipping adds:
    "relu <factor> <way>", with "relu bytes ..." beside it."""
    text = windows("code", True, scale, seed)
    ids, figures = text[:, :-1], {}
    dense = zoo.load("learnable_sink")
    figures["dense loss"] = losses(dense, text).mean().item()
    for name, key in (("moe", "moe"), ("uneven", "moe_unbalanced")):
        model = zoo.load(key)
        model.set_mix(by_index)
        layers = choices(model, ids)
        shares = [load(experts, COUNT).max().item() for experts in layers]
        figures[f"{name} loss"] = losses(model, text).mean().item()
        figures[f"{name} busiest, mean of layers"] = sum(shares) / len(shares)
        figures[f"{name} busiest, worst layer"] = max(shares)
        for factor in (1.0, 2.0):
            lost = [dropped(experts, factor) for experts in layers]
            figures[f"{name} dropped at {factor:.0f}"] = sum(lost) / len(lost)
        capped = losses(with_capacity(model, 1.0), text).mean().item()
        figures[f"{name} added at 1"] = capped - figures[f"{name} loss"]
        for way, values in divided(model, ids, seed).items():
            figures[f"{name} in common, {way}"] = sum(values) / len(values)
        for kind in ("one text", "by lot"):
            rows = batches(ids, kind, 8, seed)
            own = [woken_by(experts, rows) for experts in layers]
            figures[f"{name} woken by 8, {kind}"] = sum(own) / len(own)
    skipping = Skipping(windows("code", False, scale, seed)[:, :-1])
    exact = losses(skipping.model, text).mean().item()
    for factor in SKIPPED:
        for way in WAYS:
            made = losses(skipping.made(way, factor), text).mean().item()
            figures[f"relu {factor} {way}"] = made - exact
            figures[f"relu bytes {factor} {way}"] = skipping.share(way, factor)
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    common = {way: f[f"moe in common, {way}"] for way in ("shuffled", "next", "chance")}
    ratio = f["uneven busiest, worst layer"] / f["moe busiest, worst layer"]
    eight = woken(COUNT, K, 8)
    by_gate = f["relu 1.0 predictor"] - f["relu 0.75 gate"]
    return [
        Claim("busiest expert of the worst layer: without the loss / with it", ratio, 1.5),
        Claim(
            "dropped at factor 1: without / with",
            f["uneven dropped at 1"] / f["moe dropped at 1"],
            1.5,
        ),
        Claim("with the loss, factor 1 still drops 5 %", f["moe dropped at 1"], 0.05),
        Claim("control: factor 2 drops at most 3 %", 0.03 - f["moe dropped at 2"], 0.0),
        Claim(
            "experts in common: shuffled context / chance", common["shuffled"] / common["chance"], 2
        ),
        Claim(
            "control: shuffled context / the next token", common["shuffled"] / common["next"], 1.3
        ),
        Claim("8 tokens of one text: formula / woken", eight / f["moe woken by 8, one text"], 1.05),
        Claim("control, by lot: formula / woken", eight / f["moe woken by 8, by lot"], 1.0),
        Claim("skipped: fixed / predictor", f["relu 1.0 fixed"] / f["relu 1.0 predictor"], 5),
        Claim("control: random / predictor", f["relu 1.0 random"] / f["relu 1.0 predictor"], 5),
        Claim("control: the gate at 0.75 loses no more than the predictor at 1", by_gate, 0.0),
    ]


def plot(figures: dict[str, float], axes: list) -> None:
    left, right = axes
    names = ["busiest, worst layer", "dropped at 1", "in common, shuffled", "in common, chance"]
    for i, name in enumerate(("moe", "uneven")):
        at = [j + 0.38 * (i - 0.5) for j in range(len(names))]
        heights = [figures[f"{name} {what}"] for what in names]
        left.bar(at, heights, 0.36, color=COLOURS[i], label=MODELS[name], hatch=["", "//"][i])
    labels = ["busiest\nexpert", "dropped,\nfactor 1", "experts in common,\nshuffled", "chance"]
    left.set_xticks(range(len(names)), labels, fontsize=8)
    left.set(ylabel="share", title="two routers")
    left.legend(frameon=False, fontsize=8)
    for i, way in enumerate(WAYS):
        x = [100 * figures[f"relu bytes {factor} {way}"] for factor in SKIPPED]
        y = [figures[f"relu {factor} {way}"] for factor in SKIPPED]
        right.plot(x, y, color=COLOURS[i], marker="os^D"[i], label=way)
    right.set(xlabel="% of the MLPs' bytes, one token", ylabel="added loss (nats per token)")
    right.set_title("neurons skipped")
    right.legend(frameon=False, fontsize=8)
