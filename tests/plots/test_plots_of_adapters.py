"""Figures of lab 16 show the numbers that they are given."""

import pytest
from matplotlib.colors import to_hex

from efflib.plots import adapters


def test_a_line_of_costs_for_each_way():
    points = {"prompt": [(10, 100), (100, 1000)], "random": [(10, 0), (100, 0)]}
    (ax,) = adapters.bills(points, "title", "read_bytes").axes
    drawn = {line.get_label(): line for line in ax.get_lines()}
    for way, pairs in points.items():
        x, y = drawn[way].get_data()
        assert list(zip(x, y, strict=True)) == pairs
    assert ax.get_xscale() == "log" and ax.get_ylim()[0] < 0  # 0 is within
    assert "bytes" in ax.get_ylabel()


def test_means_of_runs_with_their_spread_and_the_control_in_black():
    panels = {"task": {"a": [(10, [1.0, 3.0])], "luck": [(10, [2.0, 2.0]), (20, [1.0, 1.5])]}}
    references = {"task": {"all": 0.5}}
    (ax,) = adapters.learned(panels, references, "title", "luck").axes
    a, luck = (box[0] for box in ax.containers)
    assert list(a.get_ydata()) == [2.0] and list(luck.get_ydata()) == [2.0, 1.25]
    assert to_hex(luck.get_color()) == "#000000" != to_hex(a.get_color())
    bars = ax.containers[0][2][0].get_segments()[0]
    assert [y for _, y in bars] == [pytest.approx(1.0), pytest.approx(3.0)]
    assert [t.get_text() for t in ax.texts] == ["all"]


def test_the_opening_has_a_bar_for_each_and_marks_every_run():
    panels = {"one": {"A": [1.0, 2.0], "B": [0.5, 0.5]}, "two": {"A": [4.0], "B": [3.0]}}
    for ax, ways in zip(adapters.opening(panels, "t").axes, panels.values(), strict=True):
        means = [sum(v) / len(v) for v in ways.values()]
        assert [bar.get_width() for bar in ax.patches] == means
        marks = [list(line.get_xdata()) for line in ax.get_lines()]
        assert marks == list(ways.values())
        assert [t.get_text() for t in ax.texts] == [f"{m:.2f}" for m in means]


def test_the_dearest_way_is_inside_the_picture():
    points = {"lora": [(10, 20), (1000, 10**8)], "random": [(10, 0)]}
    (ax,) = adapters.bills(points, "bills", "read_bytes").axes
    assert ax.get_ylim()[1] > 2e8 and ax.get_ylim()[0] < 0
