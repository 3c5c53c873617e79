"""The bounds of `rounding` let right computations pass and refuse a rounding too coarse."""

import math

import pytest
import torch
from attention_reference import bounds, exact, inputs, with_torch
from gradient_reference import gradients, torch_gradients
from hypothesis import given
from hypothesis import strategies as st
from quantized_inputs import error_bound, layer, rows
from rounding import U, allowed_rms, gradient_bounds, near, rms

HALF, BRAIN, SINGLE = U
T, S = 24, 128


def to(dtype):
    """Rounding to dtype, in float32."""
    return lambda x: x.to(dtype).float()


def keep(x):
    return x


def attend(q, k, v, load=keep, score=keep, weight=keep, add=keep):
    """Attention in float32, in q's dtype at the end, with a rounding at each of four places."""
    q, k, v = (load(t.float()) for t in (q, k, v))
    s = score(q @ k.mT / math.sqrt(q.shape[-1]))
    p = weight(torch.exp(s - s.amax(-1, keepdim=True)))
    total, acc = torch.zeros(*q.shape[:3], 1), torch.zeros(q.shape)
    for j in range(k.shape[2]):
        total = total + p[..., j : j + 1]
        acc = add(acc + p[..., j : j + 1] * v[:, :, j : j + 1])
    return acc / total


MISTAKES = [  # dtype, place, what is rounded to
    (SINGLE, "load", HALF),  # as TF32: 11 bits
    (SINGLE, "load", BRAIN),
    (SINGLE, "score", HALF),
    (SINGLE, "score", BRAIN),
    (SINGLE, "weight", HALF),
    (SINGLE, "weight", BRAIN),
    (SINGLE, "add", HALF),
    (SINGLE, "add", BRAIN),
    (HALF, "load", BRAIN),
    (HALF, "score", BRAIN),
    (HALF, "weight", BRAIN),
    (HALF, "add", HALF),
    (HALF, "add", BRAIN),
    (BRAIN, "add", BRAIN),
]


@pytest.mark.parametrize("dtype, place, short", MISTAKES, ids=str)
def test_attention_with_a_rounding_too_coarse_is_refused(dtype, place, short):
    q, k, v = inputs(T, S, dtype=dtype)
    o, _ = exact(q, k, v, None)
    allowed = allowed_rms(with_torch(q, k, v), o, dtype)
    bound, _ = bounds(q, k, v, None)
    right = attend(q, k, v, weight=to(dtype)).to(dtype)
    assert rms(right, o) <= allowed and near(right, o, bound)
    wrong = attend(q, k, v, **{"weight": to(dtype)} | {place: to(short)}).to(dtype)
    assert rms(wrong, o) > allowed
    if dtype == SINGLE:
        assert rms(wrong, o) > 20 * allowed and not near(wrong, o, bound)


@pytest.mark.parametrize("short", [HALF, BRAIN], ids=str)
def test_gradients_with_a_rounding_too_coarse_are_refused(short):
    q, k, v = inputs(T, S)
    do = torch.randn(q.shape, generator=torch.Generator().manual_seed(1))
    seen = torch.ones(T, S, dtype=torch.bool)
    right = gradients(q, k, v, do, seen)[2:]
    others = torch_gradients(q, k, v, do, seen)[1:]
    rounded = gradients(*(to(short)(t) for t in (q, k, v, do)), seen)[2:]
    for x, wrong, other, bound in zip(
        right, rounded, others, gradient_bounds(q, k, v, do, seen), strict=True
    ):
        assert near(other, x, bound) and not near(wrong, x, bound)
        assert rms(wrong, x) > 20 * allowed_rms(other, x, SINGLE)


@pytest.mark.parametrize("dtype, short", [(SINGLE, HALF), (SINGLE, BRAIN), (HALF, HALF)], ids=str)
def test_a_product_of_matrices_with_a_coarse_accumulator_is_refused(dtype, short):
    linear, x = layer(20, 256, 64), rows(3, 256, dtype)
    w = linear.decode()
    y = x.double() @ w.double().T
    allowed, bound = allowed_rms(linear(x), y, dtype), error_bound(x, w, y)
    acc = torch.zeros(3, 20)
    for j in range(256):
        acc = to(short)(acc + x[:, j : j + 1].float() * w[:, j])
    right = (x.float() @ w.T).to(dtype)
    assert rms(right, y) <= allowed and near(right, y, bound)
    assert rms(acc, y) > allowed and not near(acc.to(dtype), y, bound)


@given(st.floats(0.1, 100), st.sampled_from(list(U)), st.integers(0, 99))
def test_one_rounding_is_0_42_u_in_the_mean_square(size, dtype, seed):
    """What `allowed_rms` is derived from, for numbers that are spread over binades."""
    x = size * torch.exp(torch.randn(4096, generator=torch.Generator().manual_seed(seed)).double())
    assert rms(x.to(dtype) / x, 1.0) == pytest.approx(0.42 * U[dtype], rel=0.1)


def test_nan_and_infinity_are_near_nothing_but_themselves():
    infinite, zero = torch.full((2,), -torch.inf), torch.zeros(2)
    assert near(infinite, infinite.double(), 0.0) and near(zero, zero.double(), 0.0)
    assert not near(infinite, zero.double(), 1.0) and not near(zero, infinite.double(), 1.0)
    assert not near(torch.tensor([0.0, torch.nan]), zero.double(), 1.0)
