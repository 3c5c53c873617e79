"""Figures of pruned weights show the masks and numbers that they are given."""

import pytest
import torch

from efflib.plots import pruning


def test_the_map_is_the_mask_under_the_norms():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    top, below = pruning.mask_map(mask, torch.tensor([1.0, 3.0, 2.0]), "title").axes
    assert [bar.get_height() for bar in top.patches] == [1, 3, 2]
    assert below.images[0].get_array().tolist() == [[1, 0, 1], [0, 0, 1]]
    with pytest.raises(ValueError, match=r"norms \[K\]"):
        pruning.mask_map(mask, torch.ones(2), "title")


def test_points_stand_at_their_share_and_perplexity():
    points = {"yours": [(0.8, 20.0), (0.5, 90.0)], "zeros": [(1.0, 12.0)]}
    (ax,) = pruning.cost_and_quality(points, 8.0, "title").axes
    yours, zeros, dense = ax.get_lines()
    assert list(yours.get_xdata()) == [0.5, 0.8] and list(yours.get_ydata()) == [90, 20]
    assert list(zeros.get_xdata()) == [1.0] and set(dense.get_ydata()) == {8.0}
    assert yours.get_marker() != zeros.get_marker()


def test_a_sweep_has_a_line_for_each_way_and_one_for_the_dense_model():
    fig = pruning.sweep([0.4, 0.7], {"a": [12.0, 150.0], "b": [11.5, 80.0]}, 10.0, "title")
    lines = {line.get_label(): list(line.get_ydata()) for line in fig.axes[0].lines}
    assert lines["a"] == [12.0, 150.0] and lines["b"] == [11.5, 80.0] and "dense" in lines
    with pytest.raises(ValueError, match="2 perplexities"):
        pruning.sweep([0.4, 0.7], {"a": [12.0]}, 10.0, "title")


def test_the_opening_tells_no_number():
    (ax,) = pruning.opening({"a": 8.0, "b": 400.0, "c": 10.0}, "title").axes
    assert [bar.get_width() for bar in ax.patches] == [8, 16, 10]
    assert [t.get_text().strip() for t in ax.texts] == ["and on"]
    assert not len(ax.get_xticks())
