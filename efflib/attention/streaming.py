"""Generation without end in bounded memory: window attention and StreamingLLM.

    window        keep the last W keys and values
    StreamingLLM  keep those of the first few tokens (the sinks) and the last W - sinks
    recompute     keep no cache: run the model on the last W tokens for every new one

Softmax makes every head spend a total of 1, and a head with nothing to say leaves it on a token
that every query can see: the first one. Once a window has moved past that token, the weights it
took go to other keys, and perplexity collapses. Keeping the first tokens repairs it. Source: Xiao
et al., "Efficient Streaming Language Models with Attention Sinks" (2024), sections 3.1 and 3.2.

Cost for T tokens in window W: dense attention T^2, window and sinks T W, recomputation T W^2.

Positions: a key stands at its place in the cache, not at its place in the text, so the distances
the model sees never exceed those it was trained on. Only distances count, so when tokens leave, the
few sinks move up to the others instead of all others moving down: see `slots`. The context does not
grow: what is evicted is forgotten.

Where implementations differ: the authors' code evicts after a pass, so its queries see W + 1
keys; here W counts the query's own. SinkCache of transformers 4 (removed in 5) stored rotated keys
and turned them on by the difference. H2O keeps the positions of the text instead.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from efflib.attention.slots import ROOM, Slots
from efflib.checks import expect_dims, expect_whole, expect_within
from efflib.models.cache import Cache, expect_entry
from efflib.models.llama import Llama
from efflib.models.rotary import RopeScaling, Turns, turns


def survivors(tokens: Tensor, pinned: Collection[int], room: int) -> Tensor:
    """Places in tokens [S] (numbers in the text, ascending) to keep: pinned ones, then recent ones.

    At most `room` places, but never fewer than the pinned ones. [S'] ascending
    """
    wanted = torch.tensor(sorted(pinned), dtype=tokens.dtype, device=tokens.device)
    if tokens.ndim != 1:
        raise ValueError(f"tokens must be [S], got {tuple(tokens.shape)}")
    keep = torch.isin(tokens, wanted)  # [S]
    others = (~keep).nonzero().flatten()
    recent = max(0, room - int(keep.sum()))
    keep[others[max(0, len(others) - recent) :]] = True
    return keep.nonzero().flatten()


class StreamingCache:
    """The keys and values of `size` tokens: the pinned ones, once seen, and the most recent.

    pinned=() is window attention, pinned=range(4) StreamingLLM with four sinks; any other set of
    token numbers is a control. theta, scaling: the model's ``config.rope_theta`` and
    ``config.rope_scaling``.

    Tokens appended together see each other and what is kept beside them, at most size - T older
    ones, so all of them fit. A chunk of more than `size` minus the pinned tokens is attended to
    whole, as a prompt is, beside the pinned ones, and is cut to `size` when the next one comes.
    Chunks thus change what a query sees; token by token, each sees exactly the last `size`.
    """

    keeps_raw_keys = True

    def __init__(
        self,
        size: int,
        pinned: Collection[int],
        theta: float,
        scaling: RopeScaling | None = None,
    ) -> None:
        expect_whole(1, size=size)
        if not isinstance(pinned, Collection):
            raise ValueError(f"pinned={pinned!r} must be token numbers, such as range(4) or (0,)")
        expect_whole(**{f"pinned[{i}]": token for i, token in enumerate(pinned)})
        if len(set(pinned)) >= size:
            raise ValueError(f"size={size} must exceed the pinned tokens, got {list(pinned)}")
        if not theta > 0:
            raise ValueError(f"theta={theta} must be positive")
        self.size, self.pinned, self.theta, self.scaling = size, frozenset(pinned), theta, scaling
        self.layers: list[Slots] = []
        self._by: Turns | None = None  # of slots 0, 1, ..

    @property
    def keys(self) -> list[Tensor]:
        """Per layer [B, Hkv, S, d], turned by their slots: views, until the next call."""
        return [layer.kept()[0] for layer in self.layers]

    @property
    def values(self) -> list[Tensor]:
        """Per layer [B, Hkv, S, d], as `keys`."""
        return [layer.kept()[1] for layer in self.layers]

    @property
    def tokens(self) -> list[Tensor]:
        """Per layer [S], the numbers of the kept tokens in the text."""
        return [torch.tensor(layer.numbers()) for layer in self.layers]

    @property
    def buffers(self) -> list[Tensor]:
        """Every tensor that is held, with the room in it that is not used."""
        held = [t for s in self.layers for t in (s.keys, s.values, s.pinned_keys, s.pinned_values)]
        return [*held, *(self._by or ())]

    @property
    def length(self) -> int:
        """How many tokens are kept."""
        return self.layers[0].count() if self.layers else 0

    @property
    def next_position(self) -> int:
        """Where the next query stands: in the slot after the last."""
        return self.layers[0].end if self.layers else 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Make room for k and v [B, Hkv, T, d], add them, return all, keys turned by their slots.

        Raises ValueError as `cache.expect_entry`.
        """
        expect_entry(layer, [slots.keys for slots in self.layers], k, v)
        if layer == len(self.layers):
            self.layers.append(Slots(self.size, self.pinned, k, v))
        slots = self.layers[layer]
        by = self._turns(k, slots.end + k.shape[2])
        slots.append(k, v, by)
        seen = slots.kept()
        slots.move_back(by)
        return seen

    def _turns(self, k: Tensor, slots: int) -> Turns:
        """Those of slots 0, 1, ..; made anew where there are too few."""
        if self._by is None or len(self._by[0]) < slots:
            places = torch.arange(max(slots, ROOM * self.size), device=k.device)
            self._by = turns(places, k.shape[-1], self.theta, k.dtype, self.scaling)
        return self._by


@torch.no_grad()
def stream_logits(model: Llama, ids: Tensor, cache: Cache) -> Tensor:
    """Logits [B, T, V] of ids [B, T] fed one token at a time through a fresh cache."""
    expect_dims("[B, T]", ids=ids)
    return torch.cat([model(token, cache=cache) for token in ids.split(1, dim=1)], dim=1)


@torch.no_grad()
def recomputed_logits(
    model: Llama, ids: Tensor, size: int, at: Tensor, keep_first: bool = False
) -> Tensor:
    """Logits after the tokens at positions `at` [n] of ids [B, T], each from `size` tokens only.

    Every position is a pass of its own, from position 0 on, over the last `size` tokens, or, for a
    model that knows no text without its begin token, over the first and the last size - 1.
    Returns [B, n, V].  Raises ValueError for a size below 1 or a position that ids do not have.
    """
    expect_dims("[B, T]", ids=ids)
    expect_whole(1, size=size)
    expect_dims("[n]", at=at)
    expect_within(at=at, stop=ids.shape[1])
    rows = []
    for t in at.tolist():
        window = ids[:, max(0, t + 1 - size) : t + 1].clone()  # [B, <= size]
        if keep_first:
            window[:, 0] = ids[:, 0]
        rows.append(model(window)[:, -1])
    return torch.stack(rows, dim=1)
