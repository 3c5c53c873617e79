"""exp(x - (max + log of the sum)): no division."""


@triton.jit
def row_softmax(X, Y, row_x, row_y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    on = j < N
    x = tl.load(X + r * row_x + j, mask=on, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(
        Y + r * row_y + j,
        tl.exp(x - (tl.max(x, 0) + tl.log(tl.sum(e, 0)))).to(Y.dtype.element_ty),
        mask=on,
    )
