"""An engine with every technique of the course on or off: the text of an answer stays the same.

batched       many requests a step;                    off: one after the other
chunked       pieces of prompts beside answers;        off: whole prompts, and nobody answers
paged         blocks as a request grows, shared;       off: memory of the longest, in one piece
quantized     weights in 4 bits;                       off: as they come.  Other weights, so
              another text: compared with `generate` of the same weights
speculative   proposals out of the text, verified;     off: a token a pass
"""

from itertools import product
from typing import NamedTuple

from efflib.engine.engine import Engine, Sizes
from efflib.engine.policies import chunked, prompts_first
from efflib.engine.proposals import Lookup, Proposer
from efflib.engine.weights import with_weights
from efflib.models.llama import Llama


class Switches(NamedTuple):
    batched: bool = True
    chunked: bool = True
    paged: bool = True
    quantized: bool = False
    speculative: bool = True


ALL = [Switches(*bits) for bits in product((False, True), repeat=5)]


def build(
    model: Llama, on: Switches, sizes: Sizes, tokens: int, proposer: Proposer | None = None
) -> Engine:
    """An engine with room for so many tokens in its cache; sizes.blocks follow from it.

    Off, `paged` makes a block as long as a request may be; off, `chunked` makes the budget at
    least that.  proposer: where `speculative` is on, else `Lookup`.  Raises ValueError where not
    one request of the longest kind has room.
    """
    reads = model.config.max_position_embeddings
    longest = min(sizes.longest or reads, reads)
    block = sizes.block if on.paged else longest
    if tokens < longest:
        raise ValueError(f"{tokens} tokens of memory do not hold a request of {longest}")
    sizes = sizes._replace(
        block=block,
        blocks=tokens // block,
        most=sizes.most if on.batched else 1,
        budget=sizes.budget if on.chunked else max(sizes.budget, longest),
        longest=longest,
    )
    if not on.speculative:
        proposer = None
    elif proposer is None:
        proposer = Lookup()
    weights = with_weights(model, "w4a16" if on.quantized else "as_is")
    return Engine(weights, sizes, chunked if on.chunked else prompts_first, proposer)
