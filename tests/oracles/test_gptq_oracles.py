"""efflib.quantization.gptq against llm-compressor, whose results are stored."""

from pathlib import Path

import numpy as np
import pytest
import torch

from efflib.hessian import gram
from efflib.quantization.gptq import dequantize_gptq, gptq
from efflib.quantization.linear import dequantize_weight, quantize_weight

pytestmark = pytest.mark.oracle

BLOCK, GROUP = 16, 8  # as in fixtures/make_llmcompressor_gptq.py
FIXTURE = Path(__file__).parent / "fixtures" / "llmcompressor_gptq.npz"
CASES = ["live", "dead"]  # dead: one channel is always 0
KINDS = {
    "row": ("channel", False),
    "groups": (GROUP, False),
    "row act": ("channel", True),
    "groups act": (GROUP, True),
}


@pytest.fixture(scope="module")
def stored():
    with np.load(FIXTURE) as arrays:
        return {name: arrays[name] for name in arrays.files}


def tensor(stored, case, name):
    return torch.from_numpy(stored[f"{case} {name}"])


def ours(stored, case, bits, kind):
    """Its H is 2 / texts times ours.  Where no channel is dead that cancels; a dead one gets 1 on
    the diagonal, which counts in the damping."""
    w, x = tensor(stored, case, "w"), tensor(stored, case, "x")
    h = gram(x) * (2 / len(x) if case == "dead" else 1)
    granularity, act = KINDS[kind]
    return gptq(w, h, bits, granularity, act_order=act, grids="static", block=BLOCK)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("case", CASES)
def test_llm_compressor_s_gptq_is_equal(stored, case, bits, kind):
    """Scales, zero points and values of float64, bit by bit; values stand for the codes."""
    q = ours(stored, case, bits, kind)
    scale, zero = (tensor(stored, case, f"{bits} {kind} {part}") for part in ("scale", "zero"))
    assert torch.equal(q.scale, scale)
    # its codes are signed, -2^(b-1) and on, and its zero point with them
    assert torch.equal(q.zero - 2 ** (bits - 1), zero.int())
    theirs = tensor(stored, case, f"{bits} {kind} float64")
    assert torch.equal(dequantize_gptq(q), theirs.float())
    rounded = dequantize_weight(quantize_weight(tensor(stored, case, "w"), bits, q.granularity))
    assert (rounded != theirs.float()).float().mean() > 0.1, "no more than the grids is compared"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("case", CASES)
def test_llm_compressor_s_gptq_in_float32(stored, case, bits, kind):
    """As it runs.  A code may fall the other way where the weight, repaired, lies as near to the
    middle of two levels as float32 cannot tell; here it does nowhere."""
    q = ours(stored, case, bits, kind)
    assert torch.equal(dequantize_gptq(q), tensor(stored, case, f"{bits} {kind} float32"))


def test_the_gptq_fixture_names_its_versions(stored):
    names = [line.split()[0] for line in stored["versions"]]
    assert names == ["llmcompressor", "compressed-tensors", "transformers", "torch", "numpy"]
