"""What does not fit is named in one sentence."""

import math

import pytest
import torch
from small_llama import ATTENTION, batches, llama
from torch import nn

from efflib.finetuning.lora import LoRALinear, add_lora, merge_lora, remove_lora
from efflib.finetuning.qlora import add_qlora
from efflib.finetuning.training import finetune, rate


@pytest.mark.parametrize("add", [add_lora, add_qlora])
def test_a_second_update_of_a_layer_is_refused_until_the_first_is_merged_or_removed(add):
    once = add_lora(llama(), 1, 1, ATTENTION)
    with pytest.raises(ValueError, match="layers.0.self_attn.q_proj has an update already: merge"):
        add(once, 1, 1, ATTENTION)
    for plain in (merge_lora(once), remove_lora(once)):
        again = add(plain, 1, 1, ATTENTION)
        assert sum(isinstance(m, LoRALinear) for m in again.modules()) == 4


IDS = batches(1)[0]
CASES = {
    "half a rank": (lambda: add_lora(llama(), 1.5, 1, ATTENTION), "r=1.5 must be an integer"),
    "no factor": (lambda: add_lora(llama(), 1, math.nan, ATTENTION), "alpha=nan"),
    "an embedding": (lambda: LoRALinear(nn.Embedding(3, 3), 1, 1), "got Embedding"),
    "nothing to merge": (lambda: merge_lora(llama()), "Llama has no updates"),
    "nothing to remove": (lambda: remove_lora(llama()), "Llama has no updates"),
    "ids without a batch": (
        lambda: finetune(llama(), [IDS, IDS[0]], 1e-3),
        r"batches\[1\] must be a non-empty \[B, 1 \+ T\], got \(17,\)",
    ),
    "one token": (lambda: finetune(llama(), [IDS[:, :1]], 1e-3), "has nothing to predict"),
    "a rate below 0": (lambda: finetune(llama(), [IDS], -1e-3), "lr=-0.001 must be positive"),
    "no steps": (lambda: rate(0, 0), "steps=0 must be an integer of at least 1"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_named(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_the_model_that_was_given_stays_as_it_is():
    model = llama()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="lr=0"):
        finetune(model, [IDS], 0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
