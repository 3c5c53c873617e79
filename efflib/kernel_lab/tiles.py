"""Tiled attention in PyTorch, beside functions that count what it reads and writes."""

from __future__ import annotations

import torch

from efflib.kernel_lab.attention import exact, scores_off
from efflib.kernel_lab.cases import normal
from efflib.lab.expect import expect_close, expect_tensor


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
    off = scores_off(scale * q @ k.T) * float(v.abs().max())
    expect_close(seen["o"], o[0], what="o", atol=3e-5 + off)
    expect_close(seen["lse"], lse[0], what="lse", atol=3e-5)
    many = -(-T // blocks[0])
    for name, right in (("q", 1), ("k", many), ("v", many)):
        times = sorted(set(seen[name].int().tolist()))
        assert times == [right], f"rows of {name} were read {times} times, {right} is right"
