"""Rows of one batch through different adapters equal each row through its own model."""

import copy

import pytest
import torch
from small_llama import ALL, ATTENTION, batches, llama, randomize
from torch import nn

from efflib.finetuning.batched import together, use
from efflib.finetuning.lora import add_lora
from efflib.finetuning.qlora import add_qlora
from efflib.quantization.nf4 import nf4_model

IDS = torch.cat(batches(2))  # [4, 17]


def two(dtype=torch.float64):
    model = llama(dtype)
    one = randomize(add_lora(model, 2, 4, ATTENTION, seed=1))
    other = randomize(add_lora(model, 5, 3, ALL, seed=2, rank_stabilized=True))
    return model, {"one": one, "other": other}


@torch.no_grad()
def test_every_row_gets_its_own_adapter():
    model, adapters = two()
    both = together(model, adapters)
    names = ["other", None, "one", "other"]
    with use(both, names):
        logits = both(IDS)
    for row, name, ids in zip(logits, names, IDS, strict=True):
        right = (model if name is None else adapters[name])(ids[None])[0]
        torch.testing.assert_close(row, right, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(both(IDS), model(IDS), rtol=0, atol=0)  # nobody has chosen


@torch.no_grad()
def test_beside_nf4():
    model = nf4_model(llama())
    adapters = {"q": randomize(add_qlora(llama(), 2, 4, ATTENTION))}
    with use(together(model, adapters), ["q", None, "q", None]) as both:
        logits = both(IDS)
    torch.testing.assert_close(logits[::2], adapters["q"](IDS[::2]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits[1::2], model(IDS[1::2]), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_base_is_multiplied_once_for_all_rows():
    model, adapters = two()
    both, calls = together(model, adapters), []
    for name, module in both.named_modules():
        if name.endswith("q_proj.base"):
            module.register_forward_hook(lambda m, x, y: calls.append(len(x[0])))
    with use(both, ["one", "other", None, "one"]):
        both(IDS)
    assert calls == [4, 4]  # two layers, all four rows


def test_arguments_stay_and_the_choice_ends_with_its_block():
    model, adapters = two()
    before = copy.deepcopy([m.state_dict() for m in (model, *adapters.values())])
    both = together(model, adapters)
    with pytest.raises(RuntimeError), use(both, ["one"] * 4):
        raise RuntimeError
    assert both.choice.index is None
    for module, state in zip((model, *adapters.values()), before, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())


def test_what_does_not_fit_is_named():
    model, adapters = two()
    both = together(model, adapters)
    with pytest.raises(ValueError, match="names: there is no 'onn'; the nearest is 'one'"):
        use(both, ["onn"]).__enter__()
    with use(both, ["one"]), pytest.raises(ValueError, match=r"1 adapters were chosen for x \(4,"):
        both(IDS)
    with pytest.raises(ValueError, match="adapter 'plain' has no updates"):
        together(model, {"plain": model})
    with pytest.raises(ValueError, match="no adapter"):
        together(model, {})
    other = copy.deepcopy(model)
    nn.init.ones_(other.model.layers[0].self_attn.q_proj.weight)
    with pytest.raises(ValueError, match="adapter 'one', .*q_proj: it was trained beside other"):
        together(other, adapters)
