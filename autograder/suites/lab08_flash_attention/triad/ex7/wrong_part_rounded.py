"""Parts are rounded to the dtype of the inputs."""

FAILS = ["test_splits"]


@triton.jit
def decode(
    Q,  # [HKV, GROUP, D]
    K,  # [HKV, S, D]
    V,
    Part,  # [splits HKV GROUP, D]
    PartLSE,  # [splits HKV GROUP]
    head_q,
    row_q,
    head_k,  # of K and V
    row_k,
    row_part,
    HKV,
    GROUP,
    S,
    per_split,
    scale,
    D: tl.constexpr,
    BG: tl.constexpr,
    BN: tl.constexpr,
):
    """A split of the keys of key head h, for its GROUP queries. Grid: (splits, HKV)."""
    split, h = tl.program_id(0), tl.program_id(1).to(tl.int64)
    g, d = tl.arange(0, BG), tl.arange(0, D)
    on = g[:, None] < GROUP
    q = tl.load(Q + h * head_q + g[:, None] * row_q + d[None, :], mask=on, other=0.0)  # [BG, D]
    m = tl.full([BG], float("-inf"), tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    first = split * per_split
    end = tl.minimum(first + per_split, S)
    for start in range(first, end, BN):
        cols = start + tl.arange(0, BN)
        at_k = h * head_k + cols[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=cols[:, None] < S, other=0.0)
        v = tl.load(V + at_k, mask=cols[:, None] < S, other=0.0)
        s = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        s = tl.where(cols[None, :] < S, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        old = tl.exp(m - new)
        p = tl.exp(s - new[:, None])
        total = total * old + tl.sum(p, 1)
        acc = acc * old[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = new
    row = (split * HKV + h) * GROUP + g
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    o = o.to(Q.dtype.element_ty).to(tl.float32)
    tl.store(Part + row[:, None] * row_part + d[None, :], o, mask=on)
    tl.store(PartLSE + row, m + tl.log(total), mask=g < GROUP)


def merge_parts(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """(o [R, d], lse [R]) over all keys, from parts o [n, R, d] and lse [n, R]."""
    whole = torch.logsumexp(lse, 0)
    base = torch.where(whole == -torch.inf, torch.zeros_like(whole), whole)
    return (torch.exp(lse - base)[:, :, None] * o).sum(0), whole
