"""Figures of salient channels and of decoding: what is drawn is what was given."""

import subprocess
import sys

import pytest

from efflib.plots import salience

POINTS = [
    {"scaled channels": 4.0, "other channels": 1.0, "all": 5.0, "step": 0.2},
    {"scaled channels": 1.0, "other channels": 1.5, "all": 2.5, "step": 0.3},
]


def heights(ax):
    return {line.get_label(): [float(y) for y in line.get_ydata()] for line in ax.get_lines()}


def test_protection_is_relative_to_the_first_factor():
    fig = salience.protection([1.0, 2.0], POINTS, "title")
    left, right = fig.axes
    assert heights(left) == {
        "scaled channels": [0.8, 0.2],
        "other channels": [0.2, 0.3],
        "all": [1.0, 0.5],
        "1 / s^2, if the step held": [0.8, 0.2],
    }
    assert list(heights(right).values()) == [pytest.approx([1.0, 1.5])]
    assert fig.get_suptitle() == "title"


def test_protection_tells_its_lines_apart_without_colour_and_marks_one_factor():
    fig = salience.protection([1.0, 2.0], POINTS, "title", at=2.0)
    left, right = fig.axes
    *curves, mark = left.get_lines()
    assert len({line.get_linestyle() for line in curves}) == len(curves) == 4
    assert list(mark.get_xdata()) == [2.0, 2.0] == list(right.get_lines()[-1].get_xdata())


def test_decode_draws_rates_and_what_was_measured():
    rates = {"16 bits": [10.0, 20.0], "4 bits": [30.0, 40.0]}
    fig = salience.decode([1, 2], rates, {"seen": (1, 9.0)}, "title")
    (ax,) = fig.axes
    lines = ax.get_lines()
    assert [list(line.get_ydata()) for line in lines[:2]] == list(rates.values())
    assert [text.get_text() for text in ax.texts] == ["seen"]
    assert float(lines[2].get_ydata()[0]) == 9.0


def test_decode_draws_caches_dashed_in_the_colour_of_their_weights():
    rates, cached = (
        {"16 bits": [1.0, 2.0], "4 bits": [3.0, 4.0]},
        {"16 bits": [1, 1], "4 bits": [2, 2]},
    )
    (ax,) = salience.decode([1, 2], rates, {}, "title", cached).axes
    a, a_cached, b, b_cached = ax.get_lines()
    assert list(b_cached.get_ydata()) == [2, 2] and b_cached.get_linestyle() == "--"
    assert a.get_color() == a_cached.get_color() != b.get_color() == b_cached.get_color()


def test_importing_it_does_not_load_matplotlib():
    code = "import sys, efflib.plots.salience; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
