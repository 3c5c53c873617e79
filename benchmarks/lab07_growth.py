"""Models of one head for lab07_tables.py: trained with and without a token to rest on."""

import torch
from torch import Tensor

from efflib.attention.sink_bias import SinkBias, sink_softmax
from efflib.attention.streaming import StreamingCache, stream_logits
from efflib.models import KVCache, Llama
from efflib.zoo import backcopy

STEPS = 300


def idle_share(model: Llama, ids: Tensor, late: Tensor) -> list[float]:
    """Of late queries that need no head: share of the first token, of no token, tokens that as wide
    a look would spread over evenly, size of what the head gives; and that size after triggers."""
    attn = model.model.layers[0].self_attn
    own, seen = attn._modules.pop("attention", None), []
    plain = None if own else attn.attention

    def recording(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        s = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
        p = sink_softmax(s, own.bias) if own else s.softmax(-1)
        seen.extend(x[:, 0, -late.shape[1] :] for x in (p, p @ v))
        return p @ v

    attn.attention = recording
    with torch.no_grad():
        model(ids)
    attn.attention = own if own else plain
    p, size = seen[0], seen[1].norm(dim=-1)
    own = p / p.sum(-1, keepdim=True)
    entropy = -(own * own.clamp(min=1e-9).log()).sum(-1)
    wide = entropy[late].mean().exp()
    found = p[..., 0][late].mean(), (1 - p.sum(-1))[late].mean(), wide
    return [x.item() for x in (*found, size[late].mean(), size[~late].mean())]


def grown(task: backcopy.Task, chains: Tensor, name: str, seed: int) -> tuple[tuple, list[float]]:
    """Train one model: ((steps, shares of the first token), the numbers of its row)."""
    late = ~task.is_trigger[chains[:, 13:-1]]
    model, begin = backcopy.one_head_model(seed=seed), name == "begin token"
    if name in ("extra zero", "learned bias"):
        model.model.layers[0].self_attn.attention = bias = SinkBias(1)
        bias.bias.requires_grad_(name == "learned bias")
    ids, curve = chains[:, 0 if begin else 1 :], ([], [])
    for step, _ in backcopy.train(model, task, STEPS, seed=seed, begin=begin):
        if step == 1 or step % 50 == 0:
            curve[0].append(step)
            curve[1].append(idle_share(model, ids[:, :-1], late)[0])
    theta, excess = (
        model.config.rope_theta,
        [],
    )  # nats above the best possible loss, of idle queries
    for pinned in (None, (), (0,), (2,)):
        cache = KVCache() if pinned is None else StreamingCache(8, pinned, theta)
        logits = stream_logits(model, ids[:, :-1], cache)
        more = backcopy.excess_loss(task, logits, ids)
        excess.append(more[:, -late.shape[1] :][late].mean().item())
    rises = [x - excess[0] for x in excess[1:]]
    return curve, [*idle_share(model, ids[:, :-1], late), excess[0], *rises]
