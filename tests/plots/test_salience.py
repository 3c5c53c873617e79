"""Figures of salient channels and of decoding: what is drawn is what was given."""

import subprocess
import sys

import pytest

from efflib.plots import salience


def point(scaled, other, output):
    """Errors of a factor: (weight, theory) of both parts, and outputs of scaled, other, all."""
    found = dict(zip((("scaled", "weight"), ("scaled", "theory")), scaled, strict=True))
    found |= dict(zip((("other", "weight"), ("other", "theory")), other, strict=True))
    return found | {(part, "output"): y for part, y in zip(PARTS, output, strict=True)}


PARTS = ("scaled", "other", "all")
RUNS = [  # two placements, two factors
    [point((4, 2), (1, 1), (4.0, 1.0, 5.0)), point((1, 0.5), (2, 3), (1.0, 1.5, 2.5))],
    [point((8, 4), (2, 2), (8.0, 2.0, 10.0)), point((4, 2), (4, 6), (4.0, 3.0, 5.0))],
]


def heights(ax):
    return {line.get_label(): [float(y) for y in line.get_ydata()] for line in ax.get_lines()}


def test_protection_is_relative_to_the_first_factor_and_a_mean_over_placements():
    fig = salience.protection([1.0, 2.0], RUNS, "title")
    left, right = fig.axes
    seen = list(heights(left).values())
    assert seen == [[1.0, 0.375], [1.0, 0.375], [1.0, 2.0], [1.0, 3.0]]
    assert heights(right) == {
        "scaled channels": [0.8, pytest.approx(0.3)],
        "other channels": [0.2, pytest.approx(0.3)],
        "all": [1.0, 0.5],
    }
    assert fig.get_suptitle() == "title"


def test_protection_shows_measurements_as_marks_and_theory_as_lines():
    fig = salience.protection([1.0, 2.0], RUNS, "title", at=2.0)
    left, right = fig.axes
    *curves, mark = left.get_lines()
    assert [line.get_linestyle() == "None" for line in curves] == [True, False] * 2
    assert all("theory" in line.get_label() for line in curves[1::2])
    assert list(mark.get_xdata()) == [2.0, 2.0] == list(right.get_lines()[-1].get_xdata())
    styles = {line.get_linestyle() for line in right.get_lines()[:3]}
    assert len(styles) == 3 == len(right.collections)  # and a band each


def test_decode_draws_rates_and_what_was_measured():
    rates = {"16 bits": [10.0, 20.0], "4 bits": [30.0, 40.0]}
    fig = salience.decode([1, 2], rates, {"seen": (1, 9.0)}, "title")
    (ax,) = fig.axes
    lines = ax.get_lines()
    assert [list(line.get_ydata()) for line in lines[:2]] == list(rates.values())
    assert [text.get_text() for text in ax.texts] == ["seen"]
    assert float(lines[2].get_ydata()[0]) == 9.0


def test_decode_draws_caches_dashed_in_the_colour_of_their_weights():
    rates = {"16 bits": [1.0, 2.0], "4 bits": [3.0, 4.0]}
    cached = {"16 bits": ([1, 1.5], [1, 1]), "4 bits": ([1, 1.75], [2, 2])}
    (ax,) = salience.decode([1, 2], rates, {}, "title", cached, "512 tokens").axes
    a, a_cached, a_full, b, b_cached, b_full = ax.get_lines()
    assert list(b_cached.get_ydata()) == [2, 2] and b_cached.get_linestyle() == "--"
    assert b_cached.get_label() == "4 bits, 512 tokens"
    assert a.get_color() == a_cached.get_color() != b.get_color() == b_cached.get_color()
    ends = [(float(m.get_xdata()[0]), float(m.get_ydata()[0])) for m in (a_full, b_full)]
    assert ends == [(1.5, 1.0), (1.75, 2.0)]


def test_importing_it_does_not_load_matplotlib():
    code = "import sys, efflib.plots.salience; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
