"""Structured pruning: neurons, heads and layers really removed, so that matrices get smaller.

    neuron j     row j of gate_proj and of up_proj, column j of down_proj
    head h       its rows of q_proj (and of k_proj, v_proj), its columns of o_proj
    layer l      all of it: the residual stream goes past it

Removing a unit gives the same function as setting it to zero, with less of everything: weights,
FLOPs, keys and values to cache, and time on any machine, without a special kernel or format. It
costs more quality than single weights do, because a unit is never all useless. The result is a
Llama of a target shape, which can be trained on; the shape is chosen beforehand, all layers alike,
so that programs for dense models run it (Xia et al. 2024, Sheared-LLaMA, arXiv:2310.06694, learn
masks for a target shape; here the highest scores stay). Channels of the residual stream stay: every
layer reads and writes them, and which of them matter differs between layers.

A "head" is a key head with the query heads that read it. Scores: `efflib.sparsity.importance`.
"""

import dataclasses

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.models.llama import Llama
from efflib.sparsity.importance import Importance
from efflib.units import Shape


def highest(scores: Tensor, n: int) -> Tensor:
    """Places of the n highest of the last dimension, in order; of equal ones the last go. [n]"""
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :n].sort(dim=-1).values


def remove(model: Llama, layers: Tensor, heads: Tensor, neurons: Tensor) -> Llama:
    """A new Llama with only the units that are named.

    layers [l]: which layers stay, in order; heads [L, h] and neurons [L, i]: which stay in each of
    the model's L layers (rows of layers that go are not read).
    Raises ValueError unless each row names at least one unit, each once, that exists.
    """
    full = Shape.of(model)
    _expect_places(full.layers, layers=layers[None])
    for name, places, stop in (("heads", heads, full.heads), ("neurons", neurons, full.neurons)):
        if places.ndim != 2 or len(places) != full.layers:
            raise ValueError(f"{name} must be [{full.layers}, kept], got {tuple(places.shape)}")
        _expect_places(stop, **{name: places})
    smaller = _empty(model, Shape(len(layers), heads.shape[1], neurons.shape[1]))
    old = model.state_dict()
    state = {k: v for k, v in old.items() if not k.startswith("model.layers.")}
    for new, layer in enumerate(layers.tolist()):
        prefix = f"model.layers.{layer}."
        for name in (k for k in old if k.startswith(prefix)):
            rest = name.removeprefix(prefix)
            value = _kept(model, rest, old[name], heads[layer], neurons[layer])
            state[f"model.layers.{new}.{rest}"] = value
        smaller.model.layers[new].self_attn.attention = model.model.layers[
            layer
        ].self_attn.attention
    smaller.load_state_dict(state)
    return smaller


def shrink(model: Llama, scores: Importance, shape: Shape) -> Llama:
    """The model at a target shape: of layers, heads and neurons those with the highest scores.

    Raises ValueError if the shape is larger than the model's, or has a 0.
    """
    full = Shape.of(model)
    expect_whole(1, **shape._asdict())
    if any(a > b for a, b in zip(shape, full, strict=True)):
        raise ValueError(f"target {shape} must not be larger than {full}")
    return remove(
        model,
        highest(scores.layers, shape.layers),
        highest(scores.heads, shape.heads),
        highest(scores.neurons, shape.neurons),
    )


def _kept(model: Llama, name: str, value: Tensor, heads: Tensor, neurons: Tensor) -> Tensor:
    """What stays of one tensor of a layer."""
    c, module = model.config, name.rsplit(".", 1)[0]
    if module in ("mlp.gate_proj", "mlp.up_proj"):
        return value[neurons]
    if module in ("self_attn.k_proj", "self_attn.v_proj"):
        return value[_channels(heads, c.head_dim)]
    if module == "self_attn.q_proj":
        return value[_channels(heads, c.head_dim * c.num_attention_heads // c.num_key_value_heads)]
    if name == "mlp.down_proj.weight":
        return value[:, neurons]
    if name == "self_attn.o_proj.weight":
        width = c.head_dim * c.num_attention_heads // c.num_key_value_heads
        return value[:, _channels(heads, width)]
    return value  # norms, and biases of what reads the units


def _channels(heads: Tensor, width: int) -> Tensor:
    """The channels of heads that are `width` wide each. [h width]"""
    return (heads[:, None] * width + torch.arange(width, device=heads.device)).flatten()


def _empty(model: Llama, shape: Shape) -> Llama:
    """An untrained Llama of this shape, in the model's dtype, place and mode."""
    c = model.config
    changes = {
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.heads,
        "num_attention_heads": shape.heads * c.num_attention_heads // c.num_key_value_heads,
        "intermediate_size": shape.neurons,
    }
    smaller = Llama(dataclasses.replace(c, **changes))
    return smaller.to(model.lm_head.weight).train(model.training)


def _expect_places(stop: int, **places: Tensor) -> None:
    """Rows of different places 0 .. stop - 1, at least one in each."""
    for name, rows in places.items():
        if rows.numel() == 0 or rows.is_floating_point() or rows.dtype == torch.bool:
            raise ValueError(
                f"{name} must name at least one by its number, got {rows.dtype} {tuple(rows.shape)}"
            )
        if int(rows.min()) < 0 or int(rows.max()) >= stop:
            raise ValueError(f"{name} are from 0 to {stop - 1}, got {rows.min()} to {rows.max()}")
        if (rows.sort(dim=-1).values.diff(dim=-1) == 0).any():
            raise ValueError(f"{name}: one stands twice in {rows.tolist()}")
