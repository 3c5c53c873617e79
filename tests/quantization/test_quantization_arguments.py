"""What does not fit is named in one sentence: nothing is cut, skipped or turned to NaN silently."""

import math

import pytest
import torch
from torch import nn

from efflib.models import Llama, LlamaConfig
from efflib.quantization import (
    awq,
    awq_model,
    kmeans,
    kv,
    linear,
    llm_int8,
    nf4,
    packing,
    ptq,
    size,
    smoothquant,
)

W = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
X = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
W_NAN, X_NAN = W.clone(), X.clone()
W_NAN[2, 3] = X_NAN[1, 3] = math.nan
IDS = torch.arange(12).reshape(2, 6)
CODES = linear.quantize_weight(W, 4, 8)
KV = torch.randn(1, 1, 8, 32)


def model() -> Llama:
    torch.manual_seed(0)
    config = LlamaConfig(20, 16, 24, 2, 2, 2, 8)
    return Llama(config).eval()


@pytest.mark.parametrize(
    "call",
    [
        lambda skip: size.quantizable_linears(model(), skip),
        lambda skip: size.model_bits(model(), 4, 8, skip=skip),
        lambda skip: ptq.quantize_model(model(), 4, 8, skip=skip),
        lambda skip: nf4.nf4_model(model(), skip=skip),
        lambda skip: llm_int8.llm_int8(model(), skip=skip),
        lambda skip: awq_model.record(model(), IDS, skip),
        lambda skip: awq_model.awq(model(), IDS, 4, 8, skip=skip),
    ],
)
def test_layers_to_skip_are_a_list_of_names_that_exist(call):
    with pytest.raises(ValueError, match=r"skip='lm_head' is one string: write \('lm_head',\)"):
        call("lm_head")
    with pytest.raises(ValueError, match="skip: no module of Llama is named 'qproj'; the nearest"):
        call(("lm_head", "qproj"))
    call(("lm_head",))


def test_lm_head_may_be_skipped_where_there_is_none():
    assert list(size.quantizable_linears(nn.Sequential(nn.Linear(2, 2)))) == ["0"]


@pytest.mark.parametrize(
    "search",
    [
        lambda x, w: awq.search_scales(x, [W, w], 4, 8),
        lambda x, w: awq.search_clip(x, w, 4, 8),
        lambda x, w: awq.top_channels((x @ w.T)[1], 0.5),
        lambda x, w: smoothquant.smoothing_scales(x.abs().amax(0), [W, w], 0.5),
        lambda x, w: kmeans.kmeans_codebook(x @ w.T, 3),
        lambda x, w: kmeans.kmeans_quantize_weight(x @ w.T, 3),
        lambda x, w: nf4.quantize_nf4(x @ w.T),
        lambda x, w: llm_int8.quantize_rows(x @ w.T),
    ],
)
def test_no_search_goes_on_with_nan(search):
    search(X, W)
    for x, w in ((X_NAN, W), (X, W_NAN), (X / 0, W)):
        with pytest.raises(ValueError, match="finite|NaN or infinity"):
            search(x, w)


@pytest.mark.parametrize(
    "decode",
    [
        lambda codes: linear.dequantize(codes, torch.ones(1), torch.zeros(1, dtype=torch.int32)),
        lambda codes: kmeans.dequantize_codebook(codes, torch.ones(16)),
        lambda codes: packing.pack(codes),
        lambda codes: packing.pack_compressed_tensors(codes - 8),
        lambda codes: awq.keep_channels(W, codes, 4, 8),
    ],
)
def test_codes_are_integers(decode):
    decode(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="must be integers, got torch.float32"):
        decode(torch.tensor([1.0, 2.5]))


@pytest.mark.parametrize("codes", [[-1, 0], [0, 4]])
def test_codes_have_an_entry(codes):
    with pytest.raises(
        ValueError, match=f"codes must be from 0 to 3, got {codes[0]} to {codes[1]}"
    ):
        kmeans.dequantize_codebook(torch.tensor(codes), torch.ones(4))


CASES = {
    "one bit is no bool": (lambda: linear.code_range(True, False), "bits must be an integer"),
    "nor a group size": (lambda: linear.quantize_weight(W, 4, True), "granularity is"),
    "zero point of 0.5": (
        lambda: linear.quantize(W, torch.ones(8, 1), torch.full((8, 1), 0.5), 4, False),
        "zero must be integers",
    ),
    "a scale for each of 3": (
        lambda: linear.quantize(W, torch.ones(3), torch.zeros(3, dtype=torch.int32), 4, False),
        r"scale \(3,\).*must broadcast to x \(8, 16\)",
    ),
    "clusters moved -1 times": (lambda: kmeans.kmeans_codebook(W, 2, -1), "iterations=-1"),
    "groups of 0": (lambda: awq.rtn(W, 4, 0), "group_size=0 must be an integer of at least 1"),
    "a granularity": (lambda: awq.rtn(W, 4, "channel"), "group_size='channel' must be an integer"),
    "Gram matrices of 0": (lambda: awq.group_gram(X, 0), "group_size=0"),
    "no token": (lambda: awq.mean_magnitude(X[:0]), r"x must be a non-empty \[..., K\], got \(0,"),
    "no weights": (lambda: awq.search_scales(X, [], 4, 8), "no weights"),
    "one weight": (lambda: awq.search_scales(X, W, 4, 8), r"weight \(16,\) does not read x"),
    "channel 16 of 16": (
        lambda: awq.keep_channels(W, torch.tensor([16]), 4, 8),
        "channels must be from 0 to 15, got 16 to 16",
    ),
    "channel -1": (
        lambda: awq.scale_channels(W, torch.tensor([-1]), 2.0, 4, 8),
        "channels must be from 0 to 15, got -1 to -1",
    ),
    "a negative mean": (lambda: awq.candidate_scales(X[0], 0.5), "no mean|X| below 0"),
    "a negative limit": (lambda: awq.clip_weight(W, -torch.ones(8, 2), 8), "at least 0"),
    "ids without a batch": (lambda: awq_model.record(model(), IDS[0]), r"non-empty \[B, T\]"),
    "a search of no layer": (
        lambda: awq_model.fold(model(), {"model.layers.7.mlp.up_proj": None}),
        "searches: there is no 'model.layers.7.mlp.up_proj'; the nearest is",
    ),
    "values of no layer": (
        lambda: awq_model.with_values(model(), {"head": CODES}),
        "weights: there is no 'head'",
    ),
    "another skip": (
        lambda: awq_model.quantized_weights(
            model(), awq_model.record(model(), IDS, ("mlp", "lm_head")), {}, 4, 8, clip=True
        ),
        "inputs of the calibration: there is no 'model.layers.0.mlp.gate_proj'",
    ),
    "codes of 3 bits": (lambda: kv.quantize_kv(KV, 3, 8, "token"), "bits must be 1, 2, 4 or 8"),
    "a cache of 3 bits": (lambda: kv.QuantizedKVCache(3), "bits must be 1, 2, 4 or 8"),
    "keys of two dimensions": (lambda: kv.quantize_kv(W, 4, 8, "token"), r"\[B, Hkv, S, d\]"),
    "bits of groups of 0": (lambda: kv.bits_per_value(4, 0), "group_size=0"),
    "outliers from NaN on": (lambda: llm_int8.llm_int8(model(), math.nan), "threshold must be"),
    "rows of one dimension": (lambda: llm_int8.quantize_rows(W[0]), r"non-empty \[N, K\]"),
    "no scales": (lambda: nf4.quantize_scales(X[0, :0]), r"a must be a non-empty \[blocks\]"),
    "bits of no weight": (lambda: nf4.nf4_bits((0, 3)), "holds no weight"),
    "-1 codes": (lambda: packing.unpack(torch.zeros(0, dtype=torch.int32), -1), "length=-1"),
    "a bias of 3": (lambda: packing.W4A16Linear(CODES, torch.ones(3)), r"bias must be \[8\]"),
    "a layer that is not there": (
        lambda: packing.w4a16(model(), {"model.layers.0.mlp.upproj": CODES}),
        "weights: there is no 'model.layers.0.mlp.upproj'; the nearest is '.*up_proj'",
    ),
    "scales of -16 bits": (lambda: size.weight_bits((8, 8), 4, 8, False, -16), "scale_bits=-16"),
    "no calibration": (lambda: smoothquant.channel_maxima(model(), IDS[:0]), r"\(0, 6\)"),
    "maxima of nothing": (lambda: smoothquant.smooth(model(), {}, 0.5), "maxima: there is no"),
    "maxima below 0": (
        lambda: smoothquant.smoothing_scales(-X[0].abs(), [W], 0.5),
        "x_max must be maxima",
    ),
    "static maxima of nothing": (
        lambda: smoothquant.w8a8(model(), "static", {}),
        "maxima: there is no 'model.layers.0.self_attn.q_proj'",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_named(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        call()
