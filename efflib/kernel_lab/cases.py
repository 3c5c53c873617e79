"""Cases for the tests of attention kernels: what is launched, and what is expected of it, in words.

Inputs are drawn here, results and counts come from where the student's code ran, and are compared
here, with what `attention` says from definitions.
"""

from __future__ import annotations

import ast
from contextlib import contextmanager

import torch

from efflib.kernel_lab.attention import (
    KEYS_APART,
    LSE_OFF,
    MOST_OFF,
    exact,
    launch,
    least_flops,
    least_moved,
    scores_off,
)
from efflib.kernel_lab.words import poisoned_words, read_once, written_once
from efflib.lab.expect import expect_close

INF = torch.inf
POINTERS = {"Q": "*fp16", "K": "*fp16", "V": "*fp16", "Out": "*fp16", "LSE": "*fp32"}
STRIDES = dict.fromkeys(["head_q", "row_q", "head_k", "row_k", "head_lse", "T", "S"], "i32")
BLOCKS = dict.fromkeys(["D", "BM", "BN"], "constexpr")
ATTEND = POINTERS | STRIDES | {"scale": "fp32"} | BLOCKS
CAUSAL = POINTERS | STRIDES | {"GROUP": "i32", "scale": "fp32"} | BLOCKS
SIZES = ["head_q", "row_q", "head_k", "row_k", "row_part", "HKV", "GROUP", "S", "per_split"]
PARTS = {"Q": "*fp16", "K": "*fp16", "V": "*fp16", "Part": "*fp32", "PartLSE": "*fp32"}
DECODE = PARTS | dict.fromkeys(SIZES, "i32") | {"scale": "fp32"}
DECODE |= dict.fromkeys(["D", "BG", "BN"], "constexpr")
SOFTMAX = {"X": "*fp16", "Y": "*fp16", "row_x": "i32", "row_y": "i32", "N": "i32"}
SOFTMAX |= {"BLOCK": "constexpr"}


def normal(rng, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=rng).to(dtype)


# ---- kernels -------------------------------------------------------------------------------------


def expect_attention(run, case, causal=False):
    """o and lse against float64; the bounds are derived in efflib.kernel_lab.attention."""
    expect_products(run, case)
    a = case["args"]
    o, lse = exact(a["Q"], a["K"], a["V"], a["scale"], causal)
    what = f"T = {a['T']}, S = {a['S']}, {str(a['Q'].dtype)[6:]}"
    bound = value_off(a["V"])
    out, seen = run["outputs"]["Out"].double(), run["outputs"]["LSE"].double()
    with poison_named(run):
        expect_close(out, o, what=f"o ({what})", atol=bound)
        expect_close(seen, lse, what=f"lse ({what})", atol=LSE_OFF)


def value_off(v):
    """How far o may be off for these values; float16 has no steps below 2^-24."""
    least = 2.0**-24 if v.dtype == torch.float16 else 0.0
    return MOST_OFF[v.dtype] * float(v.abs().max()) + least


def expect_steered(run, case, causal=False):
    """As `expect_attention`, for a case of `steered`: its scores are exact, and of any size.

    A score is off by its rounding after a product with log2(e) at most; lse, which is such a
    score and a logarithm, by that, by the sum's rounding and by that of the product with ln 2.
    """
    expect_products(run, case)
    a = case["args"]
    o, lse = exact(a["Q"], a["K"], a["V"], 1.0, causal)
    off = scores_off(a["K"][..., 0])
    v_off = value_off(a["V"]) + off * float(a["V"].abs().max())
    out, seen = run["outputs"]["Out"].double(), run["outputs"]["LSE"].double()
    with poison_named(run):
        expect_close(out, o, what="o of these scores", atol=v_off)
        expect_close(seen, lse, what="lse of these scores", atol=LSE_OFF + 4 * off)


def expect_products(run, case):
    """tl.dot multiplies tiles of the inputs' dtype, float32 without rounding to TF32."""
    dtype = case["args"]["Q"].dtype
    wanted = {torch.float16: "fp16", torch.float32: "fp32"}[dtype]
    for kind in run["products"]:
        assert kind != "tf32", (
            "tl.dot of float32 tiles without input_precision='ieee': a GPU rounds them to TF32, "
            "with 10 bits behind the point"
        )
        assert kind == wanted, f"tl.dot multiplies {kind} tiles where inputs are {str(dtype)[6:]}"


@contextmanager
def poison_named(run):
    """A wrong value within is told with the loads that may be its cause."""
    try:
        yield
    except AssertionError as wrong:
        raise AssertionError(f"{wrong}{poisoned_words(run)}") from None


@contextmanager
def values_first():
    """For tests of traffic: a wrong value or a fault is the other test's, whose cause fits it."""
    try:
        yield
    except AssertionError:
        raise AssertionError(
            "not counted: the results are not right yet, or it does not run. The card above tells "
            "what is wrong; bytes are counted once it is mended"
        ) from None


def expect_traffic(run, case, causal=False):
    right = least_moved(case, causal)
    for name in ("Q", "K", "V"):
        read_once(run, name, right[name])
    for name in ("Out", "LSE"):
        written_once(run, name, right[name])
        read_once(run, name, 0)
    flops = least_flops(case, causal)
    seen = run["flops"]
    why = "a tile is computed that no query needs" if seen > flops else (
        "too few: both products of each tile go through tl.dot")  # fmt: skip
    assert seen == flops, f"{seen:,} FLOPs in tl.dot, expected {flops:,}: {why}"
    a = case["args"]
    most = max(a["BM"] * a["BN"], a["BM"] * a["D"], a["BN"] * a["D"])
    tile = run["largest_tile"]
    assert tile <= most, f"a tile has {tile:,} elements, {most:,} are enough: a block, not a row"


def attention_case(
    rng, H, HKV, T, S, d, blocks, dtype, causal=False, size=1.0, scale=None
):  # fmt: skip
    q, k = size * normal(rng, H, T, d, dtype=dtype), normal(rng, HKV, S, d, dtype=dtype)
    return launch(q, k, normal(rng, HKV, S, d, dtype=dtype), blocks, scale, causal)


def steered(rng, scores, dtype, blocks=(16, 16), causal=False, T=1):
    """A launch whose queries all give the keys these scores [S]: a head of 16, scale 1."""
    q, k = torch.zeros(1, T, 16), torch.zeros(1, len(scores), 16)
    q[..., 0], k[0, :, 0] = 1.0, scores
    v = normal(rng, 1, len(scores), 16, dtype=dtype)
    return launch(q.to(dtype), k.to(dtype), v, blocks, 1.0, causal)


def hard_scores():
    """Scores of a row that break a softmax which is not careful; float16 has them exactly.

    They rise, also by little from block to block, fall, lie far below 0, far above, and leap from
    one end to the other.
    """
    rise = torch.arange(40.0)
    ends = [torch.full((n,), x) for n, x in ((20, -30_000.0), (17, 29_984.0), (3, -29_952.0))]
    return {
        "rising": rise, "rising slowly": (2 + rise) / 2**15, "falling": 40 - rise,
        "below -250": rise[:37] - 300,
        "near -30,000": 32 * rise[:37] - 30_016, "near 30,000": 32 * rise[:37] + 20_000,
        "leaps": torch.tensor([-200.0] * 16 + [150.0]), "both ends": torch.cat(ends),
    }  # fmt: skip


def long_mean(rng, S, blocks=(16, 16), causal=False):
    """All scores 0, values in float16 between 1 and 2: every p is 1, o is the mean."""
    v = 1 + torch.rand(1, S, 16, generator=rng)
    return launch(torch.zeros(1, 1, 16).half(), torch.zeros(1, S, 16).half(), v.half(), blocks,
                  causal=causal)  # fmt: skip


def expect_mean(run, case):
    """Only the last rounding of o is left, 2^-11 of it, and those of float32."""
    v = case["args"]["V"].double()
    right = v.mean(1, keepdim=True)
    expect_close(run["outputs"]["Out"].double(), right, what="a mean", rtol=2.0**-11 * 1.1)
    lse = torch.tensor([[float(v.shape[1])]]).log()
    expect_close(run["outputs"]["LSE"], lse, what="lse", atol=1e-5)


def softmax_launch(x, block, apart=0):
    """apart: elements between the rows of X, and of Y, as far as the kernel sees."""
    return {
        "args": {"X": x, "Y": torch.full_like(x, torch.nan), "N": x.shape[1], "BLOCK": block},
        "strides": {"row_x": ("X", 0), "row_y": ("Y", 0)},
        "grid": (len(x),),
        "outputs": ["Y"],
        "gaps": {"Y": 48},  # so rows of X and Y lie differently far apart
        "apart": {"X": apart, "Y": apart} if apart else {},
    }


def written_out(kernel):
    """Fails if the kernel leaves the softmax to tl.softmax."""
    names = [getattr(n, "attr", getattr(n, "name", "")) for n in ast.walk(ast.parse(kernel.text))
             if isinstance(n, ast.Attribute | ast.alias)]  # fmt: skip
    assert "softmax" not in names, f"{kernel.name} calls tl.softmax: write it out, as the card says"


def far_apart(case, *names):
    """The launch with the heads of these tensors 2^30 elements apart: the third is beyond int32."""
    return case | {"apart": dict.fromkeys(names, 2**30)}


def expect_softmax(run, x):
    """Rows of the softmax; float32 has 2^-24 of a maximum, a difference, an exponential, a sum."""
    right = x.double().softmax(-1)
    last = 2.0**-11 if x.dtype == torch.float16 else 0.0  # half a step of float16
    with poison_named(run):
        seen = run["outputs"]["Y"].double()
        expect_close(seen, right, what="the softmax", atol=4e-6, rtol=last + 2 * scores_off(x))


def decode_case(rng, HKV, group, S, d, splits, per_split, BN, dtype=torch.float32, BG=16):
    q, k, v = (normal(rng, HKV, n, d, dtype=dtype) for n in (group, S, S))
    rows = splits * HKV * group
    sizes = {"HKV": HKV, "GROUP": group, "S": S, "per_split": per_split, "scale": d**-0.5}
    parts = {"Part": torch.full((rows, d), torch.nan), "PartLSE": torch.full((rows,), torch.nan)}
    strides = {"head_q": ("Q", 0), "row_q": ("Q", 1), "head_k": ("K", 0), "row_k": ("K", 1)}
    return {
        "args": {"Q": q, "K": k, "V": v} | parts | sizes | {"D": d, "BG": BG, "BN": BN},
        "strides": strides | {"row_part": ("Part", 0)},
        "grid": (splits, HKV),
        "outputs": ["Part", "PartLSE"],
        "gaps": KEYS_APART,
    }


def expect_parts(run, case, off=0.0):
    """off: how far exponents may be off, see `scores_off`; scores up to 16 need none."""
    expect_products(run, case)
    a, (splits, HKV) = case["args"], case["grid"]
    shape = (splits, HKV, a["GROUP"])
    seen = run["outputs"]["Part"].view(*shape, -1), run["outputs"]["PartLSE"].view(shape)
    bound = value_off(a["V"]) + off * float(a["V"].abs().max())
    for i in range(splits):
        keys = slice(i * a["per_split"], min((i + 1) * a["per_split"], a["S"]))
        k, v = a["K"][:, keys].repeat_interleave(a["GROUP"], 0), a["V"][:, keys]
        q = a["Q"].flatten(0, 1)[:, None]
        if not k.shape[1]:
            o, lse = torch.zeros(len(q), 1, q.shape[-1]), torch.full((len(q), 1), -INF)
        else:
            o, lse = exact(q, k, v.repeat_interleave(a["GROUP"], 0), a["scale"], False)
        o, lse = o.view(HKV, a["GROUP"], -1).double(), lse.view(HKV, a["GROUP"]).double()
        with poison_named(run):
            expect_close(seen[0][i].double(), o, what=f"o of split {i}", atol=bound)
            expect_close(seen[1][i].double(), lse, what=f"lse of split {i}", atol=LSE_OFF + 4 * off)
