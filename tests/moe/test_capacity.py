"""Who finds a place: the lecture's figure, Switch's router, a queue that is walked by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.moe.capacity import ORDERS, admitted, capacity


def choices(seed, tokens, count, k):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(tokens, count, generator=g).argsort(-1)[:, :k]


def walked(experts, places, order, real):
    """One after the other."""
    tokens, k = experts.shape
    queue = [(t, j) for t in range(tokens) for j in range(k)]
    if order == "choices":
        queue.sort(key=lambda at: at[1])
    free, kept = {}, torch.zeros(tokens, k, dtype=torch.bool)
    for t, j in queue:
        e = int(experts[t, j])
        if real[t] and free.setdefault(e, places) > 0:
            free[e] -= 1
            kept[t, j] = True
    return kept


def test_six_tokens_three_experts():
    experts = torch.tensor([[0], [1], [0], [2], [0], [1]])  # the lecture's picture: 3, 2 and 1
    one, more = (capacity(6, 3, 1, factor) for factor in (1.0, 1.5))
    assert (one, more) == (2, 3)
    assert int((~admitted(experts, one)).sum()) == 1 and admitted(experts, more).all()
    assert admitted(experts, one)[:, 0].tolist() == [True, True, True, True, False, True]


@given(st.integers(0, 10**6), st.integers(0, 9), st.integers(1, 5), st.integers(0, 4), st.data())
def test_against_a_walk(seed, tokens, count, places, data):
    k = data.draw(st.integers(1, count))
    experts = choices(seed, tokens, count, k)
    real = torch.rand(tokens, generator=torch.Generator().manual_seed(seed)) < 0.7
    for order in ORDERS:
        kept = admitted(experts, places, order, real)
        assert torch.equal(kept, walked(experts, places, order, real))
        everyone = torch.ones(tokens, dtype=torch.bool)
        plain = admitted(experts, places, order)
        assert torch.equal(plain, walked(experts, places, order, everyone))


def test_orders_differ_and_are_one_for_one_choice():
    experts = torch.tensor([[0, 1], [1, 0]])
    assert admitted(experts, 1, "tokens").tolist() == [[True, True], [False, False]]
    assert admitted(experts, 1, "choices").tolist() == [[True, False], [True, False]]
    single = choices(1, 20, 4, 1)
    assert torch.equal(admitted(single, 3, "tokens"), admitted(single, 3, "choices"))


def test_first_come_as_in_switch():
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers import modeling_switch_transformers as switch

    config = SwitchTransformersConfig(
        d_model=8, num_experts=4, expert_capacity=3, router_jitter_noise=0.0, vocab_size=32
    )
    router, x = switch.SwitchTransformersTop1Router(config).eval(), torch.randn(1, 16, 8)
    mask = next(o for o in router(x) if o.shape[-1] == 4 and not o.is_floating_point())
    experts = router.classifier(x).argmax(-1).T  # [16, 1]
    assert torch.equal(admitted(experts, 3)[:, 0], mask[0].sum(-1).bool())


def test_capacity():
    for arguments, right in (
        ((6, 3, 1, 1.0), 2), ((7, 3, 1, 1.0), 3), ((7, 3, 2, 1.25), 6), ((0, 3, 1, 2.0), 0),
        ((5, 8, 2, 0.0), 0), ((1, 64, 1, 1.0), 1),
    ):  # fmt: skip
        assert capacity(*arguments) == right, arguments
    for bad in ((-1, 3, 1, 1.0), (6, 0, 1, 1.0), (6, 3, 0, 1.0), (6, 3, 1, -1.0)):
        with pytest.raises(ValueError):
            capacity(*bad)
    for factor in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="factor"):
            capacity(6, 3, 1, factor)


def test_errors_and_empty():
    with pytest.raises(ValueError, match="tokens, choices"):
        admitted(torch.zeros(1, 1, dtype=torch.long), 1, "gates")
    with pytest.raises(ValueError, match="places"):
        admitted(torch.zeros(1, 1, dtype=torch.long), -1)
    assert admitted(torch.zeros(0, 2, dtype=torch.long), 1).shape == (0, 2)
