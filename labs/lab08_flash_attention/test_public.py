"""Public tests of lab08: what lab.check runs.

Kernels are read, compiled for an A100, and run under the meter: their bytes are counted.
"""

import torch

from efflib.kernel_lab.attention import exact, launch
from efflib.kernel_lab.cases import (
    ATTEND,
    CAUSAL,
    DECODE,
    SOFTMAX,
    attention_case,
    decode_case,
    expect_attention,
    expect_parts,
    expect_softmax,
    expect_traffic,
    normal,
    read_once,
    softmax_launch,
    values_first,
    written_once,
    written_out,
)
from efflib.kernel_lab.student_kernel import StudentKernel
from efflib.kernel_lab.tiles import expect_few_alive, expect_tiled
from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_tensor,
    expect_tuple,
)

INF = torch.inf
ROUNDINGS = 2e-6  # of float32: sums of some ten numbers up to 8, about 2^-19
# ---- exercise 1 ------------------------------------------------------------------------------


def start(rows, d):
    return torch.full((rows,), -INF), torch.zeros(rows), torch.zeros(rows, d)


def updated(student, state, s, v):
    state = student.online_update(*state, s, v)
    what = "online_update(...)"
    m, total, acc = expect_tuple(state, (torch.Tensor,) * 3, what)
    expect_tensor(m, "m", torch.float32, (len(s),))
    expect_tensor(total, "total", torch.float32, (len(s),))
    expect_tensor(acc, "acc", torch.float32, (len(s), v.shape[1]))
    return m, total, acc


def finished(student, state):
    o, lse = expect_tuple(student.finish(*state), (torch.Tensor,) * 2, "finish(...)")
    expect_tensor(o, "o", torch.float32, tuple(state[2].shape))
    expect_tensor(lse, "lse", torch.float32, tuple(state[0].shape))
    return o, lse


def merged(student, a, b):
    pair = expect_tuple(student.merge(*a, *b), (torch.Tensor,) * 2, "merge(...)")
    expect_tensor(pair[0], "o", torch.float32, tuple(a[0].shape))
    expect_tensor(pair[1], "lse", torch.float32, tuple(a[1].shape))
    return pair


@exercise(
    "ex1",
    points=3,
    invariant="scores 1, 3 (values 10, 20), then 5 (value 0): m 5, total 1.154, acc 2.89",
    cause="the old sums not corrected, corrected the wrong way round, or by the old maximum",
)
def test_by_hand(student, rng):
    v = torch.tensor([[10.0], [20.0]])
    state = updated(student, start(1, 1), torch.tensor([[1.0, 3.0]]), v)
    state = updated(student, state, torch.tensor([[5.0]]), torch.zeros(1, 1))
    for seen, right, name in zip(
        state, (5.0, 1.153651, 2.8899), ("m", "total", "acc"), strict=True
    ):
        expect_close(seen.double().flatten(), torch.tensor([right]).double(), what=name, rtol=1e-4)
    o, lse = finished(student, state)
    expect_close(o, torch.tensor([[2.505]]), what="o", rtol=1e-3)
    expect_close(lse, torch.tensor([5.14292]), what="lse", rtol=1e-5)


@exercise(
    "ex1",
    points=2,
    invariant="keys in pieces and at once give the same; a row that sees nothing gives 0 and -inf",
    cause="acc not corrected, or -inf - (-inf) = NaN where a row has seen no key",
)
def test_pieces(student, rng):
    s, v = 3 * normal(rng, 4, 9), normal(rng, 9, 4)
    s[0], s[3] = s[0].sort().values, s[3].sort(descending=True).values  # rising, falling
    s[1, :5], s[2] = -INF, -INF
    state = start(4, 4)
    for first, last in ((0, 2), (2, 5), (5, 9)):
        state = updated(student, state, s[:, first:last], v[first:last])
        assert not any(part.isnan().any() for part in state), "NaN in a row without keys so far"
        expect_close(state[0], s[:, :last].amax(-1), what=f"m after {last} keys")
    o, lse = finished(student, state)
    p = s.double().softmax(-1).nan_to_num(0.0)
    expect_close(o, p @ v.double(), what="o", atol=8 * ROUNDINGS)
    expect_close(lse, s.double().logsumexp(-1), what="lse", atol=8 * ROUNDINGS)


@exercise(
    "ex1",
    points=1,
    invariant="a merge is attention over the keys of both; a part without keys changes nothing",
    cause="a plain mean, weights of one part only, or NaN for lse = -inf",
)
def test_merge(student, rng):
    s, v = 2 * normal(rng, 3, 8).double(), normal(rng, 8, 4).double()
    s[1, 5:], s[2] = -INF, -INF
    halves = []
    for part, values in ((s[:, :5], v[:5]), (s[:, 5:], v[5:])):
        o = part.softmax(-1).nan_to_num(0.0) @ values
        halves.append((o.float(), part.logsumexp(-1).float()))
    o, lse = merged(student, *halves)
    expect_close(o, s.softmax(-1).nan_to_num(0.0) @ v, what="o of a merge", atol=8 * ROUNDINGS)
    expect_close(lse, s.logsumexp(-1), what="lse of a merge", atol=8 * ROUNDINGS)


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=3,
    invariant="o and lse are right; q is read once, k and v once for a block of queries",
    cause="keys outside, the last block or scale lost, m that starts at 0, state of another block",
)
def test_tiles(student, rng):
    for T, S, blocks in ((6, 8, (3, 4)), (7, 9, (3, 4)), (2, 3, (4, 8)), (3, 14, (2, 3))):
        expect_tiled(student, rng, T, S, 4, 0.3, blocks)
    expect_tiled(student, rng, 3, 8, 4, 0.5, (2, 4), low=80.0)  # scores of about -160
    expect_tiled(student, rng, 3, 8, 4, 0.5, (2, 4), low=20_000.0)  # and of -40,000


@exercise(
    "ex2",
    points=1,
    invariant="what is alive at once does not grow with S",
    cause="scores of a whole row are kept, or values wait until all scores are there",
)
def test_few_blocks_alive(student, rng):
    expect_few_alive(student, rng, 4, 8)


@exercise(
    "ex2",
    points=1,
    invariant="T = 5, S = 4, d = 2 in float16, blocks of 2: 156 bytes, stored 296, two walks 204",
    cause="T // block_m, lse forgotten, k or v counted once, scores counted twice, not 4 times",
)
def test_bytes(student, rng):
    for call, right in (
        ((5, 4, 2, 2, 2), 156),
        ((128, 128, 32, 32, 2), 2 * (2 * 128 * 32 + 2 * 4 * 128 * 32) + 512),
        ((1, 50, 64, 16, 4), 4 * (2 * 64 + 2 * 50 * 64) + 4),
    ):
        seen = student.attention_bytes(*call)
        assert type(seen) is int, f"attention_bytes{call} is of type {type(seen).__name__}, not int"
        assert seen == right, f"attention_bytes{call} is {seen}, expected {right}"
    for call, right in (((5, 4, 2, 2, 2), 296), ((100, 7, 16, 50, 4), 4 * (3200 + 448 + 2800))):
        seen = student.stored_bytes(*call)
        assert type(seen) is int, f"stored_bytes{call} is of type {type(seen).__name__}, not int"
        assert seen == right, f"stored_bytes{call} is {seen}, expected {right}"
    for call, right in (((5, 4, 2, 2, 2), 204), ((100, 7, 16, 50, 4), 4 * (3200 + 672) + 400)):
        seen = student.two_walks_bytes(*call)
        kind = type(seen).__name__
        assert type(seen) is int, f"two_walks_bytes{call} is of type {kind}, not int"
        assert seen == right, f"two_walks_bytes{call} is {seen}, expected {right}"


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    seconds=60,
    invariant="row r of Y is the softmax of row r of X, also where N is less than BLOCK",
    cause="lanes behind N that count as 0 or -100, r * N for r * row_x, row_x for Y, no maximum",
)
def test_softmax_of_rows(student, rng):
    kernel = StudentKernel(student, "row_softmax", SOFTMAX)
    written_out(kernel)
    cases = [(normal(rng, 3, 20), 32), (normal(rng, 2, 32), 32), (normal(rng, 2, 40), 64)]
    cases += [(300 + normal(rng, 2, 9).half(), 16), (normal(rng, 8, 60).half(), 64)]
    low = -59_000 + 100 * normal(rng, 2, 9)
    low[0, 2:5] = -INF
    cases += [(low, 16), (60_000 * normal(rng, 2, 9).clamp(-1, 1), 16)]
    runs = kernel.metered([softmax_launch(x, block) for x, block in cases])
    for run, (x, _) in zip(runs, cases, strict=True):
        expect_softmax(run, x)


@exercise(
    "ex3",
    points=1,
    seconds=60,
    invariant="rows may lie so far apart that r * row_x is beyond 2^31",
    cause="r and row_x are int32, and so is their product: r = tl.program_id(0).to(tl.int64)",
)
def test_softmax_of_rows_far_apart(student, rng):
    kernel = StudentKernel(student, "row_softmax", SOFTMAX)
    near, far = normal(rng, 3, 9), normal(rng, 3, 9)
    runs = kernel.metered([softmax_launch(near, 16)])
    with values_first():
        expect_softmax(runs[0], near)
    [run] = kernel.metered([softmax_launch(far, 16, apart=2**30)])
    expect_softmax(run, far)


@exercise(
    "ex3",
    points=1,
    seconds=60,
    invariant="every element of X is read once, every element of Y is written once",
    cause="X loaded again for the sum, Y read, or a loop over elements",
)
def test_softmax_moves_little(student, rng):
    kernel = StudentKernel(student, "row_softmax", SOFTMAX)
    x = normal(rng, 4, 20)
    with values_first():
        [run] = kernel.metered([softmax_launch(x, 32)])
        expect_softmax(run, x)
    read_once(run, "X", x.nbytes)
    written_once(run, "Y", x.nbytes)


@exercise(
    "ex3",
    points=1,
    seconds=60,
    invariant="Triton's compiler takes the kernel, for an A100",
    cause="Python or PyTorch where only tl is known, or a shape that is no tl.constexpr",
)
def test_softmax_compiles(student, rng):
    StudentKernel(student, "row_softmax", SOFTMAX).compiled({"BLOCK": 32})


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=3,
    seconds=60,
    invariant="o and lse are those of attention, for T and S that no block divides",
    cause="keys behind S that count, acc not corrected or divided in each step, lse in base 2",
)
def test_attend(student, rng):
    kernel = StudentKernel(student, "attend", ATTEND)
    cases = [
        attention_case(rng, 1, 1, 16, 32, 16, (16, 16), torch.float32),
        attention_case(rng, 2, 2, 20, 37, 16, (16, 16), torch.float32, size=2, scale=0.4),
        attention_case(rng, 2, 2, 33, 20, 16, (32, 16), torch.float16, scale=0.3),
    ]
    for run, case in zip(kernel.metered(cases), cases, strict=True):
        expect_attention(run, case)
    # scores of about -300, of which exp is 0: 2^-24 of them is some 1e-4 of every p
    k, v = -15 + normal(rng, 1, 20, 16) / 10, normal(rng, 1, 20, 16)
    q = torch.full((1, 2, 16), 5.0)
    [run] = kernel.metered([launch(q, k, v, (16, 16))])
    right, _ = exact(q, k, v, 0.25, False)
    seen = run["outputs"]["Out"].double()
    expect_close(seen, right, what="o of very negative scores", atol=1e-3)


@exercise(
    "ex4",
    points=3,
    seconds=60,
    invariant="Q is read once, K and V once for each block of queries; both products by tl.dot",
    cause="K or V loaded twice, Q loaded in the loop, o stored in every step, or no tl.dot",
)
def test_attend_moves_little(student, rng):
    kernel = StudentKernel(student, "attend", ATTEND)
    case = attention_case(rng, 2, 2, 40, 50, 16, (16, 32), torch.float16)
    with values_first():
        [run] = kernel.metered([case])
        expect_attention(run, case)
    expect_traffic(run, case)


@exercise(
    "ex4",
    points=1,
    seconds=60,
    invariant="Triton's compiler takes the kernel, for an A100 and tensors of float16",
    cause="p in float32 meets v in float16, or a variable changes its dtype in the loop",
)
def test_attend_compiles(student, rng):
    StudentKernel(student, "attend", ATTEND).compiled({"D": 16, "BM": 16, "BN": 16})


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=3,
    seconds=60,
    invariant="query i sees keys 0 .. i + S - T of head h // GROUP; who sees none gives 0, -inf",
    cause="the mask without S - T, the diagonal lost, the head h % HKV, or NaN in empty rows",
)
def test_attend_causal(student, rng):
    kernel = StudentKernel(student, "attend_causal", CAUSAL)
    cases = [
        attention_case(rng, 1, 1, 32, 32, 16, (16, 16), torch.float32, True),
        attention_case(rng, 4, 2, 20, 37, 16, (16, 16), torch.float32, True),
        attention_case(rng, 2, 1, 40, 21, 16, (16, 16), torch.float16, True),
    ]
    for run, case in zip(kernel.metered(cases), cases, strict=True):
        expect_attention(run, case, True)


@exercise(
    "ex5",
    points=2,
    seconds=60,
    invariant="a block of keys is read and computed only if one of the block's queries sees it",
    cause="a mask but no end of the walk, an end at S, or one for queries beyond T",
)
def test_attend_causal_skips(student, rng):
    kernel = StudentKernel(student, "attend_causal", CAUSAL)
    case = attention_case(rng, 2, 2, 70, 70, 16, (32, 16), torch.float16, True)
    with values_first():
        [run] = kernel.metered([case])
        expect_attention(run, case, True)
    expect_traffic(run, case, True)


@exercise(
    "ex5",
    points=1,
    seconds=60,
    invariant="Triton's compiler takes the kernel, for an A100 and tensors of float16",
    cause="p in float32 meets v in float16, or a variable changes its dtype in the loop",
)
def test_attend_causal_compiles(student, rng):
    StudentKernel(student, "attend_causal", CAUSAL).compiled({"D": 16, "BM": 16, "BN": 16})


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=4,
    invariant="d = 16, most = 2048: (16, 32) for 16 queries, (32, 16) for 64; else ValueError",
    cause="square blocks only, the scores or one of k and v forgotten, another order of equal ones",
)
def test_choose(student, rng):
    for call, right in (
        ((16, 64, 16, 2048), (16, 32)),
        ((64, 64, 16, 2048), (32, 16)),
        ((4096, 4096, 64, 48 * 1024), (256, 32)),
        ((64, 64, 16, 2047), (16, 16)),
        ((4096, 64, 16, 2**15), (512, 16)),
    ):
        seen = student.choose_blocks(*call)
        assert isinstance(seen, tuple) and len(seen) == 2, f"choose_blocks{call} returned {seen!r}"
        assert seen == right, f"choose_blocks{call} is {seen}, expected {right}"
    what = "blocks of 16 with d = 16 hold 1280 elements, most is 1279"
    expect_error(ValueError, lambda: student.choose_blocks(64, 64, 16, 1279), what)


# ---- exercise 7 ------------------------------------------------------------------------------


@exercise(
    "ex7",
    points=3,
    seconds=60,
    invariant="split i attends to its own keys, all GROUP queries at once; without keys 0 and -inf",
    cause="splits that overlap or run beyond S, 0 / 0 without keys, or rows in another order",
)
def test_decode(student, rng):
    kernel = StudentKernel(student, "decode", DECODE)
    cases = [
        decode_case(rng, 1, 1, 32, 16, 2, 16, 16),
        decode_case(rng, 2, 3, 40, 16, 3, 32, 16),
        decode_case(rng, 1, 2, 20, 32, 1, 32, 16, torch.float16),
    ]
    for run, case in zip(kernel.metered(cases), cases, strict=True):
        expect_parts(run, case)
        a = case["args"]
        for name in ("K", "V"):
            read_once(run, name, a[name].nbytes)


@exercise(
    "ex7",
    points=1,
    seconds=60,
    invariant="Triton's compiler takes the kernel, for an A100 and tensors of float16",
    cause="p in float32 meets v in float16, or a variable changes its dtype in the loop",
)
def test_decode_compiles(student, rng):
    StudentKernel(student, "decode", DECODE).compiled({"D": 16, "BG": 16, "BN": 16})


@exercise(
    "ex7",
    points=2,
    invariant="merged parts are attention over all keys; a row without keys stays 0 and -inf",
    cause="a plain mean, weights that do not sum to 1, or NaN for lse = -inf",
)
def test_merge_parts(student, rng):
    s, v = 100 + 2 * normal(rng, 3, 4, 5).double(), normal(rng, 3, 5, 6).double()
    s[:, 1], s[0, 2] = -INF, -INF
    parts = (s.softmax(-1).nan_to_num(0.0) @ v).float(), s.logsumexp(-1).float()
    pair = expect_tuple(student.merge_parts(*parts), (torch.Tensor,) * 2, "merge_parts(...)")
    o, lse = pair
    expect_tensor(o, "o", torch.float32, (4, 6))
    expect_tensor(lse, "lse", torch.float32, (4,))
    p = s.transpose(0, 1).flatten(1).softmax(-1).nan_to_num(0.0)
    expect_close(o, p @ v.flatten(0, 1), what="o of all parts", atol=1e-4)  # lse is near 100
    expect_close(lse, s.transpose(0, 1).flatten(1).logsumexp(-1), what="lse", atol=1e-4)
    expect_at_most(o[1].abs().max(), 0.0, "o of a row that no part has keys for")
