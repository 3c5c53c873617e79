"""What help and hints say, word for word."""


@triton.jit
def decode(
    Q, K, V, Part, PartLSE, head_q, row_q, head_k, row_k, row_part, HKV, GROUP, S, per_split,
    scale, D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    split, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    on = g[:, None] < GROUP
    q = tl.load(Q + h * head_q + g[:, None] * row_q + d[None, :], mask=on, other=0.0)
    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    for start in range(split * per_split, tl.minimum(split * per_split + per_split, S), BN):
        n = start + tl.arange(0, BN)
        here = n[:, None] < S
        k = tl.load(K + h * head_k + n[:, None] * row_k + d[None, :], mask=here, other=0.0)
        v = tl.load(V + h * head_k + n[:, None] * row_k + d[None, :], mask=here, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(n[None, :] >= S, float("-inf"), s)
        m_new = tl.maximum(m, tl.max(s, 1))
        correction, p = tl.exp(m - m_new), tl.exp(s - m_new[:, None])
        total = total * correction + tl.sum(p, 1)
        acc = acc * correction[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    rows = (split * HKV + h) * GROUP + g
    tl.store(Part + rows[:, None] * row_part + d[None, :], o, mask=on)
    tl.store(PartLSE + rows, m + tl.log(total), mask=g < GROUP)


def merge_parts(o, lse):
    weight = torch.softmax(lse, 0)
    weight = torch.where((lse == -torch.inf).all(0), torch.zeros_like(weight), weight)
    return (weight[..., None] * o).sum(0), torch.logsumexp(lse, 0)
