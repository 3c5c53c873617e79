"""Beam search: keep the W most likely continuations at every step, not only the best one.

    score(y) = log p(y | prompt) / |y|^length_penalty

Each running beam is extended by every token; the W best extensions run on. An extension that ends
with the end token is finished and competes by its score, in which a length penalty above 0 makes
up for longer texts having more negative log probabilities. Source: the conventions of
transformers' ``generate(num_beams=W)``, with ``early_stopping=False``:

- |y| counts generated tokens, the end token too, and not the prompt;
- 2 W extensions are looked at, so that W can run on even if W of them end; an ending one counts
  as finished only if it is among the best W;
- the search stops when W are finished and the best running beam, scored at its length of now,
  is not better than the worst of them. With a length penalty above 0 it might still have become
  better: this is a heuristic. Wu et al. (2016, section 7) divide by ((5 + |y|) / 6)^a instead and
  prune by score differences.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.decoding.sampling import expect_prompt
from efflib.models.cache import KVCache
from efflib.models.llama import Llama
from efflib.models.rotary import at_least_fp32


class Beams(NamedTuple):
    """Found sequences, best first: ids of unequal length, prompt included, and their scores."""

    ids: list[Tensor]
    scores: list[float]


def extensions(logits: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best (beam, token) pairs: log probabilities, beams and tokens, each [count].

    logits [W, V] of the next token, scores [W] the log probability of each beam.
    """
    expect_whole(1, count=count)
    expect_dims("[W, V]", logits=logits)
    if scores.shape != logits.shape[:1]:
        raise ValueError(f"need a score for each of {len(logits)} beams, got {len(scores)}")
    log_p = logits.to(at_least_fp32(logits.dtype)).log_softmax(-1) + scores[:, None]  # [W, V]
    best = log_p.flatten().topk(min(count, log_p.numel()))
    return best.values, best.indices // logits.shape[-1], best.indices % logits.shape[-1]


@torch.no_grad()
def beam_search(
    model: Llama,
    prompt: Tensor,
    max_new_tokens: int,
    beams: int,
    length_penalty: float = 1.0,
    eos_id: int | None = None,
) -> Beams:
    """The up to `beams` best continuations of one prompt [1, T], best first."""
    expect_prompt(model, prompt, max_new_tokens, rows=1)
    expect_whole(1, beams=beams)
    cache, finished = KVCache(), []
    ids, scores = prompt, torch.zeros(1, device=prompt.device)  # one beam: all would be equal
    for length in range(1, max_new_tokens + 1):
        logits = model(ids if length == 1 else ids[:, -1:], cache=cache)[:, -1]  # [W, V]
        values, rows, tokens = extensions(logits, scores, 2 * beams)
        ids = torch.cat([ids[rows], tokens[:, None]], dim=1)  # [2W, T + length]
        ends = tokens == eos_id if eos_id is not None else torch.zeros_like(tokens, dtype=bool)
        last = ends | (length == max_new_tokens)
        for i in last[:beams].nonzero().flatten().tolist():
            finished.append((values[i].item() / length**length_penalty, ids[i]))
        finished = sorted(finished, key=lambda pair: -pair[0])[:beams]
        running = (~ends).nonzero().flatten()[:beams]
        if not len(running):
            break
        ids, scores = ids[running], values[running]
        cache.reorder(rows[running])
        hope = scores[0].item() / length**length_penalty
        if len(finished) == beams and hope <= finished[-1][0]:
            break
    return Beams([sequence for _, sequence in finished], [score for score, _ in finished])
