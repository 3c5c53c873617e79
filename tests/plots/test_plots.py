"""Figures come out, say what they should, and need nothing but the package."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import ipywidgets
import pytest
import torch

from efflib.plots import channels, explorer, grid, matrices, pareto, style
from efflib.plots.pareto import Point

POINTS = [
    Point("linear", "tensor", 2, 2.0, 90.0),
    Point("linear", "channel", 2, 2.5, 20.0),
    Point("linear", "tensor", 3, 3.0, 25.0),
    Point("k-means", "tensor", 3, 3.0, 12.0),
    Point("k-means", "channel", 3, 4.0, 12.0),
]


def test_front_holds_what_nothing_beats():
    kept = pareto.front(POINTS)
    assert kept == [POINTS[0], POINTS[1], POINTS[3]]
    for p in POINTS:
        beaten = any(
            (q.size <= p.size and q.cost <= p.cost) and (q.size, q.cost) != (p.size, p.cost)
            for q in POINTS
        )
        assert beaten == (p not in kept)
    assert pareto.front([]) == []


def texts(fig) -> list[str]:
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def test_tradeoff_labels_every_point_and_keeps_ruined_ones_in_sight():
    fig = pareto.tradeoff(POINTS, "t", "x", "y", reference=(16, 10), ceiling=50)
    left, right = ([text.get_text() for text in ax.texts] for ax in fig.axes)
    assert sorted(left) == ["2", "2: tensor ↑ 90", "3"]  # those on the right are not labelled twice
    assert sorted(right) == ["3", "3", "not quantized, 16 bits: 10"]  # at most 25 % above 10
    drawn = [y for c in fig.axes[0].collections for y in c.get_offsets()[:, 1].tolist()]
    assert max(drawn) == 50
    low, high = fig.axes[1].get_ylim()
    assert low < 10 < high == 12.5
    names = [t.get_text() for t in fig.axes[0].get_legend().get_texts()]
    assert {"linear, tensor", "k-means, channel"} < set(names)
    assert any(name.startswith("front") for name in names)


def test_equal_labels_at_one_place_are_written_once():
    same = [Point("linear", g, 8, 9 + i / 1000, 12.0) for i, g in enumerate(("a", "b", "c"))]
    fig = pareto.tradeoff([*same, Point("linear", "a", 4, 5.0, 14.0)], "t", "x", "y")
    assert sorted(texts(fig)) == ["4", "8"]
    assert len(fig.axes) == 1  # without a reference there is nothing to enlarge


def test_a_reference_that_nothing_comes_near_has_no_second_panel():
    fig = pareto.tradeoff(POINTS, "t", "x", "y", reference=(16, 1.0))
    assert len(fig.axes) == 1 and "not quantized, 16 bits: 1" in texts(fig)


def test_settings_differ_without_colour():
    fig = pareto.tradeoff(POINTS, "t", "x", "y")
    looks = set()
    for c in fig.axes[0].collections:
        path = c.get_paths()[0].vertices.round(3).tobytes()
        looks.add((path, tuple(c.get_facecolor()[0].round(3)) == (1, 1, 1, 1)))
    assert len(looks) == 4  # four pairs of method and granularity


def test_matrices_write_numbers_only_where_they_fit():
    w = torch.arange(6.0).reshape(2, 3) - 2
    fig = matrices.before_after(w, w.round(), "t")
    assert texts(fig)[:6] == ["-2.00", "-1.00", "0.00", "1.00", "2.00", "3.00"]
    large = torch.randn(20, 20)
    assert texts(matrices.before_after(large, large, "t")) == []
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(3, 2\)"):
        matrices.before_after(w, w.T, "t")


def test_row_ranges_draws_every_row_in_order_of_width():
    w = torch.tensor([[-1.0, 5.0], [0.0, 1.0], [-2.0, 0.5]])
    heights = [bar.get_height() for bar in matrices.row_ranges(w, "t").axes[0].patches]
    assert heights == [1.0, 2.5, 6.0]


def test_histogram_counts_levels():
    fig = grid.histogram_with_grid(torch.randn(50), {"a": torch.tensor([0.0, 1.0, 1.0])}, "t")
    assert fig.axes[0].get_title() == "a: 2 levels in use"


def test_curves_differ_without_colour():
    x = torch.linspace(0, 1, 5)
    fig = grid.lines(x, [{"a": x, "b": -x}], "t", "x", ["y"])
    assert len({line.get_linestyle() for line in fig.axes[0].lines[:2]}) == 2


def test_images_carry_an_escaped_alt_text():
    fig, _ = style.figure()
    shown = style.bundle(fig, 'a < b & "c"')
    assert 'aria-label="a &lt; b &amp; &quot;c&quot;"' in shown["text/html"]
    assert shown["image/png"].startswith("iVBOR") and shown["text/plain"] == 'a < b & "c"'


def test_a_figure_takes_the_colours_of_the_page():
    w = torch.tensor([[1.0, -5.0], [0.5, 2.0]])
    page = style.to_html(matrices.before_after(w, w.round(), "t"), "alt")
    ElementTree.fromstring(page)  # well-formed
    assert not re.search("#000000|#ffffff|black|white", page)
    assert "currentColor" in page and style.LIGHT_TEXT in page  # a number on a dark cell


def test_figures_of_one_page_share_no_name():
    pages = [style.to_html(grid.bars({"x": 1.0}, "t", "y"), "alt") for _ in range(2)]
    names = [set(re.findall(r'(?:clipPath|path|marker) id="([^"]+)"', page)) for page in pages]
    assert names[0] and not names[0] & names[1]


def test_files_are_the_same_for_the_same_figure(tmp_path):
    for name in ("a", "b"):
        style.save(grid.bars({"x": 1.0}, "t", "y"), tmp_path / name / "figure.svg", "what it shows")
    first = (tmp_path / "a" / "figure.svg").read_bytes()
    assert first == (tmp_path / "b" / "figure.svg").read_bytes()
    assert b"what it shows" in first


class Screen:
    """Stands in for IPython's display: what was shown, and what it became."""

    def __init__(self, monkeypatch) -> None:
        self.shown = []
        monkeypatch.setattr("IPython.display.display", self.display)

    def display(self, data, raw, display_id=None):
        self.shown.append(data)
        return self

    def update(self, data, raw):
        self.shown[0] = data


def made(monkeypatch, kind):
    """The widgets of a kind that are made from now on."""
    widgets, make = [], getattr(ipywidgets, kind)
    monkeypatch.setattr(
        f"ipywidgets.{kind}", lambda **options: widgets.append(make(**options)) or widgets[-1]
    )
    return widgets


def test_explorer_shows_a_figure_that_follows_its_menus(monkeypatch):
    screen, menus = Screen(monkeypatch), made(monkeypatch, "Dropdown")

    def draw(bits, kind):
        return grid.bars({"x": bits}, kind, "y"), f"{bits} {kind}"

    explorer.explorer(draw, {"bits": [2, 3], "kind": ["a", "b"]})
    figure, widget = screen.shown
    assert 'aria-label="2 a"' in figure["text/html"] and figure["text/plain"] == "2 a"
    # the widget has no picture of its own: where it is dead, the figure is left
    assert "application/vnd.jupyter.widget-view+json" in widget and "text/html" not in widget
    menus[1].value = "b"
    assert 'aria-label="2 b"' in screen.shown[0]["text/html"] and len(screen.shown) == 2


def test_explorer_has_sliders_for_numbers(monkeypatch):
    screen, sliders = Screen(monkeypatch), made(monkeypatch, "SelectionSlider")

    def draw(alpha, kind):
        return grid.bars({"x": alpha}, kind, "y"), f"{alpha} {kind}"

    explorer.explorer(draw, {"alpha": [0.0, 0.5], "kind": ["a", "b"]})
    (moved,) = sliders
    moved.value = 0.5
    assert screen.shown[0]["text/plain"] == "0.5 a"
    explorer.explorer(draw, {"alpha": [0.0, 0.5], "kind": ["a", "b"]}, first={"alpha": 0.5})
    assert any(shown.get("text/plain") == "0.5 a" for shown in screen.shown[2:])


def test_channels_draw_every_channel_and_mark_the_outliers():
    x_max = torch.tensor([1.0, 50.0, 2.0, 0.0])
    fig = channels.magnitudes({"a": x_max, "b": x_max / 2}, "t", "max |x|", marked=[1])
    heights = [[bar.get_height() for bar in ax.patches] for ax in fig.axes]
    assert heights == [[1.0, 50.0, 2.0, 0.0], [0.5, 25.0, 1.0, 0.0]]
    assert all(ax.get_yscale() == "log" for ax in fig.axes)
    assert texts(fig) == ["1", "1"]  # the marked channel has its number, not only a colour
    for ax in fig.axes:
        assert ax.lines[0].get_xydata()[0, 0] == 1  # and a point on top, in the middle of its bar
        assert {bar.get_width() for bar in ax.patches} == {1.0}
        assert bar_centres(ax) == [0, 1, 2, 3]
    assert fig.axes[0].get_ylabel() == "max |x| (log scale)"


def bar_centres(ax) -> list[float]:
    return [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]


def test_smoothed_channels_have_one_scale():
    x_max, w_max = torch.tensor([0.5, 40.0, 1.0]), torch.tensor([0.2, 0.3, 0.1])
    curves = {"a": [9, 3, 8], "b": [2, 2, 2]}
    fig = channels.smoothing(x_max, w_max, [0.0, 0.5, 1.0], curves, 0.0, "t", [1])
    assert [ax.get_ylim() for ax in fig.axes[:2]] == [pytest.approx((0.05, 120))] * 2
    fixed = channels.smoothing(x_max, w_max, [0.0, 0.5, 1.0], curves, 0.0, "t", [1], (0.02, 99))
    assert [ax.get_ylim() for ax in fixed.axes[:2]] == [(0.02, 99)] * 2
    assert all("log scale" in ax.get_ylabel() for ax in (fig.axes[0], fig.axes[2]))


def test_the_sweep_marks_one_choice():
    fig = channels.sweep(
        [0.0, 0.5, 1.0], {"a": [9, 3, 8], "b": [2, 2, 2]}, "t", reference=1.5, at=0.5
    )
    (ax,) = fig.axes
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "fp32: 1.5"]
    assert texts(fig) == ["3", "2"]
    colours = [line.get_color() for line in ax.lines[:2]]
    assert [t.get_color() for t in ax.texts] == colours  # each number in the colour of its curve
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "0.5", "1"]  # what was measured


def test_importing_the_modules_does_not_load_matplotlib():
    code = (
        "import sys; from efflib.plots import channels, explorer, grid, matrices, pareto, style; "
        "print([m for m in sys.modules if m.startswith(('matplotlib', 'ipywidgets', 'IPython'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_titles_are_broken_into_lines_that_fit():
    fig, _ = style.figure(width=4.0)
    style.title(fig, "many short words " * 10)
    assert all(len(line) <= 48 for line in fig.get_suptitle().splitlines())
    assert fig.get_suptitle().split() == ("many short words " * 10).split()


def test_numbers_are_written_as_one_reads_them():
    texts = [style.number(v) for v in (2363.2, -150.6, 17.34, 0.0421, 0.0)]
    assert texts == ["2,363", "-151", "17.3", "0.0421", "0"]
