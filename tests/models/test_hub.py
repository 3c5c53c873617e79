"""What is said about the inside of each family is so: judged by what the models compute."""

import copy
from types import SimpleNamespace

import pytest
import torch
from families import CASES, NO_FOLD, WIDTH, WINDOW, family, ids, logits, stored

from efflib.models.experts import stored_experts
from efflib.models.groups import norm_groups
from efflib.models.hub import FAMILIES, describe, model_type
from efflib.models.llama import Llama, LlamaConfig
from efflib.models.mixture import Mixture, MixtureConfig
from efflib.models.recorded import record
from efflib.sequential import block_linears, change_sequentially
from efflib.sparsity.wanda import prune_wanda


def test_every_family_has_a_case():
    assert {model_type(family(case)) for case in CASES} == FAMILIES.keys()


@pytest.mark.parametrize("case", CASES)
def test_changing_the_rows_named_changes_that_head_and_no_other(case):
    """v of one key head times 2 doubles what `out` reads from this head's queries, and q or k do
    not: measured at the input of `out`."""
    model, decoder = family(case), describe(family(case))
    block = decoder.blocks[0]
    share, d = decoder.query_heads // decoder.key_heads, decoder.head_dim
    linear = model.get_submodule(block.value.linear)
    exact = inputs_of(model, block.out)
    rows = slice(block.value.start + d, block.value.start + 2 * d)  # of key head 1
    doubled = doubled_rows(model, linear, rows, lambda: inputs_of(model, block.out))
    heads = slice(share * d, 2 * share * d)
    torch.testing.assert_close(doubled[..., heads], 2 * exact[..., heads])
    doubled[..., heads] = exact[..., heads]
    assert torch.equal(doubled, exact)
    for part in (block.query, block.key):
        linear = model.get_submodule(part.linear)
        rows = slice(part.start, part.start + d)  # of head 0
        other = doubled_rows(model, linear, rows, lambda: inputs_of(model, block.out))
        first = slice(0, d if part is block.query else share * d)
        changed = (other != exact).flatten(0, -2).any(0)
        if not decoder.family.head_norms:  # which take a factor off again
            assert changed[first].any() and not changed[first.stop :].any()
        assert part.stop - part.start == (
            d * (decoder.query_heads if part is block.query else decoder.key_heads)
        )


def inputs_of(model, name):
    found = []
    hook = model.get_submodule(name).register_forward_pre_hook(
        lambda m, args: found.append(args[0])
    )
    logits(model)
    hook.remove()
    return found[0].clone()


@torch.no_grad()
def doubled_rows(model, linear, rows, measured):
    """measured() with these rows of the linear and of its bias doubled; then they are put back."""
    parts = [p for p in (linear.weight, linear.bias) if p is not None]
    before = [p.clone() for p in parts]
    try:
        for p in parts:
            p[rows] *= 2
        return measured()
    finally:
        for p, old in zip(parts, before, strict=True):
            p.copy_(old)


@pytest.mark.parametrize("case", CASES)
def test_the_rows_before_a_linear_make_its_inputs(case):
    """Their bias and weight times 2 double the input of the linear, entry by entry."""
    model = family(case)
    block = describe(model).blocks[-1]
    gates = "gelu" not in case and case != "gpt2"
    out = [block.out] if "every head" in case or "opt" in case or case == "gpt2" else []
    assert list(block.before) == out + list(block.downs if gates else ())
    for name, rows in block.before.items():
        exact = inputs_of(model, name)
        linear, part = model.get_submodule(rows.linear), slice(rows.start + 1, rows.stop)
        doubled = doubled_rows(model, linear, part, lambda name=name: inputs_of(model, name))
        assert doubled.shape[-1] == rows.stop - rows.start
        torch.testing.assert_close(doubled[..., 1:], 2 * exact[..., 1:])
        assert torch.equal(doubled[..., 0], exact[..., 0])


@pytest.mark.parametrize("case", CASES)
def test_readers_read_the_norm_and_nothing_else_does(case):
    """Measured: with a norm's output near 0, so is what readers were given, and no other linear.

    (At 0 itself all experts would be equal to the router, and the first two be taken.)
    """
    model = family(case)
    if case in NO_FOLD:
        with pytest.raises(ValueError, match="norms come after the residual sum"):
            norm_groups(model)
        return
    groups = norm_groups(model)
    assert len(groups) == 4
    for group in groups:
        hook = group.norm.register_forward_hook(lambda m, args, y: 1e-5 * y)
        try:
            seen = record(model, ids(), skip=()).inputs
        finally:
            hook.remove()
        zero = {name for name, x in seen.items() if x.abs().max() < 1e-3}
        if "opt" in case or case == "gpt2":
            zero -= {n for n in zero if n.endswith(("out_proj", "c_proj", "fc2"))}  # without biases
        direct = {n for n in zero if model.get_submodule(n).in_features == WIDTH}
        direct -= {n for n in direct if n.endswith(("o_proj", "out_proj", "c_proj"))}
        routers = {n for n in group.routers if n not in seen}
        assert direct | routers == set(group.readers)


@pytest.mark.parametrize("case", CASES)
def test_blocks_meet_their_own_masks_and_angles(case):
    """Sums over the inputs of every linear, gone through block by block, are those of the model."""
    model, sums = family(case), []

    def remember(w, total):
        sums.append(total)
        return w

    change_sequentially(model, ids(), lambda x: x.double().square().sum(0), remember)
    seen = record(model, ids(), skip=()).inputs
    names = [name for linears in block_linears(model) for name in linears]
    assert len(names) == len(sums) and set(names) <= seen.keys()
    for name, total in zip(names, sums, strict=True):
        torch.testing.assert_close(total, seen[name].square().flatten(0, -2).sum(0))


def test_windows_are_shorter_than_the_text():
    """Else the cases would not differ from models without one."""
    assert ids().shape[1] > WINDOW
    for case in ("mistral", "qwen2", "gemma2", "gemma3_text", "phi3"):
        changed = ids().clone()
        changed[:, 0] = (changed[:, 0] + 1) % 50 + 2
        with torch.no_grad():
            attention = inputs_of(family(case), describe(family(case)).blocks[-1].out)
        assert torch.isfinite(attention).all()


def test_experts_are_put_together_again():
    model, original = family("mixtral"), stored("mixtral")
    assert torch.allclose(logits(model), logits(original), rtol=0, atol=1e-12)
    back = copy.deepcopy(model)
    stored_experts(back)
    theirs = original.state_dict()
    assert back.state_dict().keys() == theirs.keys()
    assert all(torch.equal(w, theirs[name]) for name, w in back.state_dict().items())
    assert torch.equal(logits(back), logits(original))
    with pytest.raises(
        ValueError, match=r"no model.layers.0.mlp.experts.0.down_proj: call with_lin"
    ):
        prune_wanda(original, ids(), 0.5)


def test_others_are_refused_by_name():
    from transformers import BloomConfig, BloomForCausalLM

    bloom = BloomForCausalLM(BloomConfig(vocab_size=20, hidden_size=16, n_layer=1, n_head=2)).eval()
    with pytest.raises(ValueError, match="BloomForCausalLM .* model_type='bloom'; known are llama"):
        describe(bloom)
    with pytest.raises(ValueError, match="model_type='bloom'"):
        prune_wanda(bloom, ids() % 20, 0.5)
    vision = torch.nn.Linear(2, 2)
    vision.config = SimpleNamespace(model_type="gemma3")
    with pytest.raises(ValueError, match='text part is "gemma3_text": load it as Gemma3ForCaus'):
        describe(vision)


def test_our_own_models_are_described_as_theirs():
    sizes = dict(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    llama, mixture = (
        Llama(LlamaConfig(**sizes)),
        Mixture(MixtureConfig(**sizes, num_local_experts=3)),
    )
    assert describe(llama).blocks[0] == describe(family("llama")).blocks[0]
    assert describe(mixture).blocks[0] == describe(family("mixtral")).blocks[0]
