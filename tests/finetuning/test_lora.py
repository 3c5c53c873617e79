"""LoRA starts as the model it is given, trains A and B only, merges exactly, and is counted."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_llama import ALL, ATTENTION, llama, randomize
from torch import nn

from efflib.finetuning.lora import (
    LoRALinear,
    add_lora,
    merge_lora,
    merged,
    remove_lora,
    trainable_parameters,
    training_bytes,
    update,
)

IDS = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(3))


def layer(r=3, alpha=5.0, bias=True, dropout=0.0, dtype=torch.float64, seed=0):
    """A LoRALinear [24, 16] whose B is random too."""
    generator = torch.Generator().manual_seed(seed)
    base = nn.Linear(16, 24, bias=bias).to(dtype)
    made = LoRALinear(base, r, alpha, dropout, generator)
    with torch.no_grad():
        made.b.normal_(generator=generator)
    return made


@pytest.mark.parametrize("targets", [ATTENTION, ALL, ("layers.1",), ("lm_head",)])
def test_it_starts_as_the_model_it_is_given(targets):
    model = llama()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        assert torch.equal(add_lora(model, 4, 8, targets)(IDS), model(IDS))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_targets_are_whole_components_of_names():
    def found(targets):
        model = add_lora(llama(), 1, 1, targets)
        return [n for n, m in model.named_modules() if isinstance(m, LoRALinear)]

    assert len(found(ATTENTION)) == 4 and len(found(ALL)) == 14 and len(found(("layers.0",))) == 7
    for part in ("proj", "layers.0.self"):
        with pytest.raises(ValueError, match=f"targets: no module of Llama is named '{part}'"):
            found(("q_proj", part))
    with pytest.raises(ValueError, match=r"targets='q_proj' is one string: write \('q_proj',\)"):
        found("q_proj")
    with pytest.raises(ValueError, match="no linear of Llama is named by targets"):
        found(("norm",))


@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([0.5, 1.0, 16.0]))
def test_the_formula_in_float64(seed, r, alpha):
    made = layer(r, alpha, seed=seed)
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    w = made.base.weight + alpha / r * made.b @ made.a
    torch.testing.assert_close(made(x), x @ w.T + made.base.bias)


def test_a_starts_uniform_and_b_at_zero():
    made = LoRALinear(nn.Linear(400, 100), 50, 1, generator=torch.Generator().manual_seed(0))
    bound = 1 / math.sqrt(400)
    assert made.a.shape == (50, 400) and made.b.shape == (100, 50)
    assert not made.b.any() and made.a.abs().max() <= bound
    # 20000 uniform numbers: the deviation is within 1 % (5 standard errors) of bound / sqrt(3)
    assert abs(made.a.std().item() / (bound / math.sqrt(3)) - 1) < 0.01


def test_the_seed_decides_a():
    a, b, c = (add_lora(llama(), 2, 4, ATTENTION, seed=s).state_dict() for s in (1, 1, 2))
    names = [n for n in a if n.endswith(".a")]
    assert all(torch.equal(a[n], b[n]) and not torch.equal(a[n], c[n]) for n in names)
    assert len({tuple(a[n].flatten().tolist()) for n in names}) == len(names)


def test_gradients_reach_a_and_b_only():
    model = randomize(add_lora(llama(), 2, 4, ATTENTION))
    model(IDS).sum().backward()
    with_gradient = {n for n, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == {n for n, p in model.named_parameters() if n.endswith((".a", ".b"))}
    assert all(p.grad.any() for n, p in model.named_parameters() if n in with_gradient)


def test_dropout_falls_on_the_update_only():
    made = layer(dropout=0.5)
    x = torch.ones(20000, 16, dtype=torch.float64)
    torch.manual_seed(0)
    out = made(x)
    exact = made.eval()(x)
    assert not torch.equal(out, exact)
    assert torch.equal(made(x), exact)  # none in eval mode
    # its mean is the exact one: Bernoulli noise of 20000 rows, 5 standard errors
    error = (out - exact).mean(0).abs() / (out.std(0) / math.sqrt(20000))
    assert error.max() < 5
    with torch.no_grad():
        made.b.zero_()
    assert torch.equal(made.train()(x), made.base(x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_merging_rounds_the_exact_sum_once(bias, dtype):
    made = layer(bias=bias, dtype=dtype)
    linear = merged(made)
    w, a, b = (t.detach().double() for t in (made.base.weight, made.a, made.b))
    assert torch.equal(linear.weight, (w + 5.0 / 3 * (b @ a)).to(dtype))
    assert linear.weight.dtype == dtype and not linear.weight.requires_grad
    assert (linear.bias is None) == (not bias)
    assert not bias or torch.equal(linear.bias, made.base.bias)


def test_a_merged_model_has_the_same_function_and_the_old_layers():
    model = randomize(add_lora(llama(torch.float64), 2, 4, ALL))
    fused = merge_lora(model)
    with torch.no_grad():
        assert (model(IDS) - llama(torch.float64)(IDS)).abs().max() > 1e-2
        torch.testing.assert_close(fused(IDS), model(IDS), rtol=1e-10, atol=1e-10)
    assert fused.state_dict().keys() == llama().state_dict().keys()
    assert any(isinstance(m, LoRALinear) for m in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_removing_is_exact_where_subtracting_is_not(dtype):
    model = randomize(add_lora(llama(dtype), 2, 4, ATTENTION))
    before = llama(dtype).state_dict()
    back = remove_lora(model).state_dict()
    assert back.keys() == before.keys()
    assert all(torch.equal(v, before[k]) for k, v in back.items())
    made = model.model.layers[0].self_attn.q_proj
    drifted = (merged(made).weight.double() - update(made)).to(dtype)
    assert not torch.equal(drifted, made.base.weight)


@pytest.mark.parametrize("r", [1, 4])
def test_the_rank_of_the_update_is_r(r):
    assert torch.linalg.matrix_rank(update(layer(r))) == r


def test_parameters_and_bytes_are_counted():
    model = llama()
    total = sum(p.numel() for p in model.parameters())
    assert trainable_parameters(model) == total
    assert training_bytes(model) == (4 * total, 4 * total, 8 * total)
    assert training_bytes(model).total == 16 * total  # float32 and AdamW: 16 bytes each
    lora = add_lora(model, 4, 8, ATTENTION)
    # q: 32 -> 32, v: 32 -> 16, in 2 layers
    trained = 2 * 4 * ((32 + 32) + (32 + 16))
    assert trainable_parameters(lora) == trained
    assert training_bytes(lora) == (4 * (total + trained), 4 * trained, 8 * trained)


def test_adamw_holds_what_is_counted():
    model = randomize(add_lora(llama(), 4, 8, ATTENTION))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(IDS).sum().backward()
    optimizer.step()
    states = [v for s in optimizer.state.values() for k, v in s.items() if k != "step"]
    assert sum(v.nbytes for v in states) == training_bytes(model).optimizer
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert gradients == training_bytes(model).gradients


def test_bad_input_is_named():
    for r, dropout in ((0, 0.0), (2, 1.0), (2, -0.1)):
        with pytest.raises(ValueError, match=f"r={r} must be|dropout={dropout}"):
            add_lora(llama(), r, 1, ATTENTION, dropout)


@pytest.mark.parametrize("r", [1, 4, 9])
def test_rank_stabilised_divides_by_the_root_of_r(r):
    model = add_lora(llama(), r, 6, ATTENTION, rank_stabilized=True)
    layers = [m for m in model.modules() if isinstance(m, LoRALinear)]
    assert {m.scale for m in layers} == {6 / math.sqrt(r)}
    plain = next(m for m in add_lora(llama(), r, 6, ATTENTION).modules() if type(m) is LoRALinear)
    assert plain.scale == 6 / r and torch.equal(plain.a, layers[0].a)
    made = randomize(model).model.layers[0].self_attn.q_proj
    right = 6 / math.sqrt(r) * made.b.double() @ made.a.double()
    torch.testing.assert_close(update(made), right.detach())


def test_a_rank_stabilised_update_keeps_its_size_as_r_grows():
    """With random A and B the entries of B A grow as sqrt(r): alpha / r makes them shrink."""
    sizes = {}
    for stabilized in (False, True):
        for r in (4, 64):
            generator = torch.Generator().manual_seed(r)
            made = LoRALinear(nn.Linear(256, 256), r, 8, 0, generator, stabilized)
            nn.init.normal_(made.b, generator=generator)
            sizes[stabilized, r] = update(made).std().item()
    assert sizes[True, 64] / sizes[True, 4] == pytest.approx(1, abs=0.1)
    assert sizes[False, 64] / sizes[False, 4] == pytest.approx(1 / 4, abs=0.03)
