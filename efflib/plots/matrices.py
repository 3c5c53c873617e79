"""A weight matrix as what it is: rows, columns and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from efflib.plots.style import BLUE, DARK_TEXT, DIVERGING, GREY, LIGHT_TEXT, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS_UP_TO = 100  # cells; above that the numbers would not be readable


def _draw_matrix(ax, matrix: Tensor, limit: float, title: str, digits: int) -> None:
    """One matrix on ax, colours symmetric about 0 within +-limit, numbers where they fit."""
    image = ax.imshow(matrix.numpy(), cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("input k")
    if matrix.numel() > NUMBERS_UP_TO:
        ax.figure.colorbar(image, ax=ax, shrink=0.8)
        return
    ax.set_xticks(range(matrix.shape[1]))
    ax.set_yticks(range(matrix.shape[0]))
    for (n, k), value in zip(
        torch.cartesian_prod(*map(torch.arange, matrix.shape)).tolist(),
        matrix.flatten().tolist(),
        strict=True,
    ):
        dark = abs(value) > 0.6 * limit
        ax.text(
            k,
            n,
            f"{value:.{digits}f}",
            ha="center",
            va="center",
            fontsize=8,
            color=LIGHT_TEXT if dark else DARK_TEXT,
        )


def before_after(w: Tensor, w_hat: Tensor, title: str, digits: int = 2) -> Figure:
    """W, its quantized version and the error, side by side, in one colour scale (error: its own).

    w, w_hat: [N, K].  Raises ValueError if the shapes differ.
    """
    if w.shape != w_hat.shape or w.ndim != 2:
        raise ValueError(f"need two [N, K], got {tuple(w.shape)} and {tuple(w_hat.shape)}")
    w, w_hat = w.detach().float(), w_hat.detach().float() + 0.0
    error = w_hat - w + 0.0  # + 0.0: no "-0.00" in the figure
    fig, axes = figure(columns=3, width=9.0, height=3.2)
    limit = w.abs().max().item() or 1.0
    _draw_matrix(axes[0], w, limit, "weight W", digits)
    _draw_matrix(axes[1], w_hat, limit, "quantized", digits)
    largest = error.abs().max().item() or 1.0
    _draw_matrix(axes[2], error, largest, f"error (largest {largest:.2g})", digits)
    axes[0].set_ylabel("output n")
    fig.suptitle(title, fontsize=11)
    return fig


def row_ranges(w: Tensor, title: str, quantity: str = "weight") -> Figure:
    """Smallest to largest value of every row of w [N, K] as a bar, rows sorted by their width.

    The dashed lines are the range of the whole matrix: what every row has to share with one scale.
    """
    lo, hi = w.detach().float().aminmax(dim=1)  # [N]
    order = (hi - lo).argsort()
    lo, hi = lo[order], hi[order]
    fig, (ax,) = figure()
    rows = torch.arange(len(lo))
    ax.use_sticky_edges = False  # leaves room below the lower line
    ax.bar(rows.numpy(), (hi - lo).numpy(), bottom=lo.numpy(), width=1.0, color=BLUE)
    for value in (lo.min().item(), hi.max().item()):
        ax.axhline(value, color=ORANGE, linestyle="--", linewidth=1.2)
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.annotate(
        "range of the whole tensor",
        (0, hi.max().item()),
        color=ORANGE,
        fontsize=9,
        xytext=(4, -11),
        textcoords="offset points",
    )
    ax.set_xlabel("output channel n, sorted by the width of its range")
    ax.set_ylabel(f"range of {quantity}")
    ax.set_title(title, fontsize=11)
    return fig
