"""What does not fit is named in one sentence."""

import pytest
import torch

from efflib.sparsity import masks, nm, wanda

W = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
CASES = {
    "a string": (lambda: masks.keep(W, "2:4"), r"pattern is a share.*or a pair.*got '2:4'"),
    "three numbers": (lambda: masks.keep(W, (1, 2, 3)), r"pattern is.*got \(1, 2, 3\)"),
    "half a weight": (lambda: masks.keep_n_of_m(W, 1.5, 4), "n=1.5 must be an integer"),
    "no token": (lambda: wanda.input_norms(W[:0]), r"x must be a non-empty \[..., K\]"),
    "one number": (lambda: wanda.input_norms(W[0, 0]), r"x must be a non-empty \[..., K\]"),
    "ids without a batch": (
        lambda: wanda.prune_wanda(torch.nn.Identity().eval(), torch.arange(4), 0.5),
        r"ids must be a non-empty \[n, T\], got \(4,\)",
    ),
    "indices of another weight": (
        lambda: nm.decompress(nm.Compressed(W, torch.zeros(8, 3, dtype=torch.uint8))),
        r"values \(8, 16\) need uint8 indices \(8, 4\), got torch.uint8 \(8, 3\)",
    ),
    "no weight": (lambda: nm.compressed_bits((0, 8)), r"\(0, 8\)"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_named(name):
    call, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_pair_may_be_a_list():
    assert torch.equal(masks.keep(W, [2, 4]), masks.keep(W, (2, 4)))
