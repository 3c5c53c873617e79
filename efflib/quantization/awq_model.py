"""AWQ on a whole model: search, fold the scales away, clip, round.

    calibration = record(model, ids)                  one run of the float model
    searches = search_model(model, calibration, ...)  scales for every input of linears
    folded = fold(model, searches)                    the same function, larger salient weights
    codes = quantized_weights(folded, ...)            Q(clip(folded weights))

`awq` does all four and returns the simulation, `packing.w4a16` stores the codes.
Where the factor 1 / s of the inputs goes:

    q, k, v and gate, up   share the input, so one search; folded into the norm's gain and bias, as
                           in SmoothQuant.  Loss: the output of the attention or of the MLP.
    o_proj, down_proj      own searches, loss their own output; folded into the rows of the linear
                           before them, v_proj and up_proj.

Both of the last keep the function, because attention is linear in v, and silu(gate) * up in up.
They also cost nothing: a factor on a whole row changes the steps of its groups and not their codes.
With grouped-query attention one row of v_proj feeds several inputs of o_proj, which want different
factors: there o_proj is not scaled, as in the authors' code.
Searches see the float model's activations, not those after rounding earlier layers, again as there.

Which linears these are in a family of models is said by `efflib.models.hub`: relu lets fc2's factor
through to fc1, gelu does not; where one linear holds q, k and v, v is a part of its rows.

W_q and W_k are not clipped: their outputs meet in a product before the softmax, and an error there
is not what the clipping search measures.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from efflib.checks import expect_keys
from efflib.models.gains import move_factor
from efflib.models.groups import norm_groups
from efflib.models.hub import Rows, describe
from efflib.models.recorded import Calibration, record
from efflib.quantization.awq import ScaleSearch, clip_weight, search_clip, search_scales
from efflib.quantization.linear import QuantizedWeight, dequantize_weight, quantize_weight
from efflib.quantization.size import SKIP, quantizable_linears


def row_pairs(model: nn.Module, skip: tuple[str, ...] = SKIP) -> dict[str, Rows]:
    """{linear: the rows of the linear before it of which row i makes its input i}, full names."""
    linears = quantizable_linears(model, skip)
    return {
        name: rows
        for block in describe(model).blocks
        for name, rows in block.before.items()
        if name in linears and rows.linear in linears
    }


def not_clipped(model: nn.Module) -> set[str]:
    """The linears that make queries and keys, alone or with values."""
    blocks = describe(model).blocks
    return {rows.linear for block in blocks for rows in (block.query, block.key)}


def _search_group(
    model: nn.Module,
    names: list[str],
    block_name: str | None,
    calibration: Calibration,
    bits: int,
    group_size: int,
) -> ScaleSearch:
    """Search the scales of linears that share an input, by the output of the block they are in.

    The input is the block's, since experts see a part of it each.  block_name None: there is no
    module around one linear, which is judged by itself.
    """
    weights = [model.get_submodule(name).weight for name in names]
    if block_name is None:
        return search_scales(calibration.inputs[names[0]], weights, bits, group_size)
    block, call = model.get_submodule(block_name), calibration.blocks[block_name]

    def output(weights) -> Tensor:
        swapped = {
            f"{name.removeprefix(block_name + '.')}.weight": w
            for name, w in zip(names, weights, strict=True)
        }
        out = functional_call(block, swapped, call.args, call.kwargs)
        return out if isinstance(out, Tensor) else out[0]

    x = call.args[0] if call.args else call.kwargs["hidden_states"]
    return search_scales(x, weights, bits, group_size, output)


def search_model(
    model: nn.Module,
    calibration: Calibration,
    bits: int,
    group_size: int,
    skip: tuple[str, ...] = SKIP,
) -> dict[str, ScaleSearch]:
    """{norm or linear whose input is scaled: its search}.

    Keys: the name of each norm that linears read, and of each linear of `row_pairs`.  A norm with
    a skipped reader is left out.  calibration: of `record`, same model and skip.
    Raises ValueError as `norm_groups` and `search_scales`.
    """
    searches = {}
    around = {
        norm: module
        for block in describe(model).blocks
        for norm, module in zip(block.norms, (block.attention, block.mlp), strict=True)
    }
    for group in norm_groups(model):
        names = list(group.linears)
        if all(name in calibration.inputs for name in names):
            searches[group.name] = _search_group(
                model, names, around[group.name], calibration, bits, group_size
            )
    for name in row_pairs(model, skip):
        weight = model.get_submodule(name).weight
        searches[name] = search_scales(calibration.inputs[name], [weight], bits, group_size)
    return searches


def _divide_rows(module: nn.Linear, rows: Rows, s: Tensor) -> None:
    """Divide what these rows of a linear put out by s, in its weight and bias."""
    module.weight[rows.start : rows.stop].div_(s[:, None])
    if module.bias is not None:
        module.bias[rows.start : rows.stop].div_(s)


def input_scales(model: nn.Module, searches: Mapping[str, ScaleSearch]) -> dict[str, Tensor]:
    """{linear: s [K]} of the linears whose weights are multiplied by s."""
    scales = {name: searches[name].scales for name in row_pairs(model, ()) if name in searches}
    for group in norm_groups(model):
        if group.name in searches:
            scales |= dict.fromkeys(group.readers, searches[group.name].scales)
    return scales


def fold(model: nn.Module, searches: Mapping[str, ScaleSearch]) -> nn.Module:
    """A copy of the model with the same function, W diag(s) for W, and 1 / s put in before it."""
    folded = copy.deepcopy(model)
    expect_keys(dict(folded.named_modules()), searches=searches)
    for group in norm_groups(folded):
        if group.name in searches:
            move_factor(group, searches[group.name].scales)
    with torch.no_grad():
        for name, rows in row_pairs(folded, ()).items():
            if name in searches:
                folded.get_submodule(name).weight.mul_(searches[name].scales)
                _divide_rows(folded.get_submodule(rows.linear), rows, searches[name].scales)
    return folded


def quantized_weights(
    folded: nn.Module,
    calibration: Calibration,
    searches: Mapping[str, ScaleSearch],
    bits: int,
    group_size: int,
    clip: bool,
    skip: tuple[str, ...] = SKIP,
) -> dict[str, QuantizedWeight]:
    """{linear: codes of its weight in the folded model, clipped before if `clip`}.

    folded, calibration, searches: of `fold`, `record` and `search_model` with the same skip.
    """
    linears = quantizable_linears(folded, skip)
    expect_keys(calibration.inputs, **{"inputs of the calibration": linears})
    scales = input_scales(folded, searches)
    codes, kept = {}, not_clipped(folded)
    for name, linear in linears.items():
        w = linear.weight
        if clip and name not in kept:
            x = calibration.inputs[name]
            x = x / scales[name] if name in scales else x
            w = clip_weight(w, search_clip(x, w, bits, group_size), group_size)
        codes[name] = quantize_weight(w, bits, group_size)
    return codes


def with_values(model: nn.Module, weights: Mapping[str, QuantizedWeight]) -> nn.Module:
    """A copy of the model whose linears hold the values that weights {name: codes} stand for."""
    model = copy.deepcopy(model)
    expect_keys(dict(model.named_modules()), weights=weights)
    with torch.no_grad():
        for name, qw in weights.items():
            model.get_submodule(name).weight.copy_(dequantize_weight(qw))
    return model


def awq(
    model: nn.Module,
    ids: Tensor,
    bits: int,
    group_size: int,
    clip: bool = True,
    skip: tuple[str, ...] = SKIP,
) -> nn.Module:
    """A copy of the model whose linears hold values of a b-bit grid, quantized by AWQ.

    ids [B, T]: calibration text; clip: also search the clipping of each group.  As `quantize_model`
    this simulates: weights keep their dtype, and the packed size is that of plain rounding,
    `model_bits(model, bits, group_size)`, as the scales are folded away.
    Raises ValueError for a model of unknown layout or arguments that do not fit.
    """
    calibration = record(model, ids, skip)
    searches = search_model(model, calibration, bits, group_size, skip)
    folded = fold(model, searches)
    codes = quantized_weights(folded, calibration, searches, bits, group_size, clip, skip)
    return with_values(folded, codes)
