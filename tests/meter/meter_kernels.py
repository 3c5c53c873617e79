"""Small Triton kernels, some with a fault on purpose.  The interpreter must be on (conftest)."""

import triton
import triton.language as tl


@triton.jit
def copy(X, Out, n, N: tl.constexpr):
    """A block of N elements per program, the tail masked."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(Out + i, tl.load(X + i, mask=i < n), mask=i < n)


@triton.jit
def copy_tile(X, Out, rows, columns, row_x, col_x, row_o, col_o, R: tl.constexpr, C: tl.constexpr):
    """One tile, any strides."""
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (r < rows) & (c < columns)
    x = tl.load(X + r * row_x + c * col_x, mask=inside, other=0.0)
    tl.store(Out + r * row_o + c * col_o, x, mask=inside)


@triton.jit
def square(x):
    return x * x


@triton.jit
def sum_of_three(A, B, C, Out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(A + i), tl.load(B + i), tl.load(C + i)
    tl.store(Out + i, tl.exp(square(a)) + tl.exp2(b) + c)


@triton.jit
def softmax(X, Out, columns, stride, OTHER: tl.constexpr, N: tl.constexpr):
    """One row per program.  OTHER=False forgets what masked lanes are."""
    i = tl.arange(0, N)
    row = tl.program_id(0)
    if OTHER:
        x = tl.load(X + row * stride + i, mask=i < columns, other=float("-inf"))
    else:
        x = tl.load(X + row * stride + i, mask=i < columns)
    p = tl.exp(x - tl.max(x, 0))
    tl.store(Out + row * columns + i, p / tl.sum(p, 0), mask=i < columns)


@triton.jit
def copy_described(X, Out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Tensor descriptors made in the kernel; what lies outside is read as 0 and not written."""
    x = tl.make_tensor_descriptor(X, [rows, columns], [columns, 1], [R, C])
    out = tl.make_tensor_descriptor(Out, [rows, columns], [columns, 1], [R, C])
    r = tl.program_id(0) * R
    out.store([r, 0], x.load([r, 0]))


@triton.jit
def copy_descriptor(x, out, R: tl.constexpr):
    """Tensor descriptors made by the host."""
    r = tl.program_id(0) * R
    out.store([r, 0], x.load([r, 0]))


@triton.jit
def block_pointer(X, Out, N: tl.constexpr):
    p = tl.make_block_ptr(X, [N], [1], [0], [N], [0])
    tl.store(Out + tl.arange(0, N), tl.load(p))


@triton.jit
def total(X, Out, N: tl.constexpr, ATOMIC: tl.constexpr):
    """Every program adds its sum to Out[0]; without atomics they overwrite each other."""
    s = tl.sum(tl.load(X + tl.program_id(0) * N + tl.arange(0, N)), 0)
    if ATOMIC:
        tl.atomic_add(Out, s)
    else:
        tl.store(Out, tl.load(Out) + s)


@triton.jit
def shift(X, Out, N: tl.constexpr):
    """Out[i + 1] = X[i]; in place, programs write what their neighbours read."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(Out + i + 1, tl.load(X + i))


@triton.jit
def broadcast_then_write(X, Out):
    """All programs read X[0]; then program 1 writes Out[0]."""
    x = tl.load(X)
    if tl.program_id(0) == 1:
        tl.store(Out, x + 1)


@triton.jit
def last_adds_up(X, Partial, Count, Out, N: tl.constexpr, P: tl.constexpr, WAIT: tl.constexpr):
    """Each program stores its sum; the one that finishes last adds them.  WAIT=False: program 1."""
    me = tl.program_id(0)
    tl.store(Partial + me, tl.sum(tl.load(X + me * N + tl.arange(0, N)), 0))
    if WAIT:
        last = tl.atomic_add(Count, 1) == P - 1
    else:
        last = me == P - 1
    if last:
        tl.store(Out, tl.sum(tl.load(Partial + tl.arange(0, P)), 0))


@triton.jit
def locked_total(X, Lock, Out, N: tl.constexpr, LOCK: tl.constexpr):
    """Out[0] += sum, protected by a spin lock."""
    s = tl.sum(tl.load(X + tl.program_id(0) * N + tl.arange(0, N)), 0)
    if LOCK:
        while tl.atomic_cas(Lock, 0, 1) == 1:
            pass
    tl.store(Out, tl.load(Out) + s)
    if LOCK:
        tl.atomic_xchg(Lock, 0)


@triton.jit
def scatter(Index, X, Out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(Out + tl.load(Index + i), tl.load(X + i))


@triton.jit
def through_address(Addresses, Out, N: tl.constexpr):
    """Reads a tensor whose address lies in another tensor: not an argument."""
    p = tl.load(Addresses).to(tl.pointer_type(tl.float32))
    tl.store(Out + tl.arange(0, N), tl.load(p + tl.arange(0, N)))


@triton.jit
def one_of_two(A, B, Out, N: tl.constexpr):
    """Even elements of A, odd ones of B, in one load."""
    i = tl.arange(0, N)
    tl.store(Out + i, tl.load(tl.where(i % 2 == 0, A + i, B + i)))


@triton.jit
def bytes_of(X, Out, N: tl.constexpr):
    """The bytes of 16-bit words, through a pointer cast to another type."""
    p = X.to(tl.pointer_type(tl.uint8))
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(Out + i, tl.load(p + i))


@triton.jit
def add_tuple(pair, Out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(Out + i, tl.load(pair[0] + i) + tl.load(pair[1] + i))


@triton.jit
def copy_with_holes(X, Out, n, N: tl.constexpr):
    """Loads n elements and stores N."""
    i = tl.arange(0, N)
    tl.store(Out + i, tl.load(X + i, mask=i < n))


@triton.jit
def copy_bytes(X, Out, step, N: tl.constexpr):
    """N bytes per program, every `step` bytes, through pointers cast to bytes."""
    i = tl.program_id(0) * step + tl.arange(0, N)
    out = Out.to(tl.pointer_type(tl.uint8))
    tl.store(out + i, tl.load(X.to(tl.pointer_type(tl.uint8)) + i))


@triton.jit
def read_again(X, Out, blocks, N: tl.constexpr):
    """Every program sums all of X, block by block."""
    acc = tl.zeros([N], tl.float32)
    for block in range(0, blocks):
        acc += tl.load(X + block * N + tl.arange(0, N))
    tl.store(Out + tl.program_id(0), tl.sum(acc, 0))


@triton.jit
def hand_over(X, Data, Flag, Out, ATOMIC: tl.constexpr):
    """Program 0 stores a value and raises a flag; program 1 waits for the flag and reads it."""
    if tl.program_id(0) == 0:
        tl.store(Data, tl.load(X) + 1)
        if ATOMIC:
            tl.atomic_store(Flag, 1, sem="release")
        else:
            tl.store(Flag, 1)
    else:
        if ATOMIC:
            while tl.atomic_load(Flag, sem="acquire") == 0:
                pass
        else:
            while tl.load(Flag) == 0:
                pass
        tl.store(Out, tl.load(Data))


@triton.jit
def dot_scaled(A, ScaleA, B, ScaleB, Out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A in 4 bits, two numbers a byte, with one scale for 32 of them; B in 8 bits."""
    m, n, k, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    half = tl.arange(0, K // 2)
    a = tl.load(A + m[:, None] * (K // 2) + half[None, :])
    b = tl.load(B + k[:, None] * N + n[None, :])
    scale_a = tl.load(ScaleA + m[:, None] * (K // 32) + g[None, :])
    scale_b = tl.load(ScaleB + n[:, None] * (K // 32) + g[None, :])
    out = tl.dot_scaled(a, scale_a, "e2m1", b, scale_b, "e5m2")
    tl.store(Out + m[:, None] * N + n[None, :], out)


@triton.jit
def shows_twice(X, Out, N: tl.constexpr):
    """A tile, and a broadcast view of it that is never made."""
    i = tl.arange(0, N)
    x = tl.load(X + i)
    wide = tl.broadcast_to(x[None, :], [N, N])
    tl.store(Out + i, x)
    tl.static_assert(wide.shape[0] == N)


@triton.jit
def masked_by_a_number(X, Out, n, KIND: tl.constexpr, N: tl.constexpr):
    """Masks whose condition holds a number: `on & (n > 0)`."""
    i = tl.arange(0, N)
    if KIND == "and":
        on = (i < n) & (n > 0)
    elif KIND == "not":
        on = ~((i >= n) | (n < 0))
    else:
        on = (i < n) & ~(n < 0)
    tl.atomic_add(Out + i, tl.load(X + i, mask=on, other=0.0), mask=on)
    tl.store(X + i, tl.load(X + i, mask=on, other=0.0) + 1, mask=on)


@triton.jit
def rows_apart(X, Out, row, LONG: tl.constexpr, N: tl.constexpr):
    """Row r of X begins at r * row, in int32 or in int64."""
    r = tl.program_id(0)
    if LONG:
        r = r.to(tl.int64)
    i = tl.arange(0, N)
    tl.store(Out + tl.program_id(0) * N + i, tl.load(X + r * row + i))


@triton.jit
def product(A, B, Out, PRECISION: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a, b = tl.load(A + i * 16 + j), tl.load(B + i * 16 + j)
    tl.store(Out + i * 16 + j, tl.dot(a, b, input_precision=PRECISION))
