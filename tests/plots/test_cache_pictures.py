"""Pictures of a key-value cache: what is drawn is what was given; lines differ without colour."""

import pytest
import torch

from efflib.plots import cache


def test_growth_draws_milliseconds_and_the_bytes_beside_them():
    seconds = {"read again": [0.01, 0.05], "with a cache": [0.002, 0.003]}
    fig, alt = cache.growth([100, 1000], seconds, [2**20, 10 * 2**20])
    left, right = fig.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in left.get_lines()}
    assert drawn == {name: [1e3 * s for s in row] for name, row in seconds.items()}
    assert list(right.get_lines()[0].get_ydata()) == [1, 10]
    assert len({line.get_linestyle() for line in left.get_lines()}) == 2
    assert "times" not in alt + fig.get_suptitle()  # the lab asks for them


def test_growth_without_bytes_names_the_ratios():
    fig, alt = cache.growth([100, 1000], {"read again": [0.01, 0.05], "cached": [0.002, 0.003]})
    assert "read again 5.0 times" in alt and "cached 1.5 times" in fig.get_suptitle()
    assert len(fig.axes) == 1


def test_the_planner_draws_weights_and_caches_one_behind_the_other():
    fig, alt = cache.planner(5, 12 * 2**30, 2 * 2**30, 24 * 2**30)
    bars = fig.axes[0].patches
    assert [(b.get_x(), b.get_width()) for b in bars] == [(0, 12), (12, 10)]
    assert bars[0].get_hatch() != bars[1].get_hatch()
    assert "5 sequences fit, 2 GiB each" in alt and fig.axes[0].get_lines()[0].get_xdata()[0] == 24
    assert "1 sequence fits" in cache.planner(1, 2**30, 2**30, 24 * 2**30)[1]
    assert "do not fit" in cache.planner(0, 30 * 2**30, 2**30, 24 * 2**30)[1]


def test_states_name_the_large_channels():
    k, v = torch.rand(6, 8), torch.rand(6, 8)
    k[:, 2], k[:, 5] = 20.0, -30.0
    fig, alt = cache.states(k, v)
    assert "channels 2 and 5 of the keys" in alt
    shown = fig.axes[0].images[0].get_array()
    assert torch.equal(torch.as_tensor(shown.data), k.abs())


def test_losses_below_noise_are_drawn_at_its_edge():
    points = {
        ("control", "token"): [(5, -0.1), (3, 0.2)],
        ("large", "token"): [(5, 0.01), (3, 2.0)],
    }
    fig, alt = cache.against_bits(points)
    first, second = fig.axes[0].get_lines()
    assert list(first.get_ydata()) == [cache.SMALLEST, pytest.approx(0.2)]
    assert list(second.get_xdata()) == [5, 3] and fig.axes[0].get_yscale() == "log"
    assert "keys per token with large add 2.00 nats, all others at most 0.20" in alt
