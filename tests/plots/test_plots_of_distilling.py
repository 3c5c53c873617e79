"""Figures of lab 15 show the numbers that they are given."""

import pytest
from matplotlib.colors import to_hex

from efflib.finetuning.gaussians import GRID, Fit, mixture
from efflib.plots import distilling


def test_a_density_for_each_fit_and_the_teacher_s_area_is_one():
    fits = {"narrow": Fit(3.0, 1.0, 0.5), "wide": Fit(0.0, 3.0, 0.2)}
    (ax,) = distilling.fits(mixture(6.0, 0.5), fits, "title").axes
    width = (GRID[1] - GRID[0]).item()
    lines = ax.get_lines()
    assert len(lines) == 2
    for line, fit in zip(lines, fits.values(), strict=True):
        x, y = line.get_data()
        assert sum(y) * width == pytest.approx(1, abs=0.02)
        assert x[y.argmax()] == pytest.approx(fit.mean, abs=width)
        assert f"mean {fit.mean:.1f}, deviation {fit.deviation:.1f}" in line.get_label()
    (teacher,) = ax.collections
    path = teacher.get_paths()[0].vertices
    assert path[:, 1].max() == pytest.approx(0.2, abs=0.01)  # half of 1 / sqrt(2 pi)


def test_a_way_looks_the_same_in_every_panel_and_seeds_are_a_bar():
    panels = {
        "weights": {"float": [(1000, [4.0, 5.0]), (2000, [3.0])], "ternary": [(1000, [6.0])]},
        "bits": {"float": [(16e6, [4.5])], "4 bits": [(4e6, [4.7])], "ternary": [(2e6, [6.0])]},
    }
    one, two = distilling.sizes(panels, "title").axes
    drawn = [{box.get_label(): box for box in ax.containers} for ax in (one, two)]
    assert set(drawn[0]) == {"float", "ternary"} and set(drawn[1]) == {"float", "4 bits", "ternary"}
    for way in drawn[0]:
        looks = {(to_hex(d[way][0].get_color()), d[way][0].get_marker()) for d in drawn}
        assert len(looks) == 1, way
    assert len({to_hex(box[0].get_color()) for box in drawn[1].values()}) == 3
    x, y = drawn[0]["float"][0].get_data()
    assert list(x) == [1000, 2000] and list(y) == [4.5, 3.0]
    bar = drawn[0]["float"][2][0].get_segments()[0]
    assert [at for _, at in bar] == [pytest.approx(4.0), pytest.approx(5.0)]
    assert [t.get_text() for t in one.get_xticklabels()] == ["1 k", "2 k"]
    assert [t.get_text() for t in two.get_xticklabels()] == ["16.00 M"]
    assert one.get_legend() is None and len(two.get_legend().get_texts()) == 3


def test_the_opening_has_a_bar_for_each_and_marks_every_run():
    bars = {"float": [3.0], "trained": [4.0, 4.5]}
    (ax,) = distilling.opening(bars, "title").axes
    assert [bar.get_width() for bar in ax.patches] == [3.0, 4.25]
    assert [list(line.get_xdata()) for line in ax.get_lines()] == [[3.0], [4.0, 4.5]]
    assert [t.get_text() for t in ax.texts] == ["3.00", "4.25"] and ax.get_xlim()[0] == 0
