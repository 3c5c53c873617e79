"""Attention for the tests of kernels: what must come out, and what must be moved, from definitions.

    o_i = sum_j p_ij v_j,    p_ij = exp(s_ij) / sum_j exp(s_ij),    lse_i = log sum_j exp(s_ij)

over the keys j that query i sees: all, or 0 .. i + S - T if causal.  A query that sees none has
o = 0 and lse = -inf.  Shapes: q [H, T, d]; k, v [HKV, S, d], query head h uses key head h //
(H/HKV).

What may be off.  Of float16 inputs the products of tl.dot are exact and summed in float32; p is
rounded to float16 before it meets v (2^-11 of each), and o at the end (2^-11): together at most
2^-10 max|v|.  Twice that is allowed.  float32 leaves some ten roundings of scores of size up to 16,
a relative error of p of 10 * 16 * 2^-24 = 1e-5, and twice that is allowed.

So it is twice what any attention in that dtype may be off, PyTorch's included, and not twice what
PyTorch's happens to be off on the same numbers: that is luck, near 0 for a few keys, and another on
each machine and version, so a right kernel would be refused now and then.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_OFF = {torch.float16: 2.0**-9, torch.float32: 2e-5}  # of max|v|
# elements behind a row, 32 for other tensors: so rows of q and k lie differently far apart
KEYS_APART = {"K": 48, "V": 48}
LSE_OFF = 4e-5  # of scores up to 16, in float32


def scores_off(s: Tensor) -> float:
    """How far an exponent may be off where scores s are large: float32 has 2^-24 of them.

    GPUs have 2^x, so s log2(e) - m log2(e) is usual: the error of the product with m cancels when
    p is divided by its sum, that of each s stays.  So p is off by at most twice as much of p, and
    o, a mean of v, by as much of max|v|.
    """
    finite = s[s.isfinite()]
    return 2.0**-24 * float(finite.abs().max()) if finite.numel() else 0.0


def exact(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """o [H, T, d] and lse [H, T] in float64, with all T x S scores at once."""
    group = q.shape[0] // k.shape[0]
    q, k, v = q.double(), k.double().repeat_interleave(group, 0), v.double()
    s = scale * q @ k.mT  # [H, T, S]
    if causal:
        T, S = s.shape[1:]
        s = s.masked_fill(torch.arange(S) > torch.arange(T)[:, None] + S - T, -torch.inf)
    lse = s.logsumexp(-1)
    seen = lse.nan_to_num(neginf=0.0)  # rows without keys: exp(-inf - 0) = 0
    p = (s - seen[..., None]).exp()
    return p @ v.repeat_interleave(group, 0), lse


def launch(q: Tensor, k: Tensor, v: Tensor, blocks: tuple[int, int], scale=None, causal=False):
    """A launch of `attend`, or of `attend_causal` (see efflib.meter.kernel_text)."""
    (H, T, d), (HKV, S, _), (BM, BN) = q.shape, k.shape, blocks
    scale = d**-0.5 if scale is None else scale
    args = {
        "Q": q, "K": k, "V": v, "Out": torch.full_like(q, torch.nan),
        "LSE": torch.full((H, T), torch.nan), "T": T, "S": S, "scale": scale,
        "D": d, "BM": BM, "BN": BN,
    }  # fmt: skip
    if causal:
        args["GROUP"] = H // HKV
    return {
        "args": args,
        "strides": {"head_q": ("Q", 0), "row_q": ("Q", 1), "head_k": ("K", 0), "row_k": ("K", 1),
                    "head_lse": ("LSE", 0)},
        "grid": (-(-T // BM), H),
        "outputs": ["Out", "LSE"],
        "gaps": KEYS_APART,
    }  # fmt: skip


def tiles_of(T: int, S: int, blocks: tuple[int, int], causal: bool) -> list[int]:
    """For each block of queries, how many blocks of keys it has to look at."""
    BM, BN = blocks
    keys = [S] * -(-T // BM)
    if causal:
        keys = [min(S, max(0, min(first + BM, T) + S - T)) for first in range(0, T, BM)]
    return [-(-n // BN) for n in keys]


def least_moved(launch: dict, causal: bool = False) -> dict[str, int]:
    """{argument: bytes}: Q, Out and LSE once, K and V once for each block of queries that needs
    them."""
    a = launch["args"]
    (H, T, d), S, blocks = a["Q"].shape, a["S"], (a["BM"], a["BN"])
    rows = sum(min(S, n * a["BN"]) for n in tiles_of(T, S, blocks, causal))
    size = a["Q"].element_size()
    kv, q = H * rows * d * size, H * T * d * size
    return {"Q": q, "K": kv, "V": kv, "Out": q, "LSE": 4 * H * T}


def least_flops(launch: dict, causal: bool = False) -> int:
    """Two products for each tile of scores, whole tiles."""
    a = launch["args"]
    count = sum(tiles_of(a["T"], a["S"], (a["BM"], a["BN"]), causal))
    return 4 * a["Q"].shape[0] * count * a["BM"] * a["BN"] * a["D"]
