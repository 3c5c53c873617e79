"""Figures of results that were measured several times: means, and all that was measured."""

from efflib.plots import placements

PANELS = {
    "4 bits": {"RTN": [1.0, 2.0, 3.0], "random": [2.0, 2.0, 2.0], "search": [0.5, 0.1, 0.0]},
    "3 bits": {"RTN": [4.0, 5.0, 6.0], "random": [5.0, 5.0, 5.0], "search": [-0.5, 1.0, 1.0]},
}


def test_bars_are_means_with_a_mark_for_each_placement():
    fig = placements.bars(PANELS, "title", "loss", controls=["random"])
    for ax, values in zip(fig.axes, PANELS.values(), strict=True):
        widths = [bar.get_width() for bar in ax.patches]
        assert widths == [placements.mean(v) for v in values.values()]
        marks = [list(line.get_xdata()) for line in ax.get_lines()[:-1]]  # the last one is at 0
        assert marks == list(values.values())
        rtn, random, search = (bar.get_facecolor() for bar in ax.patches)
        assert rtn == search != random
    names = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    assert names == list(PANELS["4 bits"])


def test_bars_show_marks_below_zero_and_notes_behind_means():
    notes = {panel: {way: f"{len(way)} bits" for way in ways} for panel, ways in PANELS.items()}
    axes = placements.bars(PANELS, "title", "loss", notes=notes).axes
    assert axes[1].get_xlim()[0] < -0.5 and axes[0].get_xlim()[0] == 0
    assert [t.get_text() for t in axes[0].texts] == ["2.00, 3 bits", "2.00, 6 bits", "0.20, 6 bits"]


def test_curves_are_means_in_bands_that_hold_every_run():
    runs = [[1.0, 4.0, 2.0], [3.0, 2.0, 2.0]]
    panels = {"4 bits": {"one": runs, "two": [[0.0, 1.0, 2.0]]}}
    (ax,) = placements.curves([1, 2, 4], panels, "title", "x", "y").axes
    one, two = ax.get_lines()
    assert list(one.get_ydata()) == [2.0, 3.0, 2.0]
    assert one.get_linestyle() != two.get_linestyle() and one.get_marker() != two.get_marker()
    band = ax.collections[0].get_paths()[0].vertices
    for i, x in enumerate((1, 2, 4)):
        heights = band[band[:, 0] == x][:, 1]
        assert heights.min() == min(r[i] for r in runs) and heights.max() == max(r[i] for r in runs)


def test_a_mean_is_written_with_its_range():
    assert placements.plus_minus([0.5, 0.1, 0.3]) == "0.300 (0.100 to 0.500)"
    assert placements.plus_minus([1 / 3], 2) == "0.33 (0.33 to 0.33)"
