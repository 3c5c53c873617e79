"""The calculator agrees with models that exist, with the papers' sums, and with limits."""

import math

import pytest
import torch
from small_llama import ALL, batches

from efflib.finetuning.lora import LoRALinear, add_lora, trainable_parameters, training_bytes
from efflib.finetuning.memory import (
    GB,
    LLAMA,
    Shape,
    activation_bytes,
    finetuning_bytes,
    lora_parameters,
    paged_out,
    parameters,
)
from efflib.models.llama import Llama, LlamaConfig

SMALL = Shape(2, 32, 48, 50)


def small() -> Llama:
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        tie_word_embeddings=False,
    )
    return Llama(config)


def test_parameters_are_those_of_the_model():
    assert parameters(SMALL) == sum(p.numel() for p in small().parameters())
    lora = add_lora(small(), 3, 1, ALL)
    assert sum(isinstance(m, LoRALinear) for m in lora.modules()) == 14
    assert lora_parameters(SMALL, 3) == trainable_parameters(lora)


@pytest.mark.parametrize(
    "name, billions", [("7B", 6.7), ("13B", 13.0), ("33B", 32.5), ("65B", 65.2)]
)
def test_the_shapes_have_the_parameters_that_the_paper_names(name, billions):
    """Touvron et al. 2023, table 2."""
    assert parameters(LLAMA[name]) / 1e9 == pytest.approx(billions, abs=0.1)


def test_half_of_what_a_float32_model_holds():
    for method, model in (("full", small()), ("lora", add_lora(small(), 3, 1, ALL))):
        held, own = finetuning_bytes(SMALL, method, r=3), training_bytes(model)
        assert (held.weights, held.gradients) == (own.weights / 2, own.gradients / 2)
        assert held.optimizer == own.optimizer  # float32 there and here
    assert finetuning_bytes(SMALL, "full", master=True).optimizer == 12 * parameters(SMALL)


def test_the_papers_sums():
    full = finetuning_bytes(LLAMA["65B"], "full")
    assert full.total - full.activations > 780 * GB  # "more than 780 GB"
    assert full.total - full.activations == 12 * parameters(LLAMA["65B"])
    qlora = finetuning_bytes(LLAMA["65B"], "qlora", tokens=512)
    assert qlora.total < 48 * GB < finetuning_bytes(LLAMA["65B"], "lora").total


def test_nf4_takes_4_127_bits_of_what_is_stored_in_it():
    lora, qlora = (finetuning_bytes(LLAMA["7B"], m) for m in ("lora", "qlora"))
    shape = LLAMA["7B"]
    stored = shape.layers * sum(math.prod(s) for s in shape.linears)
    assert 16 - 8 * (lora.weights - qlora.weights) / stored == pytest.approx(4.127, abs=5e-4)
    assert lora[1:] == qlora[1:]


def test_activations_grow_with_tokens_and_checkpoints_keep_one_tensor_a_block():
    plain, kept = (activation_bytes(SMALL, 10, c) for c in (False, True))
    assert plain == 2 * activation_bytes(SMALL, 5, False) and kept < plain
    deeper = Shape(3, 32, 48, 50)
    assert activation_bytes(deeper, 1, True) - activation_bytes(SMALL, 1, True) == 2 * 32
    assert activation_bytes(deeper, 1, False) - activation_bytes(SMALL, 1, False) == 2 * (
        8 * 32 + 4 * 48
    )


def test_autograd_keeps_no_less_than_is_counted():
    """This model is not fused: it keeps more. The count of a block has to be among it."""
    model, tokens, saved = small(), 34, []

    def keep(t: torch.Tensor) -> torch.Tensor:
        saved.append(t)  # alive, so that no two share an address
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        model(batches(1)[0])
    weights = {p.data_ptr() for p in model.parameters()}
    sizes = {t.data_ptr(): t.numel() for t in saved if t.data_ptr() not in weights}
    numbers = sum(size for size in sizes.values() if size % tokens == 0)
    counted = 2 * (8 * 32 + 4 * 48) * tokens
    assert counted <= numbers < 2.5 * counted


def test_paging_moves_what_exceeds_the_card_and_only_states():
    held = finetuning_bytes(LLAMA["65B"], "qlora")
    assert paged_out(held, held.total) == 0
    assert paged_out(held, held.total - GB) == pytest.approx(GB)
    with pytest.raises(ValueError, match="GB without optimizer states exceed 24.0 GB"):
        paged_out(held, 24 * GB)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="method='dora' must be one of"):
        finetuning_bytes(SMALL, "dora")
    with pytest.raises(ValueError, match="r=0"):
        lora_parameters(SMALL, 0)
    with pytest.raises(ValueError, match="tokens=0"):
        activation_bytes(SMALL, 0, True)
