"""efflib.quantization.nf4 against bitsandbytes on the CPU (make test-oracles)."""

import bitsandbytes.functional as bnb
import pytest
import torch

from efflib.quantization.nf4 import (
    dequantize_nf4,
    dynamic_codebook,
    nf4_codebook,
    quantize_nf4,
)

pytestmark = pytest.mark.oracle

BINS = 2**16  # of the table that bitsandbytes' CPU code looks 8-bit codes up in, over [-1, 1]


def weights():
    w = torch.randn(256, 512, generator=torch.Generator().manual_seed(0))
    odd = w.clone()
    odd[0], odd[1], odd[2, 3] = 0.0, odd[1].abs() + 5, 1e6
    return {"normal": w * 0.02, "cubed": w**3, "odd": odd}


def test_codebooks_are_equal():
    assert torch.equal(nf4_codebook(), bnb.get_4bit_type("nf4", device="cpu"))
    assert torch.equal(dynamic_codebook(), bnb.create_dynamic_map(signed=True))


@pytest.mark.parametrize("name", ["normal", "cubed", "odd"])
def test_bytes_scales_and_values_are_equal(name):
    w = weights()[name]
    packed, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    ours = quantize_nf4(w, double=False)
    assert torch.equal(ours.packed, packed.flatten())
    assert torch.equal(ours.scales, state.absmax)
    assert torch.equal(dequantize_nf4(ours), bnb.dequantize_4bit(packed, state))


@pytest.mark.parametrize("name", ["normal", "cubed"])
def test_double_quantization_differs_only_where_their_table_is_too_coarse(name):
    w = weights()[name]
    packed, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    ours = quantize_nf4(w)
    assert torch.equal(ours.packed, packed.flatten())
    # means of 2048 positive numbers, in whatever order: at most as many roundings on both sides
    rounding = 2 * len(ours.scales.codes) * 2.0**-24 * state.offset.item()
    assert abs(ours.scales.mean - state.offset) <= rounding
    assert (ours.scales.second - state.state2.absmax).abs().max() <= 1.01 * rounding
    codes, theirs = ours.scales.codes.int(), state.absmax.int()
    differ = (codes != theirs).nonzero().flatten()
    assert (codes - theirs).abs().max() <= 1
    a = quantize_nf4(w, double=False).scales
    for i in differ.tolist():
        x = (a[i] - ours.scales.mean) / ours.scales.second[i // 256]
        pair = dynamic_codebook()[torch.stack([codes[i], theirs[i]])]
        assert abs(x - pair.mean()) <= 2 / BINS, "not within a bin of the middle of two levels"
    if not len(differ):
        assert torch.equal(dequantize_nf4(ours), bnb.dequantize_4bit(packed, state))
