"""Rotation: the same function in another basis, in which no channel is large.

For an orthogonal Q, Q Q^T = I, a linear layer can read its input in another basis:

    x W^T = (x Q) (W Q)^T

If one channel of x is large, x Q spreads it over all of them: with a Hadamard matrix, whose entries
are all +-1 / sqrt(n), a spike of size a becomes n values of size a / sqrt(n).  Random signs make
that hold for any x but a few.  QuIP (Chee et al. 2023, arXiv:2307.13304) calls a matrix
mu-incoherent if

    max |W_ij|  <=  mu |W|_F / sqrt(N K),        mu = max / rms

and rounds U W V^T instead of W, for random orthogonal U and V, where mu is about sqrt(2 ln N K).

A whole Llama is rotated without any cost when it runs: RMSNorm with gain 1 commutes with Q, so
once the gains are absorbed by what reads the norms, all writers of the residual stream (embedding,
o_proj, down_proj) write x Q and all readers (q, k, v, gate, up, head) read it.  LayerNorm, which
takes off the mean, commutes with a Q that keeps the vector of ones.  Where a norm stands between a
writer and the stream (Gemma 2 and 3), nothing can be folded.

What is left out
- QuIP's two-bit lattice codes (QuIP#, Tseng et al. 2024, arXiv:2402.04396): codes here are those of
  `gptq`, one number each.
- Rotations that have to be computed when the model runs, of what down_proj reads and of keys and
  queries after the rotary embedding (QuaRot, Ashkboos et al. 2024, arXiv:2404.00456), cannot be
  folded: `low_bit.with_low_bits` can apply one to any linear.  What o_proj reads is turned within
  heads and not across them.
- Rotations that are trained (SpinQuant, Liu et al. 2024, arXiv:2405.16406).
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_finite, expect_whole
from efflib.models.gains import all_norms, with_unit_gains
from efflib.models.hub import Decoder, describe

PALEY = {12: 11, 20: 19}  # order -> its prime q, 3 modulo 4
FLOOR = torch.finfo(torch.float64).tiny  # 0 / 0 would be NaN
ORTHOGONAL = 1e-6  # how far Q^T Q may be from I, entry by entry: float32 matrices pass


def paley(q: int) -> Tensor:
    """The Hadamard matrix of order q + 1 for a prime q = 3 mod 4, of +1 and -1; float64.

        I + S,   S = [[0, 1], [-1, Q]],   Q_ij = +1 if i - j is a square modulo q, else -1, 0 if 0

    Paley 1933, construction I.
    """
    squares = {i * i % q for i in range(1, q)}
    sign = torch.tensor([0.0] + [1.0 if i in squares else -1.0 for i in range(1, q)])
    i = torch.arange(q)
    s = torch.zeros(q + 1, q + 1, dtype=torch.float64)
    s[0, 1:], s[1:, 0] = 1.0, -1.0
    s[1:, 1:] = sign[(i[:, None] - i) % q]
    return s + torch.eye(q + 1, dtype=torch.float64)


def hadamard(n: int) -> Tensor:
    """An orthogonal matrix [n, n] of +-1 / sqrt(n), float64, for n = 2^k, 12 2^k or 20 2^k.

    Sylvester's doubling, [[H, H], [H, -H]], from order 1, 12 or 20.  Raises ValueError for other
    n: none exists unless n is 1, 2 or a multiple of 4, and 28, 36 ... have other constructions.
    """
    expect_whole(1, n=n)
    power = n & -n  # the largest power of 2 in n
    base = {1: 1, 3: 12, 5: 20}.get(n // power)
    if base is None or n % base:
        raise ValueError(f"no Hadamard matrix of order {n} here: only 2^k, 12 2^k and 20 2^k")
    h = torch.ones(1, 1, dtype=torch.float64) if base == 1 else paley(PALEY[base])
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(n)


def random_hadamard(n: int, seed: int) -> Tensor:
    """diag(s) H [n, n] with random signs s; x diag(s) H spreads every x but a few. float64"""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (n,), generator=generator) * 2 - 1
    return signs[:, None] * hadamard(n)


def random_orthogonal(n: int, seed: int) -> Tensor:
    """A random rotation or reflection [n, n], evenly distributed, for any n; float64."""
    expect_whole(1, n=n)
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()  # without this, QR's choice of signs shows


def incoherence(x: Tensor) -> float:
    """max |x| / rms(x) over all entries, QuIP's mu: from 1 (all alike) to sqrt(number of them).

    Raises ValueError if x is empty, not finite, or all 0.
    """
    if x.numel() == 0:
        raise ValueError(f"nothing to measure: x has shape {tuple(x.shape)}")
    expect_finite(x=x)
    largest = x.detach().double().abs().max()
    if largest == 0:
        raise ValueError("all of x is 0: max / rms is not defined")
    return (1 / (x.detach().double() / largest).square().mean().sqrt()).item()


def peaks(x: Tensor) -> Tensor:
    """max |x_j| / rms of each token of x [..., K]; 0 for a token that is all 0. [...] float64"""
    expect_dims("[..., K]", x=x)
    expect_finite(x=x)
    x = x.detach().double()
    largest = x.abs().amax(-1, keepdim=True)
    rms = (x / largest.clamp(min=FLOOR)).square().mean(-1).sqrt()  # of what is at most 1
    return torch.where(rms == 0, 0.0, 1 / rms)


def hessian_incoherence(h: Tensor) -> float:
    """sqrt(n) max |V_ij| over the eigenvectors V of h [n, n], 1 to sqrt(n): QuIP's mu of H."""
    expect_dims("[K, K]", h=h)
    return math.sqrt(len(h)) * torch.linalg.eigh(h.double())[1].abs().max().item()


def rotate(model: nn.Module, q: Tensor, heads: Tensor | None = None) -> nn.Module:
    """A copy of the model, the same function to rounding, whose residual stream is x Q.

    q [D, D] orthogonal; heads [d, d] orthogonal: turn values within each head too, between v_proj
    and o_proj.  Norms lose their gains to what reads them.  A head tied to the embedding gets a
    weight of its own, V D parameters more, since it absorbs the last norm's gain and the embedding
    does not.
    Raises ValueError as `hub.describe` and `gains.with_unit_gains`, for norms that do not commute
    with q, and if q or heads do not fit.
    """
    decoder = describe(model)
    _expect(model, decoder, q, heads)
    model = with_unit_gains(model)
    q, module = q.double(), model.get_submodule
    with torch.no_grad():
        for name in decoder.family.embeddings:
            _turn(module(name), right=q)  # rows are x: x Q
        for group in all_norms(model):
            for reader in group.readers.values():
                _turn(reader, right=q)
            if getattr(group.norm, "bias", None) is not None:
                group.norm.bias.copy_(group.norm.bias.double() @ q)
        for block in decoder.blocks:
            for name in (block.out, *block.downs):
                _turn(module(name), left=q)
            if heads is not None:
                by, (name, *rows) = heads.double(), block.value
                _turn(module(name), left=torch.block_diag(*[by] * decoder.key_heads), rows=rows)
                _turn(module(block.out), right=torch.block_diag(*[by] * decoder.query_heads))
    return model


def _turn(
    module: nn.Module,
    left: Tensor | None = None,
    right: Tensor | None = None,
    rows: Sequence[int] = (0, None),
) -> None:
    """In place: W R of a weight W, or L^T W and b L of these rows of W and of the bias b."""
    part = slice(*rows)
    weight, bias = module.weight[part], getattr(module, "bias", None)
    if right is not None:
        weight.copy_(weight.double() @ right)
    if left is not None:
        weight.copy_(left.T @ weight.double())
        if bias is not None:
            bias[part].copy_(bias[part].double() @ left)


def _expect(model: nn.Module, decoder: Decoder, q: Tensor, heads: Tensor | None) -> None:
    kind = type(model).__name__
    if decoder.no_folds:
        raise ValueError(f"{kind}: {decoder.no_folds}")
    if closing := decoder.family.closing:
        raise ValueError(
            f"{kind}: {' and '.join(closing)} stand between linears and the residual stream, and "
            "their gains do not commute with a rotation"
        )
    expect_orthogonal(model.config.hidden_size, q=q)
    if heads is not None:
        expect_orthogonal(decoder.head_dim, heads=heads)
    for group in all_norms(model):
        if isinstance(group.norm, nn.LayerNorm):
            if (q.double().sum(1) - 1).abs().max() > ORTHOGONAL * len(q):
                raise ValueError(
                    f"{kind}: {group.name} takes off the mean over channels, which commutes with q "
                    "only if q keeps the vector of ones (rotation.keeping_ones)"
                )
        elif getattr(group.norm, "bias", None) is not None:
            raise ValueError(f"{group.name} must be an RMSNorm without bias: only that commutes")


def keeping_ones(q: Tensor) -> Tensor:
    """The rotation [n, n] that keeps the vector of ones and does q [n - 1, n - 1] in the rest.

    B^T diag(1, Q) B,   B orthogonal with the first row 1 / sqrt(n): I - 2 v v^T
    """
    n = len(q) + 1
    expect_orthogonal(n - 1, q=q)
    v = torch.full((n,), -1 / math.sqrt(n), dtype=torch.float64)
    v[0] += 1  # e_0 - 1 / sqrt(n), which the reflection swaps
    v = v / v.norm()
    b = torch.eye(n, dtype=torch.float64) - 2 * torch.outer(v, v)
    return b @ torch.block_diag(torch.ones(1, 1, dtype=torch.float64), q.double()) @ b


def expect_orthogonal(n: int, **matrices: Tensor) -> None:
    """Each matrix is [n, n] with M^T M = I to ORTHOGONAL."""
    for name, m in matrices.items():
        if m.shape != (n, n):
            raise ValueError(f"{name} must be [{n}, {n}], got {tuple(m.shape)}")
        off = (m.double().T @ m.double() - torch.eye(n, dtype=torch.float64)).abs().max().item()
        if not off <= ORTHOGONAL:
            raise ValueError(f"{name} is not orthogonal: {name}^T {name} is {off:.3g} from I")


def in_turned_basis(
    w: Tensor, h: Tensor, rounded: Callable[[Tensor, Tensor], Tensor], u: Tensor, v: Tensor
) -> Tensor:
    """QuIP: w [N, K] in the basis of u [N, N] and v [K, K], rounded, and turned back.

        U^T Q(U W V^T; V H V^T) V

    rounded(w, h) -> the rounded w.  Where a model runs, U and V are applied to outputs and inputs.
    """
    expect_dims("[N, K]", w=w)
    expect_orthogonal(w.shape[0], u=u)
    expect_orthogonal(w.shape[1], v=v)
    u, v = u.double(), v.double()
    turned = rounded((u @ w.double() @ v.T).float(), v @ h.double() @ v.T)
    return (u.T @ turned.double() @ v).to(w.dtype)
