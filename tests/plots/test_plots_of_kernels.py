"""Figures of attention kernels: what is drawn is what was given."""

import numpy as np
import pytest

from efflib.plots import kernels


def test_online_steps_end_with_the_sum_of_the_row():
    scores = [2.0, 1.0, 3.0, 0.0]
    figure, alt = kernels.online_steps(scores, 2, 4)
    assert f"sum {sum(np.exp(np.array(scores) - 3)):.3f}" in alt and "m = 3" in alt
    assert len(figure.axes[0].patches) == 4
    with pytest.raises(ValueError, match="seen"):
        kernels.online_steps(scores, 2, 5)


def test_traffic():
    ways = {"stored": [8e6, 5e6], "one walk": [4e6, 1e6]}
    figure, alt = kernels.traffic([16, 32], ways, "head")
    assert len(figure.axes[0].get_lines()) == 2
    assert "with 16 and with 32" in alt and "stored 8 and 5 MB, one walk 4 and 1 MB" in alt


@pytest.mark.parametrize(
    ("shape", "whole", "diagonal", "never"),
    [((64, 64, 16, 16), 6, 4, 6), ((32, 64, 16, 16), 5, 2, 1), ((64, 32, 32, 16), 0, 2, 2)],
)
def test_a_schedule_counts_its_tiles(shape, whole, diagonal, never):
    figure, alt = kernels.schedule(*shape, "head")
    assert f"{whole} whole, {diagonal} diagonal, {never} never read" in alt
    assert len(figure.axes[0].patches) == whole + diagonal + never


def test_a_schedule_of_too_many_tiles():
    with pytest.raises(ValueError, match="too many"):
        kernels.schedule(4096, 4096, 16, 16, "head")


def test_reads_share_a_scale():
    maps = {"a": np.full((4, 2), 8), "b": np.full((4, 2), 2)}
    figure, alt = kernels.reads(maps, "head")
    assert [ax.images[0].get_clim() for ax in figure.axes[:2]] == [(0, 8), (0, 8)]
    assert "a: 8 times" in alt and "b: 2 times" in alt


def test_law():
    figure, alt = kernels.law([1, 2, 4], [4e6, 2e6, 1e6], "head")
    line, points = figure.axes[0].get_lines()
    assert np.allclose(line.get_ydata(), points.get_ydata())
    assert "4 MB with 1" in alt


def test_roofline():
    figure, alt = kernels.roofline_of({"slow": 10.0, "fast": 1000.0}, "H100", "head")
    _, slow, fast, _ = figure.axes[0].get_lines()
    assert slow.get_ydata()[0] < fast.get_ydata()[0] == pytest.approx(989.4)
    assert "slow 10 FLOPs" in alt
    with pytest.raises(ValueError, match="no GPU"):
        kernels.roofline_of({"slow": 10.0}, "H1", "head")


def test_stored_against_tiled():
    ways = {"stored": [4e6, 8e6], "one walk": [1e6, 2e6]}
    figure, alt = kernels.stored_against_tiled([10, 20], ways, "head")
    assert len(figure.axes[0].patches) == 4 and "20 tokens stored 8, one walk 2" in alt
