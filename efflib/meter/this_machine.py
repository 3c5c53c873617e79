"""The two ceilings of the machine that this runs on, and the time of a model's passes.

    peak        2 n^3 / time of the product of two n x n matrices        FLOP/s
    bandwidth   2 x bytes / time of a copy                               bytes read and written

The largest of several sizes, each the median of `REPEATS` runs behind one that is not counted.  The
copy is many times as large as a cache, or it would be the cache that is measured: on a model of a
few megabytes that is what decoding meets, and `ceilings(copies=...)` of its size shows it.

Decoding only reads, and a copy's writes may first read what they replace, which is not counted: so
a pass that reads can be a little faster than this ceiling.  Measured times hold for this moment;
what else computes on the machine is in them.  Nothing here is tested against a clock.
"""

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.models.cache import KVCache
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama

REPEATS = 5
CLOCK = time.perf_counter  # time.process_time: one thread on a machine where others compute too
PRODUCTS = (512, 1024, 2048)
COPIES = (64 * 2**20, 256 * 2**20)  # bytes
MEMORY_NEEDED = 4 * 10**9  # bytes free, for a model of 200 million parameters and what else is open
LARGE = LlamaConfig(16384, 1024, 2816, 14, 16, 16, 64)  # 213 million parameters


class Ceilings(NamedTuple):
    """Peak rates as measured: FLOPs and bytes per second, and by what."""

    peak: float
    bandwidth: float
    product: int  # n of the n x n product that was fastest
    copy: int  # bytes of the copy that was fastest
    dtype: torch.dtype
    threads: int

    @property
    def ridge(self) -> float:
        """FLOPs a byte at which both take the same time."""
        return self.peak / self.bandwidth

    def __str__(self) -> str:
        return (
            f"{self.peak / 1e9:.1f} GFLOP/s ({self.product} x {self.product} product, "
            f"{str(self.dtype).removeprefix('torch.')}), {self.bandwidth / 1e9:.1f} GB/s (copy of "
            f"{self.copy / 2**20:.0f} MiB), ridge {self.ridge:.1f} FLOPs a byte, "
            f"{self.threads} thread{'s' * (self.threads > 1)}"
        )


def seconds_of(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time of so many runs, behind one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = CLOCK()
        work()
        times.append(CLOCK() - start)
    return median(times)


def product_rate(n: int, dtype: torch.dtype = torch.float32, repeats: int = REPEATS) -> float:
    """FLOP/s of one n x n product."""
    a, b = torch.ones(n, n, dtype=dtype), torch.ones(n, n, dtype=dtype)
    out = torch.empty_like(a)
    return 2 * n**3 / seconds_of(lambda: torch.mm(a, b, out=out), repeats)


def copy_rate(size: int, repeats: int = REPEATS) -> float:
    """Bytes per second, read and written, of a copy of so many bytes."""
    source = torch.ones(size, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * size / seconds_of(lambda: target.copy_(source), repeats)


def ceilings(
    dtype: torch.dtype = torch.float32,
    products: Sequence[int] = PRODUCTS,
    copies: Sequence[int] = COPIES,
    repeats: int = REPEATS,
) -> Ceilings:
    """Both, in the threads that torch has; some seconds."""
    peak, n = max((product_rate(n, dtype, repeats), n) for n in products)
    bandwidth, size = max((copy_rate(size, repeats), size) for size in copies)
    return Ceilings(peak, bandwidth, n, size, dtype, torch.get_num_threads())


# ---- a model that is larger than the cache ----------------------------------------------------


def free_memory() -> int | None:
    """Bytes that are free, also those that the system would give up; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return 1024 * int(rows["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def has_room(needed: int = MEMORY_NEEDED) -> bool:
    """Whether so many bytes are free; True where the system does not say."""
    free = free_memory()
    return free is None or free >= needed


def random_model(
    config: LlamaConfig = LARGE, dtype: torch.dtype = torch.float32, seed: int = 0
) -> Llama:
    """A model nobody has trained, in eval mode: its times are those of a trained one of its shapes.

    Weights of a normal distribution, as small as keeps activations finite.
    """
    with torch.device("meta"):
        model = Llama(config).to(dtype)
    model = model.to_empty(device="cpu").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0, 0.02, generator=generator)
    return model


def filled_cache(model: Llama, batch: int, cached: int) -> KVCache:
    """Keys and values of so many tokens that nobody has computed."""
    c, cache = model.config, KVCache()
    like = model.lm_head.weight
    for layer in range(c.num_hidden_layers if cached else 0):
        states = like.new_zeros(batch, c.num_key_value_heads, cached, c.head_dim)
        cache.append(layer, states, states)
    return cache


@torch.inference_mode()
def pass_seconds(
    model: Llama, new: int, cached: int = 0, batch: int = 1, repeats: int = REPEATS
) -> float:
    """The median time of a pass over `new` tokens behind `cached` ones, in each sequence.

    Raises ValueError for new or batch < 1, or cached < 0.
    """
    expect_whole(1, new=new, batch=batch)
    expect_whole(cached=cached)
    ids = torch.zeros(batch, new, dtype=torch.long)
    cache = filled_cache(model, batch, cached)

    def work() -> None:
        last_logits(model, ids, cache)
        cache.truncate(cached)

    return seconds_of(work, repeats)


def last_logits(model: Llama, ids: Tensor, cache: KVCache) -> Tensor:
    """Logits of each sequence's last token alone, as servers compute them.  [B, V]"""
    return model.lm_head(model.hidden(ids, cache)[:, -1])
