"""Outlier channels that vary from token to token, in a small model with the same function.

In models above about 6.7 B parameters a few channels of every norm's output are some 20 to 100
times as large as the rest, in all layers, while the weights stay ordinary (Dettmers et al. 2022,
arXiv:2208.07339, section 4). Some keep one sign and vary by a tenth of their size, others change
from token to token (Wei et al. 2023, arXiv:2304.09145, section 3). Small models have none.

Here the residual stream x [d] is written into more channels than it needs, P x with P [d', d] and
P^T P = I. Each of its leading principal components stands in two channels that are equal. Where a
component is made hot, the norm's gain enlarges both channels by D, and what reads the norm takes
that back and reads the difference of the two besides, which is 0:

    W' = W P^T D^-1 + V,    V = sum_i v_i (e_a(i) - e_b(i))^T,    V D P = 0

    so    W' (D P y) = W y    for the norm's output y

v_i has the deviation of W's entries. So activations are large and carry signal, weights are
ordinary, rounding either shows, and no bias repairs it. sum (P x)^2 = sum x^2, so the norm differs
by the factor sqrt(d / d') alone. It is an emulation, and labs say so.

The mean of all tokens is the first component, 0: large, of a steady sign. The next ones have none,
except in the first layer, which reads hardly more than the tokens' embeddings.
"""

import copy
import dataclasses
import math

import torch
from torch import Tensor, nn

from efflib.models.groups import norm_groups
from efflib.models.llama import Llama


def with_outliers(
    model: Llama, ids: Tensor, gains: dict[int, float], *, extra: int = 32, seed: int = 0
) -> Llama:
    """A wider model of the same function, with two outlier channels for each hot component.

    ids [B, T]: text whose activations have the components. gains: {principal component: factor of
    its two channels}. extra: channels more than before; d + extra should be divisible by the group
    size of what follows. seed: decides where the channels stand, the same in all layers, and V.
    Weights keep their dtype; the head is untied and norms have other gains.

    Raises ValueError if a norm has a bias, for a component outside 0..extra - 1, for a gain that
    is not positive, and unless 1 <= extra <= d.
    """
    width = model.config.hidden_size
    _expect(model, gains, extra)
    generator = torch.Generator().manual_seed(seed)
    plain, end = copy.deepcopy(model), model.model.norm.weight.detach()
    head = model.lm_head.weight.detach() * end
    with torch.no_grad():  # the emulation starts where norms have gain 1
        for group in norm_groups(plain):
            for linear in group.linears.values():
                linear.weight.mul_(group.norm.weight)
            group.norm.weight.fill_(1)
    embed, pairs = _embedding(second_moment(plain, ids), extra, generator)  # P [d', d]
    hot = torch.ones(width + extra, dtype=torch.float64)  # diagonal of D
    for component, gain in gains.items():
        hot[pairs[component]] = gain
    ratio = math.sqrt(width / (width + extra))
    state = plain.cpu().state_dict()
    for group in norm_groups(plain):
        state[f"{group.name}.weight"] = hot * ratio
        for name, linear in group.linears.items():
            weight = linear.weight.detach().double()
            state[f"{name}.weight"] = _reader(weight, embed, hot, pairs[list(gains)], generator)
    for name in state:
        if name.endswith(("o_proj.weight", "down_proj.weight", "o_proj.bias", "down_proj.bias")):
            state[name] = embed @ state[name].double()
    state["model.embed_tokens.weight"] = state["model.embed_tokens.weight"].double() @ embed.T
    state["lm_head.weight"] = head.cpu().double() @ embed.T
    state["model.norm.weight"] = torch.full((width + extra,), ratio, dtype=torch.float64)
    wide = _wider(model, width + extra)
    wide.load_state_dict(state)
    for old, new in zip(model.model.layers, wide.model.layers, strict=True):
        new.self_attn.attention = old.self_attn.attention
    return wide


def _reader(
    weight: Tensor, embed: Tensor, hot: Tensor, columns: Tensor, generator: torch.Generator
) -> Tensor:
    """W P^T D^-1 + V for W [N, d]; columns [components, 2]: where V is."""
    v = torch.randn(len(weight), len(columns), generator=generator).double() * weight.std()
    weight = weight @ embed.T / hot
    weight[:, columns] += torch.stack([v, -v], -1)  # [N, components, 2]
    return weight


def second_moment(model: Llama, ids: Tensor) -> Tensor:
    """mean y y^T over the outputs y of all norms inside the layers, float64 [d, d]."""
    width = model.config.hidden_size
    moment, groups = torch.zeros(width, width, dtype=torch.float64), norm_groups(model)

    def add(module: nn.Module, args: tuple, output: Tensor) -> None:
        rows = output.flatten(0, -2).double().cpu()  # [B T, d]
        moment.add_(rows.T @ rows, alpha=1 / (len(rows) * len(groups)))

    handles = [group.norm.register_forward_hook(add) for group in groups]
    try:
        with torch.no_grad():
            model(ids)
    finally:
        for handle in handles:
            handle.remove()
    return moment


def _embedding(moment: Tensor, extra: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """P [d', d] with P^T P = I, and the two rows of each leading component [extra, 2]."""
    width = len(moment)
    leading = torch.linalg.eigh(moment)[1].flip(1)[:, :extra]  # [d, extra], largest first
    spanning = torch.cat([leading, torch.eye(width, dtype=torch.float64)], 1)
    rest = torch.linalg.qr(spanning)[0][:, extra:width]  # [d, d - extra]
    twice = (leading / math.sqrt(2)).T.repeat_interleave(2, dim=0)  # [2 extra, d]
    order = torch.randperm(width + extra, generator=generator)
    embed = torch.cat([twice, rest.T])[order]
    return embed, order.argsort()[: 2 * extra].view(extra, 2)


def _wider(model: Llama, width: int) -> Llama:
    """An untied model of this width; its eps weighs as much beside the mean over more channels."""
    eps = model.config.rms_norm_eps * model.config.hidden_size / width
    changes = {"hidden_size": width, "tie_word_embeddings": False, "rms_norm_eps": eps}
    wide = Llama(dataclasses.replace(model.config, **changes))
    return wide.to(model.lm_head.weight).train(model.training)


def _expect(model: Llama, gains: dict[int, float], extra: int) -> None:
    for group in norm_groups(model):
        if group.norm.bias is not None:
            raise ValueError(f"{group.name} has a bias; make the outliers before the offset")
    if not 1 <= extra <= model.config.hidden_size:
        raise ValueError(f"extra must be from 1 to {model.config.hidden_size}, got {extra}")
    for component, gain in gains.items():
        if component not in range(extra):
            raise ValueError(f"components are from 0 to {extra - 1}, got {component}")
        if not 0 < gain < math.inf:
            raise ValueError(f"the gain of component {component} must be positive, got {gain}")


def merged_twins(wide: Llama) -> Llama:
    """A copy of a model of `with_outliers`, of the same function, without twins among the large
    channels: of each pair one column of what reads the norms holds both, and the other is 0.

    Columns W + v and W - v become 2 W and 0: what the emulation puts into the weights is gone.  No
    real model has such pairs, so this is a control and no repair.
    """
    merged = copy.deepcopy(wide)
    groups = norm_groups(merged)
    gain, written = groups[0].norm.weight.detach(), merged.model.embed_tokens.weight.detach()
    large = (gain > 2 * gain.median()).nonzero().flatten().tolist()
    pairs = [
        (a, b) for a in large for b in large if a < b and torch.equal(written[:, a], written[:, b])
    ]
    with torch.no_grad():
        for linear in (linear for group in groups for linear in group.linears.values()):
            for a, b in pairs:
                linear.weight[:, a] += linear.weight[:, b]
                linear.weight[:, b] = 0
    return merged
