"""Contextual sparsity: for each token only the neurons that it wakes (DejaVu).

    y = sum over neurons n of  down[:, n] relu(gate[n] x) (up[n] x)     0 where gate[n] x <= 0

With relu most neurons of a token are exactly 0, others for every token.  A predictor, a product of
two thin matrices, says which will not be: rows of gate and up and columns of down of all others
need not be read.  What it misses is lost, what it names in vain is only read in vain.

    bytes of a step = 3 D (neurons that any token of the batch chose) + predictor (D + N) r

so a batch reads the union of its tokens' neurons, and with the batch the saving ends.  The gate
itself is the best predictor there is: read whole, a third of the layer, it names exactly the
neurons that count.  A predictor has to beat that.

Source: Liu et al., "Deja Vu" (2023), section 4; the authors' program (trainer_mlp.py) for the
weights of the loss.  There the MLP has two matrices and no gate, and the prediction for a layer is
made from the input of the layer before, so that it costs no time of its own.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_whole

FLOOR = 0.005  # added to the share of active neurons, so that a layer without any has a loss


class Predictor(NamedTuple):
    """Scores of neurons: (x down) up + bias, above 0 where a neuron is likelier active than not."""

    down: Tensor  # [D, r]
    up: Tensor  # [r, N]
    bias: Tensor  # [N]

    def scores(self, x: Tensor) -> Tensor:
        """[..., N] of x [..., D]."""
        return x @ self.down @ self.up + self.bias

    def numbers(self) -> int:
        """How many are stored."""
        return sum(part.numel() for part in self)


def active_neurons(x: Tensor, gate: Tensor) -> Tensor:
    """Which neurons of gate [N, D] relu leaves alive for tokens x [..., D]. [..., N] bool"""
    return x @ gate.T > 0


def predictor_loss(scores: Tensor, active: Tensor) -> Tensor:
    """Binary cross-entropy of scores [T, N]; a silent neuron weighs share + FLOOR, an active 1."""
    target = active.float()
    silent = target.mean() + FLOOR
    weight = target * (1 - silent) + silent
    return F.binary_cross_entropy_with_logits(scores, target, weight=weight)


def fit_predictor(
    x: Tensor, active: Tensor, rank: int, steps: int = 300, batch: int = 512, seed: int = 0
) -> Predictor:
    """Train a predictor of rank `rank` on tokens x [T, D] and what they wake, [T, N] bool."""
    expect_whole(1, rank=rank, batch=batch)
    expect_whole(steps=steps)
    (tokens, width), neurons = x.shape, active.shape[1]
    g = torch.Generator().manual_seed(seed)
    parts = [
        torch.randn(width, rank, generator=g) / width**0.5,
        torch.randn(rank, neurons, generator=g) / rank**0.5,
        torch.zeros(neurons),
    ]
    made = Predictor(*(p.requires_grad_() for p in parts))
    optimizer = torch.optim.AdamW(parts, lr=5e-3, weight_decay=0.01)
    for _ in range(steps):
        rows = torch.randint(tokens, (batch,), generator=g)
        optimizer.zero_grad()
        predictor_loss(made.scores(x[rows]), active[rows]).backward()
        optimizer.step()
    return Predictor(*(p.detach() for p in parts))


def chosen_neurons(scores: Tensor, budget: int) -> Tensor:
    """The `budget` neurons of the largest scores [..., N] of each token. [..., N] bool"""
    expect_whole(budget=budget)
    picked = scores.topk(min(budget, scores.shape[-1]), dim=-1).indices
    return torch.zeros(scores.shape, dtype=torch.bool).scatter_(-1, picked, True)


def recall(chosen: Tensor, active: Tensor) -> float:
    """The share of the active neurons [T, N] that were chosen; 1 if none is active."""
    total = int(active.sum())
    return int((chosen & active).sum()) / total if total else 1.0


def skipping_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, chosen: Tensor) -> Tensor:
    """The MLP of tokens x [T, D] over the rows that anyone chose, chosen [T, N] bool. [T, D]

    gate, up: [N, D]; down: [D, N].  Rows that no token chose are not read.
    """
    rows = chosen.any(0).nonzero().flatten()  # the union
    inner = (x @ gate[rows].T).relu() * (x @ up[rows].T)
    return inner * chosen[:, rows] @ down[:, rows].T


def bytes_read(chosen: Tensor, width: int, number: int = 2, predictor: int = 0) -> int:
    """Bytes of a step for the tokens of chosen [T, N]: the union's weights and the predictor's.

    width: D.  number: bytes of a weight.  predictor: how many numbers it stores.
    """
    expect_whole(1, width=width, number=number)
    expect_whole(predictor=predictor)
    return number * (3 * width * int(chosen.any(0).sum()) + predictor)
