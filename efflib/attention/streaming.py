"""Generation without end in bounded memory: window attention and StreamingLLM.

    window        keep the last W keys and values
    StreamingLLM  keep those of the first few tokens (the sinks) and the last W - sinks
    recompute     keep no cache: run the model on the last W tokens for every new one

Softmax makes every head spend a total of 1, and a head with nothing to say leaves it on a token
that every query can see: the first one. Once a window has moved past that token, the weights it
took go to other keys, and perplexity collapses. Keeping the first tokens repairs it. Source: Xiao
et al., "Efficient Streaming Language Models with Attention Sinks" (2024), sections 3.1 and 3.2.

Cost for T tokens in window W: dense attention T^2, window and sinks T W, recomputation T W^2.

Positions: a key turns by its place in the cache, not by its place in the text, so the distances
the model sees never exceed those it was trained on. The cache therefore keeps keys before the
rotary embedding and turns all of them at every step. The context does not grow: what is evicted
is forgotten.

Where implementations differ: the authors' code evicts after a pass, so its queries see W + 1
keys; here W counts the query's own. SinkCache of transformers 4 (removed in 5) stored rotated keys
and turned them on by the difference. H2O keeps the positions of the text instead.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from efflib.models.llama import Llama, rotate


def survivors(tokens: Tensor, pinned: Collection[int], room: int) -> Tensor:
    """Places in tokens [S] (numbers in the text, ascending) to keep: pinned ones, then recent ones.

    At most `room` places, but never fewer than the pinned ones. [S'] ascending
    """
    wanted = torch.tensor(sorted(pinned), dtype=tokens.dtype, device=tokens.device)
    keep = torch.isin(tokens, wanted)  # [S]
    others = (~keep).nonzero().flatten()
    recent = max(0, room - int(keep.sum()))
    keep[others[max(0, len(others) - recent) :]] = True
    return keep.nonzero().flatten()


class StreamingCache:
    """The keys and values of `size` tokens: the pinned ones, once seen, and the most recent.

    pinned=() is window attention, pinned=range(4) StreamingLLM with four sinks; any other set of
    token numbers is a control. theta: the model's ``config.rope_theta``.

    Tokens appended together see each other and what is kept beside them, at most size - T older
    ones, so all of them fit. A chunk of more than `size` minus the pinned tokens is attended to
    whole, as a prompt is, beside the pinned ones, and is cut to `size` when the next one comes.
    Chunks thus change what a query sees; token by token, each sees exactly the last `size`.
    """

    keeps_raw_keys = True

    def __init__(self, size: int, pinned: Collection[int], theta: float) -> None:
        if len(set(pinned)) >= size or any(p < 0 for p in pinned):
            raise ValueError(
                f"size={size} must exceed the pinned tokens (>= 0), got {list(pinned)}"
            )
        self.size, self.pinned, self.theta = size, frozenset(pinned), theta
        self.keys: list[Tensor] = []  # per layer [B, Hkv, S, d], before the rotary embedding
        self.values: list[Tensor] = []
        self.tokens: list[Tensor] = []  # per layer [S], numbers in the text

    @property
    def length(self) -> int:
        """The position of the next token: how many are kept."""
        return self.keys[0].shape[2] if self.keys else 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Make room for k and v [B, Hkv, T, d], add them, return all, keys turned by their place.

        The query of the i-th new token stands at position `length` + i of before; the keys are
        turned so that the last of them is where the last query is.
        """
        if layer == len(self.keys):
            self.keys.append(k[:, :, :0])
            self.values.append(v[:, :, :0])
            self.tokens.append(torch.arange(0, device=k.device))
        old, new = self.tokens[layer], k.shape[2]
        kept = survivors(old, self.pinned, self.size - new)
        first = int(old[-1]) + 1 if len(old) else 0
        arrived = torch.arange(first, first + new, device=k.device)
        self.tokens[layer] = torch.cat([old[kept], arrived])
        self.keys[layer] = torch.cat([self.keys[layer][:, :, kept], k], dim=2)  # [B, Hkv, S, d]
        self.values[layer] = torch.cat([self.values[layer][:, :, kept], v], dim=2)
        places = torch.arange(len(kept) + new, device=k.device) + (len(old) - len(kept))
        return rotate(self.keys[layer], places, self.theta), self.values[layer]


@torch.no_grad()
def stream_logits(model: Llama, ids: Tensor, cache: object) -> Tensor:
    """Logits [B, T, V] of ids [B, T] fed one token at a time through a fresh cache."""
    return torch.cat([model(token, cache=cache) for token in ids.split(1, dim=1)], dim=1)


@torch.no_grad()
def recomputed_logits(
    model: Llama, ids: Tensor, size: int, at: Tensor, keep_first: bool = False
) -> Tensor:
    """Logits after the tokens at positions `at` [n] of ids [B, T], each from `size` tokens only.

    Every position is a pass of its own, from position 0 on, over the last `size` tokens, or, for a
    model that knows no text without its begin token, over the first and the last size - 1.
    Returns [B, n, V].
    """
    rows = []
    for t in at.tolist():
        window = ids[:, max(0, t + 1 - size) : t + 1].clone()  # [B, <= size]
        if keep_first:
            window[:, 0] = ids[:, 0]
        rows.append(model(window)[:, -1])
    return torch.stack(rows, dim=1)
