"""exp2 with the scale folded; whole tiles without a mask, then the last; K loaded transposed."""

LOG2_OF_E = tl.constexpr(1.4426950408889634)
LN_OF_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _step(q, k, v, m, total, acc, s_log2):
    larger = tl.maximum(m, tl.max(s_log2, 1))
    p = tl.exp2(s_log2 - larger[:, None])
    old = tl.exp2(m - larger)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return larger, total * old + tl.sum(p, 1), acc


@triton.jit
def attend(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    h, i = tl.program_id(1).to(tl.int64), tl.program_id(0)
    rows = i * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + h * head_q + rows[:, None] * row_q + d[None, :],
                mask=rows[:, None] < T, other=0.0)  # fmt: skip
    scale_log2 = scale * LOG2_OF_E
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.full((BM,), 0.0, dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    whole = S // BN * BN
    k_base, v_base = K + h * head_k, V + h * head_k
    for start in tl.range(0, whole, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_base + n[None, :] * row_k + d[:, None])
        v = tl.load(v_base + n[:, None] * row_k + d[None, :])
        s = tl.dot(q, k, input_precision="ieee") * scale_log2
        m, total, acc = _step(q, k, v, m, total, acc, s)
    if whole < S:
        n = whole + tl.arange(0, BN)
        k = tl.load(k_base + n[None, :] * row_k + d[:, None], mask=n[None, :] < S, other=0.0)
        v = tl.load(v_base + n[:, None] * row_k + d[None, :], mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale_log2
        m, total, acc = _step(q, k, v, m, total, acc, tl.where(n[None, :] < S, s, -float("inf")))
    o = acc / total[:, None]
    tl.store(Out + h * head_q + rows[:, None] * row_q + d[None, :], o.to(Out.dtype.element_ty),
             mask=rows[:, None] < T)  # fmt: skip
    tl.store(LSE + h * head_lse + rows, (m + tl.log2(total)) * LN_OF_2, mask=rows < T)
