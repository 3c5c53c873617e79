"""The roofline of decoding: tokens per second from the bytes that a step moves.

    step   = max( (weight bytes + B kv bytes) / bandwidth,   B flops / peak )        [seconds]
    rate   = B / step                                                      [tokens per second]
    ridge  = weight bytes / bandwidth / (flops / peak - kv bytes / bandwidth)       [sequences]
    woken  = E (1 - (1 - k / E)^tokens)     experts of a layer that so many tokens wake, by lot

One step makes one token for each of B sequences.  Weights are read once for all of them, keys and
values for each.  At B = 1 a matrix does 2 FLOPs with every weight it reads, and machines can do
hundreds in that time: bytes decide, so weights of 4 bits decode up to 4 times as fast although
they compute in 16 (W4A16).  From the ridge on computing decides, and smaller weights gain nothing.

These are bounds.  What is measured lies below: 16.17 and 6.02 ms a token for Llama-2-7B on an RTX
4090 (llm-awq's README, in 16 bits and with AWQ), that is 61.8 and 166 tokens per second, are 83 %
and 64 % of them with 512 tokens cached.  A roofline compares ceilings: compare equal programs.

A prompt of P tokens is read in one step as well (prefill): the weights once, P times the FLOPs.  So
prefill is bound by computing where decoding is bound by bytes, and a request that makes n tokens
takes

    latency = TTFT + (n - 1) TPOT        TTFT: the first token comes from the prefill
                                         TPOT: the mean of the n - 1 steps behind it

(the lecture's n TPOT counts the first token twice).  Here both are bounds from below too: a request
that waits for others, or shares steps with them, takes longer.
Source of the model: Williams, Waterman, Patterson 2009, "Roofline"; for decoding: Pope et al. 2022
(arXiv:2211.05102), section 2.  Rates of GPUs: `efflib.meter.roofline.GPUS`.

A mixture reads the experts that its tokens wake, in the mean if each chose k of E by lot: k of
them at B = 1, all for a crowd or a prompt.  Real texts wake fewer, so for mixtures the time is a
bound up to that; `efflib.moe.traffic` says more.

Not counted: activations (kilobytes beside gigabytes), the one row of the embedding that a token
reads, and the time to start kernels, which is what bounds a small model.
"""

import math
from typing import NamedTuple

from torch import nn

from efflib.checks import expect_whole
from efflib.models.llama import LlamaConfig
from efflib.quantization.size import model_bits
from efflib.serving.decoder import Decoder
from efflib.serving.memory import FP16, Format, layer_values

FLOAT_BITS = 16  # of keys and values, and of weights that are not quantized


class Step(NamedTuple):
    """What one step moves and computes."""

    weights: float  # bytes read once, whatever the batch
    kv: float  # bytes read for each sequence
    flops: float  # for each sequence
    expert: float = 0.0  # bytes of one routed expert in all layers
    routed: int = 1  # E
    used: int = 1  # k
    tokens: int = 1  # of each sequence, in this step


class Machine(NamedTuple):
    """Peak rates: bytes per second from memory, FLOPs per second."""

    bandwidth: float
    peak: float


RTX_4090 = Machine(1.008e12, 165.2e12)  # NVIDIA Ada whitepaper; fp16 with fp32 accumulation


def kv_bytes(config: LlamaConfig, tokens: int, bits: int = FLOAT_BITS) -> float:
    """Bytes of the keys and values of one sequence of so many tokens."""
    expect_whole(tokens=tokens)
    expect_whole(1, bits=bits)
    heads = config.num_key_value_heads * config.head_dim
    return 2 * config.num_hidden_layers * heads * tokens * bits / 8


def decode_step(
    model: nn.Module, bits: int | None = None, group_size: int = 128, tokens: int = 0
) -> Step:
    """The step of a Llama whose linears are stored with `bits` (None: 16) in groups of group_size.

    tokens: how many are in the cache.  Only shapes are read, so the model may be on the device
    "meta".  lm_head stays in 16 bits; a token table that is not also lm_head is not read.
    """
    config = model.config
    expect_whole(1, group_size=group_size)
    stored = model_bits(model, bits, group_size if bits else "tensor")
    embedding = config.vocab_size * config.hidden_size
    parameters = sum(p.numel() for p in model.parameters())
    if not config.tie_word_embeddings:
        stored -= FLOAT_BITS * embedding
        parameters -= embedding
    # attention multiplies each query with all keys and the weights with all values: 2 + 2 per value
    width = config.num_attention_heads * config.head_dim
    attention = 4 * config.num_hidden_layers * width * tokens
    return Step(stored / 8, kv_bytes(config, tokens), 2 * parameters + attention)


def woken(routed: int, used: int, tokens: float) -> float:
    """Experts of a layer that so many tokens wake in the mean, if each chose `used` by lot."""
    return routed * (1 - (1 - used / routed) ** tokens)


def weights_read(step: Step, batch: float = 1) -> float:
    """Bytes of weights that a step with `batch` sequences reads."""
    return step.weights + step.expert * woken(step.routed, step.used, batch * step.tokens)


def step_seconds(step: Step, machine: Machine, batch: int = 1) -> float:
    """The least time of a step with `batch` sequences.  Raises ValueError for batch < 1."""
    expect_whole(1, batch=batch)
    reading = (weights_read(step, batch) + batch * step.kv) / machine.bandwidth
    return max(reading, batch * step.flops / machine.peak)


def tokens_per_second(step: Step, machine: Machine, batch: int = 1) -> float:
    """Tokens per second of all sequences together, at most."""
    return batch / step_seconds(step, machine, batch)


def ridge_batch(step: Step, machine: Machine) -> float:
    """The batch from which on a step is bound by computing; inf if reading always takes longer.

    With experts: reading minus computing bends down over the batch and begins above 0, so there is
    one such batch, between the ridge without routed experts and that with all of them awake.
    """
    lead = step.flops / machine.peak - step.kv / machine.bandwidth  # of one more sequence
    if lead <= 0:
        return math.inf
    low = step.weights / machine.bandwidth / lead
    high = (step.weights + step.expert * step.routed) / machine.bandwidth / lead
    while step.expert and (middle := (low + high) / 2) not in (low, high):
        behind = weights_read(step, middle) / machine.bandwidth <= middle * lead
        low, high = (low, middle) if behind else (middle, high)
    return high


# ---- prefill, and a request from end to end; from shapes alone --------------------------------


def pair_flops(m: Decoder, decoding: bool) -> int:
    """FLOPs of one query and one key in all layers: their product, and the value times its weight.

    With a latent, decoding folds the up-projections into query and output, so that it multiplies
    vectors of r values (DeepSeek-V2, section 2.1.2); prefill makes keys and values of each head.
    """
    if (c := m.latent) is None:
        width = 2 * m.head_dim
    elif decoding:
        width = 2 * c.rank + c.rope
    else:
        width = c.nope + c.rope + c.value
    return 2 * m.layers * m.heads * width


def _step(m: Decoder, tokens: int, kept: int, weights: Format, cache: Format, flops: int) -> Step:
    """What a step reads: not the token table; of experts, those that are shared and those woken."""
    matrices, others = m.matrices(active=True), m.in_layers(active=True) - m.matrices(active=True)
    one, (routed, used) = 0.0, (1, 1)
    if (e := m.experts) is not None and m.sparse_layers:
        routed, used = e.routed, e.used
        weight, bias = m.sparse_layers * m.expert, m.sparse_layers * m.expert_bias
        matrices, others = matrices - used * weight, others - used * bias
        one = float((weight * weights.per_value + FLOAT_BITS * bias) / 8)
    read = (matrices * weights.per_value + FLOAT_BITS * (others + m.hidden + m.embedding)) / 8
    moved = float(kept * layer_values(m) * cache.per_value / 8)
    return Step(float(read), moved, flops, one, routed, used, tokens)


def decode(m: Decoder, tokens: int, weights: Format = FP16, cache: Format = FP16) -> Step:
    """A decoding step with so many tokens in the cache.

    The same as `decode_step`, for any decoder.
    """
    expect_whole(tokens=tokens)
    flops = 2 * (m.in_layers(active=True) + m.hidden + m.embedding)
    flops += m.seen(tokens) * pair_flops(m, decoding=True) // m.layers
    return _step(m, 1, m.seen(tokens), weights, cache, flops)


def prefill(m: Decoder, tokens: int, weights: Format = FP16, cache: Format = FP16) -> Step:
    """The step that reads a prompt of so many tokens: the last one alone goes through lm_head.

    Token i attends to i tokens, itself included: P (P + 1) / 2 pairs, less outside a window.
    kv: the bytes that the prompt's keys and values are written to.
    """
    expect_whole(1, tokens=tokens)
    flops = 2 * (tokens * m.in_layers(active=True) + m.hidden + m.embedding)
    flops += m.pairs(tokens) * pair_flops(m, decoding=False) // m.layers
    return _step(m, tokens, m.kept(tokens), weights, cache, flops)


class Latency(NamedTuple):
    """Least times of a request, in seconds."""

    ttft: float  # to the first token
    tpot: float  # for each further one, on average; 0 if there is none
    total: float


def latency(
    m: Decoder,
    machine: Machine,
    prompt: int,
    new: int,
    batch: int = 1,
    weights: Format = FP16,
    cache: Format = FP16,
) -> Latency:
    """`batch` requests of `prompt` tokens together, each of which makes `new` tokens.

    Raises ValueError unless prompt, new and batch are at least 1.
    """
    expect_whole(1, prompt=prompt, new=new)
    ttft = step_seconds(prefill(m, prompt, weights, cache), machine, batch)
    steps = (decode(m, prompt + i, weights, cache) for i in range(1, new))
    rest = sum(step_seconds(step, machine, batch) for step in steps)
    return Latency(ttft, rest / (new - 1) if new > 1 else 0.0, ttft + rest)
