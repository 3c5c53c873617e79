"""What a Llama consists of, in units that can be taken out, and what its loss says of each.

A head is a key head with the query heads that read it; a neuron is one of an MLP.  The columns of
`o_proj` read the heads, those of `down_proj` the neurons.  With a column j of such a reader W:

    first order      | sum over the unit of W_ij dL/dW_ij |

is the derivative of the loss L by a factor on the unit (Michel et al. 2019, arXiv:1905.10650): a
guess of what the loss would be without it.  It needs gradients, so more memory than running the
model.

Where implementations differ: LLM-Pruner (Ma et al. 2023, arXiv:2305.11627) sums |W dL/dW| over the
matrices that depend on each other, weight by weight; Michel et al. and here the sum comes first,
because the unit goes as a whole.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.models.llama import Llama

READERS = {"heads": "self_attn.o_proj", "neurons": "mlp.down_proj"}  # what reads a unit
WRITERS = {
    "heads": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "neurons": ("mlp.gate_proj", "mlp.up_proj"),
}


class Shape(NamedTuple):
    """How many of each a model has; heads and neurons in every layer."""

    layers: int
    heads: int  # key heads
    neurons: int

    @classmethod
    def of(cls, model: Llama) -> "Shape":
        c = model.config
        return cls(c.num_hidden_layers, c.num_key_value_heads, c.intermediate_size)


def linear_flops(model: Llama) -> int:
    """FLOPs of all linears for one token: a multiplication and an addition for every weight.

    The product with the keys and values grows with the text and is not in it.
    """
    blocks = sum(p.numel() for p in model.model.layers.parameters() if p.ndim == 2)
    return 2 * (blocks + model.lm_head.weight.numel())


def weight_times_gradient(model: Llama, ids: Tensor) -> dict[str, Tensor]:
    """sum over i of W_ij dL/dW_ij for every column of the readers, float64; no .grad is touched.

    {"heads": [L, H d], "neurons": [L, I]}; ids [n, T], T >= 2: L is the loss of the next token.
    """
    layers = range(len(model.model.layers))
    names = {k: [f"model.layers.{i}.{n}.weight" for i in layers] for k, n in READERS.items()}
    every = [name for own in names.values() for name in own]
    leaves = {name: model.get_parameter(name).detach().requires_grad_() for name in every}
    with torch.enable_grad():
        logits = torch.func.functional_call(model, leaves, (ids[:, :-1],))  # [n, T - 1, V]
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        grads = torch.autograd.grad(loss, list(leaves.values()))
    products = {n: (w.detach() * g) for (n, w), g in zip(leaves.items(), grads, strict=True)}
    return {k: torch.stack([products[n].double().sum(0) for n in own]) for k, own in names.items()}


def first_order(model: Llama, ids: Tensor) -> dict[str, Tensor]:
    """The mean over texts of the first-order guess of every unit, float64.

    {"heads": [L, Hkv], "neurons": [L, I]}; ids [n, T], T >= 2.
    """
    shape = Shape.of(model)
    units = {"heads": shape.heads, "neurons": shape.neurons}
    sums = [weight_times_gradient(model, text) for text in ids.split(1)]
    return {
        kind: torch.stack([s[kind].unflatten(1, (n, -1)).sum(2).abs() for s in sums]).mean(0)
        for kind, n in units.items()
    }
