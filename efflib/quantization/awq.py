"""AWQ: protect the weights that large activations meet, by scaling them up before rounding.

Not all input channels of a weight matter alike: the error of W_:j is multiplied by X_j, and a few
channels of X are large.  Keeping those few columns in floating point restores the model, but mixed
precision is awkward for hardware.  Scaling does nearly the same.  For any s > 0 per channel

    X W^T = (X diag(s)^-1) (W diag(s))^T        W_hat = Q(W diag(s)) diag(s)^-1

If a channel's s W_:j stays inside the range of its group, the step of the grid is unchanged and the
error of that channel is divided by s_j.  If it does not, the step grows for the whole group: the
scales have an optimum, which AWQ searches on a grid:

    s = mean|X|^ratio, at least 1e-4,  divided by sqrt(max(s) min(s)),     ratio = 0, 0.05 .. 0.95
    ratio* = argmin  mean (output with W_hat - output with W)^2

Then each group may clip its range if that lowers the error of its share of the output.
Source: Lin et al. 2023 (arXiv:2306.00978), section 3; grids and floors: the authors' code, llm-awq.
Whole models: `awq_model`.

Where implementations differ
- Grid.  Here and in llm-awq and AutoAWQ 20 ratios from 0 to 0.95; llm-compressor includes 1.
- Score.  Here and in llm-awq mean|X|.  AutoAWQ and llm-compressor by default also divide by the
  normalized mean|W|^(1 - ratio) ("duo scaling"); then no ratio is plain rounding, and the search
  can do worse than it (llm-compressor 0.14 adds it to the grid).  AutoAWQ 0.2.9 with duo scaling
  also changes the weights it searches over when it runs on a CPU.
- Quantizer.  Asymmetric everywhere.  Here 0.0 is always in a group's range (see `linear`); AWQ does
  not stretch the range and clamps the zero point, so a group with values in [5, 6] becomes 1.0.
- Tokens of the clipping search.  Here all, through their Gram matrix.  llm-awq takes every
  (T // 512)-th, and stops with an error for fewer than 512.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_dims, expect_finite, expect_whole, expect_within
from efflib.quantization.linear import (
    dequantize_weight,
    from_groups,
    group_layout,
    quantize_weight,
    to_groups,
)

RATIOS = tuple(i / 20 for i in range(20))
FLOOR = 1e-4  # of scales before they are normalized: a channel that is never active has mean|X| = 0
CLIP_GRID = 20  # a step of the clipping search is 1 / 20 of the group's largest |w|,
MAX_SHRINK = 0.5  # and this part of it is searched: 1, 0.95, .. 0.55

Block = Callable[[Sequence[Tensor]], Tensor]  # the weights of some linears -> the block's output


class ScaleSearch(NamedTuple):
    """Outcome of `search_scales`."""

    scales: Tensor  # [K]
    ratio: float
    losses: tuple[float, ...]  # one for each of RATIOS; the first is that of rounding to nearest


def rtn(w: Tensor, bits: int, group_size: int) -> Tensor:
    """Q(W): w [N, K] rounded to nearest in groups of group_size inputs, asymmetric, w's dtype."""
    expect_whole(1, group_size=group_size)
    return dequantize_weight(quantize_weight(w, bits, group_size)).to(w.dtype)


def mean_magnitude(x: Tensor) -> Tensor:
    """mean|X_j| over all tokens of x [..., K]. [K]"""
    expect_dims("[..., K]", x=x)
    return x.detach().abs().reshape(-1, x.shape[-1]).mean(0)


def top_channels(score: Tensor, fraction: float) -> Tensor:
    """Indices of the `fraction` of channels (at least one) with the largest score [K].

    The score decides what counts as salient: mean|X| (`mean_magnitude`), mean|W|, or noise.
    Raises ValueError unless 0 < fraction <= 1 and the score is finite.
    """
    expect_dims("[K]", score=score)
    expect_finite(score=score)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    return score.topk(max(1, round(fraction * len(score)))).indices


def keep_channels(w: Tensor, channels: Tensor, bits: int, group_size: int) -> Tensor:
    """Mixed precision: Q(W), but the columns `channels` of w [N, K] as they were.

    The kept columns still count for the range of their groups, as in the paper's experiment.
    """
    expect_dims("[N, K]", w=w)
    expect_within(channels=channels, stop=w.shape[1])
    kept = torch.zeros(w.shape[1], dtype=torch.bool, device=w.device)
    kept[channels] = True
    return torch.where(kept, w.detach(), rtn(w, bits, group_size))


def corrected_bias(x: Tensor, w: Tensor, w_hat: Tensor, bias: Tensor | None = None) -> Tensor:
    """b + (W - W_hat) mean(x): the layer's mean output over x [..., K] is what it was. [N]

    A control, not part of AWQ: it takes off what rounding adds to every token alike (Nagel et al.
    2019, arXiv:1906.04721, section 4.2).
    """
    _expect_reader(w, x)
    correction = (w - w_hat).detach() @ x.detach().reshape(-1, x.shape[-1]).mean(0)
    return correction if bias is None else bias.detach() + correction


def _expect_reader(w: Tensor, x: Tensor) -> None:
    """Raises ValueError unless w is [N, K], x [..., K], and both are finite."""
    if w.ndim != 2 or w.shape[1:] != x.shape[-1:]:
        raise ValueError(f"weight {tuple(w.shape)} does not read x {tuple(x.shape)}")
    expect_finite(x=x, w=w)


def scaled_rtn(w: Tensor, scales: Tensor, bits: int, group_size: int) -> Tensor:
    """W_hat = Q(W diag(s)) diag(s)^-1 of w [N, K] and scales [K] > 0."""
    if scales.shape != w.shape[1:] or not ((scales > 0) & torch.isfinite(scales)).all():
        raise ValueError(
            f"scales {tuple(scales.shape)} must be positive and finite, one for each input of the "
            f"weight {tuple(w.shape)}"
        )
    return rtn(w.detach() * scales, bits, group_size) / scales


def scale_channels(
    w: Tensor, channels: Tensor, factor: float, bits: int, group_size: int
) -> Tensor:
    """W_hat with s = factor for the columns `channels` of w [N, K] and 1 for the others."""
    expect_dims("[N, K]", w=w)
    expect_within(channels=channels, stop=w.shape[1])
    scales = torch.ones_like(w[0]).index_fill(0, channels, factor)
    return scaled_rtn(w, scales.detach(), bits, group_size)


def candidate_scales(x_mean: Tensor, ratio: float) -> Tensor:
    """mean|X|^ratio, at least FLOOR, centred so that sqrt(max(s) min(s)) = 1. [K]"""
    expect_dims("[K]", x_mean=x_mean)
    expect_finite(x_mean=x_mean)
    if not math.isfinite(ratio) or (x_mean < 0).any():
        raise ValueError(f"need a finite {ratio=} and no mean|X| below 0")
    s = (x_mean**ratio).clamp(min=FLOOR)
    return s / (s.max() * s.min()).sqrt()


def search_scales(
    x: Tensor, weights: Sequence[Tensor], bits: int, group_size: int, block: Block | None = None
) -> ScaleSearch:
    """The ratio of RATIOS with the least error of the block's output, and its scales.

    x [..., K]: calibration inputs of all the linears; weights: their W [N_i, K], which share the
    scales because they share the input.  block(weights) computes the output that is compared, e.g.
    of the attention for W_q, W_k and W_v; default: the linears' own outputs, side by side.
    X is never divided here: the block meets X and W_hat = Q(W s) / s, the same product.
    Ratio 0 is plain rounding, so on x the result is never worse.  The first of equal losses wins.
    Raises ValueError if a weight does not read K channels, if x or a weight holds NaN or infinity,
    or if no loss is finite.
    """
    weights = [w.detach() for w in weights]
    if not weights:
        raise ValueError("no weights: need at least one [N, K]")
    for w in weights:
        _expect_reader(w, x)
    if block is None:
        block = lambda ws: torch.cat([x @ w.T for w in ws], dim=-1)  # noqa: E731
    x_mean = mean_magnitude(x)
    losses = []
    with torch.no_grad():
        exact = block(weights)
        for ratio in RATIOS:
            s = candidate_scales(x_mean, ratio)
            out = block([scaled_rtn(w, s, bits, group_size) for w in weights])
            losses.append(F.mse_loss(out.float(), exact.float()).item())
    best = min(range(len(RATIOS)), key=lambda i: (not losses[i] < float("inf"), losses[i]))
    if not losses[best] < float("inf"):
        raise ValueError(f"no finite loss among {losses}")
    return ScaleSearch(candidate_scales(x_mean, RATIOS[best]), RATIOS[best], tuple(losses))


def group_gram(x: Tensor, group_size: int) -> Tensor:
    """mean over tokens of x_g^T x_g for every group g of x [..., K]. [n_groups, G, G]

    In the last group, inputs that are missing count as 0.
    """
    expect_dims("[..., K]", x=x)
    expect_whole(1, group_size=group_size)
    x = x.detach().reshape(-1, x.shape[-1])  # [T, K]
    size = group_layout(x.shape, group_size)[2]
    x = F.pad(x, (0, -x.shape[1] % size)).unflatten(1, (-1, size))  # [T, n_groups, G]
    return torch.einsum("tgi,tgj->gij", x, x) / len(x)


def search_clip(x: Tensor, w: Tensor, bits: int, group_size: int) -> Tensor:
    """The limit of |w| in every group, for `clip_weight`. [N, n_groups]

        limit = argmin  mean_t (x_tg . (Q(clamp(w_g, -limit, limit)) - w_g))^2

    of the CLIP_GRID MAX_SHRINK limits max|w_g| (1 - i / CLIP_GRID).  With d = Q(...) - w_g and the
    Gram matrix of the group's inputs the error is d^T G d.  Each group is judged by itself.
    x [..., K]: calibration inputs (divided by s, if w [N, K] is multiplied by it).
    Limit max|w_g| is plain rounding, so on x no group gets worse.  Raises ValueError as
    `search_scales`.
    """
    _expect_reader(w, x)
    w = w.detach()
    gram = group_gram(x, group_size)  # [n_groups, G, G]
    largest = to_groups(w, group_size).abs().amax(-1)  # [N, n_groups]
    best, least = largest, torch.full_like(largest, float("inf"))
    for i in range(int(CLIP_GRID * MAX_SHRINK)):
        limit = largest * (1 - i / CLIP_GRID)
        w_hat = rtn(clip_weight(w, limit, group_size), bits, group_size)
        d = to_groups(w_hat - w, group_size)  # [N, n_groups, G]
        error = torch.einsum("ngi,gij,ngj->ng", d, gram, d)
        best = torch.where(error < least, limit, best)
        least = torch.minimum(error, least)
    return best


def clip_weight(w: Tensor, limit: Tensor, group_size: int) -> Tensor:
    """w [N, K] with every group clamped to [-limit, limit], limit [N, n_groups]."""
    groups = to_groups(w.detach(), group_size)  # [N, n_groups, G]
    if limit.shape != groups.shape[:2]:
        raise ValueError(
            f"limit {tuple(limit.shape)} must have one entry per group {tuple(groups.shape[:2])}"
        )
    if not (limit >= 0).all():
        raise ValueError("every limit must be at least 0")
    limit = limit.unsqueeze(-1)
    return from_groups(groups.clamp(-limit, limit), (w.shape[0], w.shape[1]))
