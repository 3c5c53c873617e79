"""The zoo's relu model with some of its neurons computed: a part of the story of mixtures.

Each layer may use a number of neurons in proportion to those that are active in the mean.  Which
ones, a way of WAYS scores: a predictor; the gate itself, whose rows are then read whole; those that
were active most often; or random numbers.  CONTROLS are what a sceptic asks for beside them:
predictors that nobody trained (the gate in 4 bits; its best approximation of the predictors' rank,
for inputs as the layer reads them), and one random set of neurons for all tokens.
"""

import copy

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.sparsity import contextual

RANK = 32  # of the predictors
WAYS = ("predictor", "gate", "fixed", "random")
CONTROLS = ("gate, 4 bits", "gate, rank 32", "random, one set")
GROUP = 32  # inputs that share a scale in 4 bits


def in_4_bits(w: Tensor) -> Tensor:
    """w [N, D] rounded to nearest with a scale for each GROUP of inputs; -7 to 7 are used."""
    groups = w.unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scale).round() * scale).flatten(1)


def of_rank(w: Tensor, x: Tensor, rank: int) -> Tensor:
    """The matrix of this rank whose products with tokens like x [T, D] are nearest to those of w.

    With x'x / T = L L' the error of a product is that of w L in the Frobenius norm, so the singular
    values of w L are cut.
    """
    second = x.double().T @ x.double() / len(x)
    second += 1e-6 * second.diagonal().mean() * torch.eye(len(second), dtype=second.dtype)
    lower = torch.linalg.cholesky(second)
    u, s, v = torch.linalg.svd(w.double() @ lower, full_matrices=False)
    cut = (u[:, :rank] * s[:rank]) @ v[:rank]
    return torch.linalg.solve_triangular(lower, cut, upper=False, left=False).to(w.dtype)


class Skipping:
    """The relu model with neurons chosen by WAYS; predictors are fitted to calibration ids."""

    def __init__(self, ids: Tensor, steps: int = 300) -> None:
        self.model = zoo.load("relu")
        self.mlps = [layer.mlp for layer in self.model.model.layers]
        self.inputs = self.read(ids)
        pairs = zip(self.inputs, self.mlps, strict=True)
        self.active = [contextual.active_neurons(x, m.gate_proj.weight.detach()) for x, m in pairs]
        self.density = [a.float().mean().item() for a in self.active]
        fit = contextual.fit_predictor
        both = list(zip(self.inputs, self.active, strict=True))
        self.predictors = [fit(x, a, RANK, steps) for x, a in both]
        gates = [m.gate_proj.weight.detach() for m in self.mlps]
        self.untrained = {
            "gate, 4 bits": [in_4_bits(w) for w in gates],
            "gate, rank 32": [of_rank(w, x, RANK) for w, x in zip(gates, self.inputs, strict=True)],
        }

    @torch.no_grad()
    def read(self, ids: Tensor) -> list[Tensor]:
        """What the MLP of each layer reads, [B T, D]."""
        seen: list[Tensor] = []

        def note(_: nn.Module, args: tuple) -> None:
            seen.append(args[0].flatten(0, 1))

        hooks = [m.register_forward_pre_hook(note) for m in self.mlps]
        self.model(ids)
        for hook in hooks:
            hook.remove()
        return seen

    def budget(self, layer: int, factor: float) -> int:
        """Neurons of a token: factor times those that are active in the mean."""
        most = self.active[layer].shape[1]
        return max(1, min(most, round(factor * self.density[layer] * most)))

    def scores(self, way: str, layer: int, x: Tensor) -> Tensor:
        """Of the layer's neurons for x [T, D]. [T, N]"""
        if way == "predictor":
            return self.predictors[layer].scores(x)
        if way == "gate":
            return x @ self.mlps[layer].gate_proj.weight.detach().T
        if way in self.untrained:
            return x @ self.untrained[way][layer].T
        often = self.active[layer].float().mean(0).expand(len(x), -1)
        if way == "fixed":
            return often
        g = torch.Generator().manual_seed(layer)
        if way == "random, one set":
            return torch.rand(often.shape[1], generator=g).expand(often.shape)
        return torch.rand(often.shape, generator=g)

    def made(self, way: str, factor: float) -> nn.Module:
        """A copy of the model that computes the chosen neurons."""
        changed = copy.deepcopy(self.model)
        for i, layer in enumerate(changed.model.layers):
            m = layer.mlp
            weights = [p.weight.detach() for p in (m.gate_proj, m.up_proj, m.down_proj)]

            def forward(x: Tensor, i: int = i, weights: list = weights) -> Tensor:
                rows = x.flatten(0, 1)
                budget = self.budget(i, factor)
                chosen = contextual.chosen_neurons(self.scores(way, i, rows), budget)
                return contextual.skipping_mlp(rows, *weights, chosen).view_as(x)

            m.forward = forward
        return changed

    def share(self, way: str, factor: float) -> float:
        """Of the MLPs' bytes, what one token reads, the prediction included."""
        total, whole = 0, 0
        for i, mlp in enumerate(self.mlps):
            neurons, width = mlp.gate_proj.weight.shape
            read = {"predictor": self.predictors[i].numbers(), "gate": width * neurons}
            read["gate, 4 bits"] = width * neurons // 4 + width // GROUP * neurons  # with scales
            read["gate, rank 32"] = RANK * (width + neurons)
            matrices = 2 if way == "gate" else 3  # the gate's own rows are read already
            total += matrices * width * self.budget(i, factor) + read.get(way, 0)
            whole += 3 * width * neurons
        return total / whole
