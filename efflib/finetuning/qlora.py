"""QLoRA: LoRA beside linears that are stored in NF4.

    y = x dequantize(W_nf4)^T + b + (alpha / r) x A^T B^T

A weight that is not trained needs no precision for small steps, so it can lie in 4.127 bits; the
gradient runs through it to x and to the layers before, and only A and B learn.  What rounding W
did, the update can partly make good, because it is trained with the rounded W in place.
Source: Dettmers et al. 2023 (arXiv:2305.14314), section 3.

The base layers decode in the forward and again in the backward pass, and keep no float weight.

Differences to the authors' code: paged optimizer states and gradient checkpointing are left out
(they save memory, which `efflib.finetuning.memory` counts, and change no number), and A, B and the
products are in the model's dtype instead of bfloat16.  The paper puts updates beside every linear
of the blocks; with fewer it did not reach full fine-tuning (its figure 2).
"""

from torch import nn

from efflib.finetuning.lora import add_lora
from efflib.quantization.nf4 import nf4_model


def add_qlora(
    model: nn.Module,
    r: int,
    alpha: float,
    targets: tuple[str, ...],
    dropout: float = 0.0,
    double: bool = True,
    seed: int = 0,
    rank_stabilized: bool = False,
) -> nn.Module:
    """A copy of the model, all linears but lm_head frozen in NF4, updates beside the targets.

    double: doubly quantized scales.  The other arguments and errors are those of `add_lora`.
    """
    return add_lora(nf4_model(model, double), r, alpha, targets, dropout, seed, rank_stabilized)
