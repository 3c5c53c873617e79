"""Ways to change one block of a model, for `any_model`: what each story compares."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from efflib.hessian import gram
from efflib.models.recorded import Call, record_run
from efflib.quantization.awq_model import fold, quantized_weights, search_model, with_values
from efflib.quantization.gptq import dequantize_gptq, gptq
from efflib.quantization.linear import fake_quantize_weight
from efflib.quantization.size import quantizable_linears
from efflib.sequential import find_blocks, measured, run_block
from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import Pattern, apply_mask
from efflib.sparsity.sparsegpt import sparsegpt
from efflib.sparsity.wanda import wanda_mask


@dataclass
class Here:
    """One block, as the only one of a model, and what it is called with."""

    model: nn.Module
    call: Call
    float_inputs: list[Tensor]  # hidden states [1, T, D] of the calibration texts, float model
    inputs: list[Tensor]  # those that the blocks before, changed in the same way, put out

    @property
    def block(self) -> nn.Module:
        return blocks_of(self.model)[0]


Way = Callable[[Here], nn.Module]  # the model with its block changed


def blocks_of(model: nn.Module) -> nn.ModuleList:
    return find_blocks(model)[1]


def rounded(bits: int, group: int) -> Way:
    def way(here: Here) -> nn.Module:
        for linear in quantizable_linears(here.model).values():
            linear.weight.copy_(fake_quantize_weight(linear.weight, bits, group))
        return here.model

    return way


def by_awq(bits: int, group: int) -> Way:
    def way(here: Here) -> nn.Module:
        x = torch.cat(here.float_inputs)  # [n, T, D], searched on the float model's activations
        found = record_run(here.model, lambda: run_block(here.block, x, here.call))
        searches = search_model(here.model, found, bits, group)
        folded = fold(here.model, searches)
        codes = quantized_weights(folded, found, searches, bits, group, clip=True)
        return with_values(folded, codes)

    return way


def by_statistic(statistic: Callable, change: Callable) -> Way:
    """As `change_sequentially`, for one block."""

    def way(here: Here) -> nn.Module:
        linears = quantizable_linears(here.model)
        sums, _ = measured(here.block, here.call, linears, here.inputs, statistic)
        for name, linear in linears.items():
            linear.weight.copy_(change(linear.weight.detach().clone(), sums.pop(name)))
        return here.model

    return way


def by_gptq(bits: int, group: int) -> Way:
    return by_statistic(gram, lambda w, h: dequantize_gptq(gptq(w, h, bits, group)).to(w))


def by_wanda(pattern: Pattern) -> Way:
    def change(w: Tensor, squares: Tensor) -> Tensor:
        return apply_mask(w, wanda_mask(w, squares.sqrt().float(), pattern))

    return by_statistic(lambda x: x.double().square().sum(0), change)


def by_sparsegpt(pattern: Pattern) -> Way:
    return by_statistic(gram, lambda w, h: sparsegpt(w, h, pattern))


def by_magnitude(pattern: Pattern) -> Way:
    def way(here: Here) -> nn.Module:
        for linear in quantizable_linears(here.model).values():
            w = linear.weight
            w.copy_(apply_mask(w, magnitude_mask(w, pattern, "row")))
        return here.model

    return way


def ways(story: str, group: int) -> dict[str, Way]:
    """{name: way} of a story; raises ValueError for one that is not told of any model."""
    told = {
        "quantization": {f"RTN {b} bits": rounded(b, group) for b in (8, 4, 3)},
        "awq": {
            name.format(b): make(b, group)
            for b in (4, 3)
            for name, make in (("RTN {} bits", rounded), ("AWQ {} bits", by_awq))
        },
        "gptq": {
            name.format(b): make(b, group)
            for b in (4, 3)
            for name, make in (("RTN {} bits", rounded), ("GPTQ {} bits", by_gptq))
        },
        "pruning": {
            f"{name} {label}": make(pattern)
            for label, pattern in (("50 %", 0.5), ("2:4", (2, 4)))
            for name, make in (
                ("magnitude", by_magnitude),
                ("Wanda", by_wanda),
                ("SparseGPT", by_sparsegpt),
            )
        },
    }
    if story not in told:
        raise ValueError(f"no story {story!r} of any model; there are {', '.join(told)}")
    return told[story]
