"""Factors moved between a norm and what reads it, and the gains of all norms taken in.

    norm(x) = g u + b,  u = x / rms(x):      W (g u + b) = (W diag(g)) (u + b / g)

so a norm has gain 1 and what reads it is multiplied by g; a bias, which LayerNorm has, is divided
by it.  The last norm is read by the head, which needs a weight of its own for it.
"""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from efflib.models.groups import NormGroup, norm_groups
from efflib.models.hub import describe


@torch.no_grad()
def move_factor(group: NormGroup, s: Tensor) -> None:
    """Divide what the norm puts out by s [D], and multiply what reads it, in place.

    A weight w that stands for the gain 1 + w becomes (1 + w) / s - 1, which 16 bits round coarsely
    where s is large.  The readers are multiplied by the factor that the norm really took, so that
    the function stays.
    """
    norm = group.norm
    if group.one_plus:
        before = 1 + norm.weight.double()
        step = torch.finfo(norm.weight.dtype).eps  # beside -1: a gain must not become 0
        least = torch.where(before > 0, step / 2, -step)
        norm.weight.copy_(before / s - 1)
        lost = (norm.weight == -1) & (before != 0)
        norm.weight.copy_(torch.where(lost, least - 1, norm.weight.double()))
        s = torch.where(before == 0, s, before / (1 + norm.weight.double()))
    else:
        norm.weight.div_(s)
        if getattr(norm, "bias", None) is not None:
            norm.bias.div_(s)
    for reader in group.readers.values():
        reader.weight.mul_(s)


def with_unit_gains(model: nn.Module) -> nn.Module:
    """A copy of the same function whose norms have gain 1: what reads them is multiplied by it.

    A head that shares its weight with the embedding gets one of its own, V D numbers more.
    Raises ValueError as `norm_groups`, for a model without a last norm before the head, and for a
    gain of 0 beside a bias that is not.
    """
    _expect_last_norm(model)
    model = copy.deepcopy(model)
    untie_head(model)
    with torch.no_grad():
        for group in all_norms(model):
            gain = group.gain().clone()
            for reader in group.readers.values():
                reader.weight.mul_(gain)
            group.norm.weight.fill_(0 if group.one_plus else 1)
            if getattr(group.norm, "bias", None) is not None:
                group.norm.bias.copy_(_divided(group, gain))
    return model


def all_norms(model: nn.Module) -> Iterator[NormGroup]:
    """The norms of the blocks, and the last one, which the head reads."""
    family = describe(model).family
    last = model.get_submodule(family.last_norm)
    yield NormGroup(family.last_norm, last, {"lm_head": model.lm_head}, {}, family.one_plus)
    yield from norm_groups(model)


def untie_head(model: nn.Module) -> None:
    """Give the head of this model a weight of its own, and say so in a config of transformers."""
    head = model.lm_head.weight.detach()
    model.lm_head = nn.Linear(head.shape[1], head.shape[0], bias=False).to(head)
    with torch.no_grad():
        model.lm_head.weight.copy_(head)
    if hasattr(model.config, "model_type"):
        model.config.tie_word_embeddings = False
        model.all_tied_weights_keys = {}


def _divided(group: NormGroup, gain: torch.Tensor) -> torch.Tensor:
    """bias / gain, 0 / 0 being 0."""
    bias = group.norm.bias
    if ((gain == 0) & (bias != 0)).any():
        raise ValueError(f"{group.name} has a bias where its gain is 0: nothing can hold it")
    return torch.where(bias == 0, 0.0, bias / gain)


def _expect_last_norm(model: nn.Module) -> None:
    decoder = describe(model)
    if decoder.no_folds:
        raise ValueError(f"{type(model).__name__}: {decoder.no_folds}")
    last = model.get_submodule(decoder.family.last_norm)
    part = model.get_submodule(decoder.family.last_norm.rpartition(".")[0])
    if last is None or getattr(part, "project_out", None) is not None:
        raise ValueError(f"{type(model).__name__}: no norm stands right before the head")
