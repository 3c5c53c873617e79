"""A learned sink against its formula, its two limits, and transformers' gpt-oss."""

import pytest
import torch

from efflib.attention.sink_bias import SinkBias, sink_softmax
from efflib.attention.zero_sink import with_zero
from efflib.models.llama import causal_mask, sdpa


def drawn(seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 4, 5, 8, generator=g, dtype=dtype)
    k, v = torch.randn(2, 2, 2, 7, 8, generator=g, dtype=dtype)
    return q, k, v, causal_mask(5, 7)


def test_the_formula_number_by_number():
    scores = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    bias = torch.tensor([-1.0, 0.0, 2.5], dtype=torch.float64)
    e = scores.exp()
    expected = e / (bias.exp()[None, :, None, None] + e.sum(-1, keepdim=True))
    torch.testing.assert_close(sink_softmax(scores, bias), expected)


def test_minus_infinity_is_the_plain_softmax_and_0_the_extra_zero():
    q, k, v, mask = drawn()
    plain = SinkBias(4, float("-inf")).double()
    torch.testing.assert_close(plain(q, k, v, mask), sdpa(q, k, v, mask))
    zero = SinkBias(4).double()
    torch.testing.assert_close(zero(q, k, v, mask), with_zero(sdpa)(q, k, v, mask))


def test_scores_of_any_size_and_rows_without_a_key():
    scores = torch.tensor([1e4, 1e4 - 1, float("-inf")])[None, None, None].expand(1, 2, 1, 3)
    p = sink_softmax(scores, torch.tensor([0.0, 1e4]))
    assert p.isfinite().all() and (p[..., 2] == 0).all()
    torch.testing.assert_close(p[0, 0, 0, :2], torch.tensor([1.0, 0.0]).softmax(0)[:2] * 1.0)
    nothing = sink_softmax(torch.full((1, 2, 1, 3), float("-inf")), torch.zeros(2))
    assert (nothing == 0).all()


def test_the_gradient_of_the_bias_is_the_formula():
    scores = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    up = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    p = sink_softmax(scores, bias)
    (p * up).sum().backward()
    rest = 1 - p.sum(-1)  # what goes to nothing
    expected = -((p * up).sum(-1) * rest).sum((0, 2))
    torch.testing.assert_close(bias.grad, expected.detach())


def test_as_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    q, k, v, mask = drawn(dtype=torch.float32)
    ours = SinkBias(4)
    ours.bias.data = torch.tensor([-3.0, 0.0, 1.0, 4.0])
    theirs = torch.nn.Module()
    theirs.sinks, theirs.num_key_value_groups = ours.bias, 2
    added = torch.zeros(1, 1, 5, 7).masked_fill(~mask, float("-inf"))
    out, _ = eager_attention_forward(theirs, q, k, v, added, scaling=8**-0.5)
    torch.testing.assert_close(ours(q, k, v, mask), out.transpose(1, 2))


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"bias \[H\], got \(2, 3, 4, 5\) and \(2,\)"):
        sink_softmax(torch.zeros(2, 3, 4, 5), torch.zeros(2))
    with pytest.raises(ValueError, match="heads=0"):
        SinkBias(0)
