"""Token trees: several continuations are checked in one pass, and the best path becomes text.

A tree stands in a list of nodes in which parents come before their children; node 0 is the last
token of the text, which the model has not read yet. One pass reads all nodes:

    position of a node = position of node 0 + its depth
    node i sees the text before node 0, its ancestors, and itself          (tree attention)

so row i of the result is the target's distribution after the path to node i, whatever else is in
the tree. From node 0 the target then walks down: among the children x of a node, in their order,

    accept x with probability p(x); otherwise p(x) <- 0, p <- p / sum(p), and the next child;

where none is accepted, the next token is drawn from what is left of p. That is the rejection rule
of `speculative` for proposals that are certain, child after child, so nothing is lost; with
temperature 0 it is the path on which the target agrees. The cache keeps that path.
Sources: Miao et al., "SpecInfer" (2023); Cai et al., "Medusa" (2024), section 2.1.2 (tree
attention); the rule as in EAGLE (Li et al., 2024).

A chain of g proposals is a tree of width 1, and takes the passes that `speculative_generate` takes.
A tree costs as much of a pass as a chain of as many nodes, but its depth is what the draft's passes
are spent on.

Where implementations differ: SpecInfer draws children from the draft and weighs them by q; here
and in EAGLE and Medusa they are the draft's most likely tokens, so they are certain. Two children
with one token would both be judged by what is left: the second is never accepted.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_integers, expect_whole
from efflib.decoding.sampling import (
    GREEDY,
    Sampling,
    draw,
    expect_prompt,
    filtered_probabilities,
)
from efflib.decoding.speculative import Speculated
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, causal_mask


class Tree(NamedTuple):
    """N nodes: their tokens, and the node that each hangs on, -1 for node 0."""

    tokens: Tensor  # [N] int64
    parents: list[int]

    def checked(self) -> "Tree":
        """Itself; raises ValueError that names what is no tree."""
        expect_integers(tokens=self.tokens)
        if self.tokens.shape != (len(self.parents),) or not self.parents:
            shape = tuple(self.tokens.shape)
            raise ValueError(f"need a token for each of {len(self.parents)} parents, got {shape}")
        if self.parents[0] != -1:
            raise ValueError(f"node 0 is the last token of the text: parents[0]={self.parents[0]}")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(f"parents[{node}]={parent} must be from 0 to {node - 1}")
        return self

    def path(self, node: int) -> list[int]:
        """The nodes from node 0 to this one."""
        nodes = [node]
        while self.parents[nodes[-1]] >= 0:
            nodes.append(self.parents[nodes[-1]])
        return nodes[::-1]

    def depths(self) -> list[int]:
        """How many proposals lead to each node, itself included."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return depths


def tree_mask(parents: Sequence[int], past: int) -> Tensor:
    """True where a node may see: the `past` tokens of text, its ancestors, itself. [N, past + N]"""
    seen = torch.eye(len(parents), dtype=torch.bool)  # [N, N]
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return torch.cat([torch.ones(len(parents), past, dtype=torch.bool), seen], dim=1)


def verify_tree(
    tree: Tree, p: Tensor, generator: torch.Generator | None = None
) -> tuple[list[int], Tensor]:
    """The accepted path from node 0, and the token behind it [1], distributed as p [N, V].

    Row i of p is the target's distribution after node i.
    """
    if p.ndim != 2 or len(p) != len(tree.parents):
        raise ValueError(f"{len(tree.parents)} nodes need as many rows of p, got {tuple(p.shape)}")
    node, path = 0, [0]
    while True:
        left = p[node]  # [V]
        for child in (i for i, parent in enumerate(tree.parents) if parent == node):
            token = tree.tokens[child]
            chance = left[token]
            if torch.rand((), generator=generator, device=p.device) < chance:
                break
            rest = left.index_fill(0, token, 0)
            # all zero: p(x) is 1 up to rounding, and a rejection has probability of that order
            left = torch.where(rest.sum() > 0, rest / rest.sum(), left)
        else:
            return path, draw(left[None], generator)
        node = child
        path.append(node)


Proposer = Callable[[Tensor, Tensor | None], Tree]
Verifier = Callable[..., tuple[list[int], Tensor]]


@torch.no_grad()
def tree_generate(
    target: Llama,
    propose: Proposer,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    verify: Verifier = verify_tree,
) -> Speculated:
    """Continue one prompt [1, T] by max_new_tokens, a path of propose(ids, hidden) per pass.

    propose gets the text ids [1, T] and what the target's head read for the last token but one,
    hidden [D], or None before the first pass; it returns a tree whose node 0 is ids[0, -1].
    The first pass reads the prompt along with its tree, so no pass is spent on the prompt alone.
    Raises ValueError for what does not fit, and for a tree that is none.
    """
    expect_prompt(target, prompt, max_new_tokens, rows=1)
    cache, ids, end = KVCache(), prompt, prompt.shape[1] + max_new_tokens
    passes = proposed = accepted = 0
    hidden = None
    while ids.shape[1] < end:
        tree, past = propose(ids, hidden).checked(), ids.shape[1] - 1  # tokens before node 0
        fed = torch.cat([ids[:, cache.length : past], tree.tokens[None]], dim=1)
        places = _places(tree, past - cache.length, past, ids.device)
        read = target.hidden(fed, cache=cache, **places)[0, -len(tree.parents) :]  # [N, D]
        p = filtered_probabilities(target.lm_head(read), sampling)  # [N, V]
        path, last = verify(tree, p, generator)
        kept = torch.tensor(path, device=ids.device)
        cache.keep(past, past + kept)
        hidden = read[path[-1]]  # [D]
        new = torch.cat([tree.tokens[kept[1:]], last])[: end - ids.shape[1]]
        ids = torch.cat([ids, new[None]], dim=1)
        passes, proposed = passes + 1, proposed + max(tree.depths())
        accepted += len(new) - 1
    return Speculated(ids, passes, proposed, accepted)


def _places(tree: Tree, unread: int, past: int, device: torch.device) -> dict[str, Tensor]:
    """Positions [unread + N] and mask [unread + N, past + N] of unread text, then a tree."""
    text = torch.zeros(unread, past + len(tree.parents), dtype=torch.bool)
    text[:, :past] = causal_mask(unread, past)
    depths = torch.tensor(tree.depths())
    positions = torch.cat([torch.arange(past - unread, past), past + depths])
    mask = torch.cat([text, tree_mask(tree.parents, past)])
    return {"positions": positions.to(device), "mask": mask.to(device)}


def full_tree(root: Tensor, candidates: Sequence[Tensor]) -> Tree:
    """Every node of depth i - 1 has the tokens candidates[i] [w_i] as children; root [] or [1]."""
    tokens, parents, level = [int(root)], [-1], [0]
    for row in candidates:
        start = len(tokens)
        for parent in level:
            tokens += row.tolist()
            parents += [parent] * len(row)
        level = list(range(start, len(tokens)))
    return Tree(torch.tensor(tokens, device=root.device), parents)


class ModelTree:
    """A tree from a draft model: each node of depth i has its widths[i] most likely tokens."""

    def __init__(self, draft: Llama, widths: Sequence[int]) -> None:
        for width in widths:
            expect_whole(1, width=width)
        self.draft, self.widths = draft, tuple(widths)
        self.cache, self.known = KVCache(), 0  # of text that the draft has read, not of the tree

    def __call__(self, ids: Tensor, hidden: Tensor | None) -> Tree:
        self.cache.truncate(self.known)
        logits = self.draft(ids[:, self.known :], cache=self.cache)[0, -1:]  # [1, V]
        self.known = ids.shape[1]
        tokens, parents, level = [int(ids[0, -1])], [-1], [0]
        for width, more in pairwise((*self.widths, 0)):
            rows = logits.topk(width).indices  # [nodes of the level, width]
            start = len(tokens)
            tokens += rows.flatten().tolist()
            parents += [parent for parent in level for _ in range(width)]
            level = list(range(start, len(tokens)))
            if more:
                logits = self._read(torch.tensor(tokens, device=ids.device), parents, start)
        return Tree(torch.tensor(tokens, device=ids.device), parents)

    def _read(self, tokens: Tensor, parents: list[int], start: int) -> Tensor:
        """Logits after the nodes from `start` on; the cache holds those before. [nodes, V]"""
        mask = tree_mask(parents, self.known - 1)[start:].to(tokens.device)  # node 0 is text
        depth = Tree(tokens, parents).depths()[-1]
        positions = torch.full((len(tokens) - start,), self.known - 1 + depth, device=tokens.device)
        return self.draft(tokens[None, start:], self.cache, positions, mask)[0]
