"""What `benchmarks/kernels.py` measures: inputs, contenders and error of each case.

Imported after it is known that there is a GPU, since it loads triton.  The sizes are arguments, so
that a test can run the contenders of efflib on tiny ones in the interpreter.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from kernel_inputs import Case, random, relative
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from efflib.kernels.attention_backward import attention_backward
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.paged_attention import paged_attention
from efflib.kernels.tma_attention import tma_attention
from efflib.kernels.windowed_attention import windowed_attention

BACKENDS = {
    "SDPA FLASH": SDPBackend.FLASH_ATTENTION,
    "SDPA CUDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA EFFICIENT": SDPBackend.EFFICIENT_ATTENTION,
    "SDPA MATH": SDPBackend.MATH,
}
# block_m, block_n, num_warps, num_stages; all fit into an H100
FORWARD = ((128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3))
TMA = ((128, 128, 8, 2, False), (128, 128, 4, 2, True), (128, 64, 8, 3, False))  # last: specialized
BACKWARD = ((64, 32, 8, 2), (64, 32, 4, 2), (64, 64, 8, 1))  # block and step first
# rounding p and o to bf16 costs 2^-9 each, relative to o; sums in float32 next to nothing.  Twice
# that, for P in bf16 beside P V in bf16 as the MATH backend has it
BF16_LIMIT = 4 * 2.0**-9
GRADIENT_LIMIT = 4 * BF16_LIMIT  # ds is a difference of two such products
CHECKED_ROWS = 256  # queries that are compared with float64


def attention_inputs(heads, kv_heads, T, S, d, device) -> dict:
    shapes = {"q": (heads, T), "k": (kv_heads, S), "v": (kv_heads, S), "do": (heads, T)}
    return {
        name: random(i, 1, h, n, d, device=device)
        for i, (name, (h, n)) in enumerate(shapes.items())
    }


def visible(rows: Tensor, keys: Tensor, shift: int, causal: bool, window: int | None, sinks: int):
    """[rows, keys] bool by definition."""
    i, j = rows[:, None] + shift, keys[None, :]
    seen = (j <= i) | torch.tensor(not causal, device=rows.device)
    return seen if window is None else seen & ((j > i - window) | (j < sinks))


def attention_error(
    inputs: dict, o: Tensor, causal: bool, window: int | None = None, sinks: int = 0
) -> float:
    """Against float64, for the last queries of the first and the last head."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    T, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    rows = torch.arange(max(0, T - CHECKED_ROWS), T, device=q.device)
    seen = visible(rows, torch.arange(S, device=q.device), S - T, causal, window, sinks)
    errors = []
    for head in (0, q.shape[1] - 1):
        keys, values = (t[0, head // group].double() for t in (k, v))
        s = q[0, head, rows].double() @ keys.T / math.sqrt(q.shape[3])
        right = torch.softmax(s.masked_fill(~seen, -math.inf), -1) @ values
        errors.append(relative(o[0, head, rows], right))
    return max(errors)


# ---- attention over many queries ---------------------------------------------------------------


def sdpa(inputs: dict, backend: SDPBackend, causal: bool, mask: Tensor | None = None) -> Callable:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    shared = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, **shared
            )

    return call


def efflib_forward(inputs: dict, causal: bool, blocks: tuple[int, ...]) -> Callable:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    alignment = "bottom_right" if causal else None
    return lambda: flash_attention(q, k, v, alignment, None, *blocks)[0]


def efflib_tma(inputs: dict, causal: bool, blocks: tuple[int, ...]) -> Callable:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    alignment = "bottom_right" if causal else None
    return lambda: tma_attention(q, k, v, alignment, None, *blocks)[0]


def label(blocks: tuple[int, ...]) -> str:
    block_m, block_n, warps, stages, *specialized = blocks
    kind = {(): "", (False,): " TMA", (True,): " TMA, specialized"}[tuple(specialized)]
    return f"efflib{kind} {block_m}x{block_n}, {warps} warps, {stages} stages"


def prefill(T: int, causal: bool, heads: int = 32, d: int = 128, device: str = "cuda") -> Case:
    contenders = {label(b): partial(efflib_forward, causal=causal, blocks=b) for b in FORWARD}
    contenders |= {label(b): partial(efflib_tma, causal=causal, blocks=b) for b in TMA}
    contenders |= {n: partial(sdpa, backend=b, causal=causal) for n, b in BACKENDS.items()}
    kind = "causal" if causal else "full"
    return Case(
        f"prefill-{T}-{kind}",
        f"Attention forward, bf16, {heads} heads, {T} tokens, d = {d}, {kind}",
        partial(attention_inputs, heads, heads, T, T, d, device),
        contenders,
        partial(attention_error, causal=causal),
        BF16_LIMIT,
        4 * heads * T * T * d / (2 if causal else 1),
        4 * heads * T * d * 2,
    )


def window_mask(T: int, window: int, sinks: int, device) -> Tensor:
    rows = torch.arange(T, device=device)
    return visible(rows, rows, 0, True, window, sinks)


def windowed(T: int, window: int, heads: int = 32, d: int = 128, device: str = "cuda") -> Case:
    sinks = 4

    def efflib(inputs: dict, blocks: tuple[int, ...]) -> Callable:
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        return lambda: windowed_attention(q, k, v, window, sinks, "bottom_right", None, *blocks)[0]

    def with_mask(inputs: dict, backend: SDPBackend) -> Callable:
        return sdpa(inputs, backend, False, window_mask(T, window, sinks, device))

    contenders = {label(b): partial(efflib, blocks=b) for b in ((64, 64, 8, 2), (128, 64, 8, 2))}
    masked = ("SDPA CUDNN", "SDPA EFFICIENT", "SDPA MATH")  # FLASH takes no mask
    contenders |= {f"{n}, mask": partial(with_mask, backend=BACKENDS[n]) for n in masked}
    return Case(
        f"window-{T}",
        f"Window of {window} and {sinks} sinks, bf16, {heads} heads, {T} tokens, d = {d}",
        partial(attention_inputs, heads, heads, T, T, d, device),
        contenders,
        partial(attention_error, causal=True, window=window, sinks=sinks),
        BF16_LIMIT,
        4 * heads * T * (min(window, T) + sinks) * d,
        4 * heads * T * d * 2,
    )


# ---- backward ------------------------------------------------------------------------------------


def efflib_backward(inputs: dict, blocks: tuple[int, ...]) -> Callable:
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    o, lse = flash_attention(q, k, v, "bottom_right")
    given = q, k, v, o, lse, inputs["do"], None, "bottom_right", None, None, 0
    return lambda: attention_backward(*given, *blocks)


def sdpa_backward(inputs: dict, backend: SDPBackend) -> Callable:
    leaves = {name: inputs[name].detach().requires_grad_() for name in "qkv"}
    o = sdpa(leaves, backend, True)()
    return lambda: torch.autograd.grad(o, list(leaves.values()), inputs["do"], retain_graph=True)


def backward_error(inputs: dict, gradients: tuple[Tensor, ...]) -> float:
    """dq, dk, dv of the first and the last head, against autograd in float64."""
    errors, T = [], inputs["q"].shape[2]
    seen = torch.ones(T, T, dtype=torch.bool, device=inputs["q"].device).tril()
    for head in (0, inputs["q"].shape[1] - 1):
        q, k, v = (inputs[name][0, head].double().requires_grad_() for name in "qkv")
        s = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~seen, -math.inf)
        right = torch.autograd.grad(
            torch.softmax(s, -1) @ v, (q, k, v), inputs["do"][0, head].double()
        )
        errors += [relative(g[0, head], r) for g, r in zip(gradients, right, strict=True)]
    return max(errors)


def backward(T: int, heads: int = 32, d: int = 128, device: str = "cuda") -> Case:
    contenders = {label(b): partial(efflib_backward, blocks=b) for b in BACKWARD}
    contenders |= {n: partial(sdpa_backward, backend=b) for n, b in BACKENDS.items()}
    return Case(
        f"backward-{T}",
        f"Attention backward, bf16, {heads} heads, {T} tokens, d = {d}, causal "
        "(TFLOP/s of the five products that are needed)",
        partial(attention_inputs, heads, heads, T, T, d, device),
        contenders,
        backward_error,
        GRADIENT_LIMIT,
        10 * heads * T * T * d / 2,
        8 * heads * T * d * 2,
    )


# ---- decoding ------------------------------------------------------------------------------------


def efflib_decoding(inputs: dict) -> Callable:
    q, k, v = inputs["q"][:, :, 0], inputs["k"], inputs["v"]
    return lambda: flash_decoding(q, k, v)[0][:, :, None]


def efflib_paged(inputs: dict, page: int) -> Callable:
    """The same cache, cut into pages that lie in a random order."""
    q, k, v = inputs["q"][:, :, 0], inputs["k"], inputs["v"]
    S = k.shape[2]
    order = torch.randperm(S // page, generator=torch.Generator().manual_seed(0)).to(k.device)
    table = torch.argsort(order).int()[None]
    pages = [
        t[0].transpose(0, 1).reshape(S // page, page, t.shape[1], -1)[order] for t in (k, v)
    ]  # [pages, page, Hkv, d]
    lengths = torch.tensor([S], dtype=torch.int32, device=k.device)
    return lambda: paged_attention(q, *pages, table, lengths)[0][:, :, None]


def decoding(S: int, heads: tuple[int, int] = (32, 8), d: int = 128, device: str = "cuda") -> Case:
    H, Hkv = heads
    contenders = {"efflib flash_decoding": efflib_decoding}
    contenders |= {f"efflib paged, {p} rows": partial(efflib_paged, page=p) for p in (16, 64)}
    contenders |= {n: partial(sdpa, backend=b, causal=False) for n, b in BACKENDS.items()}
    return Case(
        f"decoding-{S}",
        f"Decoding one token, bf16, {H} query and {Hkv} key heads, {S} keys, d = {d}",
        partial(attention_inputs, H, Hkv, 1, S, d, device),
        contenders,
        partial(attention_error, causal=False),
        BF16_LIMIT,
        4 * H * S * d,
        2 * Hkv * S * d * 2,
    )


def cases() -> list[Case]:
    """All of them, sizes as in papers about these kernels."""
    attention = [prefill(T, causal) for T in (4096, 16384) for causal in (False, True)]
    attention += [windowed(16384, 1024), backward(4096), backward(8192)]
    attention += [decoding(S) for S in (8192, 65536)]
    try:
        from kernel_linear_cases import linear_cases
    except ImportError as error:  # a bare machine may lack what efflib's models need
        print(f"the cases with weights are left out: {error}")
        return attention
    return attention + linear_cases()
