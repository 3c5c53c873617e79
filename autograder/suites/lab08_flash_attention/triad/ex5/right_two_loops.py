"""Keys before the diagonal without a causal mask, then the rest; base 2."""


@triton.jit
def _walk(
    q, K, V, m, total, acc, begin, end, rows, row_k, S, shift, scale, D: tl.constexpr,
    BN: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, D)
    for start in tl.range(begin, end, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + n[:, None] * row_k + d[None, :], mask=n[:, None] < S, other=0.0)
        v = tl.load(V + n[:, None] * row_k + d[None, :], mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.4426950408889634)
        if MASKED:
            s = tl.where(n[None, :] <= rows[:, None] + shift, s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        base = tl.where(larger > float("-inf"), larger, 0.0)
        p, old = tl.exp2(s - base[:, None]), tl.exp2(m - base)
        total = total * old + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
        m = larger
    return m, total, acc


@triton.jit
def attend_causal(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, GROUP, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    first, h, shift = tl.program_id(0) * BM, tl.program_id(1).to(tl.int64), S - T
    rows, d = first + tl.arange(0, BM), tl.arange(0, D)
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=rows[:, None] < T, other=0.0)
    K += h // GROUP * head_k
    V += h // GROUP * head_k
    m = tl.full([BM], float("-inf"), tl.float32)
    total, acc = tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    stop = tl.maximum(tl.minimum(first + BM, T) + shift, 0)
    free = tl.maximum(first + shift + 1, 0) // BN * BN
    m, total, acc = _walk(q, K, V, m, total, acc, 0, free, rows, row_k, S, shift, scale, D, BN,
                          False)  # fmt: skip
    m, total, acc = _walk(q, K, V, m, total, acc, free, stop, rows, row_k, S, shift, scale, D,
                          BN, True)  # fmt: skip
    o = tl.where(total[:, None] > 0, acc / total[:, None], 0.0)
    tl.store(Out + at_q, o.to(Out.dtype.element_ty), mask=rows[:, None] < T)
    lse = m * 0.6931471805599453 + tl.log(total)
    tl.store(LSE + h * head_lse + rows, lse, mask=rows < T)
