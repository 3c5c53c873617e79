"""K is loaded for the scores and once more."""

FAILS = ["test_attend_moves_little", "test_attend_costs"]


@triton.jit
def absorb(m, total, acc, s, v):
    """The state (m [BM], total [BM], acc [BM, D]) after scores s [BM, BN] and values v [BN, D]."""
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp(s - m_new[:, None])
    correction = tl.exp(m - m_new)
    total = total * correction + tl.sum(p, 1)
    acc = acc * correction[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total, acc


@triton.jit
def attend(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Attention of queries i BM .. i BM + BM - 1 of head h. Grid: (ceil(T / BM), H)."""
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)  # [BM, D]
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        at_k = h * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BM, BN]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.where(n[None, :] < S, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    tl.store(Out + at_q, (acc / total[:, None]).to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
