"""A tile [1, BLOCK], and tl.where for the end."""


@triton.jit
def row_softmax(X, Y, row_x, row_y, N, BLOCK: tl.constexpr):
    X += tl.program_id(0).to(tl.int64) * row_x
    Y += tl.program_id(0).to(tl.int64) * row_y
    j = tl.arange(0, BLOCK)[None, :]
    on = j < N
    x = tl.load(X + j, mask=on, other=0.0).to(tl.float32)
    x = tl.where(on, x, float("-inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    e = e / tl.sum(e, 1)[:, None]
    tl.store(Y + j, e.to(Y.dtype.element_ty), mask=on)
