"""Sums of products instead of tl.dot, heads of a group in one tile."""


@triton.jit
def decode(
    Q, K, V, Part, PartLSE, head_q, row_q, head_k, row_k, row_part, HKV, GROUP, S, per_split,
    scale, D: tl.constexpr, BG: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    split, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    at = Q + h * head_q + g[:, None] * row_q + d[None, :]
    q = tl.load(at, mask=(g < GROUP)[:, None], other=0.0).to(tl.float32) * scale
    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    begin = split * per_split
    for start in tl.range(begin, tl.minimum(begin + per_split, S), BN):
        n = start + tl.arange(0, BN)
        at_k = h * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=(n < S)[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + at_k, mask=(n < S)[:, None], other=0.0).to(tl.float32)
        s = tl.sum(q[:, None, :] * k[None, :, :], 2)
        s = tl.where((n < S)[None, :], s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp(s - larger[:, None]), tl.exp(m - larger)
        total = total * old + tl.sum(p, 1)
        acc = acc * old[:, None] + tl.sum(p[:, :, None] * v[None, :, :], 1)
        m = larger
    row = (split * HKV + h) * GROUP + g
    o = tl.where(total[:, None] > 0, acc / total[:, None], 0.0)
    tl.store(Part + row[:, None] * row_part + d[None, :], o, mask=(g < GROUP)[:, None])
    tl.store(PartLSE + row, m + tl.log(total), mask=g < GROUP)


def merge_parts(o, lse):
    weight = lse.softmax(0).nan_to_num(0.0)
    return torch.einsum("nr,nrd->rd", weight, o), lse.logsumexp(0)
