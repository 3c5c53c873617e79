"""Tiled attention in PyTorch, beside functions that count what it reads and writes."""

from __future__ import annotations

import torch

from efflib.kernel_lab.attention import exact, scores_off
from efflib.kernel_lab.cases import normal
from efflib.lab.expect import expect_at_most, expect_close, expect_tensor


def memory(q, k, v, blocks):
    """(read, write, what happened): q, k, v behind functions that count."""
    T, d = q.shape
    stored = {"q": q, "k": k, "v": v}
    seen = {name: torch.zeros(len(t)) for name, t in stored.items()}
    seen |= {"o": torch.full((T, d), torch.nan), "lse": torch.full((T,), torch.nan), "n": 0}
    most = {"q": blocks[0], "k": blocks[1], "v": blocks[1]}

    def read(name, start, stop):
        assert name in stored, f'read({name!r}, ...): there are "q", "k" and "v"'
        size = len(stored[name])
        assert 0 <= start < stop <= size, f"read({name!r}, {start}, {stop}): it has {size} rows"
        longest = most[name]
        assert stop - start <= longest, f"{stop - start} rows of {name} at once: at most {longest}"
        seen[name][start:stop] += 1
        ahead = abs(int(seen["k"].sum() - seen["v"].sum()))
        assert ahead <= 2 * blocks[1], (
            f"{ahead} rows of k and v came without each other: the scores of more than two blocks "
            "of keys are kept, which a chip has no room for"
        )
        return stored[name][start:stop]

    def write(start, stop, o, lse):
        assert 0 <= start < stop <= T, f"write({start}, {stop}, ...): there are {T} queries"
        expect_tensor(o, "o", torch.float32, (stop - start, d))
        expect_tensor(lse, "lse", torch.float32, (stop - start,))
        assert seen["lse"][start:stop].isnan().all(), f"rows {start} to {stop} are written twice"
        seen["o"][start:stop], seen["lse"][start:stop] = o, lse
        seen["n"] += 1

    return read, write, seen


def expect_tiled(student, rng, T, S, d, scale, blocks, low=0.0):
    """low: elements of k are about so far below 0, and whole numbers, so that scores are exact."""
    q, k, v = normal(rng, T, d), normal(rng, S, d), normal(rng, S, d)
    if low:
        q, k = torch.ones_like(q), (k - low).round()
    read, write, seen = memory(q, k, v, blocks)
    value = student.tiled_attention(T, S, read, write, scale, *blocks)
    assert value is None, "tiled_attention returns nothing: it writes"
    o, lse = exact(q[None], k[None], v[None], scale, False)
    # a score is a sum of d products, each rounded, and so is every step; then times log2(e)
    off = (d + 4) * scores_off(scale * q @ k.T)
    expect_close(seen["o"], o[0], what="o", atol=(3e-5 + off) * max(1.0, float(v.abs().max())))
    expect_close(seen["lse"], lse[0], what="lse", atol=3e-5 + off)
    many = -(-T // blocks[0])
    for name, right in (("q", 1), ("k", many), ("v", many)):
        times = sorted(set(seen[name].int().tolist()))
        assert times == [right], f"rows of {name} were read {times} times, {right} is right"


def weighed_walk(student, q, k, v, scale, block_m, block_n):
    """Driver: (o, lse, most bytes of tensors alive at once when memory is read or written)."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    made, most = {}, 0
    stored = {"q": q, "k": k, "v": v}
    o, lse = torch.full_like(q, torch.nan), torch.full((len(q),), torch.nan)

    class Weigh(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    if storage._cdata not in outside:
                        made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            return result

    def weigh():
        nonlocal most
        for key in [key for key, (alive, _) in made.items() if alive.expired()]:
            del made[key]
        most = max(most, sum(size for _, size in made.values()))

    def read(name, start, stop):
        weigh()
        return stored[name][start:stop].clone()

    def write(start, stop, rows, logs):
        weigh()
        o[start:stop], lse[start:stop] = rows, logs

    outside = {x.untyped_storage()._cdata for x in (q, k, v, o, lse)}  # not on the chip
    with Weigh():
        student.tiled_attention(len(q), len(k), read, write, scale, block_m, block_n)
    return o, lse, most


def expect_few_alive(student, rng, block_m, block_n):
    """Fails if more is alive in a long walk than in a short one: a row of scores, or all values.

    Room for four blocks of keys or values and their scores may be more: they wait.
    """
    d, most = 16, {}
    for blocks in (5, 40):
        T, S = 2 * block_m, blocks * block_n
        q, k, v = normal(rng, T, d), normal(rng, S, d), normal(rng, S, d)
        o, lse, most[S] = student.drive(weighed_walk, q, k, v, 0.25, block_m, block_n)
        right, sums = exact(q[None], k[None], v[None], 0.25, False)
        expect_close(o, right[0], what="o", atol=3e-5 * max(1.0, float(v.abs().max())))
        expect_close(lse, sums[0], what="lse", atol=3e-5)
    (short, few), (long, many) = most.items()
    wait = 4 * 4 * (block_n * d + block_m * block_n)
    expect_at_most(many, few + wait, f"bytes alive at once with {long} keys ({few:,} with {short})")
