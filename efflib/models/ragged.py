"""One pass over new tokens of several sequences, each with a cache of its own.

    embedding, norms, projections and MLP: all new tokens side by side, [T, D], one product
    attention: each sequence for itself, its new tokens over its own cache

That is what a step of continuous batching is (Yu et al. 2022, "Orca", section 3.2: selective
batching): weights are read once for all, and no sequence is padded to another's length.  Real
engines have one kernel for all attentions of a step; here it is a loop.

`Engine` is a clock for `efflib.traffic.simulate`: asked for the seconds of a step, it runs it.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from efflib.models.cache import KVCache
from efflib.models.llama import Llama, causal_mask, sdpa
from efflib.models.rotary import turn, turns


@torch.no_grad()
def ragged_pass(model: Llama, new: Sequence[Tensor], caches: Sequence[KVCache]) -> Tensor:
    """Logits [B, V] behind the last new token of each sequence; the caches grow.

    new: ids [n_i] of each sequence, n_i >= 1.
    """
    c, sizes = model.config, [len(ids) for ids in new]
    starts = [cache.length for cache in caches]
    at = torch.cat([torch.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)])  # [T]
    x = model.model.embed_tokens(torch.cat(list(new)))[None]  # [1, T, D]
    by = turns(at, c.head_dim, c.rope_theta, x.dtype, c.rope_scaling)
    for i, layer in enumerate(model.model.layers):
        own, read = layer.self_attn, layer.input_layernorm(x)
        heads = (1, x.shape[1], -1, c.head_dim)
        q, k, v = (
            p(read).view(heads).transpose(1, 2) for p in (own.q_proj, own.k_proj, own.v_proj)
        )
        q, k = turn(q, by), turn(k, by)  # [1, H, T, d]
        parts = []
        for cache, *qkv in zip(caches, *(y.split(sizes, 2) for y in (q, k, v)), strict=True):
            keys, values = cache.append(i, *qkv[1:])
            mask = causal_mask(qkv[0].shape[2], keys.shape[2])
            parts.append(sdpa(qkv[0], keys, values, mask))
        x = x + own.o_proj(torch.cat(parts, 2).transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    last = torch.tensor(sizes).cumsum(0) - 1
    return model.lm_head(model.model.norm(x[0, last]))


class Engine:
    """Runs the steps of a scheduler on a model; greedy.

    prompts: ids [P_i] of each request.  texts: what each has now, prompt and answer.  A request
    that comes with nothing cached, although it had a cache, was put back: it is computed again.
    """

    def __init__(self, model: Llama, prompts: Sequence[Tensor]) -> None:
        self.model = model
        self.texts = [ids.clone() for ids in prompts]
        self.caches: dict[int, KVCache] = {}

    def __call__(self, work: Sequence[tuple[int, int, int]]) -> float:
        """Runs a step over (request, new, cached) tokens; seconds of this process."""
        begin = time.process_time()
        for i, _, cached in work:
            if cached == 0:
                self.caches[i] = KVCache()
            if self.caches[i].length != cached:
                raise ValueError(f"request {i} has {self.caches[i].length} tokens, not {cached}")
        new = [self.texts[i][cached : cached + n] for i, n, cached in work]
        logits = ragged_pass(self.model, new, [self.caches[i] for i, _, _ in work])
        for (i, n, cached), row in zip(work, logits, strict=True):
            if cached + n == len(self.texts[i]):
                self.texts[i] = torch.cat([self.texts[i], row.argmax()[None]])
        return time.process_time() - begin


def timed(model: Llama, cases: Sequence[tuple[int, int, int]], repeats: int = 3) -> list[float]:
    """Seconds of steps of (requests, new, cached) tokens each, the best of some repeats."""
    found = []
    for requests, new, cached in cases:
        prompts = [torch.ones(cached + new, dtype=torch.int64)] * requests
        times = []
        for _ in range(repeats):
            engine = Engine(model, prompts)
            if cached:
                engine([(i, cached, 0) for i in range(requests)])
            times.append(engine([(i, new, cached) for i in range(requests)]))
        found.append(min(times))
    return found


def fit(
    cases: Sequence[tuple[int, int, int]], seconds: Sequence[float]
) -> tuple[float, float, float, float]:
    """(a, b, c, d) of seconds = a + b requests + c tokens + d keys read; least relative squares.

    None is below 0.
    """
    rows = [[1.0, r, r * n, r * n * (k + (n + 1) / 2)] for r, n, k in cases]
    left = torch.tensor(rows, dtype=torch.float64)
    right = torch.tensor(seconds, dtype=torch.float64)
    used = [0, 1, 2, 3]
    while True:  # what comes out below 0 is left out
        scaled = left[:, used] / right[:, None]
        found = torch.linalg.lstsq(scaled, torch.ones(len(right), 1, dtype=torch.float64)).solution
        if (found >= 0).all():
            return tuple(float(found[used.index(j)]) if j in used else 0.0 for j in range(4))
        used.pop(int(found.argmin()))


def fitted_clock(parts: tuple[float, float, float, float]):
    """Seconds of a step by `fit`."""
    a, b, c, d = parts

    def seconds(work: Sequence[tuple[int, int, int]]) -> float:
        met = sum(n * (k + (n + 1) / 2) for _, n, k in work)
        return a + b * len(work) + c * sum(n for _, n, _ in work) + d * met

    return seconds
