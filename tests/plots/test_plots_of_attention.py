"""Figures of attention: what is drawn is what was given."""

import pytest
import torch

from efflib.plots import attention


def test_maps_stand_side_by_side_and_what_is_masked_is_empty():
    p = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    figure, alt = attention.maps({"a": p, "b": p.flip(0)}, "title")
    image = figure.axes[0].images[0].get_array()
    assert image[1, 0] == 0.25 and image.mask[0, 1] and len(figure.axes) == 3
    assert "a: first key 0.62" in alt
    small = torch.tensor([[1e-9, 1.0]])
    figure, _ = attention.maps({"a": small}, "title")
    assert figure.axes[0].images[0].get_array()[0, 0] == attention.LEAST


def test_every_head_is_a_point_and_the_line_is_their_mean():
    scores = torch.tensor([[0.0, 0.5], [0.25, 0.75], [1.0, 1.0]])
    figure, alt = attention.layers(scores, "title", even=0.1)
    *points, line, even = figure.axes[0].get_lines()
    assert [list(p.get_ydata()) for p in points] == scores.tolist()
    assert list(line.get_ydata()) == [0.25, 0.5, 1.0] and set(even.get_ydata()) == {0.1}
    assert "layer 1: 0.50 (most 0.75)" in alt


def test_training_curves():
    figure, alt = attention.training({"zero": ([1, 2], [0.1, 0.2]), "sink": ([1], [0.3])}, "title")
    zero, sink = figure.axes[0].get_lines()
    assert list(zero.get_ydata()) == [0.1, 0.2] and zero.get_linestyle() != sink.get_linestyle()
    assert alt.endswith("zero: 0.10 to 0.20; sink: 0.30 to 0.30")


def test_bars_have_intervals_and_controls_are_empty():
    rows = {"window": (3.0, 2.0, 4.0), "sinks": (1.0, 1.0, 1.0), "all, no": (5.0, 4.5, 5.5)}
    figure, alt = attention.caches(rows, "title", controls=["all, no"])
    bars = figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [3.0, 1.0, 5.0]
    assert bars[0].get_facecolor() == bars[1].get_facecolor() != bars[2].get_facecolor()
    lines = [line.get_segments()[0] for line in figure.axes[0].collections]
    assert [[y for _, y in line] for line in lines] == [[2.0, 4.0], [4.5, 5.5]]
    assert figure.axes[0].get_xticklabels()[2].get_text() == "all,\nno"
    assert "window: 3.00 (2.00 to 4.00); sinks: 1.00 (1.00 to 1.00)" in alt


def test_lengths_stand_in_order_with_their_numbers():
    figure, alt = attention.lengths({"a": 48.78, "b": 8.3}, "perplexity")
    [ax] = figure.axes
    assert [bar.get_width() for bar in ax.patches] == [48.78, 8.3] and ax.yaxis_inverted()
    assert [text.get_text() for text in ax.texts] == ["48.8", "8.3"]
    assert alt == "perplexity: a 48.8; b 8.3"


def test_a_stream_has_memory_on_the_left_and_perplexity_on_the_right():
    held = {"dense": [10.0, 20.0], "sinks": [10.0, 10.0, 10.0]}
    figure, alt = attention.stream([5, 10, 15], held, {"sinks": [3.0, 4.0, 5.0]}, "title")
    left, right = figure.axes
    assert [list(line.get_xdata()) for line in left.get_lines()] == [[5, 10], [5, 10, 15]]
    assert left.get_yscale() == "log" and list(right.get_lines()[0].get_ydata()) == [3, 4, 5]
    assert left.get_lines()[1].get_color() == right.get_lines()[0].get_color()
    assert "15 tokens" in alt and "sinks has perplexity 3.0 to 5.0" in alt


def test_curves_along_a_text_have_marks():
    curves = {"window": [1.0, 1.0, 4.0, 6.0], "sink": [1.0, 1.0, 2.0, 2.0]}
    figure, alt = attention.along(curves, {3: "full"}, "what happened?", 2, "times")
    [ax] = figure.axes
    assert [text.get_text() for text in ax.texts] == ["full"]
    assert "window 1.0, then 5.0; sink 1.0, then 2.0" in alt and "full at token 3" in alt
    curve, _, _, place = ax.get_lines()
    assert list(curve.get_xdata()) == [2, 3, 4, 5] and place.get_xdata()[0] == pytest.approx(3)
