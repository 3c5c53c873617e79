"""How much each neuron, head and layer of a Llama matters, by three scores.

A neuron is one column of down_proj, a head the head_dim columns of o_proj that read it, a layer all
columns of both: removing the unit is removing its columns. With a column j of such a W [N, K]:

    magnitude    sqrt( sum of W_ij^2 over the unit, and of the rows that write it )
    activation   sqrt( sum over the unit of W_ij^2 ||X_j||^2 )
    taylor       mean over texts of | sum over the unit of W_ij dL/dW_ij |

Activation is Wanda's score, summed in squares. For a neuron it is the norm of the change of the
MLP's output when the neuron goes, exactly; the columns of a head are taken as if they were
orthogonal. Taylor is the first-order guess of `efflib.units`, which needs gradients; the others do
not.

With grouped-query attention the unit is a key head with all query heads that read it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers
from efflib.models.llama import Llama
from efflib.units import READERS, WRITERS, weight_times_gradient

Kind = Literal["magnitude", "activation", "taylor"]


class Importance(NamedTuple):
    """Scores; the lowest go first."""

    heads: Tensor  # [L, Hkv]
    neurons: Tensor  # [L, I]
    layers: Tensor  # [L]


def importance(model: Llama, kind: Kind, ids: Tensor | None = None) -> Importance:
    """The scores of every unit, float64. ids [n, T]: calibration texts, not for "magnitude".

    "taylor" needs T >= 2: the loss is that of the next token.
    Raises ValueError for another kind, and for ids that are missing or too short.
    """
    if kind == "magnitude":
        return _magnitude(model)
    if kind not in ("activation", "taylor"):
        raise ValueError(f'kind is "magnitude", "activation" or "taylor", got {kind!r}')
    if ids is None:
        raise ValueError(f"{kind!r} needs ids [n, T]")
    expect_dims("[n, T]", ids=ids)
    expect_integers(ids=ids)
    if kind == "activation":
        return _rooted(_units(model, _activation(model, ids)))
    if ids.shape[1] < 2:
        raise ValueError(f"ids {tuple(ids.shape)} have nothing to predict: need T >= 2")
    per_text = [_units(model, weight_times_gradient(model, text)) for text in ids.split(1)]
    return Importance(*(torch.stack(s).abs().mean(0) for s in zip(*per_text, strict=True)))


def _units(model: Llama, columns: dict[str, Tensor]) -> Importance:
    """Sums over the columns of each unit; columns: {"heads": [L, H d], "neurons": [L, I]}."""
    groups = model.config.num_key_value_heads
    heads, neurons = columns["heads"], columns["neurons"]
    layers = heads.sum(1) + neurons.sum(1)
    return Importance(heads.reshape(len(heads), groups, -1).sum(2), neurons, layers)


def _rooted(squares: Importance) -> Importance:
    return Importance(*(s.sqrt() for s in squares))


def _columns(model: Llama, of: Callable[[str, nn.Linear], Tensor]) -> dict[str, Tensor]:
    """of(name, reader) [K] for the readers of all layers: {"heads": [L, H d], "neurons": [L, I]}"""
    layers = list(enumerate(model.model.layers))
    return {
        kind: torch.stack(
            [of(f"model.layers.{i}.{name}", m.get_submodule(name)) for i, m in layers]
        )
        for kind, name in READERS.items()
    }


def _column_squares(linear: nn.Linear) -> Tensor:
    """sum over i of W_ij^2. [K]"""
    return linear.weight.detach().double().square().sum(0)


def _magnitude(model: Llama) -> Importance:
    read = _units(model, _columns(model, lambda _, reader: _column_squares(reader)))
    heads = read.heads + _written(model, "heads", read.heads.shape[1])
    neurons = read.neurons + _written(model, "neurons", read.neurons.shape[1])
    return _rooted(Importance(heads, neurons, heads.sum(1) + neurons.sum(1)))


def _written(model: Llama, kind: str, units: int) -> Tensor:
    """Squares of the rows that write each unit. [L, units]"""

    def squares(layer: nn.Module) -> Tensor:
        weights = (layer.get_submodule(name).weight.detach().double() for name in WRITERS[kind])
        return sum(w.reshape(units, -1).square().sum(1) for w in weights)

    return torch.stack([squares(layer) for layer in model.model.layers])


@torch.no_grad()
def _activation(model: Llama, ids: Tensor) -> dict[str, Tensor]:
    """||X_j||^2 sum over i of W_ij^2, for every column of the readers."""
    squares: dict[nn.Module, Tensor] = {}

    def add(module: nn.Module, args: tuple) -> None:
        squares[module] = squares.get(module, 0) + args[0].double().flatten(0, -2).square().sum(0)

    readers = [m.get_submodule(n) for m in model.model.layers for n in READERS.values()]
    hooks = [reader.register_forward_pre_hook(add) for reader in readers]
    try:
        for text in ids.split(1):
            model(text)
    finally:
        for hook in hooks:
            hook.remove()
    return _columns(model, lambda _, reader: _column_squares(reader) * squares[reader])
