"""The largest score so far starts at -100."""

FAILS = ["test_splits_hard_scores"]


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
    m = tl.full([BG], -100.0, tl.float32)
    total = tl.zeros([BG], tl.float32)
    acc = tl.zeros([BG, D], tl.float32)
    stop = tl.minimum(split * per_split + per_split, S)
    for start in range(split * per_split, stop, BN):
        n = start + tl.arange(0, BN)
        at_k = h * head_k + n[:, None] * row_k + d[None, :]
        k = tl.load(K + at_k, mask=n[:, None] < S, other=0.0)  # [BN, D]
        v = tl.load(V + at_k, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # [BG, BN]
        s = tl.where(n[None, :] < S, s, float("-inf"))
        m, total, acc = absorb(m, total, acc, s, v)
    row = (split * HKV + h) * GROUP + g
    o = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(Part + row[:, None] * row_part + d[None, :], o, mask=on)
    tl.store(PartLSE + row, m + tl.log(total), mask=g < GROUP)
