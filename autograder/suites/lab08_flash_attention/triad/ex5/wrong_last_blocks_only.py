"""Only the last four blocks of keys are walked."""

FAILS = ["test_causal_random"]


@triton.jit
def attend_causal(
    Q,  # [H, T, D]
    K,  # [HKV, S, D]
    V,
    Out,  # [H, T, D]
    LSE,  # [H, T]
    head_q,  # of Q and Out
    row_q,
    head_k,  # of K and V
    row_k,
    head_lse,
    T,
    S,
    GROUP,  # H / HKV
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Causal attention of BM queries of head h. Grid: (ceil(T / BM), H)."""
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)  # [BM, D]
    m = tl.full([BM], -1e30, tl.float32)  # no -inf: a row may see nothing of its first tiles
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    last = tl.minimum(tl.program_id(0) * BM + BM, T) - 1
    for start in range(tl.maximum((last + S - T) // BN - 3, 0) * BN, last + S - T + 1, BN):
        n = start + tl.arange(0, BN)
        at_k = h // GROUP * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BM, BN]
        s = tl.where(n[None, :] <= rows[:, None] + S - T, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(Out + at_q, o.to(Out.dtype.element_ty), mask=on)
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
