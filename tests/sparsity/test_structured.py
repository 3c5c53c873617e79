"""Units removed give the function of units set to zero; scores are what they say."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import prune as torch_prune
from transformers import LlamaForCausalLM

from efflib.models.checkpoint import from_pretrained, save_pretrained
from efflib.models.llama import Llama, LlamaConfig
from efflib.sparsity.importance import Importance, importance
from efflib.sparsity.structured import highest, remove, shrink
from efflib.units import Shape, first_order, linear_flops

IDS = torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(1))
KINDS = ["magnitude", "activation", "taylor"]


def llama(tied=True, bias=False):
    torch.manual_seed(0)
    sizes = (50, 32, 48, 3, 6, 3, 8)  # 3 key heads, 2 query heads each
    config = LlamaConfig(*sizes, tie_word_embeddings=tied, attention_bias=bias, mlp_bias=bias)
    model = Llama(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.1)
    return model


@torch.no_grad()
def zeroed(model, layers, heads, neurons):
    """The same units set to zero in a copy, without any of the code under test."""
    clone = Llama(model.config).eval()
    clone.load_state_dict(model.state_dict())
    for i, layer in enumerate(clone.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        for h in set(range(3)) - set(heads[i].tolist()):
            attention.o_proj.weight[:, 16 * h : 16 * (h + 1)] = 0
        for j in set(range(48)) - set(neurons[i].tolist()):
            mlp.down_proj.weight[:, j] = 0
        if i not in layers:
            for linear in (attention.o_proj, mlp.down_proj):
                linear.weight.zero_()
                if linear.bias is not None:
                    linear.bias.zero_()
    return clone


PLACES = (
    torch.tensor([0, 2]),
    torch.tensor([[0, 2], [0, 1], [1, 2]]),
    torch.stack(
        [torch.randperm(48, generator=torch.Generator().manual_seed(i))[:20] for i in range(3)]
    ),
)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_the_function_is_that_of_units_set_to_zero(bias):
    model = llama(bias=bias)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    smaller = remove(model, *PLACES)
    # sums of 20 and not of 48 products, in another order: float32
    torch.testing.assert_close(smaller(IDS), zeroed(model, *PLACES)(IDS), rtol=1e-4, atol=1e-5)
    assert Shape.of(smaller) == (2, 2, 20)
    assert smaller.model.layers[0].self_attn.q_proj.weight.shape == (32, 32)  # 2 of 3 groups
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert smaller.lm_head.weight is smaller.model.embed_tokens.weight


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_transformers_loads_what_is_left(tmp_path, tied):
    smaller = remove(llama(tied), *PLACES)
    save_pretrained(smaller, tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(theirs(IDS).logits, smaller(IDS), rtol=1e-4, atol=1e-5)
    assert torch.equal(from_pretrained(tmp_path)(IDS), smaller(IDS))


def test_nothing_removed_is_the_same_model():
    model = llama()
    same = shrink(model, importance(model, "magnitude"), Shape.of(model))
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in same.state_dict().items())
    attention = model.model.layers[1].self_attn.attention = lambda q, k, v, mask: v
    assert remove(model, *PLACES).model.layers[0].self_attn.attention is not attention
    both = remove(model, torch.tensor([1]), *PLACES[1:])
    assert both.model.layers[0].self_attn.attention is attention


def test_what_stays_are_the_highest_scores():
    model, g = llama(), torch.Generator().manual_seed(2)
    scores = Importance(*(torch.rand(s, generator=g) for s in ((3, 3), (3, 48), (3,))))
    smaller = shrink(model, scores, Shape(2, 1, 10))
    layer = scores.layers.argsort(descending=True)[:2].sort().values[1]
    rows = scores.neurons[layer].argsort(descending=True)[:10].sort().values
    old, new = model.model.layers[layer].mlp, smaller.model.layers[1].mlp
    assert torch.equal(new.up_proj.weight, old.up_proj.weight[rows])
    assert torch.equal(new.down_proj.weight, old.down_proj.weight[:, rows])
    assert highest(torch.tensor([1.0, 2, 2, 2]), 2).tolist() == [1, 2]


def test_flops_are_two_for_every_weight_of_a_linear():
    model = llama()
    linears = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    assert linear_flops(model) == 2 * linears
    smaller = remove(model, *PLACES)
    assert linear_flops(smaller) < 0.5 * linear_flops(model)


@torch.no_grad()
def test_activation_is_the_change_of_the_mlps_output():
    model = llama()
    scores, seen = importance(model, "activation", IDS), {}
    for i, layer in enumerate(model.model.layers):
        layer.mlp.down_proj.register_forward_hook(lambda m, a, o, i=i: seen.__setitem__(i, a[0]))
    model(IDS)
    for i, x in seen.items():
        w = model.model.layers[i].mlp.down_proj.weight
        for j in (0, 7, 47):
            change = (x[..., j : j + 1] * w[:, j]).double().norm()
            torch.testing.assert_close(scores.neurons[i, j], change, rtol=1e-5, atol=0)


def test_taylor_is_the_derivative_by_a_factor_on_the_unit():
    model = llama().double()
    scores = importance(model, "taylor", IDS)

    def loss(text, scale):
        changed = Llama(model.config).double().eval()
        changed.load_state_dict(model.state_dict())
        with torch.no_grad():
            scale(changed)
            logits = changed(text[:, :-1])
        return F.cross_entropy(logits[0], text[0, 1:])

    def slope(unit, eps=1e-4):
        """Central differences, error of order eps^2."""
        sides = []
        for text in IDS.split(1):
            up, down = (loss(text, lambda m, f=f: unit(m).mul_(f)) for f in (1 + eps, 1 - eps))
            sides.append(((up - down) / (2 * eps)).abs())
        return torch.stack(sides).mean()

    units = {
        scores.neurons[1, 5]: lambda m: m.model.layers[1].mlp.down_proj.weight[:, 5],
        scores.heads[2, 1]: lambda m: m.model.layers[2].self_attn.o_proj.weight[:, 16:32],
    }
    for score, unit in units.items():
        torch.testing.assert_close(score, slope(unit), rtol=1e-4, atol=1e-8)
    assert all(p.grad is None for p in model.parameters())


def test_the_first_order_guess_of_units_is_the_taylor_score():
    model = llama()
    scores, guess = importance(model, "taylor", IDS), first_order(model, IDS)
    assert torch.equal(guess["heads"], scores.heads)
    assert torch.equal(guess["neurons"], scores.neurons)


def test_magnitude_counts_every_weight_of_a_unit():
    model = llama()
    scores = importance(model, "magnitude")
    layer = model.model.layers[0]
    rows = [layer.mlp.gate_proj.weight[3], layer.mlp.up_proj.weight[3]]
    torch.testing.assert_close(
        scores.neurons[0, 3].float(), torch.cat([*rows, layer.mlp.down_proj.weight[:, 3]]).norm()
    )
    inside = [p for n, p in layer.named_parameters() if p.ndim == 2]
    torch.testing.assert_close(
        scores.layers[0].float(), torch.cat([p.flatten() for p in inside]).norm()
    )


def test_torchs_structured_pruning_drops_the_same_columns():
    model = llama()
    linear = model.model.layers[0].mlp.down_proj
    norms = linear.weight.detach().norm(dim=0)
    torch_prune.ln_structured(linear, "weight", amount=28, n=2, dim=1)
    kept = linear.weight_mask[0].nonzero()[:, 0]
    assert torch.equal(highest(norms, 20), kept)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_have_a_place_for_every_unit(kind):
    scores = importance(llama(), kind, IDS)
    assert [s.shape for s in scores] == [(3, 3), (3, 48), (3,)]
    assert all((s >= 0).all() and s.isfinite().all() for s in scores)


def test_bad_input_is_named():
    model = llama()
    with pytest.raises(ValueError, match="got 'wanda'"):
        importance(model, "wanda", IDS)
    with pytest.raises(ValueError, match="'taylor' needs ids"):
        importance(model, "taylor")
    with pytest.raises(ValueError, match="T >= 2"):
        importance(model, "taylor", IDS[:, :1])
    scores = importance(model, "magnitude")
    with pytest.raises(ValueError, match="must not be larger"):
        shrink(model, scores, Shape(4, 3, 48))
    with pytest.raises(ValueError, match="heads=0"):
        shrink(model, scores, Shape(3, 0, 48))
    layers, heads, neurons = PLACES
    with pytest.raises(ValueError, match="layers are from 0 to 2, got 0 to 3"):
        remove(model, torch.tensor([0, 3]), heads, neurons)
    with pytest.raises(ValueError, match="heads: one stands twice"):
        remove(model, layers, torch.tensor([[1, 1]] * 3), neurons)
    with pytest.raises(ValueError, match=r"neurons must be \[3, kept\], got \(2, 20\)"):
        remove(model, layers, heads, neurons[:2])
    with pytest.raises(ValueError, match="by its number, got torch.bool"):
        remove(model, layers, heads > 0, neurons)
