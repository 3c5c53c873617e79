"""Functions that carry the name of a technique and compute something else (make test-oracles)."""

import bitsandbytes as bnb
import pytest
import torch
from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine
from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import NF4Tensor
from torchao.sparsity.wanda import WandaSparsifier

from efflib.quantization.linear import code_range, quantize_weight
from efflib.quantization.llm_int8 import LLMInt8Linear, quantize_rows
from efflib.quantization.nf4 import nf4_codebook, quantize_nf4
from efflib.sparsity.masks import keep
from efflib.sparsity.wanda import input_norms, wanda_mask, wanda_scores

pytestmark = pytest.mark.oracle


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_torchao_wanda_squares_the_norms_and_compares_over_the_layer():
    w, x = normal(32, 64), normal(100, 64) * torch.logspace(-0.5, 0.5, 64)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False))
    model[0].weight.data = w.clone()
    sparsifier = WandaSparsifier(sparsity_level=0.5)
    sparsifier.prepare(model, config=None)
    model(x)
    sparsifier.step()
    sparsifier.squash_mask()
    theirs, norms = model[0].weight != 0, input_norms(x)
    assert torch.equal(theirs, keep(wanda_scores(w, norms.square()), 0.5, "layer"))
    assert (theirs != wanda_mask(w, norms, 0.5)).float().mean() > 0.05


def test_torchao_symmetric_has_another_step_unless_told():
    w, bits = normal(16, 64), 8
    scale, _ = choose_qparams_affine(w, MappingType.SYMMETRIC, (1, 64), torch.int8)
    absmax = w.abs().amax(1)
    assert torch.equal(scale.flatten(), absmax / 127.5)
    qmin, qmax = code_range(bits, symmetric=True)
    assert (qmin, qmax) == (-127, 127)
    assert torch.equal(quantize_weight(w, bits, "channel", True).scale.flatten(), absmax / 127)


def test_torchao_nf4_has_levels_of_four_decimals():
    w = normal(256, 256)
    stored = NF4Tensor.from_tensor(w, 64, 256)
    exact = nf4_codebook()
    assert torch.equal(stored.nf4, (exact.double() * 1e4).round().div(1e4).float())
    ours = quantize_nf4(w).packed
    differ = (ours != stored.quantized_data.flatten()).float().mean()
    assert 0 < differ < 1e-3


def test_bitsandbytes_int8_in_training_mode_quantizes_no_activation():
    x, w = normal(9, 64), normal(32, 64).half()
    x[:, 5] *= 30
    x = x.half()
    theirs = bnb.nn.Linear8bitLt(64, 32, bias=False, has_fp16_weights=False, threshold=6.0)
    theirs.weight = bnb.nn.Int8Params(w.clone(), requires_grad=False, has_fp16_weights=False)
    linear = torch.nn.Linear(64, 32, bias=False)
    linear.weight.data = w.float()
    codes, absmax = quantize_rows(w)
    w_hat = codes * absmax[:, None] / 127
    with torch.no_grad():
        y = theirs.to("cpu").train()(x.float())
        # sums of 64 products in another order
        allowed = (64 + 8) * 2.0**-24 * (x.float().abs() @ w_hat.abs().T)
        assert ((y - x.float() @ w_hat.T).abs() <= 2 * allowed).all()
        assert ((y - LLMInt8Linear(linear)(x.float())).abs() > 2 * allowed).any()


def test_torch_quantize_per_tensor_adds_the_zero_point_before_rounding():
    x = torch.tensor([0.5, 1.5, 2.5])
    codes = torch.quantize_per_tensor(x, 1.0, 1, torch.quint8).int_repr()
    assert codes.tolist() == [2, 2, 4]
    assert (torch.fake_quantize_per_tensor_affine(x, 1.0, 1, 0, 255) + 1).tolist() == [1, 3, 3]
