"""Figures of lab 1: what they draw, and what they say to those who do not see them."""

import pytest
import torch

from efflib.plots import granularity, grid, layers, pareto, writing
from efflib.plots.pareto import Point

RISE = {
    "model.layers.0.mlp.up_proj": 0.3,
    "model.layers.0.mlp.down_proj": 0.1,
    "model.layers.1.mlp.up_proj": 0.2,
    "model.layers.1.mlp.down_proj": 0.9,
}


def test_a_hundredth_of_a_bit_is_no_reason_to_prefer_a_setting():
    ruined = Point("linear", "tensor", 2, 3.817, 1154.0)
    good = Point("k-means", "tensor", 2, 3.8176, 25.0)
    larger = Point("linear", "channel", 3, 3.83, 24.0)
    assert pareto.front([ruined, good]) == [good]
    assert pareto.front([ruined, good], margin=0.0) == [ruined, good]
    assert pareto.front([good, larger]) == [good, larger]  # 0.0124 apart
    assert pareto.front([good, larger], margin=0.1) == [larger]


def test_on_the_front_costs_fall_and_sizes_are_apart():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.rand(200, 2, generator=generator).tolist()
    points = [Point("m", "g", 1, size, cost) for size, cost in numbers]
    kept = pareto.front(points, margin=0.02)
    for p, q in zip(kept, kept[1:], strict=False):
        assert p.cost > q.cost and q.size > p.size + 0.02
    for p in points:
        beaten = any(q.cost < p.cost and q.size <= p.size + 0.02 for q in points)
        assert beaten == (p not in kept)


def test_of_equal_points_one_is_kept_and_the_smaller_of_equal_cost():
    p = Point("a", "g", 1, 2.0, 5.0)
    assert pareto.front([p, p._replace(method="b"), p._replace(size=2.001)]) in (
        [p],
        [p._replace(method="b")],
    )


def test_spreads_are_drawn_as_bars():
    points = [Point("a", "g", 2, 2.0, 9.0, 0.5), Point("a", "g", 3, 3.0, 5.0)]
    fig = pareto.tradeoff(points, "t", "x", "y")
    [bars] = [c for c in fig.axes[0].collections if hasattr(c, "get_segments") and c.get_segments()]
    [segment] = bars.get_segments()
    assert segment[:, 1].tolist() == [8.5, 9.5]


def test_a_weight_and_a_model_list_their_points_in_words():
    points = [Point("linear", "G = 16", 3, 4.2, 0.5), Point("linear", "channel", 4, 4.1, 0.25)]
    fig, alt = pareto.of_a_weight(points, 2.0)
    assert "2.0 times" in fig.get_suptitle() and "3 bits linear G = 16 0.5" in alt
    fig, alt = pareto.of_a_model(points, points[1], (16, 0.2))
    assert "4 bits, linear, channel" in fig.get_suptitle().replace("\n", " ")


def test_bars_stand_by_kind_and_depth():
    fig, alt = layers.of_a_model(RISE, dict.fromkeys(RISE, 0.01))
    heights = [bar.get_height() for bar in fig.axes[0].patches]
    assert heights == [0.3, 0.2, 0.1, 0.9]  # up_proj of both layers, then down_proj
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == ["0", "1", "0", "1"]
    assert "layers.1.mlp.down_proj hurts most" in fig.get_suptitle()
    assert alt.index("layers.1.mlp.down_proj 0.900") < alt.index("layers.0.mlp.up_proj 0.300")


def test_a_layer_within_the_uncertainty_is_named_beside_the_worst():
    spread = dict.fromkeys(RISE, 0.25)  # two uncertainties of a difference are 0.71
    fig, _ = layers.of_a_model(RISE, spread)
    assert "hurts most, 2 more not surely less" in fig.get_suptitle().replace("\n", " ")
    assert "surely" not in layers.of_a_model(RISE, dict.fromkeys(RISE, 0.01))[0].get_suptitle()


def test_a_step_pays_where_it_is_worth_more_than_it_costs():
    worth = {2: {("a", "b"): [0.3, 0.1], ("b", "c"): [0.5, 0.6]}}
    prices = {2: {("a", "b"): [0.2, 0.2], ("b", "c"): [0.4, 0.4]}}
    assert granularity.paying(worth[2], prices[2], ("a", "b")) == 1
    fig, alt = granularity.worth(worth, prices)
    assert fig.get_suptitle() == "Worth its price for every weight: b\u00a0\u2192\u00a0c"
    assert "2 bits, a to b: pays for 1 weights" in alt
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == ["a\n\u2193\nb", "b\n\u2193\nc"]


def test_what_stands_beside_levels_is_cut_to_its_place():
    assert writing.cut("a\nb\nc\n", lines=2) == "a\nb"
    assert writing.cut("x" * 10, width=8) == "xxxxx..."
    rows = [
        writing.Written("16 bits", None, "one $two"),
        writing.Written("1 bit", torch.ones(3), "three"),
    ]
    fig = writing.levels_and_text(torch.randn(50), rows, "title")
    assert [ax.texts[0].get_text() for ax in fig.axes[1::2]] == ["one\u00a0$two", "three"]
    assert not fig.axes[0].collections and len(fig.axes[2].collections) == 1
    fig.draw_without_rendering()  # a dollar sign is no formula


@pytest.mark.parametrize("draw", [grid.staircase, grid.straight_through])
def test_grids_are_drawn_as_said(draw):
    fig, alt = draw(step=0.5, first=-2, last=4)
    assert len(fig.axes) == 2 and alt.startswith("Left: ")
    y = fig.axes[0].lines[1].get_ydata()
    assert (y.min(), y.max()) == (-1.0, 2.0)


def test_training_is_relative_to_its_start():
    fig, alt = grid.training({"a": torch.tensor([2.0, 1.0]), "b": torch.tensor([4.0, 6.0])})
    assert "a 0.50, b 1.50" in alt and "a 0.50, b 1.50" in fig.get_suptitle()


def test_an_outlier_leaves_few_levels_where_the_weights_are():
    w = torch.linspace(-1, 1, 11)
    _, alt = grid.with_outlier(w, {"fine": w, "coarse": torch.tensor([-10.0, 0.0, 10.0])}, 4.0)
    assert "11 (fine) and 1 (coarse)" in alt
    fig, text = grid.levels_of_a_row(w, w.round(), "said")
    assert text == "said" and "3 levels" in fig.axes[0].get_title()
