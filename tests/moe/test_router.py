"""Routers against transformers, and what holds for every convention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.moe.router import CONVENTIONS, route

SEEDS = st.integers(0, 10**6)
EXACT = 1e-6  # float32


def logits_of(seed, tokens=7, experts=6, scale=2.0):
    return scale * torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed))


@given(SEEDS, st.integers(1, 6))
def test_mixtral_is_the_softmax_of_all_renormalized(seed, k):
    logits = logits_of(seed)
    experts, gates = route(logits, k)
    p = logits.softmax(-1).gather(-1, experts)
    torch.testing.assert_close(gates, p / p.sum(-1, keepdim=True), atol=EXACT, rtol=0)


@given(SEEDS, st.integers(1, 6))
def test_what_holds_for_all(seed, k):
    logits = logits_of(seed)
    for convention in CONVENTIONS:
        experts, gates = route(logits, k, convention)
        assert experts.shape == gates.shape == (7, k) and gates.dtype == torch.float32
        assert (gates[:, :-1] >= gates[:, 1:]).all() and (gates > 0).all()
        for token, chosen in zip(logits, experts, strict=True):
            assert len(set(chosen.tolist())) == k
            left = [v for e, v in enumerate(token.tolist()) if e not in chosen]
            assert token[chosen].min() >= max(left, default=-torch.inf)
        total = gates.sum(-1)
        if convention == "switch":
            right = logits.softmax(-1).gather(-1, experts).sum(-1)
            torch.testing.assert_close(total, right)
        else:
            torch.testing.assert_close(total, torch.ones(7), atol=EXACT, rtol=0)


def test_mixtral_equals_transformers():
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    config = MixtralConfig(hidden_size=5, num_local_experts=6, num_experts_per_tok=3)
    router, x = MixtralTopKRouter(config), torch.randn(9, 5)
    torch.nn.init.normal_(router.weight)
    _, gates, experts = router(x)
    ours = route(x @ router.weight.T, 3)
    assert torch.equal(ours.experts, experts)
    torch.testing.assert_close(ours.gates, gates.detach(), atol=EXACT, rtol=0)


def test_deepseek_equals_transformers():
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

    config = DeepseekV3Config(
        hidden_size=6, n_routed_experts=6, num_experts_per_tok=2, n_group=1, topk_group=1,
        routed_scaling_factor=1.0,
    )  # fmt: skip
    router = DeepseekV3TopkRouter(config)
    logits, bias = logits_of(3, 40), torch.linspace(-0.4, 0.4, 6)
    router.weight.data.copy_(torch.eye(6))
    router.e_score_correction_bias.copy_(bias)
    _, gates, experts = router(logits)
    gates = gates.detach()
    ours = route(logits, 2, "deepseek", bias)
    plain = route(logits, 2, "deepseek")
    for e in range(6):  # theirs are in no order
        theirs = (gates * (experts == e)).sum(-1)
        torch.testing.assert_close((ours.gates * (ours.experts == e)).sum(-1), theirs)
    assert not torch.equal(ours.experts.sort().values, plain.experts.sort().values)


def test_a_bias_chooses_and_does_not_weigh():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    experts, gates = route(logits, 2, "deepseek", torch.tensor([0.0, 0.0, 9.0]))
    assert experts.tolist() == [[2, 0]]
    a, b = torch.tensor([0.0, 2.0]).sigmoid()
    torch.testing.assert_close(gates, torch.stack([a, b])[None] / (a + b))


def test_gradients_of_the_router():
    for convention, k, learns in (
        ("mixtral", 1, False), ("switch", 1, True), ("deepseek", 1, False), ("mixtral", 2, True),
        ("deepseek", 2, True), ("mixtral", 6, True),
    ):  # fmt: skip
        logits = logits_of(0).requires_grad_()
        experts, gates = route(logits, k, convention)
        (gates * torch.arange(1.0, k + 1)).sum().backward()
        assert (logits.grad.abs().max() > 1e-3) == learns, (convention, k)
        if convention != "switch":  # what was not chosen is not touched
            chosen = torch.zeros(7, 6, dtype=torch.bool).scatter(1, experts, True)
            assert not logits.grad[~chosen].any()


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_awkward_inputs(convention):
    experts, gates = route(torch.zeros(0, 4), 2, convention)
    assert experts.shape == gates.shape == (0, 2)
    experts, gates = route(torch.zeros(3, 4), 4, convention)
    assert experts.sort().values.tolist() == [[0, 1, 2, 3]] * 3 and (gates == 0.25).all()
    assert route(torch.ones(2, 1), 1, convention).gates.tolist() == [[1.0], [1.0]]
    low = logits_of(1).bfloat16()
    a, b = route(low, 2, convention), route(low.float(), 2, convention)
    assert torch.equal(a.gates, b.gates) and a.gates.dtype == torch.float32
    wide = logits_of(2).repeat(1, 2)[:, ::2]
    c, d = route(wide, 3, convention), route(wide.contiguous(), 3, convention)
    assert torch.equal(c.experts, d.experts) and torch.equal(c.gates, d.gates)
    for size in (1e4, -1e4, 200.0):
        gates = route(size * torch.tensor([[1.0, 0.9, 0.5]]), 2, convention).gates
        assert gates.isfinite().all()
    assert route(logits_of(1).double(), 2, convention).gates.dtype == torch.float64


def test_errors():
    x = torch.zeros(2, 3)
    for k in (0, 4, -1):
        with pytest.raises(ValueError, match="from 1 to the 3 experts"):
            route(x, k)
    with pytest.raises(ValueError, match="mixtral, switch"):
        route(x, 1, "mistral")
    with pytest.raises(ValueError, match="bias"):
        route(x, 1, "switch", torch.zeros(3))
    for bad in (torch.zeros(3), torch.zeros(2, 0), torch.zeros(1, 2, 3)):
        with pytest.raises(ValueError, match=r"\[T, E\]"):
            route(bad, 1)
