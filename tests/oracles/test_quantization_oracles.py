"""efflib.quantization against torchao, torch.ao and scikit-learn (make test-oracles)."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.quant_primitives import (
    MappingType,
    choose_qparams_affine,
    dequantize_affine,
    quantize_affine,
)

from efflib.quantization.kmeans import kmeans_codebook
from efflib.quantization.linear import (
    affine_parameters,
    code_range,
    dequantize_weight,
    quantize_weight,
)

pytestmark = pytest.mark.oracle

GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(2, 9)]


def weights():
    """[name, W [16, 256]]: ordinary, off centre, heavy tails, and rows of zeros or one sign."""
    w = torch.randn(16, 256, generator=torch.Generator().manual_seed(0))
    odd = w.clone()
    odd[0], odd[1], odd[2] = 0.0, 5 + odd[1].abs(), -5 - odd[2].abs()
    odd[3], odd[4], odd[5, 7] = 2.5, -1e-20, 1e6
    return {"normal": w, "shifted": w * 0.02 + 0.03, "cubed": w**3, "odd": odd}


@pytest.mark.parametrize("name", ["normal", "shifted", "cubed", "odd"])
@pytest.mark.parametrize("granularity", ["tensor", "channel", 32, 64])
@pytest.mark.parametrize("bits, symmetric", GRIDS)
def test_torchao_scale_zero_codes_and_values_are_equal(bits, symmetric, granularity, name):
    w = weights()[name]
    qmin, qmax = code_range(bits, symmetric)
    block = {"tensor": (16, 256), "channel": (1, 256)}.get(granularity, (1, granularity))
    dtype = torch.int8 if symmetric else torch.uint8
    # quant_min = -qmax gives torchao's symmetric mapping the denominator 2^(b-1) - 1
    mapping = MappingType.SYMMETRIC if symmetric else MappingType.ASYMMETRIC
    scale, zero = choose_qparams_affine(w, mapping, block, dtype, qmin, qmax)
    codes = quantize_affine(w, block, scale, zero, dtype, qmin, qmax)
    w_hat = dequantize_affine(codes, block, scale, zero, dtype, qmin, qmax)

    ours = quantize_weight(w, bits, granularity, symmetric)
    assert torch.equal(ours.scale.flatten(), scale.flatten())
    assert torch.equal(ours.zero.flatten(), zero.flatten())
    assert ours.codes.dtype == codes.dtype and torch.equal(ours.codes, codes)
    assert torch.equal(dequantize_weight(ours), w_hat)


@pytest.mark.parametrize("bits, symmetric", GRIDS)
def test_torch_ao_observers_find_the_same_parameters(bits, symmetric):
    """On rows whose scale is above torch.ao's floor, 2^-23."""
    w = weights()["odd"][5:] + 0.1
    qmin, qmax = code_range(bits, symmetric)
    dtype = torch.qint8 if symmetric else torch.quint8
    kind = "symmetric" if symmetric else "affine"
    tensor = MinMaxObserver(
        dtype=dtype, qscheme=getattr(torch, f"per_tensor_{kind}"), quant_min=qmin, quant_max=qmax
    )
    channel = PerChannelMinMaxObserver(
        dtype=dtype, qscheme=getattr(torch, f"per_channel_{kind}"), quant_min=qmin, quant_max=qmax
    )
    bounds = {tensor: (w.min(), w.max()), channel: (w.amin(1), w.amax(1))}
    for observer, (lo, hi) in bounds.items():
        observer(w)
        scale, zero = observer.calculate_qparams()
        ours = affine_parameters(lo, hi, bits, symmetric)
        assert torch.equal(ours[0].flatten(), scale)
        assert torch.equal(ours[1].flatten(), zero.flatten().int())


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("iterations", [1, 5, 300])
def test_scikit_learn_finds_the_same_centroids(bits, iterations):
    """Same start, Lloyd, no early stop.  8 bits would meet empty clusters, which differ."""
    values = torch.randn(4000, generator=torch.Generator().manual_seed(bits)) * 0.02
    x = values.double().numpy().reshape(-1, 1)
    start = np.linspace(x.min(), x.max(), 2**bits).reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is meant
        fitted = KMeans(
            2**bits, init=start, n_init=1, tol=0, max_iter=iterations, algorithm="lloyd"
        ).fit(x)
    assert np.bincount(fitted.labels_, minlength=2**bits).all()  # no empty cluster
    codebook, codes = kmeans_codebook(values, bits, iterations)
    assert np.array_equal(codes.numpy(), fitted.labels_)
    # the same clusters, so the same means, one of them rounded to float32
    centroids = fitted.cluster_centers_.ravel()
    np.testing.assert_allclose(codebook.numpy(), centroids, rtol=2.0**-24, atol=1e-15)
