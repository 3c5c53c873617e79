"""efflib.sparsity against llm-compressor (frozen) and torch.nn.utils.prune."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

from efflib.hessian import damped, gram
from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import apply_mask
from efflib.sparsity.sparsegpt import sparsegpt
from efflib.sparsity.wanda import input_norms, wanda_mask

pytestmark = pytest.mark.oracle

BLOCK = 16  # as in fixtures/make_llmcompressor.py
FIXTURE = Path(__file__).parent / "fixtures" / "llmcompressor.npz"
CASES = ["live", "dead"]  # dead: one channel is always 0
# their names to our patterns: they count zeros, so that 1:4 of theirs keeps 3 of 4
PATTERNS = {"0.5": 0.5, "0.7": 0.7, "2 4": (2, 4), "4 8": (4, 8), "1 4": (3, 4)}


@pytest.fixture(scope="module")
def stored():
    with np.load(FIXTURE) as arrays:
        return {name: arrays[name] for name in arrays.files}


def tensor(stored, case, name):
    return torch.from_numpy(stored[f"{case} {name}"])


@pytest.mark.parametrize("name, pattern", PATTERNS.items())
@pytest.mark.parametrize("case", CASES)
def test_llm_compressor_s_wanda_is_equal(stored, case, name, pattern):
    """Masks and values.  Its scores are ours over the root of the number of texts."""
    w, x = tensor(stored, case, "w"), tensor(stored, case, "x")
    theirs = tensor(stored, case, f"wanda {name}")
    assert torch.equal(apply_mask(w, wanda_mask(w, input_norms(x), pattern)), theirs)


def one_more(pattern, n):
    """The share of n that is one number larger, as in their threshold: <= the int(s n)-th."""
    return (int(pattern * n) + 1.5) / n if isinstance(pattern, float) else pattern


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name, pattern", PATTERNS.items())
@pytest.mark.parametrize("case", CASES)
def test_llm_compressor_s_sparsegpt(stored, case, name, pattern, dtype):
    """Masks equal, values to the rounding of its dtype: float32, or float64 with one constant set.

    Its H is 2 / texts times ours.  Where no channel is dead that cancels; a dead one gets 1 on the
    diagonal, which counts in the damping.
    """
    w, x = tensor(stored, case, "w"), tensor(stored, case, "x")
    kind = str(dtype).removeprefix("torch.")
    theirs = tensor(stored, case, f"sparsegpt {name} {kind}").double()
    h = gram(x) * (2 / len(x) if case == "dead" else 1)
    ours = sparsegpt(w.double(), h, one_more(pattern, w.shape[0] * BLOCK), BLOCK)
    assert torch.equal(ours != 0, theirs != 0)
    # K products summed, the inverse of H behind each: relative to the weights, K u cond(H)
    bound = w.shape[1] * torch.finfo(dtype).eps / 2 * torch.linalg.cond(damped(h))
    assert (ours - theirs).abs().max() <= bound * w.abs().max()
    assert (ours - apply_mask(w.double(), ours != 0)).abs().max() > 10 * bound, "nothing repaired"


@pytest.mark.parametrize("name", ["0.5", "0.7"])
@pytest.mark.parametrize("case", CASES)
def test_llm_compressor_s_threshold_zeroes_one_more_in_every_block(stored, case, name):
    w = tensor(stored, case, "w")
    theirs = tensor(stored, case, f"sparsegpt {name} float32")
    for block in theirs.split(BLOCK, dim=1):
        assert (block == 0).sum() == int(w.shape[0] * BLOCK * PATTERNS[name]) + 1


def test_the_pruning_fixture_names_its_versions(stored):
    names = [line.split()[0] for line in stored["versions"]]
    assert names == ["llmcompressor", "transformers", "torch", "numpy"]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.7])
def test_torch_prunes_the_same_weights_by_magnitude(share):
    """Of the layer; torch rounds the share where we cut it, so it gets the number of zeros."""
    linear = torch.nn.Linear(33, 17, bias=False)
    w = torch.randn(17, 33, generator=torch.Generator().manual_seed(0))
    linear.weight.data = w.clone()
    prune.l1_unstructured(linear, "weight", amount=int(17 * 33 * share))
    assert torch.equal(linear.weight_mask.bool(), magnitude_mask(w, share))
    assert torch.equal(linear.weight, apply_mask(w, magnitude_mask(w, share)))
