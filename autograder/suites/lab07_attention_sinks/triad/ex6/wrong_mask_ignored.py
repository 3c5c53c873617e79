"""Every query sees every key."""

import math

FAILS = ["test_attention_and_its_gradients", "test_gradients_and_groups"]


def sink_attention(q, k, v, mask, bias):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return sink_softmax(scores, bias) @ v
