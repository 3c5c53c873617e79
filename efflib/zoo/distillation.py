"""Distillation: a small model learns what a large one would say.

    loss = KL(p || q) = sum_v p(v) ln(p(v) / q(v)),  p the teacher's next token, q the student's

on the mean over all positions (Hinton et al., 2015, section 2, at temperature 1). A draft of
speculative decoding is asked about the target's own text, not about what people wrote, so it
trains on both: `written` lets the teacher continue pieces of the training text at temperature 1
(Zhou et al., "DistillSpec", 2023, section 4, take such samples from the target or from the draft).

Why the divergence and not cross-entropy on the same text: a target and a draft that had seen 17 and
18 M tokens agreed on 0.643 of 8192 tokens of the target's greedy text (standard error 0.005). 120
more steps of 4096 tokens gave

    read                                                        cross-entropy   divergence
    4 M tokens of the training text                                  0.652         0.664
    0.3 M of it, and 160 K that the target wrote, as often           0.624         0.649
    what the target wrote, 160 K tokens                                -           0.642

A label that the target drew is mostly noise; its distribution is not. Text that it wrote has to be
as varied as what it replaces: these rows read too little, too often, to tell whether it helps.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.decoding.sampling import Sampling, generate
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import BEGIN_ID

PROMPT = 16  # tokens of training text that the teacher continues
LENGTH = 256  # tokens of a piece, its prompt included
ROWS = 64  # pieces that are written at once


def written(teacher: Llama, text: Tensor, tokens: int, seed: int = 0) -> Tensor:
    """About `tokens` ids that the teacher writes: floor(tokens / LENGTH) pieces of LENGTH. [N]

    Each piece is PROMPT tokens of `text` [M] from a place drawn by `seed`, and their continuation.

    Raises:
        ValueError: if tokens < LENGTH, or the text is shorter than a prompt.
    """
    if tokens < LENGTH or len(text) < PROMPT:
        raise ValueError(f"need tokens={tokens} >= {LENGTH} and {len(text)} ids >= {PROMPT}")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - PROMPT + 1, (tokens // LENGTH, 1), generator=generator)
    pieces = []
    for rows in starts.split(ROWS):
        prompts = text[rows + torch.arange(PROMPT)]  # [rows, PROMPT]
        ids = torch.cat([torch.full_like(rows, BEGIN_ID), prompts], dim=1)
        ids = generate(teacher, ids, LENGTH - PROMPT, Sampling(), generator)
        pieces.append(ids[:, 1:].flatten())
    return torch.cat(pieces)


def distillation_loss(model: Llama, teacher: Llama, device: str) -> Callable[[Tensor], Tensor]:
    """Mean KL(teacher || model) over the positions of samples [B, 1 + T], in nats, in bf16."""

    def loss(ids: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids[:, :-1])  # [B, T, V]
            with torch.no_grad():
                wanted = teacher(ids[:, :-1])  # [B, T, V]
        log_q, log_p = (x.float().flatten(0, 1).log_softmax(-1) for x in (logits, wanted))
        return F.kl_div(log_q, log_p, reduction="batchmean", log_target=True)

    return loss
