"""Figures of outliers and their repairs: what is drawn is what was given, and the text says it."""

import pytest
import torch

from efflib.plots import channels, outliers, repairs

HOT = [1, 4]


@pytest.fixture
def x():
    x = torch.randn(12, 9, generator=torch.Generator().manual_seed(0))
    x[:, HOT] *= 30
    return x


def texts(ax):
    return [text.get_text() for text in ax.texts]


def lines(ax):
    return {line.get_label(): [float(y) for y in line.get_ydata()] for line in ax.get_lines()}


def test_token_maps_share_their_colours(x):
    fig, alt = outliers.token_maps(x, x / 30)
    left, right = (ax.images[0] for ax in fig.axes[:2])
    assert left.get_clim() == right.get_clim()
    assert left.get_array().shape == (12, 9)
    assert f"with outliers: largest value {x.abs().max():.1f}" in alt
    assert "2 of 9 channels" in fig.get_suptitle()


def test_opening_shows_the_map_and_labelled_bars(x):
    fig, alt = outliers.opening(x, HOT, {"not": 9.0, "W": 9.5, "X": 31.0})
    left, right = fig.axes[:2]
    assert len(left.get_lines()) == len(HOT)  # a mark above each outlier channel
    assert texts(right) == ["9.0", "9.5", "31.0"]
    assert "X 31.0" in alt and fig.get_facecolor() == (1, 1, 1, 1)  # readable on a dark page


def test_intervals_hold_the_published_channels_and_ours(x):
    x[:, 4] = x[:, 1]
    other = torch.cat([x[:, :1], 2 * x[:, 1:2], x[:, 2:]], 1)
    fig, alt = outliers.intervals({"a": x, "b": other}, HOT)
    (ax,) = fig.axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    ours = ["a: 1 and 4", "b: 1", "b: 4", "b: median"]  # equal channels of a layer stand once
    assert names == [*outliers.OPT_66B, *ours]
    assert texts(ax)[0] == "-97 to -58"
    assert texts(ax)[2] == f"{x[:, 1].min():.3g} to {x[:, 1].max():.3g}"
    assert "OPT-66B, another one: 5.7 to 43" in alt
    looks = {(line.get_color(), line.get_marker()) for line in ax.get_lines()[:6]}
    assert len(looks) == 2


def test_a_sweep_is_the_mean_and_the_range_of_its_placements():
    alphas = [0.0, 0.5, 1.0]
    curves = {"with": [[4.0, 2.0, 4.0], [8.0, 3.0, 4.0]], "control": [[1.0, 1.0, 1.0]]}
    found = {"tensor": 7.0, "shifted": 3.3, "left out": 5.0, "clipped": 3.1, "fp": 1.0}
    found["flat"] = 0.0
    fig, alt = repairs.migration(alphas, curves, found)
    ax, valley = fig.axes
    drawn = lines(ax)
    assert drawn["with"] == [6.0, 2.5, 4.0] and drawn["control"] == [1.0, 1.0, 1.0]
    assert drawn["shifted instead: 3.3"] == [3.3, 3.3]
    (band,) = ax.collections
    assert band.get_paths()[0].vertices[:, 1].max() == 8.0
    assert (
        "with: 6, 2.5, 4" in alt and "shifted instead 3.3" in alt and "clipped instead 3.1" in alt
    )
    assert len({(line.get_linestyle(), line.get_color()) for line in ax.get_lines()[2:]}) == 5
    low, high = valley.get_ylim()
    assert low < 1.0 and 3.3 < high < 4.0  # the inside of the sweep, and what is near it


def test_errors_of_a_layer_say_how_much_alpha_matters():
    fig, alt = repairs.layer_errors([0.0, 1.0], {"a": [[4.0, 1.0], [2.0, 1.0]], "b": [[1.0, 1.0]]})
    assert len(fig.axes) == 1
    assert "3 times (a), 1 times (b)" in " ".join(fig.get_suptitle().split())
    assert alt.startswith("relative squared error")


def test_what_one_norm_costs_alone():
    costs = {"model.layers.0.input_layernorm": 0.25, "model.layers.1.post_attention_layernorm": 0.5}
    fig, alt = repairs.alone(costs, 3.0)
    assert texts(fig.axes[0]) == ["0.25", "0.50", "3.00"]
    assert "0 attention 0.25, 1 MLP 0.50, all of these 3.00" in alt
    assert "up to 0.50, 0.8 in sum; behind all of them at once 3.0" in " ".join(
        fig.get_suptitle().split()
    )


def test_what_a_scale_per_token_repairs():
    found = {"fp": 10.0, "tensor": 20.0, "token": 15.0}
    found |= {"control tensor": 12.0, "control token": 11.0}
    each = {"tensor": [19.0, 21.0], "token": [15.0, 15.0]}
    fig, alt, part = repairs.repaired(found, each)
    assert part == 50.0 and "50 % repaired" in fig.get_suptitle()
    assert "W8A8 token 15.00" in alt and "W8A8 tensor 20.00 (19.00 to 21.00)" in alt
    spans = [list(line.get_ydata()) for line in fig.axes[0].get_lines()]
    assert spans == [[19.0, 21.0], [15.0, 15.0]]
    heights = [text.xy[1] for text in fig.axes[0].texts]
    assert heights == [10.0, 21.0, 15.0, 12.0, 11.0]  # a number stands above its line


def test_levels_are_means_with_their_range():
    found = {"fp": 1.0, "control tensor": 2.0}
    measured = {"O1": [3.0, 3.5, 4.0], "O2": [4.0, 4.0, 4.0], "split": [2.5, 2.5, 3.0]}
    fig, alt = repairs.levels(measured, found)
    (ax,) = fig.axes
    assert texts(ax)[:3] == ["1.00", "2.00", "3.50 (3.00 to 4.00)"]
    assert "O1 3.50 (3.00 to 4.00)" in alt and "O1 3.50, O2 4.00" in fig.get_suptitle()
    low, high = ax.get_xlim()
    assert 0.5 < low < 1.0 and high > 4.0  # the axis need not start at 0


def test_channels():
    x_max = torch.tensor([1.0, 127.0, 1.0])
    fig, alt, codes = outliers.largest({"a": x_max, "b": x_max}, [1])
    assert len(fig.axes[0].texts) == 1 and not fig.axes[1].texts  # b has other channels
    assert codes == 3 and "3 of 255 codes" in " ".join(fig.get_suptitle().split())
    fig, alt = outliers.smoothed(x_max, torch.ones(3), [1])
    assert "127 times the median, now 1.0 times" in alt


def test_numbers_of_near_channels_stand_apart():
    fig = channels.magnitudes({"a": torch.ones(100)}, "t", "y", [10, 50, 53, 56])
    heights = [text.xyann[1] for text in fig.axes[0].texts]
    assert heights == [5, 5, 14, 23]
