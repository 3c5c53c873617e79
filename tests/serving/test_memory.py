"""Bytes: the lectures' figures, caches that are really held, and capacities against brute force."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.kv import QuantizedKVCache
from efflib.quantization.size import model_bits
from efflib.serving import memory as mem
from efflib.serving.decoder import MODELS, Decoder, decoder
from efflib.serving.memory import FP16, Format, GiB, KiB, MiB

# ---- the figures of the lectures ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-2-7b", 512 * KiB),
        ("llama-2-13b", 800 * KiB),
        ("llama-2-70b-mha", 2.5 * MiB),
        ("llama-3.1-70b", 320 * KiB),
        ("llama-3.1-405b", 504 * KiB),
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("gemma-2b", 2 * 18 * 256 * 2),  # one head for all
    ],
)
def test_bytes_of_a_token(name, expected):
    assert mem.kv_bytes(MODELS[name]) == expected


def test_a_70b_as_mha():
    m = MODELS["llama-2-70b-mha"]
    assert mem.kv_bytes(m, 512) == 1.25 * GiB
    assert mem.kv_bytes(m, 4096) == 10 * GiB
    assert mem.kv_bytes(m, 4096, batch=16) == 160 * GiB  # two A100 for the cache alone
    assert 160 * GiB == 2 * mem.gpu_memory("A100")


def test_a_70b_with_gqa_needs_less_than_a_7b_without():
    assert mem.kv_bytes(MODELS["llama-2-70b"]) == 320 * KiB < mem.kv_bytes(MODELS["llama-2-7b"])


def test_slips_of_the_lecture():
    """Printed: 8K input 8 GB, a batch of 4 x 8K 32 GB, more than the weights (14 GB)."""
    m = MODELS["llama-2-7b"]
    assert mem.kv_bytes(m, 2048) == 1 * GiB  # as printed
    assert mem.kv_bytes(m, 8192) == 4 * GiB
    assert mem.kv_bytes(m, 8192, batch=4) == 16 * GiB > mem.weight_bytes(m)  # so that holds
    assert round(mem.weight_bytes(m) / 10**9, 1) == 13.5  # 14 with 7.0 G parameters


def test_llama_2_7b_on_an_rtx_4090():
    """Printed: 1 GB of cache holds 1k tokens, 10 GB 10k tokens, which serve 3 requests of 4k."""
    m = MODELS["llama-2-7b"]
    token = mem.kv_bytes(m)
    assert 1 * GiB / token == 2048 and 10 * GiB / token == 20480 == 5 * 4096
    free = mem.plan(m, mem.gpu_memory("RTX 4090"), 4096, reserve=0)
    assert free.batch == 5 and 11 * GiB < free.left < 12 * GiB
    assert mem.plan(m, mem.gpu_memory("RTX 4090"), 4096).batch == 4  # with 10 % in reserve


# ---- against what is held ----------------------------------------------------------------------


def small(**fields):
    torch.manual_seed(0)
    return Llama(LlamaConfig(50, 64, 96, 3, 4, 2, 32, **fields)).eval()


def test_the_cache_is_as_large_as_stated():
    model = small()
    m = decoder(model.config)
    ids = torch.randint(0, 50, (3, 64), generator=torch.Generator().manual_seed(0))
    plain, codes = KVCache(), QuantizedKVCache(2, 32, 32)
    with torch.no_grad():
        for cache in (plain, codes):
            model(ids, cache=cache)
            model(ids[:, :32], cache=cache)
    held = sum(x.numel() * x.element_size() for x in (*plain.keys, *plain.values))
    assert held == mem.kv_bytes(m, 96, 3, Format(32))
    # 96 keys and 64 values are codes, 32 values wait in float32
    kivi = Format(2, 32, 32)
    waiting = mem.kv_bytes(m, 32, 3, Format(32)) / 2
    assert (
        codes.nbytes
        == mem.kv_bytes(m, 96, 3, kivi) / 2 + mem.kv_bytes(m, 64, 3, kivi) / 2 + waiting
    )


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_as_large_as_those_of_a_quantized_model(tied):
    model = small(tie_word_embeddings=tied)
    m = decoder(model.config)
    assert mem.weight_bytes(m) * 8 == model_bits(model)
    assert mem.weight_bytes(m, Format(4, 32, 20)) * 8 == model_bits(model, 4, 32)


class Peak(TorchDispatchMode):
    """The most bytes of tensors made inside that are alive at a time."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak = {}, 0  # address -> (weak reference, bytes)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {x.untyped_storage()._cdata for x in args if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        self.alive = {k: part for k, part in self.alive.items() if not part[0].expired()}
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor) and (s := x.untyped_storage())._cdata not in given:
                self.alive[s._cdata] = (StorageWeakRef(s), s.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return out


def test_activations_are_as_large_as_a_pass_holds():
    """A wide MLP decides, then the logits.  float32, attention in one piece of torch's."""
    for vocab, width, rows in ((50, 4096, 64), (40000, 96, 64)):
        torch.manual_seed(0)
        model = Llama(LlamaConfig(vocab, 64, width, 2, 2, 2, 32)).eval()
        ids = torch.zeros(1, 64, dtype=torch.long)
        with torch.no_grad(), Peak() as seen:
            model(ids)
        stated = mem.activation_bytes(decoder(model.config), 64, logits=rows, bits=32)
        assert 1 <= seen.peak / stated < 1.05  # beside it: rotary tables, masks


def test_adam_takes_sixteen_bytes_a_parameter():
    """And of LoRA's few, as few: weights 2, then 14 for what is trained."""
    assert mem.optimizer_bytes(1000) + 2 * 1000 == 16 * 1000
    assert mem.optimizer_bytes(1000, gradient_bits=32) == 16 * 1000
    assert mem.optimizer_bytes(0) == 0


# ---- capacity ----------------------------------------------------------------------------------

decoders = st.builds(
    lambda layers, heads, share, d: Decoder(layers, heads * d, heads * share, heads, d, 64, 100),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([2, 8, 16]),
)
formats = st.builds(Format, st.integers(1, 16), st.none() | st.integers(1, 40), st.integers(0, 40))


@given(decoders, st.integers(1, 2**22), st.integers(1, 300), formats, formats)
def test_the_batch_fits_and_one_more_does_not(m, room, context, weights, cache):
    p = mem.plan(m, room, context, weights, cache)
    usable = room * Fraction(9, 10)
    assert p.usable == usable and p.left == usable - mem.weight_bytes(m, weights)

    def fits(batch):
        stored = mem.weight_bytes(m, weights) + mem.kv_bytes(m, context, batch, cache)
        return stored <= usable

    assert p.batch == 0 or fits(p.batch)
    assert not fits(p.batch + 1)
    longest = mem.longest_context(m, room, 3, weights, cache)
    if p.left >= 0:
        assert mem.kv_bytes(m, longest, 3, cache) <= p.left < mem.kv_bytes(m, longest + 1, 3, cache)
    else:
        assert longest == 0


def test_a_window_bounds_the_cache():
    m = MODELS["mistral-7b"]
    assert mem.kv_bytes(m, 100_000) == mem.kv_bytes(m, 4096) == 512 * MiB
    assert mem.longest_context(m, 80 * GiB) == math.inf
    assert 0 < mem.longest_context(m, 15 * GiB) < 4096


MIXED = st.builds(
    lambda layers, full, window: Decoder(
        layers, 16, 2, 2, 8, 64, 100, window=window, full_layers=full % layers
    ),
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(1, 60),
)


@given(MIXED, st.integers(1, 2**20), st.integers(1, 3), formats)
def test_the_longest_context_of_layers_that_differ(m, room, batch, cache):
    longest = mem.longest_context(m, room, batch, cache=cache)
    left = room * Fraction(9, 10) - mem.weight_bytes(m)
    if longest == math.inf:
        assert not m.full_layers and mem.kv_bytes(m, 10**9, batch, cache) <= left
    elif left >= 0:
        over = mem.kv_bytes(m, longest + 1, batch, cache)
        assert mem.kv_bytes(m, longest, batch, cache) <= left < over
    else:
        assert longest == 0


@given(decoders, st.integers(1, 2**22), st.integers(1, 300), st.integers(0, 4), formats)
def test_devices_that_hold_a_model(m, room, context, batch, weights):
    n = mem.devices_needed(m, room, context, batch, weights)
    stored = mem.weight_bytes(m, weights) + mem.kv_bytes(m, context, batch)
    usable = room * Fraction(9, 10)
    assert n * usable >= stored and (n == 1 or (n - 1) * usable < stored)


def test_bits_with_metadata():
    assert FP16.per_value == 16 and Format(2, 32, 32).per_value == 3
    assert mem.W4.per_value == Fraction(4) + Fraction(20, 128)
    m = MODELS["llama-2-7b"]
    assert mem.kv_bytes(m, cache=Format(2, 32)) == 96 * KiB  # 3 of 16 bits


def test_what_does_not_fit_is_named():
    m = MODELS["llama-2-7b"]
    for call, message in (
        (lambda: Format(0), "bits=0 must be"),
        (lambda: Format(4, 0), "group_size=0 must be"),
        (lambda: mem.kv_bytes(m, -1), "tokens=-1 must be"),
        (lambda: mem.plan(m, 2**30, 0), "context=0 must be"),
        (lambda: mem.plan(m, 2**30, 1, reserve=1), "reserve=1 must be"),
        (lambda: mem.gpu_memory("h100"), "the nearest is 'H100'"),
        (lambda: mem.optimizer_bytes(1.5), "trained=1.5 must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
