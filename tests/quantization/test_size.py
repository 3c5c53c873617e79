"""Bits are counted by hand and against the tensors that quantization really returns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn, ones

from efflib.quantization.kmeans import kmeans_quantize_weight
from efflib.quantization.linear import quantize_weight
from efflib.quantization.size import (
    bits_per_weight,
    codebook_bits,
    model_bits,
    quantizable_linears,
    weight_bits,
)

GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(1 + symmetric, 9)]
shapes = st.tuples(st.integers(1, 5), st.integers(1, 17))
granularities = st.one_of(st.sampled_from(["tensor", "channel"]), st.integers(1, 20))
prop = settings(deadline=None, max_examples=60)


@prop
@given(shapes, granularities, st.sampled_from(GRIDS), st.integers(0, 32), st.integers(0, 32))
def test_weight_bits_counts_what_is_stored(shape, granularity, grid, scale_bits, zero_bits):
    bits, symmetric = grid
    qw = quantize_weight(ones(shape), bits, granularity, symmetric)
    zeros = 0 if symmetric else qw.zero.numel()
    linear = qw.codes.numel() * bits + qw.scale.numel() * scale_bits
    counted = weight_bits(shape, bits, granularity, symmetric, scale_bits, zero_bits)
    assert counted == linear + zeros * zero_bits
    counted = weight_bits(shape, bits, granularity, symmetric, scale_bits)
    assert counted == linear + zeros * bits


@prop
@given(shapes, granularities, st.integers(1, 8), st.integers(1, 32))
def test_codebook_bits_counts_what_is_stored(shape, granularity, bits, entry_bits):
    cw = kmeans_quantize_weight(ones(shape), bits, granularity)
    counted = codebook_bits(shape, bits, granularity, entry_bits)
    assert counted == cw.codes.numel() * bits + cw.codebook.numel() * entry_bits


@pytest.mark.parametrize(
    "bits, granularity, symmetric, zero_bits, expected",
    [
        (4, 128, False, None, 4 + (16 + 4) / 128),  # 4.15625
        (4, 32, False, 16, 5.0),
        (4, 32, True, None, 4.5),
        (8, "channel", True, None, 8 + 16 / 256),
        (3, "tensor", False, None, 3 + (16 + 3) / (64 * 256)),
        (4, 100, True, None, 4 + 3 * 16 / 256),  # three groups a row, the last one of 56
    ],
)
def test_bits_per_weight_by_hand(bits, granularity, symmetric, zero_bits, expected):
    total = weight_bits((64, 256), bits, granularity, symmetric, zero_bits=zero_bits)
    assert isinstance(total, int)
    assert bits_per_weight(total, (64, 256)) == expected


def test_a_codebook_per_small_group_costs_more_than_its_codes():
    assert bits_per_weight(codebook_bits((64, 256), 4, 32), (64, 256)) == 4 + 8


class Tied(nn.Module):
    """embedding [10, 6] = lm_head; two linears with one weight; a norm; a free output layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.blocks = nn.ModuleList([nn.Linear(6, 8), nn.Linear(6, 8, bias=False)])
        self.blocks[1].weight = self.blocks[0].weight
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.lm_head = nn.Linear(6, 3)


def test_model_bits_by_hand():
    rest = (10 * 6 + 8 + 6 + 6 + 6 * 3 + 3) * 16  # embedding = head, bias, norm, lm_head
    assert model_bits(Tied()) == rest + 8 * 6 * 16
    assert model_bits(Tied(), 4, "channel") == rest + 8 * 6 * 4 + 8 * (16 + 4)
    assert model_bits(Tied(), 4, 4, symmetric=True) == rest + 8 * 6 * 4 + 16 * 16
    assert model_bits(Tied(), 2, "tensor", method="kmeans") == rest + 8 * 6 * 2 + 4 * 16
    quantized_head = 3 * 6 * 4 + 3 * 20 - 3 * 6 * 16
    expected = model_bits(Tied(), 4, "channel") + quantized_head
    assert model_bits(Tied(), 4, "channel", skip=()) == expected


def test_quantizable_linears_leaves_out_what_is_tied_or_skipped():
    model = Tied()
    assert list(quantizable_linears(model)) == ["blocks.0", "blocks.1"]
    assert list(quantizable_linears(model, ())) == ["blocks.0", "blocks.1", "lm_head"]
    # the weight of blocks.1 is that of blocks.0, which is to stay in float
    assert list(quantizable_linears(model, ("blocks.0",))) == ["lm_head"]
    assert list(quantizable_linears(model, ("blocks",))) == ["lm_head"]
    for part in ("block", "m_head", "0.blocks"):  # whole names only
        with pytest.raises(ValueError, match=f"skip: no module of Tied is named '{part}'"):
            quantizable_linears(model, ("blocks", part))


def test_one_module_under_two_names_is_left_out_if_one_is_skipped():
    model = Tied()
    model.lm_head = model.blocks[1]
    assert list(quantizable_linears(model)) == []
    assert list(quantizable_linears(model, ())) == ["blocks.0", "blocks.1", "lm_head"]


@pytest.mark.parametrize("method, symmetric", [("nf4", False), ("kmeans", True)])
def test_unknown_methods_are_named(method, symmetric):
    with pytest.raises(ValueError, match=f"got '{method}'"):
        model_bits(Tied(), 4, "tensor", symmetric, method)


def test_bad_shapes_and_bits_are_errors():
    with pytest.raises(ValueError, match=r"\(0, 4\)"):
        weight_bits((0, 4), 4, "tensor", False)
    with pytest.raises(ValueError, match=r"\(0, 4\)"):
        bits_per_weight(0, (0, 4))
    with pytest.raises(ValueError, match="no level but 0"):
        weight_bits((4, 4), 1, "tensor", True)
    with pytest.raises(ValueError, match="got 9"):
        codebook_bits((4, 4), 9, "tensor")
