"""Bills against models that have what is billed, and choices by hand."""

import pytest
import torch
from small_llama import llama

from efflib.finetuning.adapters import add_adapters
from efflib.finetuning.biases import add_biases, add_random
from efflib.finetuning.bills import WAYS, apart, bill, choose, fits
from efflib.finetuning.lora import add_lora, trainable_parameters, training_bytes
from efflib.finetuning.prefixes import PrefixModel, prefix_cache, prefix_of
from efflib.finetuning.prompts import PromptModel
from efflib.models.config import LlamaConfig

SIZE = 5


def adapted(way, model):
    prompt = torch.randn(SIZE, 32)
    return {
        "lora": lambda: add_lora(model, SIZE, 1, ("layers",)),
        "adapter": lambda: add_adapters(model, SIZE),
        "prompt": lambda: PromptModel(model, prompt),
        "prefix": lambda: PrefixModel(model, prefix_of(model, prompt)),
        "bitfit": lambda: add_biases(model),
        "random": lambda: add_random(model, SIZE),
    }[way]()


@pytest.mark.parametrize("way", WAYS)
def test_trained_numbers_and_states_of_models(way):
    model = llama()
    costs, made = bill(way, SIZE, model.config), adapted(way, model)
    assert costs.trained == trainable_parameters(made)
    assert costs.optimizer_bytes == training_bytes(made).optimizer


@torch.no_grad()
def test_products_are_counted_as_they_run():
    """FLOPs of the products that a token adds, by torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    model, token = llama(), torch.tensor([[7]])

    def counted(m, cache=None):
        with FlopCounterMode(display=False) as counter:
            m(token, cache=cache) if cache is not None else m(token)
        return counter.get_total_flops()

    def by_products(q, k, v, mask):
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))  # 4 heads share 2
        return (q @ k.mT).masked_fill(~mask, float("-inf")).softmax(-1) @ v

    model.set_attention(by_products)
    base = counted(model)
    for way in ("lora", "adapter"):
        assert counted(adapted(way, model)) - base == bill(way, SIZE, model.config).flops, way
    for way in ("prompt", "prefix"):
        cache = prefix_cache([prefix_of(model, torch.randn(SIZE, 32))])
        assert counted(model, cache) - base == bill(way, SIZE, model.config).flops, way
    stored = sum(t.numel() for t in (*cache.keys, *cache.values)) - 2 * 2 * 16  # less the token's
    assert bill("prompt", SIZE, model.config).read_bytes == 2 * stored
    assert bill("bitfit", 0, model.config).flops == bill("random", 9, model.config).flops == 0


def test_merging_needs_arrays_that_are_there():
    plain = llama().config
    biased = LlamaConfig(**{**plain.__dict__, "attention_bias": True, "mlp_bias": True})
    merge = {way: bill(way, 1, plain).mergeable for way in WAYS}
    assert [way for way in WAYS if merge[way]] == ["lora", "random"]
    assert bill("bitfit", 0, biased).mergeable and not bill("adapter", 1, biased).mergeable
    assert [way for way in WAYS if not bill(way, 1, plain).batchable] == ["random"]
    with pytest.raises(ValueError, match="way='dora'"):
        bill("dora", 1, plain)


def test_apart_is_more_than_the_larger_spread():
    assert not apart([1.0, 1.2, 1.4], [1.4, 1.4, 1.4]) and apart([1.0, 1.1], [1.3, 1.3])
    assert not apart([1.0], [1.0]) and apart([1.0], [1.1])


def test_choices_by_hand():
    candidates = {
        "a": {"losses": [1.0, 1.2], "trained": 100, "mergeable": True, "flops": 5},
        "b": {"losses": [1.1, 1.2], "trained": 10, "mergeable": False, "flops": 0},
        "c": {"losses": [2.0, 2.1], "trained": 1, "mergeable": True, "flops": 0},
    }
    assert choose(candidates, {}) == "b"  # as good as a, and smaller
    assert choose(candidates, {"mergeable": True}) == "a"
    assert choose(candidates, {"mergeable": True, "flops": 4}) == "c"
    assert choose(candidates, {"trained": 0}) is None
    assert fits(candidates["b"], {"mergeable": False}) and fits(candidates["a"], {"flops": 5})
