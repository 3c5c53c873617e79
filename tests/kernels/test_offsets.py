"""Elements beyond 2^31, which int32 cannot count: kernels reach them, or say that they do not.

The tensors lie in files with holes: only what is touched takes memory.
"""

import pytest
import torch
from attention_reference import inputs
from paged_inputs import paged
from quantized_inputs import codes, layer, rows

from efflib.kernels.attention_backward import attention_backward
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.kernels.paged_attention import paged_attention
from efflib.kernels.tma_attention import tma_attention
from efflib.kernels.w4a16 import w4a16_matmul
from efflib.kernels.w4a16_packed import packed_matmul
from efflib.kernels.w8a8 import int8_matmul
from efflib.kernels.windowed_attention import windowed_attention

FAR = 2**31


@pytest.fixture
def far(tmp_path):
    """far(t, dim): the values of t, the last of dim FAR elements or more behind the first.

    From three on, so that a step fits int32.  What wraps around meets zeros in front of the values.
    """
    files = []

    def moved(t, dim):
        step = -(-FAR // (t.shape[dim] - 1) // 16) * 16 + 16  # rows as aligned as TMA asks
        strides = list(t.contiguous().stride())
        strides[dim] = step
        size = FAR + step * t.shape[dim] + t.numel()
        files.append(tmp_path / f"{len(files)}")
        memory = torch.from_file(str(files[-1]), shared=True, size=size, dtype=t.dtype)
        return memory.as_strided(t.shape, strides, FAR).copy_(t)

    yield moved
    for file in files:
        file.unlink()


def same(got, want):
    """The same numbers in the same order, so equal bits."""
    if isinstance(want, torch.Tensor):
        got, want = [got], [want]
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b) and b.float().abs().max() > 0


@pytest.mark.parametrize("dim", [0, 1])
def test_batches_and_heads(far, dim):
    q, k, v = inputs(5, 20, 3, 3, B=3, dtype=torch.float16)
    moved = far(q, dim), far(k, dim), far(v, dim)
    options = {"causal": "bottom_right", "block_m": 16, "block_n": 16}
    o, lse = flash_attention(q, k, v, **options)
    same(flash_attention(*moved, **options), (o, lse))
    same(tma_attention(*moved, **options), tma_attention(q, k, v, **options))
    same(windowed_attention(*moved, 7, **options), windowed_attention(q, k, v, 7, **options))
    gradients = attention_backward(q, k, v, o, lse, q, None, "bottom_right", block=16, step=16)
    same(attention_backward(*moved, o, lse, q, None, "bottom_right", block=16, step=16), gradients)
    one = q[:, :, 0], k, v, None, 2, 16
    same(flash_decoding(far(one[0], dim), *moved[1:], None, 2, 16), flash_decoding(*one))


def test_rows_of_a_cache(far):
    """[B, Hkv, S, d] as a model that keeps tokens first lays it out."""
    q, k, v = inputs(1, 40, 2, 1, dtype=torch.float16)
    q = q[:, :, 0]
    want = flash_decoding(q, k, v, None, 2, 16)
    same(flash_decoding(q, far(k, 2), far(v, 2), None, 2, 16), want)


@pytest.mark.parametrize("dim", [0, 2])
def test_pages_and_heads_in_them(far, dim):
    q, k, v, table, lengths = paged([20, 33], 8, 3, 3, dtype=torch.float16, seed=3)
    assert table.max() == len(k) - 1  # the page that lies farthest away is used
    want = paged_attention(q, k, v, table, lengths, None, 2, 16)
    same(paged_attention(q, far(k, dim), far(v, dim), table, lengths, None, 2, 16), want)


@pytest.mark.parametrize("M", [3, 20])
def test_rows_of_linears(far, M):
    linear, x = layer(5, 64, 32), rows(M, 64, torch.float16)
    stored = linear.scale, linear.zeros, 32
    moved = far(x, 0), far(linear.words, 0)
    same(w4a16_matmul(*moved, *stored), w4a16_matmul(x, linear.words, *stored))
    same(w4a16_matmul(x[:1], moved[1], *stored), w4a16_matmul(x[:1], linear.words, *stored))
    if M <= 16:
        want = packed_matmul(x, linear.words, *stored, ptx=False)
        same(packed_matmul(*moved, *stored, ptx=False), want)
    x, w = codes(M, 48), codes(5, 48, 1)
    same(int8_matmul(far(x, 0), far(w, 0)), int8_matmul(x, w))


def test_rows_of_a_head_too_far_apart_are_refused():
    """Where int32 has to do; the tensors are on no device at all."""

    def wide(*shape, dim=2, step=2**27):
        strides = list(torch.empty(shape, device="meta").stride())
        strides[dim] = step
        return torch.empty_strided(shape, strides, dtype=torch.float16, device="meta")

    near, beyond = wide(1, 2, 16, 16), wide(1, 2, 17, 16)
    lse = torch.empty(1, 2, 16)
    message = "17 rows of {} that lie 134217728 elements apart.*use {}.contiguous()"
    for names, qkv in (("q", (beyond, near, near)), ("k", (near, beyond, beyond))):
        for run in (
            lambda q, k, v: flash_attention(q, k, v),
            lambda q, k, v: tma_attention(q, k, v),
            lambda q, k, v: windowed_attention(q, k, v, 3),
            lambda q, k, v: attention_backward(q, k, v, q, lse, q),
        ):
            with pytest.raises(ValueError, match=message.format(names, names)):
                run(*qkv)
    table = torch.zeros(1, 1, dtype=torch.int32)
    pages = wide(1, 32, 2, 16, dim=1)
    with pytest.raises(ValueError, match="32 rows of k that lie 134217728 elements apart"):
        paged_attention(torch.empty(1, 2, 16).half(), pages, pages, table, table[0])
    one = wide(1, 1, 2**27 + 1, 16, step=0)  # a row that is repeated: the result has all of them
    with pytest.raises(ValueError, match="134217729 rows of q that lie 16 elements apart"):
        flash_attention(one, near[:, :1], near[:, :1])
