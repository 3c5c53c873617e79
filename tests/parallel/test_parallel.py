"""efflib.parallel against the dense computation, rank by rank, on the counting communicator."""

import math

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from efflib import zoo
from efflib.models.checkpoint import save_pretrained
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama
from efflib.models.rotary import turns
from efflib.moe.layer import mixture_by_loop
from efflib.moe.router import route
from efflib.parallel.communicator import share, total
from efflib.parallel.experts import expert_parallel
from efflib.parallel.heads import (
    cached_numbers,
    heads_of,
    out_part,
    parallel_attention,
    qkv_part,
    reads,
)
from efflib.parallel.llama import Stage, TensorLlama, pipeline
from efflib.parallel.ring import ring_all_reduce, sent_bytes
from efflib.parallel.tensor import (
    column_part,
    parallel_mlp,
    row_part,
    sequence_parallel_mlp,
)
from efflib.parallel.together import run_together
from efflib.parallel.vocabulary import cross_entropy, embed, next_token
from efflib.zoo.checkpoints import FOLDER

F64 = torch.float64
CLOSE = {"atol": 1e-11, "rtol": 1e-11}  # float64 sums of some hundred numbers of size 1


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 40), st.integers(1, 9))
def test_shares_are_neighbours_and_even(n, size):
    parts = [share(n, r, size) for r in range(size)]
    assert parts[0][0] == 0 and parts[-1][1] == n
    assert all(a[1] == b[0] for a, b in zip(parts, parts[1:], strict=False))
    assert [b - a for a, b in parts] == [len(t) for t in torch.arange(n).tensor_split(size)]


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_the_mlp_in_parts_is_the_mlp(size, inner, biased):
    x, d = draw(4, 6), 6
    w = [draw(inner, d, seed=1), draw(inner, d, seed=2), draw(d, inner, seed=3)]
    b = [draw(inner, seed=4), draw(inner, seed=5), draw(d, seed=6)] if biased else [None] * 3
    right = F.linear(F.silu(F.linear(x, w[0], b[0])) * F.linear(x, w[1], b[1]), w[2], b[2])
    args = [
        (
            x,
            column_part(w[0], b[0], r, size),
            column_part(w[1], b[1], r, size),
            (row_part(w[2], r, size), b[2]),
        )
        for r in range(size)
    ]
    ys, calls, _ = run_together(parallel_mlp, args)
    for y, own in zip(ys, calls, strict=True):
        torch.testing.assert_close(y, right, **CLOSE)
        assert [(c.kind, c.sent) for c in own] == [("all_reduce", 8 * x.numel())]
    assert all(torch.equal(y, ys[0]) for y in ys)


def test_sequence_parallel_is_the_same_for_a_share_of_the_tokens():
    size, x = 2, draw(4, 6)
    w = [draw(8, 6, seed=1), draw(8, 6, seed=2), draw(6, 8, seed=3)]
    right = F.linear(F.silu(F.linear(x, w[0])) * F.linear(x, w[1]), w[2])
    args = [
        (
            x[2 * r : 2 * r + 2],
            column_part(w[0], None, r, size),
            column_part(w[1], None, r, size),
            (row_part(w[2], r, size), None),
        )
        for r in range(size)
    ]
    ys, calls, _ = run_together(sequence_parallel_mlp, args)
    torch.testing.assert_close(torch.cat(ys), right, **CLOSE)
    n = 8 * x.numel()
    both = sent_bytes("all_gather", n / size, size) + sent_bytes("reduce_scatter", n, size)
    assert both == sent_bytes("all_reduce", n, size)
    assert [c.kind for c in calls[0]] == ["all_gather", "reduce_scatter"]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.sampled_from([(6, 6), (6, 3), (6, 2), (4, 1), (8, 4)]))
def test_attention_in_parts_is_attention(size, sizes):
    heads, kv = sizes
    d, width, x = 4, 8, draw(2, 3, 8)
    qkv, out = draw((heads + 2 * kv) * d, width, seed=1), draw(width, heads * d, seed=2)
    by = turns(torch.arange(3), d, 10000.0, F64)
    [right], _, _ = run_together(
        parallel_attention,
        [(x, qkv, out, [h * kv // heads for h in range(heads)], d, by)],
    )
    args = []
    for r in range(size):
        own, kept = heads_of(r, size, heads, kv)
        which = reads(own, kept, heads, kv)
        part = qkv_part(qkv, r, size, heads, kv)
        args.append((x, part, out_part(out, r, size, heads), which, d, by))
    ys, calls, _ = run_together(parallel_attention, args)
    for y, own in zip(ys, calls, strict=True):
        torch.testing.assert_close(y, right, **CLOSE)
        assert total(own) == (1, 8 * x.numel())


def test_the_dense_attention_is_the_models():
    c = LlamaConfig(11, 8, 5, 1, 4, 2, 4)
    torch.manual_seed(0)
    layer = Llama(c).double().model.layers[0].self_attn
    x, by = draw(2, 3, 8), turns(torch.arange(3), 4, c.rope_theta, F64)
    qkv = torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight])
    args = [(x, qkv, layer.o_proj.weight, [0, 0, 1, 1], 4, by)]
    [y], _, _ = run_together(parallel_attention, args)
    torch.testing.assert_close(y, layer(x, by, None, None), **CLOSE)


def test_copies_cost_memory():
    assert [cached_numbers(p, 32, 8, 128)[0] for p in (1, 2, 8, 16, 32)] == [
        2048,
        1024,
        256,
        256,
        256,
    ]
    assert cached_numbers(16, 32, 8, 128)[1] == 2 * cached_numbers(1, 32, 8, 128)[1]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 9), st.sampled_from([1e-8, 1.0, 1e4]))
def test_the_loss_of_a_vocabulary_in_parts(size, vocabulary, scale):
    hidden, head = scale * draw(5, 3), draw(vocabulary, 3, seed=1)
    targets = torch.arange(5) % vocabulary
    right = F.cross_entropy(hidden @ head.T, targets, reduction="none")
    cuts = [share(vocabulary, r, size) for r in range(size)]
    args = [(hidden, head[a:b], targets, a) for a, b in cuts]
    losses, calls, _ = run_together(cross_entropy, args)
    for loss, own in zip(losses, calls, strict=True):
        torch.testing.assert_close(loss, right, atol=1e-11 * max(1, scale), rtol=1e-11)
        assert total(own) == (2, 3 * 5 * 8)
    tokens, _, _ = run_together(next_token, [(hidden, head[a:b], a) for a, b in cuts])
    assert all(torch.equal(t, (hidden @ head.T).argmax(-1)) for t in tokens)
    rows, _, _ = run_together(embed, [(targets.view(5, 1), head[a:b], a) for a, b in cuts])
    assert all(torch.equal(r, head[targets.view(5, 1)]) for r in rows)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(0, 30))
def test_the_ring_sums_and_sends_no_more_than_it_must(size, n):
    xs = [draw(n, seed=r) for r in range(size)]
    ys, calls, ticks = run_together(ring_all_reduce, [(x,) for x in xs])
    torch.testing.assert_close(ys[0], sum(xs), **CLOSE)
    assert all(torch.equal(y, ys[0]) for y in ys)
    assert max(ticks) <= 6 * (size - 1)
    for own in calls:
        sent = [c for c in own if c.kind == "send"]
        assert len(sent) == 2 * (size - 1)
        assert all(c.sent <= 8 * -(-n // size) for c in sent)
    everything = sum(total(own)[1] for own in calls)
    assert math.isclose(everything, size * sent_bytes("all_reduce", 8 * n, size))


def test_experts_in_parts():
    class Expert(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.w = draw(4, 4, seed=seed)

        def forward(self, x):
            return torch.tanh(x @ self.w)

    size, experts = 3, [Expert(e) for e in range(5)]
    xs = [draw(t, 4, seed=20 + t) for t in (4, 1, 6)]
    routes = [route(draw(len(x), 5, seed=30 + len(x)), 2) for x in xs]
    cuts = [share(5, r, size) for r in range(size)]
    args = [(xs[r], routes[r], experts[slice(*cuts[r])], 5) for r in range(size)]
    ys, _, _ = run_together(expert_parallel, args)
    for x, by, y in zip(xs, routes, ys, strict=True):
        torch.testing.assert_close(y, mixture_by_loop(x, by, experts), atol=1e-6, rtol=1e-6)


def in_ranks(folder, ids, comm):
    part = TensorLlama(folder, comm, torch.float64)
    return part.losses(ids), part.greedy(ids, 3), part.parameters()


def staged(folder, ids, comm):
    stage = Stage(folder, comm.rank, comm.size)
    return pipeline(stage, list(ids.split(1)), comm)


def test_a_llama_in_parts_is_the_model(tmp_path):
    torch.manual_seed(0)
    c = LlamaConfig(23, 12, 10, 3, 6, 2, 4, tie_word_embeddings=False)
    model = Llama(c).eval()
    save_pretrained(model, tmp_path)
    model = model.double()
    ids = torch.randint(23, (2, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(ids)
        right = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        text = ids
        for _ in range(3):
            text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], 1)
    for size in (1, 2, 4):
        got, calls, _ = run_together(in_ranks, [(tmp_path, ids)] * size)
        for losses, greedy, _ in got:
            torch.testing.assert_close(losses.flatten(), right, atol=1e-6, rtol=1e-6)
            assert torch.equal(greedy, text)
        if size == 1:
            assert got[0][2] == sum(p.numel() for p in model.parameters())
        forward = 2 * 3 + 1
        assert total(calls[0], "all_reduce")[0] == 4 * forward + 2
        staged_, _, _ = run_together(staged, [(tmp_path, ids)] * min(size, 3))
        torch.testing.assert_close(torch.cat(staged_[-1]).double(), logits, atol=1e-5, rtol=1e-5)


def test_the_zoos_target_in_four_parts():
    model = zoo.load("target")
    ids = torch.randint(2048, (1, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        right = F.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="none")
    got, _, _ = run_together(in_ranks, [(FOLDER / "target", ids)] * 4)
    torch.testing.assert_close(got[0][0][0].float(), right, atol=1e-4, rtol=1e-4)
