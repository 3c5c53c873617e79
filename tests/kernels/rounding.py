"""How far from exact a right kernel may be: one rule for all kernels and twins.

A kernel rounds, and a CPU or a GPU adds up in an order of its own, so no result is right to the
last bit.  Two bounds, and a right kernel keeps both on any machine:

`allowed_rms`  the root mean square error, which luck moves least: tight enough to see one
               rounding too many in 16 bits
bounds         of single elements, derived rounding by rounding: no order of sums can pass them

u = U[dtype] is the unit roundoff, the largest relative error of one rounding, and F that of
float32, in which every kernel adds up.
"""

import math

import torch

U = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
F = U[torch.float32]
# rms errors of right kernels in units of u rms(exact), see `allowed_rms`
FEW = {torch.float16: 1.5, torch.bfloat16: 1.5, torch.float32: 16}


def rms(x, exact=0.0):
    return (x.double() - exact).pow(2).mean().sqrt()


def allowed_rms(other, exact, dtype):
    """max(2 rms(other - exact), FEW u rms(exact)): the largest rms error of a right kernel.

    other: the same by PyTorch's own operations in dtype.  It may lose more than we do, which is no
    fault of ours, or by luck less: its order of sums depends on the CPU.  So it raises the bound
    and never lowers it below FEW u rms(exact).

    FEW lies between what right kernels need and what the least mistake costs.  A number rounded
    once is off by 0.42 u of itself in the mean square: by u / sqrt(3) at the lower end of a binade,
    by half of that at the upper one.
    16 bits: two roundings (weights and result; three in the backward pass) are 0.6 u (0.73 u), and
    up to 1 u where ds is a difference.  Weights in bfloat16 in a float16 kernel: 2.3 u or more.
    float32: a score of up to 8 in units of log2 has a dozen roundings (d products, added in some
    order, the scale, the difference to the maximum), each of up to u times its size: 2 to 6 u.  One
    rounding to float16, or TF32, is up to 0.42 * 2^13 u, a hundred times what is allowed.
    """
    return max(2 * rms(other, exact), FEW[dtype] * U[dtype] * rms(exact))


def near(x, exact, bound):
    """Whether all |x - exact| <= bound; also where both are -inf, and nowhere where x is NaN."""
    return bool((((x.double() - exact).abs() <= bound) | (x == exact)).all())


def smallest(dtype):
    """Largest error of a subnormal number: half a step in float16; others a GPU flushes to 0."""
    return max(torch.finfo(dtype).smallest_normal * U[dtype], 2.0**-126)


def weights(q, k, seen, scale):
    """(p [.., T, S], lse [.., T], error): exact in float64, and the relative error of a weight.

    A score is off by (d + 4) F A with A = sum_d |q_d k_d| scale: d products and their sum, in any
    order, scale and log2(e).  On the way to a weight come differences to the maximum or to lse,
    corrections of running maxima and weights of parts: at most 8 roundings of numbers of at most
    L = max |s| + log S, and four functions that may be off by 4 units in the last place, 8 F.
    A score off by e changes p by exp(e) - 1.
    """
    d, S = q.shape[-1], k.shape[-2]
    s = (q @ k.mT * scale).masked_fill(~seen, -math.inf)
    A = q.abs() @ k.abs().mT * abs(scale)
    L = s.abs().masked_fill(~seen, 0.0).amax(-1, keepdim=True) + math.log(S)
    p = torch.softmax(s, -1).nan_to_num(0.0)  # a query that sees nothing has no weights
    return p, torch.logsumexp(s, -1), torch.expm1(F * ((d + 4) * A + 8 * L + 32))


def attention_bounds(q, k, v, seen, scale=None):
    """Largest possible |o - exact o| [B, H, T, d] and |lse - exact lse| [B, H, T].

    With relative errors r of the weights, o is off by sum_j p_j r_j (v_j - o) / (1 + sum p r).
    Sums over S keys and their corrections: 2 (S + 8) F of the sum of absolute values, in o and in
    the total.  In 16 bits p is rounded (u p |v|), and o is, once (u |o|).
    """
    dtype, u, group = q.dtype, U[q.dtype], q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    p, lse, r = weights(q, k, seen, scale)
    o, size, sums = (p @ v).abs(), p @ v.abs(), 2 * (k.shape[-2] + 8) * F
    total = (p * r).sum(-1, keepdim=True)
    assert total.max() < 0.5, "scores too large for float32"
    off = ((p * r) @ v.abs() + o * total) / (1 - total) + sums * (size + o)
    if dtype != torch.float32:
        off = off + u * size
    off = off + smallest(dtype) * (1 + v.abs().sum(-2, keepdim=True))
    lse = torch.where(lse.isneginf(), 0.0, lse).abs()
    return off + u * (o + off), (total / (1 - total)).squeeze(-1) + sums + 8 * F * (lse + 2)


def gradient_bounds(q, k, v, do, seen, dlse=None):
    """Largest possible errors of (dq, dk, dv), from o and lse as a right forward pass gives them.

    A weight is off by r, which now holds the error of lse; dp_ij = do_i . v_j and delta = o . do by
    their sums of d terms, delta also by the error of o.  ds = p (dp - delta) has these errors; dq
    adds it up over S keys, dk and dv over the T queries of each head of a group.  In 16 bits p, ds
    and the result are rounded.
    """
    dtype, u, group = q.dtype, U[q.dtype], q.shape[1] // k.shape[1]
    off_o, off_lse = attention_bounds(q, k, v, seen)
    (T, d), S, scale = q.shape[2:], k.shape[2], 1 / math.sqrt(q.shape[-1])
    q, k, v, do = (t.double() for t in (q, k, v, do))
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    p, _, r = weights(q, k, seen, scale)
    r = (1 + r) * torch.exp(off_lse)[..., None] - 1
    half, o = (0.0 if dtype == torch.float32 else u), p @ v
    delta = (o * do).sum(-1, keepdim=True)
    off_delta = ((d + 1) * F * (o * do).abs() + do.abs() * off_o).sum(-1, keepdim=True)
    if dlse is not None:
        delta = delta - dlse.double()[..., None]
        off_delta = off_delta + F * (dlse.abs().double()[..., None] + delta.abs())
    dp, size = do @ v.mT, do.abs() @ v.abs().mT
    ds = p * (dp - delta).abs()
    off_ds = r * ds + p * (1 + r) * ((d + 2) * F * size + off_delta + 2 * F * delta.abs())
    off_ds = off_ds + (half + F) * (ds + off_ds) + smallest(dtype)
    off_p = p * (r + half * (1 + r)) + smallest(dtype)

    def summed(terms):  # over the heads of a group
        return terms.unflatten(1, (-1, group)).sum(2)

    def stored(exact, off):
        return off + u * (exact + off) + smallest(dtype)

    over_keys, over_queries = (S + 4) * F, (T * group + 4) * F
    dq = scale * (off_ds + over_keys * (ds + off_ds)) @ k.abs()
    dk = summed(scale * (off_ds + over_queries * (ds + off_ds)).mT @ q.abs())
    dv = summed((off_p + over_queries * (p + off_p)).mT @ do.abs())
    return (
        stored((scale * ds) @ k.abs(), dq),
        stored(summed((scale * ds).mT @ q.abs()), dk),
        stored(summed(p.mT @ do.abs()), dv),
    )
