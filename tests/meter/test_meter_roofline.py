"""Datasheet table, roofline, L2 replay, report and figures."""

import meter_kernels as kernels
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.meter import Meter
from efflib.meter.cache import in_turn, replay
from efflib.meter.figures import BlockSize, block_sweep, fitted_exponent, heat_maps
from efflib.meter.roofline import GPUS, gpu_named, metered_roofline, roofline
from efflib.meter.sample_kernel import matmul_kernel

# dense fp16 FLOPs per clock and SM, accumulated in fp32: what the tensor cores of each
# architecture are built to do, from NVIDIA's architecture whitepapers
PER_CLOCK = {"A100": 2048, "H100": 4096, "H200": 4096, "B200": 8192, "RTX 4090": 512}


@pytest.mark.parametrize("name", GPUS)
def test_rates_are_dense_and_agree_with_clock_and_width(name):
    gpu = GPUS[name]
    assert gpu.tensor["fp16"] == pytest.approx(gpu.sms * gpu.clock * PER_CLOCK[name], rel=0.01)
    assert gpu.tensor["fp16"] == gpu.tensor["bf16"]
    assert gpu.tensor["tf32"] == pytest.approx(gpu.tensor["fp16"] / 2, rel=0.03)
    if "fp8" in gpu.tensor:
        assert gpu.tensor["fp8"] == pytest.approx(2 * gpu.tensor["fp16"], rel=0.01)
    assert gpu.source and gpu.l2 > 0


def test_the_largest_bound_is_the_bound():
    gpu = GPUS["H100"]
    base = {"flops": 1.0, "moved": 1.0, "exponentials": 1.0, "gpu": "H100"}
    for name, key, rate in (
        ("tensor", "flops", gpu.tensor["fp16"]),
        ("memory", "moved", gpu.bandwidth),
        ("exponentials", "exponentials", gpu.exponentials),
    ):
        bounds = roofline(**base | {key: 1e15})
        assert bounds.bound == name and bounds.seconds == pytest.approx(1e15 / rate)
    at_ridge = roofline(gpu.tensor["fp16"], gpu.bandwidth, 0, "H100")
    assert at_ridge.tensor == pytest.approx(at_ridge.memory) == pytest.approx(1.0)
    assert at_ridge.intensity == pytest.approx(at_ridge.ridge)


def test_unknown_gpus_and_types_are_errors():
    with pytest.raises(ValueError, match="no GPU 'T4' in the table; there are .'A100'"):
        gpu_named("T4")
    with pytest.raises(ValueError, match="no tensor-core rate of 'fp8' for A100"):
        roofline(1, 1, 1, "A100", "fp8")


def matmul(trace=False, n=32):
    a, b, c = torch.randn(3, n, n)
    with Meter(trace=trace) as m:
        matmul_kernel[(n // 16, n // 16)](a, b, c, *[n] * 6, 16, 16, 16)
    return m


def test_the_roofline_of_a_matmul():
    m = matmul()
    unique, asked = 3 * 32 * 32 * 4, (2 * 2 + 1) * 32 * 32 * 4
    assert metered_roofline(m, "A100").memory == pytest.approx(unique / 2.039e12)
    assert metered_roofline(m, "A100", cached=False).memory == pytest.approx(asked / 2.039e12)
    assert metered_roofline(m, "A100").tensor == pytest.approx(2 * 32**3 / 312e12)


def test_a_cache_that_holds_everything_fetches_each_byte_once():
    m = matmul(trace=True)
    assert replay(m, 1 << 20, 4) == (5 * 32 * 32 * 4, 2 * 32 * 32 * 4, 32 * 32 * 4)
    assert replay(m, 1 << 20, 4).hit_rate == pytest.approx(3 / 5)


def test_a_cache_of_one_sector_fetches_all_that_is_asked_for():
    m = matmul(trace=True)
    assert replay(m, 32, 1).fetched == 4 * 32 * 32 * 4
    assert replay(m, 32, 1).written == 32 * 32 * 4


def test_programs_that_run_together_share_what_they_read():
    """Four programs read the same 2 kB through a cache of 1 kB: together it is fetched once."""
    x = torch.randn(512)
    with Meter(trace=True) as m:
        kernels.read_again[(4,)](x, torch.zeros(4), 8, 64)
    assert replay(m, 1024, 4).fetched == 512 * 4
    assert replay(m, 1024, 1).fetched == 4 * 512 * 4


@given(lengths=st.lists(st.integers(0, 5), max_size=6), resident=st.integers(1, 4))
def test_programs_take_turns(lengths, resident):
    programs = [[(p, i) for i in range(n)] for p, n in enumerate(lengths)]
    order = list(in_turn(programs, resident))
    assert sorted(order) == [item for program in programs for item in program]
    for p, n in enumerate(lengths):
        assert [i for q, i in order if q == p] == list(range(n))
    for t, (p, _) in enumerate(order):  # no program starts before the one `resident` places ahead
        others = {q for q, _ in order[t:] if q < p}
        assert len(others) < resident


@given(data=st.data())
@settings(max_examples=30)
def test_the_replay_is_lru(data):
    """Against a plain list, most recent last."""
    sectors = data.draw(st.lists(st.integers(0, 6), max_size=40))
    writes = data.draw(st.lists(st.booleans(), min_size=len(sectors), max_size=len(sectors)))
    size = data.draw(st.integers(1, 5))
    m = Meter(trace=True)
    m.launches.append(None)
    for sector, write in zip(sectors, writes, strict=True):
        m.trace.append((0, 0, "write" if write else "read", np.array([sector])))
    held, marked, fetched, written = [], set(), 0, 0
    for sector, write in zip(sectors, writes, strict=True):
        fetched += sector not in held and not write
        held = [s for s in held if s != sector] + [sector]
        marked |= {sector} if write else set()
        if len(held) > size:
            written += held[0] in marked
            marked.discard(held.pop(0))
    assert replay(m, size * 32, 1) == (
        32 * len(sectors),
        32 * fetched,
        32 * (written + len(marked)),
    )


def test_replay_needs_a_trace_and_a_cache():
    with pytest.raises(ValueError, match=r"use Meter\(trace=True\)"):
        replay(matmul(), 1024, 1)
    with pytest.raises(ValueError, match="l2_bytes >= 32 and resident >= 1: 31, 1"):
        replay(matmul(trace=True), 31, 1)


def test_the_report_shows_what_was_counted():
    m = matmul()
    lines = m.report("H100").splitlines()
    assert lines[0] == "matmul_kernel x 1: 4 programs"
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in lines[2:5]}
    assert rows["A", "read"] == ["8,192", "4,096", "2.00", "1.00", "1.00"]
    assert rows["C", "written"] == ["4,096", "4,096", "1.00", "1.00", "1.00"]
    assert "tl.dot FLOPs 65,536; exponentials 0" in lines
    assert lines[-1].startswith("roofline on H100: tensor ")
    assert "bound by memory (5.33 FLOP/byte, ridge at 295)" in lines[-1]
    assert len(m.report().splitlines()) == len(lines) - 1
    with Meter() as poisoned:
        kernels.softmax[(1,)](torch.randn(1, 5), torch.empty(1, 5), 5, 5, False, 8)
    assert "masked lanes without other=, poisoned: meter_kernels.py:" in poisoned.report()


def test_heat_maps_show_the_counts():
    m = matmul()
    fig = heat_maps(m, ["A", "B"], "reads")
    panels = [ax for ax in fig.axes if ax.images]
    assert [ax.get_title() for ax in panels] == ["A [32, 32]", "B [32, 32]"]
    for ax, name in zip(panels, "AB", strict=True):
        assert np.array_equal(ax.images[0].get_array(), m.counts(name))
        assert ax.images[0].get_clim() == (0, 2)
    written = heat_maps(m, ["C"], "writes", "write")
    assert (written.axes[0].images[0].get_array() == 1).all()
    with pytest.raises(KeyError, match="no tensor argument 'Q'"):
        heat_maps(m, ["Q"], "t")
    with pytest.raises(ValueError, match="at least one argument"):
        heat_maps(m, [], "t")


def test_the_sweep_draws_points_and_law():
    points = [BlockSize(f"{s}", s, 1000 / s) for s in (1, 2, 4)]
    assert fitted_exponent(points) == pytest.approx(-1)
    fig = block_sweep(points, "t")
    law, counted = fig.axes[0].lines
    assert np.allclose(law.get_ydata(), counted.get_ydata())
    assert counted.get_label() == "counted, slope -1.00"
    assert [t.get_text() for t in fig.axes[0].texts] == ["1", "2", "4"]
    with pytest.raises(ValueError, match="a slope needs two sizes"):
        block_sweep(points[:1], "t")
