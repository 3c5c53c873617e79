"""By index against the loop and against every expert, gradients and drops; the export."""

import pytest
import torch
from torch import nn

from efflib.models import from_pretrained, save_pretrained
from efflib.models.config import MixtureConfig
from efflib.models.mixture import Mixture, every_expert
from efflib.moe.capacity import admitted
from efflib.moe.layer import by_index, dispatch_combine, mixture_by_loop
from efflib.moe.router import CONVENTIONS, Routing, route

D, E = 6, 5


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(D, D), []

    def forward(self, x):
        self.calls.append(len(x))
        return self.linear(x).tanh()


def case(seed, tokens=11, k=2, convention="mixtral", dtype=torch.float64):
    torch.manual_seed(seed)
    experts = nn.ModuleList(Expert() for _ in range(E)).to(dtype)
    x = torch.randn(tokens, D, dtype=dtype, requires_grad=True)
    logits = torch.randn(tokens, E, dtype=dtype, requires_grad=True)
    return x, logits, route(logits, k, convention), experts


@pytest.mark.parametrize("k", [1, 2, E])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_by_index_is_the_loop_with_its_gradients(k, convention):
    found = []
    for way in (dispatch_combine, mixture_by_loop):
        x, logits, routing, experts = case(k, k=k, convention=convention)
        y = way(x, routing, experts)
        (y * torch.linspace(-1, 2, y.numel()).view_as(y)).sum().backward()
        grads = [p.grad if p.grad is not None else p * 0 for p in experts.parameters()]
        found.append([y.detach(), x.grad, logits.grad, *grads])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_each_expert_is_called_once_with_its_tokens_or_not_at_all():
    x, _, routing, experts = case(0)
    routing.experts[routing.experts == 3] = 4
    dispatch_combine(x, routing, experts)
    for e, expert in enumerate(experts):
        asked = int((routing.experts == e).sum())
        assert expert.calls == ([asked] if asked else []), e
    assert not experts[3].calls


def test_what_is_dropped_adds_nothing():
    for places in (0, 1, 3):
        x, _, routing, experts = case(1)
        kept = admitted(routing.experts, places)
        gates = routing.gates * kept
        right = mixture_by_loop(x, Routing(routing.experts, gates), experts)
        for expert in experts:
            expert.calls.clear()
        y = dispatch_combine(x, routing, experts, kept)
        torch.testing.assert_close(y, right)
        assert (y[~kept.any(1)] == 0).all()
        assert sum(sum(e.calls) for e in experts) == int(kept.sum())


def test_no_token_and_half_precision():
    x, logits, routing, experts = case(2, tokens=0)
    assert dispatch_combine(x, routing, experts).shape == (0, D)
    assert by_index(x, logits, 2, experts).shape == (0, D)
    assert every_expert(x, logits, 2, experts).shape == (0, D)
    x, _, routing, experts = case(3, dtype=torch.bfloat16)
    y = dispatch_combine(x.T.contiguous().T, routing, experts)
    assert y.dtype == torch.bfloat16
    right = mixture_by_loop(x.double(), routing, experts.double())
    # three roundings to 8 bits of numbers below 1, of which two are added
    torch.testing.assert_close(y.double(), right, atol=6 * 2.0**-9, rtol=0)


def test_every_expert_is_by_index():
    x, logits, _, experts = case(4, tokens=40)
    y, z = every_expert(x, logits, 2, experts), by_index(x, logits, 2, experts)
    torch.testing.assert_close(y, z, atol=1e-6, rtol=0)  # shares in float32
    even = torch.zeros(3, E, dtype=torch.float64)
    y = every_expert(x[:3], even, 2, experts)  # the first two of all that are equal
    torch.testing.assert_close(y, 0.5 * (experts[0](x[:3]) + experts[1](x[:3])))


SIZES = dict(
    vocab_size=61, hidden_size=24, intermediate_size=20, num_hidden_layers=2, head_dim=8,
    num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=64,
)  # fmt: skip


def tiny(**changes):
    torch.manual_seed(0)
    model = Mixture(MixtureConfig(**SIZES, **changes)).eval()
    for p in model.parameters():
        p.data = torch.randn(p.shape) / p.shape[-1] ** 0.5 if p.ndim == 2 else 1 + 0.3 * p.data
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_logits_equal_transformers(tmp_path, tied):
    from transformers import MixtralForCausalLM

    ours = tiny(num_local_experts=6, num_experts_per_tok=2, tie_word_embeddings=tied)
    save_pretrained(ours, tmp_path)
    theirs, info = MixtralForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = torch.randint(61, (3, 17))
    with torch.no_grad():
        right = theirs(ids).logits
        torch.testing.assert_close(ours(ids), right, rtol=0, atol=1e-4)
        ours.set_mix(by_index)
        torch.testing.assert_close(ours(ids), right, rtol=0, atol=1e-4)


def test_a_checkpoint_of_a_mixture_comes_back(tmp_path):
    ours = tiny(router_aux_loss_coef=0.02)
    save_pretrained(ours, tmp_path)
    again = from_pretrained(tmp_path)
    assert again.config == ours.config and len(again.mixtures()) == 2
    for name, tensor in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again(ids), ours(ids))
    assert ours.mixtures()[0].logits.shape == (20, 8)


def test_a_config_names_what_is_wrong():
    for wrong in ({"num_experts_per_tok": 9}, {"num_experts_per_tok": 0}, {"num_local_experts": 0}):
        with pytest.raises(ValueError, match="num_(local_)?experts"):
            MixtureConfig(**SIZES, **wrong)
