"""Prompt tuning: train vectors that stand before the text, in place of embeddings.

    x = [p_1 .. p_n, E(t_1) .. E(t_T)]         p [n, D] is trained, the model is frozen

A task is n D numbers, and a batch can hold a task in each row: nothing in the model differs between
rows.  Rows then have prompts (and texts) of unlike lengths.  Here they are filled up **on the
left**, so that all of them end together and go on together; three things make a row of such a batch
equal that row alone:

- positions count from the first vector of the row, not of the batch.  (Rotary embeddings are
  relative and forgive a shift of a whole row; they do not forgive a gap between prompt and text, as
  where texts were filled up before the prompt came.  Learned positions forgive neither);
- no query sees a key that is filling; a filling sees itself, for a softmax over nothing is NaN;
- in decoding the mask of the cache grows, and each row goes on with its own position.

Source: Lester et al. 2021 (arXiv:2104.08691); batches of mixed tasks: their section 1, figure 2.

Where implementations differ: peft fills up texts as the tokenizer did, puts the prompt in front of
the filling, and lengthens the mask; its logits are n longer than the text.  All rows have one
prompt, or one of a list of prompts of one length.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from efflib.models.embedded import logits_of_vectors
from efflib.models.llama import Llama


class Rows(NamedTuple):
    """Rows of unlike lengths as one batch, filled up on the left."""

    x: Tensor  # [B, S, D]
    positions: Tensor  # [B, S] int64
    mask: Tensor  # [B, 1, S, S] bool, True where a query may see a key


def joined(prompts: Sequence[Tensor], texts: Sequence[Tensor]) -> Rows:
    """A batch of B rows: prompts[i] [n_i, D] before texts[i] [t_i, D]; n_i may be 0.

    Raises ValueError if there is no row, another number of prompts than texts, or an empty row.
    """
    if not len(texts) or len(prompts) != len(texts):
        raise ValueError(f"{len(prompts)} prompts for {len(texts)} texts: need one for each")
    rows = [torch.cat([p.to(t), t]) for p, t in zip(prompts, texts, strict=True)]
    lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
    if int(lengths.min()) < 1:
        raise ValueError(f"a row has no vector: lengths {lengths.tolist()}")
    longest = int(lengths.max())
    x = torch.stack([torch.cat([r.new_zeros(longest - len(r), r.shape[1]), r]) for r in rows])
    positions = torch.arange(longest, device=x.device) - (longest - lengths)[:, None]  # [B, S]
    real = positions >= 0
    causal = torch.ones(longest, longest, dtype=torch.bool, device=x.device).tril()
    mask = causal & real[:, None, None, :]
    mask = mask | torch.eye(longest, dtype=torch.bool, device=x.device)  # filling sees itself
    return Rows(x, positions.clamp(min=0), mask)


def next_token(positions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(positions [B, 1], mask [B, 1, 1, S + 1]) of one more token a row.

    positions [B, T], mask [B, 1, T, S]: of the step before.
    """
    seen = mask[:, :, -1:]
    return positions[:, -1:] + 1, torch.cat([seen, torch.ones_like(seen[..., :1])], dim=-1)


class PromptModel(nn.Module):
    """A frozen Llama behind one trained prompt [n, D]; logits of the text alone."""

    def __init__(self, model: Llama, prompt: Tensor) -> None:
        super().__init__()
        self.base = model.requires_grad_(False)
        self.prompt = nn.Parameter(prompt.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, V]"""
        text = self.base.model.embed_tokens(ids)
        x = torch.cat([self.prompt.to(text).expand(len(ids), -1, -1), text], dim=1)
        return logits_of_vectors(self.base, x)[:, len(self.prompt) :]


def prompt_of_words(model: Llama, n: int, seed: int = 0) -> Tensor:
    """n rows of the embedding, drawn with the seed: where a prompt begins. [n, D]"""
    table = model.model.embed_tokens.weight.detach()
    generator = torch.Generator().manual_seed(seed)
    return table[torch.randint(len(table), (n,), generator=generator).to(table.device)].clone()
