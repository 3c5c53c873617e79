"""What fine-tuning holds, by arithmetic: all weights, LoRA, QLoRA; Llamas of 7B to 65B.

    weights      P numbers: 16 bits, or the blocks' linears in 4 + 8 / 64 + 32 / (64 * 256) (NF4)
    gradients    2 bytes for each trained number
    optimizer    AdamW: two float32 for each, 8 bytes; 4 more if a float32 copy is kept
    activations  what the backward pass reads again, a token:
                     a block     8 D + 4 F numbers of 16 bits   (D, F: model, MLP)
                     the ends    D, and 2 V float32: the logits and their gradient
                 checkpointed: D a block, and all of one block, which is computed a second time

8 D + 4 F: the input of both norms and their outputs, q, k, v and what attention puts out; gate, up,
act(gate) and the product.  This is what fused kernels keep: no T x T scores (FlashAttention), no
float32 copies inside norms.  Frozen weights make activations no smaller: the gradient has to pass
through every block.
Source: Dettmers et al. 2023 (arXiv:2305.14314), section 2 and figure 6; Chen et al. 2016
(arXiv:1604.06174) for checkpoints; the shapes are those of Touvron et al. 2023 (arXiv:2302.13971).

Where sums differ: "full fine-tuning of 65B takes more than 780 GB" (QLoRA) counts 12 bytes a
parameter: 16-bit weights and gradients, float32 states, no copy.  Rajbhandari et al. 2020 (ZeRO)
count 16 with the copy.  Frameworks add their own: an allocator's gaps, buffers of kernels.
A paged optimizer makes nothing smaller: where a peak exceeds the card, so many bytes of its
states lie in the host's memory and cross the bus (`paged_out`).
"""

import math
from typing import NamedTuple

from efflib.checks import expect_whole
from efflib.quantization.nf4 import nf4_bits

GB = 10**9
METHODS = ("full", "lora", "qlora")
HALF, STATES, COPY = 2, 8, 4  # bytes: a 16-bit number, AdamW's two states, a float32 copy


class Shape(NamedTuple):
    """A Llama without grouped queries: what its parameters can be counted from."""

    layers: int
    model: int  # D
    mlp: int  # F
    vocab: int = 32_000  # V; embedding and head are not tied

    @property
    def linears(self) -> list[tuple[int, int]]:
        """[N, K] of the linears of one block: q, k, v, o, gate, up, down."""
        d, f = self.model, self.mlp
        return [(d, d)] * 4 + [(f, d)] * 2 + [(d, f)]


LLAMA = {
    "7B": Shape(32, 4096, 11_008),
    "13B": Shape(40, 5120, 13_824),
    "33B": Shape(60, 6656, 17_920),
    "65B": Shape(80, 8192, 22_016),
}


class FineTuning(NamedTuple):
    """Bytes that a step of fine-tuning holds at its peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return sum(self)


def parameters(shape: Shape) -> int:
    """All parameters: linears and norms of the blocks, the last norm, embedding and head."""
    block = sum(n * k for n, k in shape.linears) + 2 * shape.model
    return shape.layers * block + shape.model + 2 * shape.vocab * shape.model


def lora_parameters(shape: Shape, r: int) -> int:
    """r (N + K) for every linear of the blocks."""
    expect_whole(1, r=r)
    return shape.layers * sum(r * (n + k) for n, k in shape.linears)


def activation_bytes(shape: Shape, tokens: int, checkpointing: bool) -> int:
    """Bytes of what the backward pass of a batch of so many tokens reads again."""
    expect_whole(1, tokens=tokens)
    inner = HALF * (8 * shape.model + 4 * shape.mlp)  # a block, a token
    ends = HALF * shape.model + 2 * 4 * shape.vocab
    kept = HALF * shape.model * shape.layers + inner if checkpointing else inner * shape.layers
    return tokens * (kept + ends)


def finetuning_bytes(
    shape: Shape,
    method: str,
    r: int = 64,
    tokens: int = 512,
    checkpointing: bool = True,
    master: bool = False,
) -> FineTuning:
    """Bytes of fine-tuning by "full", "lora" or "qlora" (updates beside all linears of the blocks).

    r: of the updates; tokens: of a batch; master: a float32 copy of what is trained.
    """
    if method not in METHODS:
        raise ValueError(f"{method=} must be one of {METHODS}")
    frozen = 0 if method == "full" else parameters(shape)
    trained = parameters(shape) if method == "full" else lora_parameters(shape, r)
    weights = float(HALF * (frozen + trained))
    if method == "qlora":
        stored = sum(nf4_bits(linear) for linear in shape.linears) / 8
        weights += shape.layers * (stored - HALF * sum(math.prod(s) for s in shape.linears))
    optimizer = (STATES + (COPY if master else 0)) * trained
    activations = activation_bytes(shape, tokens, checkpointing)
    return FineTuning(weights, float(HALF * trained), float(optimizer), float(activations))


def paged_out(held: FineTuning, card: float) -> float:
    """Bytes of optimizer states that a card of so many bytes has no room for at the peak.

    Raises ValueError if the rest alone does not fit: paging states would not help.
    """
    rest = held.total - held.optimizer
    if not rest <= card:
        raise ValueError(f"{rest / GB:.1f} GB without optimizer states exceed {card / GB:.1f} GB")
    return max(0.0, held.total - card)
