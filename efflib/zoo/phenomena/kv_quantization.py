"""The key cache in 2 and 4 bits: groups per channel or per token, with and without an outlier.

Text is fed in pieces of 16 tokens through `QuantizedKVCache`, groups of 32, the newest 32 tokens in
full precision; measured is the KL divergence from the next-token distribution with a plain cache,
mean over tokens.  (At 4 bits the loss itself moves by 10^-4, less than its noise.)  Values are per
token throughout.

The outlier channels are an emulation: in every head, the slowest pair of rotary channels of k_proj
is multiplied by 16 and that of q_proj divided by 16.  q k^T stays the same (rotation keeps a pair
together, and a factor of 16 is exact), so the model is the same function; only its keys have two
large channels, as those of large models do.  The zoo's own keys have few: figure "spread" is the
largest |k| of a channel over the median channel's, the worst head of the worst layer.

CONTROL: the keys as they are.  On the zoo's keys groups per token are a little better (0.83 to 0.92
of the divergence over three slices of text), but not by their direction: per token the newest 32
keys are exact at any time, per channel 0 to 31.  With the same tokens rounded groups per channel
are better there too (lab 5 measures it).
"""

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.models.cache import Cache, KVCache
from efflib.plots.style import BLUE, ORANGE
from efflib.quantization.kv import QuantizedKVCache
from efflib.zoo.key_outlier import FACTOR, channel_spread, with_key_outlier
from efflib.zoo.phenomena.story import Claim, Scale, windows

BITS = (4, 2)
GROUP = RESIDUAL = 32
PIECE = 16
KINDS = ("as they are", "outlier")
DIRECTIONS = ("channel", "token")


@torch.no_grad()
def log_probabilities(model: nn.Module, ids: Tensor, cache: Cache) -> Tensor:
    """ln p(next token) after each of ids [n, T], fed in pieces through the cache. [n, T, V]"""
    pieces = ids.split(PIECE, dim=1)
    logits = torch.cat([model(piece, cache=cache) for piece in pieces], dim=1)
    return logits.float().log_softmax(-1)


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """KL divergences in nats, "<keys> <bits> <direction>", and "<keys> spread"."""
    plain = zoo.load("target")
    ids = windows("code", True, scale, seed)[:, :-1]
    exact = log_probabilities(plain, ids, KVCache())
    figures = {}
    for kind in KINDS:
        model = plain if kind == KINDS[0] else with_key_outlier(plain, FACTOR)
        figures[f"{kind} spread"] = channel_spread(model, ids)
        for bits in BITS:
            for direction in DIRECTIONS:
                cache = QuantizedKVCache(bits, GROUP, RESIDUAL, keys=direction)
                ours = log_probabilities(model, ids, cache)
                divergence = (exact.exp() * (exact - ours)).sum(-1).mean()
                figures[f"{kind} {bits} {direction}"] = divergence.item()
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    """Ratios of divergences."""
    out = []
    for bits in BITS:
        outlier = {d: figures[f"outlier {bits} {d}"] for d in DIRECTIONS}
        own = {d: figures[f"as they are {bits} {d}"] for d in DIRECTIONS}
        out += [
            Claim(
                f"{bits} bits, outlier channels: keys per token / per channel",
                outlier["token"] / outlier["channel"],
                2,
            ),
            Claim(
                f"{bits} bits, per token: with / without outlier channels",
                outlier["token"] / own["token"],
                2,
            ),
            Claim(
                f"{bits} bits, per channel: without / with outlier channels",
                own["channel"] / outlier["channel"],
                0.9,
            ),
        ]
    return out


def plot(figures: dict[str, float], axes: list) -> None:
    """Divergence by direction of the groups, one axis for each number of bits."""
    for ax, bits in zip(axes, BITS, strict=True):
        for i, (direction, colour) in enumerate(zip(DIRECTIONS, (BLUE, ORANGE), strict=True)):
            heights = [figures[f"{kind} {bits} {direction}"] for kind in KINDS]
            places = [j + 0.4 * i - 0.2 for j in range(len(KINDS))]
            ax.bar(places, heights, width=0.4, color=colour, label=f"keys per {direction}")
        ax.set_xticks(range(len(KINDS)), ["as they are", "outlier channels"])
        ax.set(ylabel="KL from the exact cache (nats)", title=f"{bits} bits", yscale="log")
        ax.legend(frameon=False, fontsize=8)
