"""A pruned model trains on and keeps its zeros."""

import pytest
import torch

from efflib.models.llama import Llama, LlamaConfig
from efflib.recovery import retrain
from efflib.sequential import block_linears
from efflib.sparsity.magnitude import prune_magnitude


def test_the_loss_falls_and_zeros_stay():
    torch.manual_seed(0)
    model = prune_magnitude(Llama(LlamaConfig(50, 32, 48, 2, 4, 2, 8)).eval(), (2, 4))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    text = torch.arange(4 * 25).reshape(4, 25) % 50
    trained, losses = retrain(model, [text] * 20, lr=1e-2)
    assert losses[-1] < 0.5 * losses[0]
    inside = {f"{n}.weight" for linears in block_linears(model) for n in linears}
    assert inside and inside <= set(trained.state_dict()) and not trained.training
    for name, value in trained.state_dict().items():
        assert torch.equal(before[name], model.state_dict()[name])
        assert not torch.equal(value, before[name])
        if name in inside:
            assert torch.equal(value == 0, before[name] == 0)
    assert list(trained.state_dict()) == list(before)


def test_a_model_without_blocks_is_refused():
    with pytest.raises(ValueError, match="no nn.ModuleList"):
        retrain(torch.nn.Linear(4, 4), [torch.zeros(1, 3, dtype=torch.long)], 1e-3)
