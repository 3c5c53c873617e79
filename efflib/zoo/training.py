"""The training loop of the zoo's models: seeded, resumable, CPU or GPU.

Every sample is ``<s>`` followed by the recipe's `context` tokens of text, so that the begin token
is always there to receive the attention that a head has no better use for (an attention sink: Xiao
et al., 2023, section 3.1). Two variants train without that place: `begin=False`, and a model whose
softmax has an extra zero (`zero_sink`).

Optimizer: Muon (Jordan et al., 2024) for the matrices inside the layers, AdamW for the embedding
and the norms. Muon replaces each momentum matrix M = U S V^T by about U V^T, so every direction
of a weight matrix learns at the same rate.
Schedule: linear warm-up, constant, linear decay to zero.

A step depends only on the state and the step's number (the order of the samples is a function of
seed and epoch), so a run that was killed and resumed ends with the same weights.
"""

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.attention.zero_sink import with_zero
from efflib.models.config import LlamaConfig, MixtureConfig
from efflib.models.llama import AttentionFn, Llama, causal_mask
from efflib.models.mixture import Mixture
from efflib.moe.balance import balancing_loss
from efflib.moe.layer import by_index
from efflib.moe.router import route
from efflib.zoo.tokenizer import BEGIN_ID

WARMUP = 100  # steps
MUON_DECAY = 0.1  # weight decay of the matrices
CLIP = 1.0  # largest norm of the gradient
BLOCKS = 4  # of queries in causal_attention; 8 are no faster
RESUMABLE = ("steps", "decay")  # what a resumed run may change: only the schedule's end


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, beside the text and the versions."""

    model: LlamaConfig
    steps: int
    batch: int = 24
    context: int = 256  # tokens that the model sees at once, the begin token included
    matrix_lr: float = 0.006  # Muon, with the update's RMS matched to AdamW's
    vector_lr: float = 0.003  # AdamW: embedding and norms
    decay: float = 0.4  # share of the steps in which the learning rates fall to zero
    begin: bool = True  # whether the begin token stands before every sample
    zero_sink: bool = False  # whether the softmax has an extra zero
    seed: int = 0
    teacher: str | None = None  # the model of the zoo whose predictions are learned, not the text
    written: int = 0  # tokens that the teacher writes
    repeats: int = 1  # of what it wrote, in an epoch


def saved_recipe(saved: dict) -> Recipe:
    """The recipe that `asdict` wrote; a field that is younger than the file has its default."""
    kind = MixtureConfig if "num_local_experts" in saved["model"] else LlamaConfig
    return Recipe(**saved | {"model": kind(**saved["model"])})


def initialize(config: LlamaConfig, seed: int) -> Llama:
    """Normal weights of deviation 0.02, those that write to the residual stream less.

    The residual stream sums 2 L writes, so those get 0.02 / sqrt(2 L) (GPT-2, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    model = Mixture(config) if isinstance(config, MixtureConfig) else Llama(config)
    if isinstance(model, Mixture):
        model.set_mix(by_index)  # a quarter of the work, where 2 of 8 experts compute
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            std = 0.02 / math.sqrt(2 * config.num_hidden_layers) if writes else 0.02
            nn.init.normal_(parameter, std=std, generator=generator)
    return model


def optimizers(model: Llama, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the embedding, every vector and the routers."""
    matrices, others = [], []
    for name, p in model.named_parameters():
        inside = p.ndim == 2 and "layers" in name and not name.endswith(".gate.weight")
        (matrices if inside else others).append(p)
    muon = torch.optim.Muon(
        matrices,
        lr=recipe.matrix_lr,
        weight_decay=MUON_DECAY,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(others, lr=recipe.vector_lr, betas=(0.9, 0.95), weight_decay=0.0)
    return [muon, adamw]


def rate(step: int, steps: int, decay: float) -> float:
    """The learning rate's factor at a step: warm-up, 1, then linearly to 0 at `steps`."""
    warm = (step + 1) / min(WARMUP, max(1, steps // 10))
    cool = (steps - step) / (decay * steps)
    return min(1.0, warm, cool)


def sample(text: Tensor, step: int, recipe: Recipe) -> Tensor:
    """The samples of one step: begin token and T = context tokens of text. [B, 1 + T]

    Without `recipe.begin`, the token of the text before each window is in its place.

    An epoch cuts the text into windows at an offset of its own and visits them in an order of its
    own; both come from (seed, epoch).
    """
    batch, context = recipe.batch, recipe.context
    per_epoch = (len(text) - context - 1) // context // batch
    epoch, i = divmod(step, per_epoch)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    offset = int(torch.randint(context, (1,), generator=generator))
    order = torch.randperm(per_epoch * batch, generator=generator)
    starts = offset + context * order[i * batch : (i + 1) * batch]
    samples = text[starts[:, None] + torch.arange(1 + context)]
    if recipe.begin:
        samples[:, 0] = BEGIN_ID
    return samples


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention with its scores in memory, whatever the mask."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, T, T]
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1, dtype=torch.float32)
    return p.to(q.dtype) @ v


def causal_attention(context: int, device: str) -> AttentionFn:
    """Causal attention over at most `context` tokens, a block of queries at a time.

    A block of queries leaves out the keys that none of them may see, and what hides the others is
    added to the scores instead of computed for each of them. Compiled for a CPU at T = 512, forward
    and backward take a third of `explicit_attention`'s time and less than the fused kernel's.
    """
    visible = causal_mask(context, context, device)
    bias = torch.zeros(visible.shape, dtype=torch.bfloat16, device=device)  # 0 and -inf are exact
    bias = bias.masked_fill(~visible, float("-inf"))

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        t, outs = q.shape[2], []
        rows = -(-t // BLOCKS)
        for i in range(0, t, rows):
            end = min(i + rows, t)
            seen = k[:, :, :end].transpose(-1, -2)  # [B, H, d, S]
            scores = q[:, :, i:end] * q.shape[-1] ** -0.5 @ seen + bias[i:end, :end]
            p = scores.softmax(-1, dtype=torch.float32)  # [B, H, rows, S]
            outs.append(p.to(q.dtype) @ v[:, :, :end])
        return torch.cat(outs, dim=2)

    return attention


def average_gradients(model: nn.Module) -> None:
    """Replace every gradient by its mean over the workers, in one message."""
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        g.copy_(mean.view_as(g))


def loss_function(model: Llama, device: str, bfloat16: bool = True) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy of samples [B, 1 + T] in nats, in autocast to bfloat16 or in float32.

    Of a mixture, its config's share of the layers' mean balancing loss is added.
    """

    def loss(ids: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            logits = model(ids[:, :-1])  # [B, T, V]
        value = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        return value + imbalance(model)

    return loss


def imbalance(model: Llama) -> Tensor | float:
    """What a mixture's loss has beside the cross-entropy; 0 for any other model."""
    if not (isinstance(model, Mixture) and model.config.router_aux_loss_coef):
        return 0.0
    losses = [balancing_loss(m.logits, route(m.logits, m.k).experts) for m in model.mixtures()]
    return model.config.router_aux_loss_coef * torch.stack(losses).mean()


class Run:
    """A training run: weights, optimizer states, step and log, and where they are kept."""

    def __init__(self, recipe: Recipe, text: Tensor, file: Path, device: str = "cpu") -> None:
        self.recipe, self.text, self.file, self.device = recipe, text, file, device
        self.model = initialize(recipe.model, recipe.seed).to(device)
        causal = causal_attention(recipe.context, device)
        self.model.set_attention(with_zero(explicit_attention) if recipe.zero_sink else causal)
        self.optimizers = optimizers(self.model, recipe)
        self.step, self.log = 0, []
        if file.exists():
            self._resume()

    def _resume(self) -> None:
        state = torch.load(self.file, map_location=self.device, weights_only=True)
        recipe, saved = asdict(self.recipe), asdict(saved_recipe(state["recipe"]))
        other = [k for k in recipe if k not in RESUMABLE and recipe[k] != saved[k]]
        if other:
            raise ValueError(f"{self.file} is of another recipe: {', '.join(other)} differ")
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.log = state["step"], state["log"]

    def save(self) -> None:
        """Write the state beside its file and move it there, so a kill leaves one or the other."""
        state = {
            "recipe": asdict(self.recipe),
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "log": self.log,
        }
        partial = self.file.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.file)

    def update(self, loss: Callable[[Tensor], Tensor]) -> float:
        """One step of the optimizers; returns the loss before it, in nats per token."""
        factor = rate(self.step, self.recipe.steps, self.recipe.decay)
        rates = (self.recipe.matrix_lr, self.recipe.vector_lr)
        for optimizer, lr in zip(self.optimizers, rates, strict=True):
            optimizer.zero_grad(set_to_none=True)
            optimizer.param_groups[0]["lr"] = lr * factor
        ids = sample(self.text, self.step, self.recipe)
        if dist.is_initialized():
            ids = ids[dist.get_rank() :: dist.get_world_size()]
        value = loss(ids.to(self.device))
        value.backward()
        if dist.is_initialized():
            average_gradients(self.model)
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return value.item()
