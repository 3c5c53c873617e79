"""Pictures of a batch: the lecture's chart cell by cell, and alt texts that say what is shown."""

from efflib.plots import batching
from efflib.serving.load import attained, knee, tails
from efflib.serving.schedulers import line_after, mixed_chunks, preempting, prefill_first
from efflib.traffic.arrivals import draw_lengths, poisson
from efflib.traffic.simulate import Arrival, Limits, simulate
from efflib.traffic.trials import serve

SEVEN = [Arrival(0.0, 1, n) for n in (6, 8, 6, 7, 3, 3, 2)]


def table(schedule):
    run = simulate(SEVEN, schedule, lambda work: 1.0, Limits(99, 4, 16, 99))
    return ["".join(f"{cell:6s}" for cell in row[:8]).split() for row in batching.rows_of(run, 4)]


def test_mixed_is_the_chart_of_the_lecture():
    """Slides on continuous batching: T1 to T8, END, and who comes into which row."""
    assert table(mixed_chunks) == [
        ["S1"] * 5 + ["END", "S6", "S6"],
        ["S2"] * 7 + ["END"],
        ["S3"] * 5 + ["END", "S5", "S5"],
        ["S4"] * 6 + ["END", "S7"],
    ]


def test_with_prompts_apart_answers_pause():
    rows = table(prefill_first)
    assert rows[1] == ["S2"] * 6 + ["pause", "S2"] and rows[3] == ["S4"] * 6 + ["pause", "END"]


def test_rows_are_given_back_by_who_is_put_back():
    trace = poisson(60, draw_lengths(40))
    run = serve(preempting, trace, back=line_after, budget=512, most=8, blocks=200)
    assert any(step.put_back for step in run.steps)
    for column in zip(*batching.rows_of(run, 8), strict=True):
        names = [cell for cell in column if cell.startswith("S")]
        assert len(set(names)) == len(names)


def test_every_figure_says_what_it_shows():
    rates = (20, 60)
    runs = {"mixed": [serve(mixed_chunks, poisson(r, draw_lengths(30)), budget=512) for r in rates]}
    found = {name: [tails(run.log) for run in row] for name, row in runs.items()}
    shares = {name: [attained(run.log, 0.5, 0.01) for run in row] for name, row in runs.items()}
    at = {"mixed": knee(list(zip(rates, shares["mixed"], strict=True)), 0.9)}
    drawn = [
        batching.over_load(rates, found, "title"),
        batching.knees(rates, shares, at, 0.9, "title"),
        batching.trade((1, 2), {"clock": [(0.1, 0.2), (0.3, 0.4)]}, "title"),
        batching.groups({"g": {"a": 1.0, "b": 2.0}, "h": {"a": 3.0}}, "title", "s", log=True),
        batching.batch(runs["mixed"][0], 3, 64, 512),
        batching.chart({"x": [["S1", "pause", "END", ""]]}, 4, "title"),
        batching.opening({"A": runs["mixed"][0], "B": runs["mixed"][1]}, 0.5, "title"),
    ]
    for figure, alt in drawn:
        figure.canvas.draw()
        assert len(alt) > 4 and figure.get_suptitle()
    assert "mixed TTFT" in drawn[0][1] and "clock: 1 tokens 100 and 200.0 ms" in drawn[2][1]
    assert "row 1: S1 pause END nobody" in drawn[5][1]


def boxes(fig, texts):
    fig.canvas.draw()
    return [text.get_window_extent() for text in texts]


def test_sizes_of_a_step_are_told_where_they_can_be_read():
    """Clocks meet at large sizes: of numbers that would stand on one another, one stands."""
    near = [(0.08 + i * 1e-4, 0.012 + i * 1e-5) for i in range(4)]
    found = {"one": [(6.0, 0.006), *near], "two": [(5.0, 0.0075), *near]}
    fig, alt = batching.trade([128, 256, 512, 1024, 2048], found, "sizes")
    labels = fig.axes[0].texts
    assert [text.get_text() for text in labels] == ["128", "256", "128"]
    first, *others = boxes(fig, labels)
    assert not any(first.overlaps(box) for box in others)
    ticks = [text.get_text() for text in fig.axes[0].get_xticklabels(which="both")]
    assert "10" in ticks and not any("10^" in text for text in ticks)
    assert alt.count("2048 tokens") == 2  # the alt text has them all


def test_the_legend_of_eight_lines_stands_below_them():
    tail = {"ttft": (0.01, 0.1), "tpot": (0.006, 0.009)}
    found = {name: [tail, tail] for name in ("static", "dynamic", "prompts apart", "mixed")}
    fig, _ = batching.over_load([10, 20], found, "load")
    (legend,) = fig.legends
    fig.canvas.draw()
    low = min(ax.get_window_extent().y0 for ax in fig.axes)
    assert legend.get_window_extent().y1 <= low and not fig.axes[0].get_legend()
