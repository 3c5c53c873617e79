"""The losses against transformers; that one is not the least value; the bias."""

import pytest
import torch

from efflib.moe.balance import balancing_loss, load, moved_bias, z_loss
from efflib.moe.router import route


def logits_of(seed, tokens=64, experts=6):
    return 2 * torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("k", [1, 2, 6])
def test_losses_equal_transformers(k):
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func as mixtral
    from transformers.models.switch_transformers import modeling_switch_transformers as switch

    logits = logits_of(k)
    experts = route(logits, k).experts
    theirs = mixtral((logits,), 6, k)
    torch.testing.assert_close(k * balancing_loss(logits, experts), theirs)
    torch.testing.assert_close(z_loss(logits), switch.router_z_loss_func(logits[None]))
    if k == 1:
        p = logits.softmax(-1)
        right = switch.load_balancing_loss_func(p[None], experts[None])
        torch.testing.assert_close(balancing_loss(logits, experts), right)


def test_even_is_one_and_collapse_is_the_number_of_experts():
    even = 9.0 * torch.eye(4).repeat(3, 1)
    assert balancing_loss(even, even.argmax(-1, keepdim=True)).item() == pytest.approx(1)
    assert balancing_loss(torch.zeros(5, 4), torch.zeros(5, 1).long()).item() == pytest.approx(1)
    one = torch.tensor([[50.0, 0, 0, 0]]).repeat(7, 1)
    assert balancing_loss(one, torch.zeros(7, 1).long()).item() == pytest.approx(4)


def test_less_than_one_with_uneven_loads():
    """Three tokens of four by a hair: 7/8, as derived."""
    logits = torch.tensor([[1e-4, 0.0]] * 3 + [[0.0, 30.0]])
    experts = route(logits, 1).experts
    assert load(experts, 2).tolist() == [0.75, 0.25]
    assert balancing_loss(logits, experts).item() == pytest.approx(7 / 8, abs=1e-4)


def test_the_loss_pushes_probability_from_the_busy_to_the_idle():
    logits = logits_of(3).requires_grad_()
    experts = torch.zeros(64, 1).long()
    balancing_loss(logits, experts).backward()
    assert (logits.grad[:, 0] > 0).all() and (logits.grad[:, 1:] < 0).all()


def test_padding_and_nothing():
    logits, real = logits_of(4), torch.arange(64) % 3 > 0
    experts = route(logits, 2).experts
    some = balancing_loss(logits[real], experts[real])
    torch.testing.assert_close(balancing_loss(logits, experts, real), some)
    torch.testing.assert_close(load(experts, 6, real), load(experts[real], 6))
    nothing = torch.zeros(64, dtype=torch.bool)
    assert balancing_loss(logits, experts, nothing) == 0 and not load(experts, 6, nothing).any()
    with pytest.raises(ValueError, match="tokens have experts"):
        balancing_loss(logits, experts[:3])
    assert balancing_loss(logits.bfloat16(), experts).dtype == torch.float32


def test_a_bias_evens_loads_and_leaves_the_gates():
    logits = logits_of(5, 512) + torch.tensor([2.0, 1, 0, 0, 0, -1])
    bias = torch.zeros(6)
    before = load(route(logits, 2, "deepseek").experts, 6)
    for _ in range(400):
        share = load(route(logits, 2, "deepseek", bias).experts, 6)
        bias = moved_bias(bias, share, 0.003)
    assert before.max() > 0.25 and (share - 1 / 6).abs().max() < 0.02
    assert moved_bias(torch.zeros(2), torch.tensor([0.5, 0.5]), 1.0).tolist() == [0, 0]
    assert moved_bias(torch.zeros(2), torch.tensor([0.9, 0.1]), 0.5).tolist() == [-0.5, 0.5]
