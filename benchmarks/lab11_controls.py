"""Controls of the chapter on GPTQ and rotation, for benchmarks/lab11_tables.py: what is simpler
than the repair or the rotation, and what one number (a grid's range, damping, alpha) decides.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib.hessian import DAMPING, gram, inverse_factor
from efflib.models.gains import with_unit_gains
from efflib.models.recorded import record
from efflib.quantization.awq_model import awq
from efflib.quantization.gptq import gptq_model
from efflib.quantization.low_bit import with_low_bits
from efflib.quantization.ptq import quantize_model
from efflib.quantization.smoothquant import channel_maxima, smooth
from efflib.sequential import change_sequentially
from efflib.zoo.phenomena import gptq as story
from efflib.zoo.phenomena.awq import bias_corrected

GROUP = story.GROUP
STATIC = {"act_order": True, "grids": "static"}
RANGES = [c / 20 for c in range(6, 21)]  # shares of a group's minimum and maximum, to 1
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
Grid = tuple[Tensor, Tensor]  # (scale, zero) of each weight [N, K], float64


def min_max(w: Tensor, bits: int, share: float = 1.0) -> Grid:
    """Of every group, over so much of its range."""
    parts = []
    for part in w.double().split(GROUP, 1):
        low, high = part.amin(1, keepdim=True).clamp(max=0), part.amax(1, keepdim=True).clamp(min=0)
        scale = (high - low) * share / (2**bits - 1)
        scale = torch.where(scale == 0, 1.0, scale)
        zero = torch.round(-low * share / scale)
        parts.append([t.expand(-1, part.shape[1]) for t in (scale, zero)])
    scale, zero = (torch.cat(each, 1) for each in zip(*parts, strict=True))
    return scale, zero


def searched(w: Tensor, bits: int) -> Grid:
    """The share of RANGES with the least squared error of the group's own weights, in each row.

    No text is needed for it, and the grid has as many bits.
    """
    n, k = w.shape
    ends = torch.arange(k) // GROUP  # the group of each column
    least, best = torch.full((n, int(ends[-1]) + 1), torch.inf, dtype=torch.float64), None
    for share in RANGES:
        grid = min_max(w, bits, share)
        error = (w.double() - on_grid(w.double(), *grid, bits)).square()
        error = torch.zeros_like(least).index_add_(1, ends, error)  # [N, groups]
        better = (error < least)[:, ends]
        least = torch.minimum(least, error)
        best = (
            grid
            if best is None
            else [torch.where(better, *p) for p in zip(grid, best, strict=True)]
        )
    return tuple(best)


def on_grid(w: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    return ((w / scale + zero).round().clamp(0, 2**bits - 1) - zero) * scale


def repaired(w: Tensor, h: Tensor, grid: Grid, bits: int, damping: float = DAMPING) -> Tensor:
    """GPTQ on grids that are given."""
    u, w = inverse_factor(h, damping), w.double().T.contiguous()
    scale, zero = (part.T.contiguous() for part in grid)
    for j in range(len(w)):
        new = on_grid(w[j], scale[j], zero[j], bits)
        w[j + 1 :] -= torch.outer(u[j, j + 1 :], (w[j] - new) / u[j, j])
        w[j] = new
    return w.T


def by(model: nn.Module, ids: Tensor, rule: Callable, statistic: Callable = gram) -> nn.Module:
    """rule(w, statistic of the inputs) for every linear, block by block."""
    return change_sequentially(model, ids, statistic, lambda w, h: rule(w, h).to(w))


def ranges(model: nn.Module, code: Tensor, prose: Tensor) -> dict[str, nn.Module]:
    """2 bits: grids over all of a group's range, and over the share with the least error."""
    inputs = record(model, code)
    rtn = quantize_model(model, 2, GROUP)[0]
    clipped = by(model, code, lambda w, h: on_grid(w.double(), *searched(w, 2), 2))

    def on_searched(w: Tensor, h: Tensor) -> Tensor:
        return repaired(w, h, searched(w, 2), 2)

    return {
        "RTN": rtn,
        "RTN, biases corrected": bias_corrected(model, rtn, inputs),
        "RTN, ranges searched": clipped,
        "RTN, ranges searched, biases corrected": bias_corrected(model, clipped, inputs),
        "GPTQ": by(model, code, lambda w, h: repaired(w, h, min_max(w, 2), 2)),
        "GPTQ, ranges searched": by(model, code, on_searched),
        "GPTQ, ranges searched, calibrated on prose": by(model, prose, on_searched),
        "AWQ, not clipped": awq(model, code, 2, GROUP, clip=False),
        "AWQ": awq(model, code, 2, GROUP),
    }


def spectra(model: nn.Module, code: Tensor, seed: int) -> dict[str, nn.Module]:
    """2 bits: parts of H alone. Shuffled inputs keep accidental correlation; means do not."""

    def of_means(x: Tensor) -> Tensor:
        rows = x.detach().double().reshape(-1, x.shape[-1])
        mean = rows.mean(0)
        return len(rows) * (rows.var(0, correction=0).diag() + mean.outer(mean))

    def covariance(x: Tensor) -> Tensor:
        rows = x.detach().double().reshape(-1, x.shape[-1])
        return gram(rows - rows.mean(0))

    apart = story.with_statistic(model, code, 2, covariance)
    return {
        "GPTQ, the diagonal of H alone": story.with_statistic(model, code, 2, story.diagonal),
        "GPTQ, H of shuffled inputs": story.with_statistic(model, code, 2, story.shuffled(seed)),
        "GPTQ, H of variances and means": story.with_statistic(model, code, 2, of_means),
        "GPTQ, H of the covariance": apart,
        "and biases corrected": bias_corrected(model, apart, record(model, code)),
        "GPTQ": gptq_model(model, code, 2, GROUP)[0],
    }


def dampings(model: nn.Module, texts: dict[str, Tensor]) -> dict[tuple[str, str], nn.Module]:
    """{(damping, calibration): model}; beside GPTQ the bias that the same text gives."""
    rtn, found = quantize_model(model, 2, GROUP)[0], {}
    for text, ids in texts.items():
        found["RTN, biases corrected", text] = bias_corrected(model, rtn, record(model, ids))
        for damping in (0.0, 0.01, 0.1, 1.0):
            made = gptq_model(model, ids, 2, GROUP, damping=damping)[0]
            found[f"GPTQ, damping {damping:g}", text] = made
    return found


def smoothings(model: nn.Module, code: Tensor) -> dict[str, nn.Module]:
    tops = channel_maxima(model, code)
    return {f"smoothed, alpha {a}": smooth(model, tops, a) for a in ALPHAS}


def with_gptq(made: nn.Module, code: Tensor) -> tuple[nn.Module, nn.Module]:
    """W4A4 with weights to nearest, and by GPTQ (act-order, static grids)."""
    weights = gptq_model(made, code, 4, GROUP, **STATIC)[0]
    return with_low_bits(made, 4, 4, GROUP), with_low_bits(weights, None, 4, GROUP)


def ways_out(model: nn.Module, code: Tensor, turned: nn.Module) -> dict[str, nn.Module]:
    """The same function: smoothed with the alpha that is best here, absorbed, and turned."""
    smoothed = smooth(model, channel_maxima(model, code), 0.8)
    return {"smoothed, alpha 0.8": smoothed, "absorbed": with_unit_gains(model), "rotated": turned}
