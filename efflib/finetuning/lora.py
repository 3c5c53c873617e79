"""LoRA: leave W as it is and train a low-rank update beside it.

    y = x W^T + b + (alpha / r) dropout(x) A^T B^T         A [r, K], B [N, r], r << min(N, K)

A starts random and B at zero, so the model starts unchanged; then r (N + K) numbers are trained
instead of N K.  Gradients and optimizer states exist for those only.  After training the update
can be added to W (`merge_lora`), and inference costs nothing extra.
Source: Hu et al. 2022 (arXiv:2106.09685), section 4.1.

Where implementations differ
- Start of A: here as in the authors' code and peft Kaiming uniform with a = sqrt(5), which is
  U(-1 / sqrt(K), 1 / sqrt(K)); the paper's text says Gaussian.
- Factor alpha / r: rsLoRA (arXiv:2312.03732) uses alpha / sqrt(r), so that large ranks do not
  learn more slowly (`rank_stabilized`).
- Dropout acts on the input of the update only, never on the frozen path.
- Merging: the authors and peft add to W in place and subtract to unmerge, so W comes back only up
  to rounding, in 16 bits visibly.  Here the frozen W is kept and merging makes a new linear, so
  `remove_lora` gives W back bit by bit.
"""

import copy
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_names, expect_whole, is_named
from efflib.quantization.nf4 import NF4Linear


class LoRALinear(nn.Module):
    """A frozen linear (nn.Linear or NF4Linear) with a trainable update of rank r.

    Raises ValueError unless r >= 1, 0 <= dropout < 1 and alpha is finite.
    """

    def __init__(
        self,
        base: nn.Linear | NF4Linear,
        r: int,
        alpha: float,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        rank_stabilized: bool = False,
    ) -> None:
        super().__init__()
        expect_whole(1, r=r)
        if not isinstance(base, nn.Linear | NF4Linear):
            raise ValueError(f"base must be an nn.Linear or NF4Linear, got {type(base).__name__}")
        if not 0 <= dropout < 1 or not math.isfinite(alpha):
            raise ValueError(f"need 0 <= {dropout=} < 1 and a finite {alpha=}")
        self.base, self.alpha, self.dropout = base, alpha, dropout
        self.rank_stabilized = rank_stabilized
        self.scale = alpha / (math.sqrt(r) if rank_stabilized else r)
        w = base_weight(base)
        self.a = nn.Parameter(torch.empty(r, w.shape[1], dtype=w.dtype, device=w.device))
        self.b = nn.Parameter(torch.zeros(w.shape[0], r, dtype=w.dtype, device=w.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5), generator=generator)
        for parameter in base.parameters():
            parameter.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]; two thin products, the [N, K] update is never formed."""
        low = F.dropout(x, self.dropout, self.training) @ self.a.T  # [..., r]
        return self.base(x) + self.scale * (low @ self.b.T)


def base_weight(base: nn.Linear | NF4Linear) -> Tensor:
    """The weight [N, K] that the frozen layer multiplies with."""
    return base.weight_hat() if isinstance(base, NF4Linear) else base.weight.detach()


def add_lora(
    model: nn.Module,
    r: int,
    alpha: float,
    targets: tuple[str, ...],
    dropout: float = 0.0,
    seed: int = 0,
    rank_stabilized: bool = False,
) -> nn.Module:
    """A copy of the model, all of it frozen, with trainable updates beside the targets.

    targets: whole components of names, as ("q_proj", "v_proj") or ("layers.0",); every nn.Linear
    and NF4Linear under such a name gets one.  Raises ValueError if there is none, for a name that
    matches nothing, for a model that has updates already, or as LoRALinear.
    """
    expect_names(model, targets=targets)
    twice = [name for name, layer in model.named_modules() if isinstance(layer, LoRALinear)]
    if twice:
        raise ValueError(f"{twice[0]} has an update already: merge_lora or remove_lora first")
    model = copy.deepcopy(model).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | NF4Linear) and is_named(name, targets)
    ]
    if not found:
        raise ValueError(f"no linear of {type(model).__name__} is named by targets={targets}")
    for name, layer in found:
        made = LoRALinear(layer, r, alpha, dropout, generator, rank_stabilized)
        model.set_submodule(name, made)
    return model


def update(layer: LoRALinear) -> Tensor:
    """(alpha / r) B A, or (alpha / sqrt(r)) B A, in float64. [N, K]"""
    return layer.scale * (layer.b.detach().double() @ layer.a.detach().double())


def merged(layer: LoRALinear) -> nn.Linear:
    """One linear with the weight W + (alpha / r) B A, summed in float64 and rounded once.

    An NF4 base becomes a float layer: of an update that is small beside the distance of two levels
    hardly anything would survive rounding the sum to NF4 again.
    """
    w = base_weight(layer.base)
    linear = nn.Linear(w.shape[1], w.shape[0], layer.base.bias is not None, dtype=w.dtype)
    linear = linear.to(w.device).requires_grad_(False)
    linear.weight.copy_(w.double() + update(layer))
    if layer.base.bias is not None:
        linear.bias.copy_(layer.base.bias)
    return linear


def _expect_updates(model: nn.Module) -> None:
    if not any(isinstance(layer, LoRALinear) for layer in model.modules()):
        raise ValueError(f"{type(model).__name__} has no updates of add_lora")


def merge_lora(model: nn.Module) -> nn.Module:
    """A copy of the model with every `LoRALinear` merged into one linear.

    Raises ValueError if there is none.
    """
    _expect_updates(model)
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, LoRALinear):
            model.set_submodule(name, merged(layer))
    return model


def remove_lora(model: nn.Module) -> nn.Module:
    """A copy of the model without the updates: bit by bit what `add_lora` was given.

    Raises ValueError if there are none.
    """
    _expect_updates(model)
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, LoRALinear):
            model.set_submodule(name, layer.base)
    return model


class TrainingBytes(NamedTuple):
    """What training holds beside the activations."""

    weights: int  # parameters and buffers, frozen ones too
    gradients: int  # one number for every trainable one
    optimizer: int  # AdamW: two (means of gradient and of its square)

    @property
    def total(self) -> int:
        return sum(self)


def trainable_parameters(model: nn.Module) -> int:
    """The number of parameters that are not frozen."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def training_bytes(model: nn.Module) -> TrainingBytes:
    """Bytes for training the parameters that are not frozen with AdamW, each in its own dtype.

    Mixed precision keeps float32 weights and states for 16-bit parameters, 16 bytes in all for
    each trainable one: then give the model in float32.
    """
    tensors = [*model.parameters(), *model.buffers()]
    trainable = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    return TrainingBytes(sum(t.nbytes for t in tensors), trainable, 2 * trainable)
