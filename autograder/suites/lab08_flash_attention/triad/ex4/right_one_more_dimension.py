"""A state of columns [BM, 1], a helper for the tile of keys."""


@triton.jit
def tile_of(X, n, d, row, S):
    return tl.load(X + n[:, None] * row + d[None, :], mask=n[:, None] < S, other=0.0)


@triton.jit
def attend(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tile_of(Q + h * head_q, rows, d, row_q, T)
    m = tl.full([BM, 1], float("-inf"), tl.float32)
    total = tl.zeros([BM, 1], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for block in range(tl.cdiv(S, BN)):
        n = block * BN + tl.arange(0, BN)
        k = tile_of(K + h * head_k, n, d, row_k, S)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        s = tl.where((n < S)[None, :], s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1)[:, None])
        p = tl.exp(s - larger)
        total = total * tl.exp(m - larger) + tl.sum(p, 1)[:, None]
        v = tile_of(V + h * head_k, n, d, row_k, S)
        acc = tl.dot(p.to(v.dtype), v, acc * tl.exp(m - larger), input_precision="ieee")
        m = larger
    at = h * head_q + rows[:, None] * row_q + d[None, :]
    tl.store(Out + at, acc / total, mask=rows[:, None] < T)
    tl.store(LSE + h * head_lse + rows[:, None], m + tl.log(total), mask=rows[:, None] < T)
