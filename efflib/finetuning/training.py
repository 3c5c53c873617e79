"""The fine-tuning loop: AdamW on the parameters that are not frozen.

    for each batch:  loss = mean of -ln p(token | those before it);  gradient;  clip;  AdamW

The learning rate warms up over the first tenth of the steps and falls linearly to 0.  AdamW
(Loshchilov and Hutter 2019, arXiv:1711.05101) without weight decay: pulling a trained weight
towards 0 is not what adapting it means.  One function for full fine-tuning, LoRA and QLoRA: what
is trained is what `requires_grad`.
"""

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.zoo.evaluation import logits_of

CLIP = 1.0  # largest norm of the gradient
WARM_UP = 0.1  # share of the steps


def rate(step: int, steps: int) -> float:
    """The learning rate's factor at a step 0 .. steps - 1: up to 1, then linearly towards 0."""
    expect_whole(1, steps=steps)
    warm = (step + 1) / max(1, round(WARM_UP * steps))
    return min(1.0, warm, (steps - step) / steps)


def _expect_scored(batches: Sequence[Tensor], scored: Sequence[Tensor] | None) -> None:
    if scored is None:
        return
    if len(scored) != len(batches):
        raise ValueError(f"{len(scored)} scored for {len(batches)} batches: need one for each")
    for i, (ids, counts) in enumerate(zip(batches, scored, strict=True)):
        shape = (ids.shape[0], ids.shape[1] - 1)
        if counts.dtype != torch.bool or tuple(counts.shape) != shape or not counts.any():
            raise ValueError(f"scored[{i}] must be bool {shape} with a True in it")


def finetune(
    model: nn.Module,
    batches: Sequence[Tensor],
    lr: float,
    seed: int = 0,
    scored: Sequence[Tensor] | None = None,
) -> tuple[nn.Module, list[float]]:
    """(trained copy of the model in eval mode, loss before every step in nats).

    batches: ids [B, 1 + T], one for each step; lr: the highest learning rate; seed: of dropout.
    scored: [B, T] bool for each batch, True where a token counts; default: all of them.
    The same arguments give the same weights.  The model given is not changed.
    Raises ValueError if every parameter is frozen, there is no batch, one is no ids [B, 1 + T] with
    T >= 1, lr is not positive, or scored does not fit the batches.
    """
    if not 0 < lr < math.inf:
        raise ValueError(f"{lr=} must be positive and finite")
    for i, ids in enumerate(batches):
        expect_dims("[B, 1 + T]", **{f"batches[{i}]": ids})
        if ids.shape[1] < 2:
            raise ValueError(f"batches[{i}] {tuple(ids.shape)} has nothing to predict: need T >= 1")
    _expect_scored(batches, scored)
    model = copy.deepcopy(model).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained or not len(batches):
        raise ValueError(f"nothing to do: {len(trained)} trainable tensors, {len(batches)} batches")
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    losses = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for step, ids in enumerate(batches):
            optimizer.param_groups[0]["lr"] = lr * rate(step, len(batches))
            logits = logits_of(model, ids[:, :-1])  # [B, T, V]
            targets = ids[:, 1:]
            if scored is not None:
                logits, targets = logits[scored[step]][None], targets[scored[step]][None]
            loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(trained, CLIP)
            optimizer.step()
            losses.append(loss.item())
    return model.eval(), losses
