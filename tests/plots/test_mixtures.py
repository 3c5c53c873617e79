"""Pictures of lab 13: as many lines as there is something to tell apart, and units on the axes."""

import pytest

from efflib.plots import mixtures


def lines(ax):
    return [line for line in ax.get_lines() if len(line.get_xdata()) > 2]


def test_busiest_has_a_line_for_each_layer_of_each_model():
    rows = [[0.2, 0.3], [0.25, 0.4], [0.3, 0.5]]
    fig = mixtures.busiest([250, 500, 750], {"moe": rows, "uneven": rows}, "title")
    assert [len(lines(ax)) for ax in fig.axes] == [2, 2]
    assert list(lines(fig.axes[1])[1].get_ydata()) == [0.3, 0.4, 0.5]
    assert fig.axes[0].get_ylabel() and fig.axes[0].get_legend()


def test_alike_has_a_bar_for_each_layer_and_way():
    fig = mixtures.alike({"shuffled": [0.9, 0.6], "chance": [0.3, 0.25]}, "title")
    heights = sorted(bar.get_height() for bar in fig.axes[0].patches)
    assert heights == [0.25, 0.3, 0.6, 0.9]


def test_the_bill_is_for_each_token():
    seconds = {"mixture": [2e-6, 4e-6], "twin": [2e-6, 2e-6], "wide": [8e-6, 8e-6]}
    fig = mixtures.bill([1, 4], seconds, [1.0, 2.0], "title")
    left, right = fig.axes
    assert [list(line.get_ydata()) for line in left.get_lines()] == [
        pytest.approx([2.0, 1.0]),
        pytest.approx([2.0, 0.5]),
        pytest.approx([8.0, 2.0]),
    ]
    assert list(right.get_lines()[0].get_ydata()) == [1.0, 2.0]
    assert "µs" in left.get_ylabel()


def test_skipped_shows_percent():
    fig = mixtures.skipped({"gate": [(0.4, 0.1), (0.5, 0.0)]}, "title")
    assert list(fig.axes[0].get_lines()[0].get_xdata()) == [40, 50]
