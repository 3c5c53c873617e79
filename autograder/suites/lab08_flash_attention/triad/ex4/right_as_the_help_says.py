"""What help and hints say, word for word; another order of lines."""


@triton.jit
def attend(
    Q, K, V, Out, LSE, head_q, row_q, head_k, row_k, head_lse, T, S, scale,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    on = rows[:, None] < T
    at_q = h * head_q + rows[:, None] * row_q + d[None, :]
    q = tl.load(Q + at_q, mask=on, other=0.0)
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        here = n[:, None] < S
        k = tl.load(K + h * head_k + n[:, None] * row_k + d[None, :], mask=here, other=0.0)
        v = tl.load(V + h * head_k + n[:, None] * row_k + d[None, :], mask=here, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(n[None, :] >= S, float("-inf"), s)
        largest = tl.maximum(m, tl.max(s, 1))
        correction = tl.exp(m - largest)
        p = tl.exp(s - largest[:, None])
        acc = acc * correction[:, None]
        acc = acc + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        total = total * correction + tl.sum(p, 1)
        m = largest
    tl.store(LSE + h * head_lse + rows, m + tl.log(total), mask=rows < T)
    tl.store(Out + at_q, (acc / total[:, None]).to(Out.dtype.element_ty), mask=on)
