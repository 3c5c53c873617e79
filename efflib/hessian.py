"""The Hessian of a linear layer's error, and the factor that methods with updates read from it.

    |X W^T - X V^T|^2 = sum over rows i of  e_i H e_i^T,      e = W - V,   H = X^T X   [K, K]

H is the same for all rows: what matters about the inputs is which channels are large and which go
together.  Optimal brain surgeon (Hassibi and Stork 1993) changes weight j of a row by e_j and
repairs the damage with the others:

    V_i = W_i - e_j / (H^-1)_jj  (H^-1)_j,:            loss  e_j^2 / (H^-1)_jj

and goes on without j.  GPTQ (e_j: rounding) and SparseGPT (e_j: the weight itself) take the columns
from left to right, so the H^-1 that is needed at j is that of the columns from j on.  All of them
stand in one Cholesky factor:

    H^-1 = U^T U,   U upper triangular:    (H_j:,j: ^-1)_0,:  =  U_jj  U_j,j:

Source: Frantar et al. 2022 (arXiv:2210.17323), section 3, step 3.

Where implementations differ
- The factor before X^T X (2, or 2 over the number of sequences) cancels: damping is relative.  Only
  the 1 for a channel that was always 0 is not, so there it changes the damping a little.
- Sums here are in float64; the authors keep float32, and need the damping more.
"""

import math

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_finite

DAMPING = 0.01  # share of the mean of the diagonal that is added to it


def gram(x: Tensor) -> Tensor:
    """X^T X over all tokens of x [..., K], float64. [K, K]"""
    expect_dims("[..., K]", x=x)
    rows = x.detach().double().reshape(-1, x.shape[-1])  # [T, K]
    return rows.T @ rows


def damped(h: Tensor, damping: float = DAMPING) -> Tensor:
    """A copy of H [K, K] that has an inverse, float64.

    A channel that was always 0 gets 1 on the diagonal: its weights then influence no other ones.
    `damping` times the mean of the diagonal is added to it.
    Raises ValueError unless h is square and finite and damping is finite and not negative.
    """
    if h.ndim != 2 or h.shape[0] != h.shape[1] or h.numel() == 0:
        raise ValueError(f"h must be a non-empty [K, K], got {tuple(h.shape)}")
    if not 0 <= damping < math.inf:
        raise ValueError(f"damping={damping} must be finite and not negative")
    expect_finite(h=h)
    h = h.detach().double().clone()
    diagonal = h.diagonal()  # a view
    diagonal[diagonal == 0] = 1.0
    diagonal += damping * diagonal.mean()
    return h


def inverse_factor(h: Tensor, damping: float = DAMPING) -> Tensor:
    """U [K, K] upper triangular, U^T U the inverse of the damped H; float64.

    Raises ValueError as `damped`, and if H is not positive definite even so.
    """
    # from the last channel to the first: H = J L L^T J, with J that reverses, so U = J L^-1 J
    lower, failed = torch.linalg.cholesky_ex(damped(h, damping).flip(0, 1))
    if failed:
        raise ValueError(
            f"H {tuple(h.shape)} with damping={damping} is not positive definite: "
            "use more tokens than channels, or more damping"
        )
    one = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, one, upper=False).flip(0, 1)
