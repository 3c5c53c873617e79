"""A while loop, from the last block of keys to the first."""


@triton.jit
def attend(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = (rows < T)[:, None]
    at_q = head * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)
    m = tl.zeros([BM], tl.float32) - 1e30
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    start = (S - 1) // BN * BN
    while start >= 0:
        n = start + tl.arange(0, BN)
        at_k = head * head_k + n[:, None] * row_k + d[None, :]
        v = tl.load(V + at_k, mask=(n < S)[:, None], other=0.0)
        k = tl.load(K + at_k, mask=(n < S)[:, None], other=0.0)
        s = tl.where((n < S)[None, :], tl.dot(q, k.T, input_precision="ieee") * scale, -1e30)
        before = m
        m = tl.maximum(m, tl.max(s, 1))
        p = tl.where((n < S)[None, :], tl.exp(s - m[:, None]), 0.0)
        total = total * tl.exp(before - m) + tl.sum(p, 1)
        acc *= tl.exp(before - m)[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        start -= BN
    tl.store(Out + at_q, acc / total[:, None], mask=on)
    tl.store(LSE + head * head_lse + rows, tl.log(total) + m, mask=rows < T)
