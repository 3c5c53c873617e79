"""Several adapters in one batch: one product with W for all rows, thin products for each its own.

    y_i = x_i W^T + b + s_j (x_i A_j^T) B_j^T        row i of the batch uses adapter j = index[i]

Merged weights would need a copy of W for every adapter, and a batch for each.  Beside W the
adapters are r (N + K) numbers each, and rows of different adapters share the reading of W, which is
what decoding costs.
Source: Chen et al. 2023 (Punica, arXiv:2310.18547), Sheng et al. 2023 (S-LoRA, arXiv:2311.03285).

Where implementations differ: their kernels gather A_j and B_j on the fly and take ranks as they
are.  Here the A's and B's of all adapters stand in one tensor each, with ranks filled up by zeros,
and s_j multiplied into B_j; `index` gathers a copy for every row.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from efflib.checks import expect_keys
from efflib.finetuning.lora import LoRALinear


class Choice:
    """Which adapter each row of the batch uses, [B] int64; shared by all layers of a model.

    None: nobody has chosen, and every row gets the base model.
    """

    def __init__(self) -> None:
        self.index: Tensor | None = None


class BatchedLoRALinear(nn.Module):
    """A frozen linear with n updates beside it, and a choice of one for each row; 0 is none."""

    def __init__(self, base: nn.Module, layers: Sequence[LoRALinear | None], choice: Choice):
        super().__init__()
        self.base, self.choice = base, choice
        first = next(layer for layer in layers if layer is not None)
        r = max(len(layer.a) for layer in layers if layer is not None)
        a = first.a.new_zeros(1 + len(layers), r, first.a.shape[1])
        b = first.b.new_zeros(1 + len(layers), first.b.shape[0], r)
        for j, layer in enumerate(layers, start=1):
            if layer is not None:
                a[j, : len(layer.a)] = layer.a.detach()
                b[j, :, : len(layer.a)] = layer.scale * layer.b.detach()
        self.register_buffer("a", a)  # [1 + n, r, K]
        self.register_buffer("b", b)  # [1 + n, N, r]

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, K] -> [B, T, N]"""
        y, index = self.base(x), self.choice.index
        if index is None:
            return y
        if x.ndim != 3 or len(x) != len(index):
            raise ValueError(f"{len(index)} adapters were chosen for x {tuple(x.shape)}: one a row")
        low = x @ self.a[index].mT  # [B, T, r]
        return y + low @ self.b[index].mT


def together(model: nn.Module, adapters: Mapping[str, nn.Module]) -> nn.Module:
    """A frozen copy of the model beside whose linears all adapters stand; choose with `use`.

    adapters: {name: the model after add_lora and training}; they may have different layers and
    ranks.  Raises ValueError if there is no adapter, one has no updates, updates a layer that the
    model has not, or stands beside other weights than the model's.
    """
    found = {
        name: {n: m for n, m in adapted.named_modules() if isinstance(m, LoRALinear)}
        for name, adapted in adapters.items()
    }
    for name, layers in found.items():
        if not layers:
            raise ValueError(f"adapter {name!r} has no updates of add_lora")
    if not found or "" in found:
        raise ValueError(f"there is no adapter, or one without a name: {list(found)}")
    model = copy.deepcopy(model).requires_grad_(False).eval()
    model.adapters, model.choice = ("", *found), Choice()
    for layer in dict.fromkeys(n for layers in found.values() for n in layers):
        expect_keys(dict(model.named_modules()), adapters=[layer])
        base, own = model.get_submodule(layer), [layers.get(layer) for layers in found.values()]
        for name, update in zip(found, own, strict=True):
            if update is not None:
                _expect_same_base(base, update.base, f"adapter {name!r}, {layer}")
        model.set_submodule(layer, BatchedLoRALinear(base, own, model.choice))
    return model


def _expect_same_base(base: nn.Module, other: nn.Module, what: str) -> None:
    mine, theirs = base.state_dict(), other.state_dict()
    same = mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)
    if not same:
        raise ValueError(f"{what}: it was trained beside other weights than the model's")


@contextmanager
def use(model: nn.Module, names: Sequence[str | None]) -> Iterator[nn.Module]:
    """Within, row i of every batch goes through adapter names[i], or through none of them."""
    numbers = {name: j for j, name in enumerate(model.adapters)}
    expect_keys(numbers, names=[name for name in names if name is not None])
    before = model.choice.index
    device = next(model.parameters()).device
    model.choice.index = torch.tensor([numbers[name or ""] for name in names], device=device)
    try:
        yield model
    finally:
        model.choice.index = before
