"""T - S for S - T."""

FAILS = ["test_attend_causal", "test_causal_random", "test_causal_costs"]


@triton.jit
def attend_causal(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, GROUP, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Causal attention of BM queries of head h. Grid: (ceil(T / BM), H)."""
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)  # [BM, D]
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    last = tl.minimum(tl.program_id(0) * BM + BM, T) - 1
    for start in range(0, tl.minimum(last + T - S + 1, S), BN):
        n = start + tl.arange(0, BN)
        at_k = h // GROUP * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BM, BN]
        s = tl.where((n[None, :] <= rows[:, None] + T - S) & (n[None, :] < S), s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - safe[:, None])
        correction = tl.exp(m - safe)
        total = total * correction + tl.sum(p, 1)
        acc = acc * correction[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(Out + at_q, o.to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
