"""Medusa: heads on the target itself propose the next tokens but one, two, ..., all at once.

    logits_k = W_lm (h + silu(W_k h)),        k = 1 .. K

for the token k places behind the one that the model's own head chooses; h [D] is what that head
reads. There is no draft model, and no pass of one: a round proposes K tokens for K products of
[D, D] and one of K rows with the head. What the heads cannot do is know each other's choice, so
each is less sure than the one before; a tree of their best tokens (`tree`) makes up for some of it.
Source: Cai et al. (2024), Medusa-1: the model stays as it is, only W_k are trained, by
cross-entropy with the token k + 1 places ahead.

Where implementations differ: Medusa gives each head an output matrix of its own; on a small model
with 2048 tokens one such matrix is an eighth of the model, so here all use the model's.

**Typical acceptance** takes a proposal x if

    p(x) > min(epsilon, delta exp(-H(p))),       H the entropy of p,

and no draw decides: more is accepted, and what comes out is *not* distributed as the target. It is
lossy, as Medusa's authors say; the exact rule is `tree.verify_tree`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_whole
from efflib.decoding.tree import Tree, full_tree
from efflib.models.llama import Llama


class MedusaHeads(nn.Module):
    """K heads over the target's own output matrix; untrained, all say what that says."""

    def __init__(self, target: Llama, heads: int) -> None:
        super().__init__()
        expect_whole(1, heads=heads)
        size = target.config.hidden_size
        like = {"dtype": target.lm_head.weight.dtype, "device": target.lm_head.weight.device}
        self.blocks = nn.ModuleList(nn.Linear(size, size, bias=False, **like) for _ in range(heads))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
        self._output = [target.lm_head.weight]  # in a list: it is not trained, and not saved here

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [K, ..., V] of hidden [..., D]."""
        states = torch.stack([hidden + F.silu(block(hidden)) for block in self.blocks])
        return F.linear(states, self._output[0].detach())


def heads_loss(heads: MedusaHeads, hidden: Tensor, ids: Tensor) -> Tensor:
    """Mean cross-entropy of all heads on ids [B, T], of which hidden [B, T, D] was read.

    hidden at position t goes with ids[t]; head k (from 1) says ids[t + 1 + k].
    """
    count = len(heads.blocks)
    if ids.shape[1] < count + 2:
        raise ValueError(f"{count} heads need at least {count + 2} tokens, got {ids.shape[1]}")
    logits = heads(hidden)  # [K, B, T, V]
    losses = [
        F.cross_entropy(logits[k - 1, :, : -k - 1].flatten(0, 1), ids[:, k + 1 :].flatten())
        for k in range(1, count + 1)
    ]
    return torch.stack(losses).mean()


def train_heads(
    target: Llama, ids: Tensor, heads: int = 4, steps: int = 200, rate: float = 2e-3, seed: int = 0
) -> MedusaHeads:
    """Heads for the target, trained on text ids [N, T], 8 rows a step; the target stays as it is.

    Text that the target wrote is what they will be asked about (`efflib.zoo.distillation.written`).
    """
    expect_dims("[N, T]", ids=ids)
    expect_whole(steps=steps)
    made = MedusaHeads(target, heads)
    optimizer = torch.optim.AdamW(made.parameters(), lr=rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rows = ids[torch.randint(len(ids), (8,), generator=generator)]
        with torch.no_grad():
            hidden = target.hidden(rows)  # [8, T, D]
        loss = heads_loss(made, hidden, rows)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        optimizer.step()
    return made


class MedusaTree:
    """The tree of the heads' most likely tokens, widths[i] of head i + 1 under every node."""

    def __init__(self, heads: MedusaHeads, widths: Sequence[int]) -> None:
        if not 1 <= len(widths) <= len(heads.blocks):
            raise ValueError(f"{len(widths)} widths for {len(heads.blocks)} heads")
        for width in widths:
            expect_whole(1, width=width)
        self.heads, self.widths = heads, tuple(widths)

    def __call__(self, ids: Tensor, hidden: Tensor | None) -> Tree:
        if hidden is None:  # nothing has been read yet: the first pass is a plain one
            return Tree(ids[0, -1:], [-1])
        logits = self.heads(hidden)  # [K, V]
        best = logits.topk(max(self.widths)).indices  # [K, most]
        return full_tree(ids[0, -1], [row[:w] for row, w in zip(best, self.widths, strict=False)])


def typical(p: Tensor, epsilon: float = 0.3, delta: float = 0.09) -> Tensor:
    """Which tokens of p [..., V] typical acceptance takes. bool [..., V]"""
    if not (0 < epsilon <= 1 and 0 < delta):
        raise ValueError(f"need 0 < epsilon <= 1 and 0 < delta, got {epsilon=}, {delta=}")
    entropy = torch.special.entr(p).sum(-1, keepdim=True)  # nats
    return p > torch.minimum(torch.tensor(epsilon), delta * torch.exp(-entropy))


def verify_typical(
    tree: Tree, p: Tensor, generator: torch.Generator | None = None
) -> tuple[list[int], Tensor]:
    """The longest path of typical tokens, and the target's most likely token behind it [1].

    LOSSY: a `verify` for `tree_generate` whose output is not distributed as p [N, V].
    """
    taken, best = typical(p), [0]
    accepted = {0}
    for node, parent in enumerate(tree.parents):
        if parent in accepted and taken[parent, tree.tokens[node]]:
            accepted.add(node)
            path = tree.path(node)
            best = path if len(path) > len(best) else best
    return best, p[best[-1]].argmax(-1, keepdim=True)
