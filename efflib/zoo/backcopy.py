"""An attention sink that grows while you watch: the bigram-backcopy task.

Tokens follow a Markov chain, x_{t+1} ~ bigram(. | x_t), except after a trigger:

    x_{t+1} = x_{t-1}   where x_t is a trigger

The feed-forward part can learn the bigrams alone. Attention is needed after triggers only, where
the head copies the token before; everywhere else it has nothing to add, but its softmax must sum
to 1. It learns to spend that 1 on the begin token and to make that token's value small: it is
dormant there. Evict the begin token, and the attention falls on tokens whose values are not small.
Source: Guo et al., "Active-Dormant Attention Heads" (2024), section 2.

Here the model is our `Llama` of one layer and one head. The paper's chain is that of characters
in Shakespeare, here it is drawn at random; a trigger here never follows a trigger. Width below the
vocabulary and short texts make the head's noise costly (a mean over many tokens is nearly
constant), and Muon lets the attention's matrices learn fast. With Adam, or a width equal to the
vocabulary, the head stayed below 0.2 in a minute: it spread its attention or gave it to the query's
own token, which is as harmless.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.models.llama import Llama, LlamaConfig

BEGIN = 0
SPREAD = 2.0  # deviation of the bigrams' logits: 0 would be uniform
MATRIX_LR, MATRIX_DECAY = 0.02, 0.1  # Muon
VECTOR_LR = 0.005  # Adam


class Task(NamedTuple):
    bigram: Tensor  # [V, V], row x: the distribution of the token after x; nothing leads to BEGIN
    is_trigger: Tensor  # [V] bool


def make_task(vocab: int = 64, triggers: int = 6, seed: int = 0) -> Task:
    """A random chain whose tokens 1 .. triggers are triggers; token 0 is `BEGIN`."""
    if not 1 <= triggers <= vocab - 3:
        raise ValueError(f"triggers={triggers} must be in [1, vocab - 3 = {vocab - 3}]")
    logits = SPREAD * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed))
    logits[:, BEGIN] = float("-inf")
    logits[BEGIN, : triggers + 1] = float("-inf")  # after BEGIN there is nothing yet to copy
    number = torch.arange(vocab)
    return Task(logits.softmax(-1), (number > BEGIN) & (number <= triggers))


def sample(task: Task, n: int, length: int, generator: torch.Generator) -> Tensor:
    """BEGIN and then `length` tokens of the chain. [n, 1 + length]"""
    expect_whole(n=n, length=length)
    ids = torch.full((n, 1 + length), BEGIN)
    for t in range(1, 1 + length):
        last = ids[:, t - 1]
        chain = torch.multinomial(task.bigram[last], 1, generator=generator)[:, 0]
        ids[:, t] = torch.where(task.is_trigger[last], ids[:, t - 2], chain)
    return ids


def best_losses(task: Task, ids: Tensor) -> Tensor:
    """-ln p of ids[:, 1:] for one who knows the chain and the rule; ids [n, 1 + T] -> [n, T]."""
    chain = -task.bigram[ids[:, :-1], ids[:, 1:]].log()
    return chain.masked_fill(task.is_trigger[ids[:, :-1]], 0.0)


def excess_loss(task: Task, logits: Tensor, ids: Tensor) -> Tensor:
    """Nats above `best_losses` at every token; logits [n, T, V], ids [n, 1 + T] -> [n, T]."""
    expect_dims("[n, 1 + T]", ids=ids)
    expect_dims("[n, T, V]", logits=logits)
    if logits.shape[:2] != (len(ids), ids.shape[1] - 1):
        raise ValueError(f"logits {tuple(logits.shape)} are not of ids {tuple(ids.shape)}[:, :-1]")
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return loss - best_losses(task, ids)


def one_head_model(vocab: int = 64, width: int = 32, seed: int = 0) -> Llama:
    """One layer with one head of size `width`, small weights drawn by `seed`."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=width,
    )
    model, generator = Llama(config), torch.Generator().manual_seed(seed)
    for p in model.parameters():
        if p.ndim == 2:
            p.data = 0.02 * torch.randn(p.shape, generator=generator)
    return model


def train(
    model: Llama,
    task: Task,
    steps: int,
    batch: int = 32,
    length: int = 24,
    seed: int = 0,
    begin: bool = True,
) -> Iterator[tuple[int, float]]:
    """Train `model` in place on fresh samples; yield (step, loss) after every step.

    begin=False: samples without their first token, `BEGIN`.
    """
    expect_whole(steps=steps)
    generator = torch.Generator().manual_seed(seed)
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "layers" in name]
    others = [p for name, p in named if p.ndim != 2 or "layers" not in name]
    optimizers = [
        torch.optim.Muon(
            matrices, MATRIX_LR, weight_decay=MATRIX_DECAY, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.Adam(others, VECTOR_LR),
    ]
    for step in range(1, steps + 1):
        ids = sample(task, batch, length, generator)[:, 0 if begin else 1 :]
        loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        yield step, loss.item()
