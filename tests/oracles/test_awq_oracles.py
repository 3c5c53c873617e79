"""efflib.quantization.awq and packing against AutoAWQ (frozen) and compressed-tensors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from efflib.quantization.awq import clip_weight, group_gram, rtn, search_clip, search_scales
from efflib.quantization.linear import quantize_weight, to_groups
from efflib.quantization.packing import pack_awq, pack_compressed_tensors, unpack_awq

pytestmark = pytest.mark.oracle

GROUP, SHARED = 32, 40  # as in fixtures/make_autoawq.py
FIXTURE = Path(__file__).parent / "fixtures" / "autoawq.npz"
CASES = [(bits, outliers) for bits in (4, 3) for outliers in (0, 3)]


@pytest.fixture(scope="module")
def stored():
    with np.load(FIXTURE) as arrays:
        return {name: arrays[name] for name in arrays.files}


def tensors(stored, bits, outliers):
    prefix = f"{bits} {outliers} "
    return {
        name.removeprefix(prefix): torch.from_numpy(value)
        for name, value in stored.items()
        if name.startswith(prefix)
    }


def at_a_tie(w, limit, bits):
    """Groups with a value halfway between two codes after clipping, to rounding. [N, n_groups]

    Clipping to +-limit puts the zero point and both ends there, and then x / s (AutoAWQ) and
    x * (1 / s) (here, see `linear`) may take different codes.
    """
    groups = to_groups(clip_weight(w, limit, GROUP), GROUP)
    scale = quantize_weight(clip_weight(w, limit, GROUP), bits, GROUP).scale.unsqueeze(-1)
    position = groups / scale
    # a position is at most 15, so x / s and x * (1 / s) are within 3 roundings of 2^-21 each
    return ((position - position.floor() - 0.5).abs() < 3 * 2.0**-20).any(-1)


def equally_good(t, limit, bits):
    """Groups in which both limits leave the same error, to the rounding of outputs. [N, n_groups]

    AutoAWQ takes the mean square of differences of two sums of GROUP products, each sum off by up
    to GROUP 2^-24 sum |x w|: the root of a mean square e is off by twice the root mean square of
    that, slack, and e by 2 slack sqrt(e) + slack^2.
    """
    x, w = t["x"].double(), t["w"]
    errors = []
    for one in (limit, t["limit"]):
        d = to_groups((rtn(clip_weight(w, one, GROUP), bits, GROUP) - w).double(), GROUP)
        errors.append(torch.einsum("ngi,gij,ngj->ng", d, group_gram(x, GROUP), d))
    size = to_groups(w.double().abs(), GROUP)
    square = torch.einsum("ngi,gij,ngj->ng", size, group_gram(x.abs(), GROUP), size)
    slack = 2 * GROUP * 2.0**-24 * square.sqrt()
    worse = torch.maximum(*errors)
    return (errors[0] - errors[1]).abs() <= 2 * (2 * slack * worse.sqrt() + slack**2)


@pytest.mark.parametrize("bits, outliers", CASES)
def test_autoawq_rounds_and_scales_the_same(stored, bits, outliers):
    """Every group of these weights has both signs, so 0 is in AutoAWQ's ranges too.

    Rounding is the same arithmetic, so equal.  Scales hold a mean, summed in an order that depends
    on the CPU, and a power, which CPUs round differently.
    """
    t = tensors(stored, bits, outliers)
    assert torch.equal(rtn(t["w"], bits, GROUP), t["w_hat"])
    found = search_scales(t["x"], [t["w"][:SHARED], t["w"][SHARED:]], bits, GROUP)
    roundings = t["x"].shape[1] + 8  # of the mean over tokens; power, root and quotients
    torch.testing.assert_close(found.scales, t["scales"], rtol=2 * roundings * 2.0**-24, atol=0)


@pytest.mark.parametrize("bits, outliers", CASES)
def test_autoawq_clips_the_same_but_for_ties(stored, bits, outliers):
    t = tensors(stored, bits, outliers)
    limit = search_clip(t["x"], t["w"], bits, GROUP)
    differs = limit != t["limit"]
    tied = at_a_tie(t["w"], limit, bits) | at_a_tie(t["w"], t["limit"], bits)
    # where neither choice sits at a tie, both sides saw the same errors for both, up to rounding
    assert not (differs & ~tied & ~equally_good(t, limit, bits)).any()
    assert (limit < to_groups(t["w"], GROUP).abs().amax(-1)).any() and not differs.all()


@pytest.mark.parametrize("outliers", [0, 3])
def test_autoawq_packs_the_same(stored, outliers):
    t = tensors(stored, 4, outliers)
    qw = quantize_weight(t["w"], 4, GROUP)
    assert torch.equal(pack_awq(qw.codes), t["qweight"])
    assert torch.equal(unpack_awq(t["qweight"]), qw.codes)
    assert torch.equal(qw.zero, t["zero"].int())
    assert torch.equal(pack_awq(qw.zero), t["qzeros"])


@pytest.mark.parametrize("shape", [(8, 64), (3, 37), (1, 1)])
def test_compressed_tensors_packs_the_same(shape):
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    codes = torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(0)).to(torch.int8)
    # its fill is the word's 0, not its code 0, as ours
    assert torch.equal(pack_compressed_tensors(codes), helpers.pack_to_int32(codes, 4))


def test_the_fixture_names_its_versions(stored):
    names = [line.split()[0] for line in stored["versions"]]
    assert names == ["awq", "transformers", "torch", "numpy"]
