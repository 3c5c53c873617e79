"""The roofline: the least time a kernel needs on a GPU, from what it computes and moves.

    time >= max( FLOPs / tensor-core rate,  bytes / memory bandwidth,  exponentials / their rate )

The first two bounds meet at the ridge, FLOPs per byte = rate / bandwidth: a kernel with a lower
arithmetic intensity waits for memory.  The third is why attention on Hopper is bound by softmax as
well as by matrix products (FlashAttention-3, arXiv:2407.08608, section 3.1): an SM finishes 16
exponentials per clock against 4096 fp16 tensor FLOPs.
Source of the model: Williams, Waterman, Patterson 2009, "Roofline".

Rates are those of dense matrices.  NVIDIA's datasheets since Ampere print the numbers with 2:4
sparsity first, twice as large (in the lecture slides too), and GeForce cards halve the fp16 rate
when they accumulate in fp32, as tl.dot does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from efflib.meter.meter import Meter

EXP_PER_CLOCK = 16  # per SM, compute capability 8.0 to 10.0: CUDA C++ Programming Guide, 8.4.1
MB = 2**20


class GPU(NamedTuple):
    """Peak rates of one GPU: FLOP/s dense, accumulated in fp32; bandwidth in bytes per second."""

    name: str
    sms: int  # streaming multiprocessors
    clock: float  # Hz, boost
    bandwidth: float  # of device memory, bytes per second
    l2: int  # bytes
    tensor: dict[str, float]  # FLOP/s by input type
    source: str

    @property
    def exponentials(self) -> float:
        """exp2 per second."""
        return self.sms * EXP_PER_CLOCK * self.clock


def _tensor(fp16: float, tf32: float, fp8: float = 0.0) -> dict[str, float]:
    rates = {"fp16": fp16, "bf16": fp16, "tf32": tf32} | ({"fp8": fp8} if fp8 else {})
    return {dtype: 1e12 * rate for dtype, rate in rates.items()}


# fmt: off
GPUS = {
    gpu.name: gpu
    for gpu in (
        GPU("A100", 108, 1.410e9, 2.039e12, 40 * MB, _tensor(312, 156),
            "A100 80GB SXM: NVIDIA A100 datasheet (2021); A100 whitepaper"),
        GPU("H100", 132, 1.830e9, 3.350e12, 50 * MB, _tensor(989.4, 494.7, 1978.9),
            "H100 SXM5: NVIDIA H100 datasheet, without sparsity; H100 whitepaper, table 1"),
        GPU("H200", 132, 1.830e9, 4.800e12, 50 * MB, _tensor(989.4, 494.7, 1978.9),
            "H200 SXM: NVIDIA H200 datasheet, without sparsity"),
        GPU("B200", 148, 1.856e9, 8.000e12, 126 * MB, _tensor(2250, 1100, 4500),
            "B200, HGX 1000 W: NVIDIA Blackwell architecture brief, dense; L2 as CUDA reports"),
        GPU("RTX 4090", 128, 2.520e9, 1.008e12, 72 * MB, _tensor(165.2, 82.6, 330.3),
            "NVIDIA Ada whitepaper, appendix A, fp32 accumulation"),
    )
}
# fmt: on


class Roofline(NamedTuple):
    """Lower bounds of a kernel's time on a GPU, in seconds."""

    gpu: GPU
    tensor: float
    memory: float
    exponentials: float
    intensity: float  # FLOPs per byte
    ridge: float  # FLOPs per byte above which the tensor cores are the limit

    @property
    def seconds(self) -> float:
        return max(self.tensor, self.memory, self.exponentials)

    @property
    def bound(self) -> str:
        """Name of the largest bound: "tensor", "memory" or "exponentials"."""
        return max(("tensor", "memory", "exponentials"), key=lambda name: getattr(self, name))


def gpu_named(name: str) -> GPU:
    """A GPU of the table.  Raises ValueError for another name."""
    if name not in GPUS:
        raise ValueError(f"no GPU {name!r} in the table; there are {sorted(GPUS)}")
    return GPUS[name]


def roofline(
    flops: float, moved: float, exponentials: float, gpu: str, dtype: str = "fp16"
) -> Roofline:
    """Bounds for so many FLOPs of tl.dot, bytes to and from device memory and exponentials.

    dtype: type of the dot's inputs, a key of GPU.tensor.  Raises ValueError for an unknown GPU or a
    type its tensor cores do not have.
    """
    chosen = gpu_named(gpu)
    if dtype not in chosen.tensor:
        raise ValueError(f"no tensor-core rate of {dtype!r} for {gpu}: {sorted(chosen.tensor)}")
    rate = chosen.tensor[dtype]
    return Roofline(
        chosen,
        flops / rate,
        moved / chosen.bandwidth,
        exponentials / chosen.exponentials,
        flops / moved if moved else 0.0,
        rate / chosen.bandwidth,
    )


def metered_roofline(m: Meter, gpu: str, dtype: str = "fp16", cached: bool = True) -> Roofline:
    """The roofline of what a meter counted.

    cached: take every byte once per launch (an L2 that holds everything), else as often as it was
    asked for (no cache).  What a GPU does lies between; `cache.replay` says where.
    """
    every = [*m.reads.values(), *m.writes.values()]
    moved = sum(t.unique_bytes if cached else t.bytes for t in every)
    return roofline(m.flops, moved, m.exponentials, gpu, dtype)
