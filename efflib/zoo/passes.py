"""Losses of a text by the passes that somebody chose: which tokens are read, which are scored."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims


@torch.no_grad()
def losses_in_passes(
    model: nn.Module, text: Tensor, passes: Sequence[tuple[int, int, int]]
) -> Tensor:
    """-ln p of the tokens [first, end) of each pass (start, end, first), one pass after the other.

    text: [S, L] ids; a pass reads its ids [start, end) and no begin token.  [S, scored] float32
    Raises ValueError unless 0 <= start < first < end <= L in every pass.
    """
    expect_dims("[S, L]", text=text)
    losses = [torch.zeros(len(text), 0)]
    for start, end, first in passes:
        if not 0 <= start < first < end <= text.shape[1]:
            raise ValueError(f"pass {(start, end, first)} of a text of {text.shape[1]} tokens")
        logits = model(text[:, start : end - 1])[:, first - 1 - start :].float()  # [S, new, V]
        right = text[:, first:end]
        losses.append(nn.functional.cross_entropy(logits.mT, right, reduction="none"))
    return torch.cat(losses, dim=1)
