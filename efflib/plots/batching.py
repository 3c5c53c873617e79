"""Pictures of a batch and of a server: who has which row when, what users get over the load.

A run is an `efflib.traffic.simulate.Run`; every function returns (figure, alt text).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import AMBER, BLUE, COLOURS, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
LINES = ["-", "--", "-.", ":"]


def rows_of(run, rows: int) -> list[list[str]]:
    """Labels [rows][steps]: "S1" where a request is computed, "END" in its last step, or "".

    "pause" where it has a row, and is not computed in this step.

    A request keeps its row.  Who joins takes the free row that was freed last, of those that were
    freed in one step the lowest; at first rows are taken from the top.
    """
    table = [[""] * len(run.steps) for _ in range(rows)]
    free, row_of = list(range(rows))[::-1], {}
    ends = [times[-1] for _, times in run.log]
    for t, step in enumerate(run.steps):
        for i in step.put_back:
            free.append(row_of.pop(i))
        for i, _, _ in step.work:
            if i not in row_of:
                row_of[i] = free.pop()
        now, computed = step.start + step.seconds, {i for i, _, _ in step.work}
        for i, row in sorted(row_of.items(), key=lambda pair: pair[1]):
            table[row][t] = f"S{i + 1}" if i in computed else "pause"
            if ends[i] <= now:
                table[row][t] = "END"
                del row_of[i]
                free.append(row)
    return table


def chart(tables: Mapping[str, list[list[str]]], columns: int, title: str) -> Drawn:
    """Tables of `rows_of` side by side, a column for each step; END is hatched, nobody is blank."""
    from matplotlib.patches import Rectangle

    fig, axes = figure(len(tables), width=4.2 * len(tables), height=2.4)
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        for y, row in enumerate(table):
            for x, label in enumerate(row[:columns]):
                owner = next((c for c in reversed(row[: x + 1]) if c.startswith("S")), "S1")
                filled = label not in ("", "pause")
                face = COLOURS[(int(owner[1:]) - 1) % len(COLOURS)] if filled else "#ffffff"
                ax.add_patch(
                    Rectangle(
                        (x, y), 1, 1, facecolor=face, alpha=0.45 if filled else 1.0,
                        edgecolor=GREY, hatch="//" if label == "END" else "", linewidth=0.6,
                    )
                )  # fmt: skip
                ax.text(x + 0.5, y + 0.5, label, ha="center", va="center", fontsize=8)
        ax.set(xlim=(0, columns), ylim=(len(table), 0), title=name)
        ax.set_xticks([i + 0.5 for i in range(columns)], [f"T{i + 1}" for i in range(columns)])
        ax.set_yticks([i + 0.5 for i in range(len(table))], range(1, len(table) + 1))
        ax.set_ylabel("row of the batch")
        ax.tick_params(length=0)
    style.title(fig, title)
    said = {
        name: "; ".join(
            f"row {i + 1}: {' '.join(c or 'nobody' for c in row[:columns])}"
            for i, row in enumerate(table)
        )
        for name, table in tables.items()
    }
    return fig, f"{title}. " + ". ".join(f"{name}: {text}" for name, text in said.items())


def batch(run, step: int, most: int, budget: int) -> Drawn:
    """One step: what each request of the batch has in the cache and computes, and how many wait."""
    now = run.steps[step]
    fig, (left, right) = figure(2, width=9.0, height=3.4)
    names = [i for i, _, _ in now.work]
    cached, new = [c for _, _, c in now.work], [n for _, n, _ in now.work]
    left.barh(range(len(names)), cached, color=BLUE, alpha=0.5, label="in the cache")
    left.barh(range(len(names)), new, left=cached, color=ORANGE, hatch="//", label="computed now")
    left.set_yticks(range(len(names)), [f"S{i + 1}" for i in names], fontsize=7)
    left.set(xlabel="tokens", ylim=(most - 0.5, -0.5))
    left.legend(frameon=False, fontsize=8, loc="lower right")
    times = [s.start for s in run.steps[: step + 1]]
    right.step(times, [sum(n for _, n, _ in s.work) for s in run.steps[: step + 1]],
               color=ORANGE, where="post", label="tokens of the step")  # fmt: skip
    right.step(times, [len(s.work) for s in run.steps[: step + 1]], color=BLUE, linestyle="--",
               where="post", label="requests of the step")  # fmt: skip
    right.step(times, [s.waiting for s in run.steps[: step + 1]], color=GREY, linestyle=":",
               where="post", label="requests in line")  # fmt: skip
    last = run.steps[-1].start
    right.set(xlabel="seconds", xlim=(0, last), yscale="symlog", ylim=(0, 1.5 * budget))
    right.legend(frameon=False, fontsize=8, loc="upper right")
    back = f", {len(now.put_back)} put back" if now.put_back else ""
    text = (
        f"Step {step + 1} at {now.start * 1e3:.0f} ms takes {now.seconds * 1e3:.1f} ms: "
        f"{sum(new)} tokens of {len(names)} requests, {now.waiting} wait{back}"
    )
    style.title(fig, text)
    return fig, text + "."


def _pair(tails: tuple, factor: float) -> str:
    return " and ".join(style.number(factor * value) for value in tails)


def over_load(
    rates: Sequence[float], found: Mapping[str, Sequence[Mapping[str, tuple]]], title: str
) -> Drawn:
    """TTFT and TPOT over the rate: p50 filled, p99 open markers; found: tails at every rate."""
    fig, axes = figure(2, width=9.5, height=4.2)
    for ax, what, unit, factor in zip(
        axes, ("ttft", "tpot"), ("TTFT (s)", "TPOT (ms)"), (1, 1e3), strict=True
    ):
        for i, (name, rows) in enumerate(found.items()):
            for place, fill in ((0, COLOURS[i]), (1, "none")):
                ax.plot(
                    rates, [factor * row[what][place] for row in rows], color=COLOURS[i],
                    marker=MARKERS[i], markerfacecolor=fill, linestyle=LINES[place],
                    label=f"{name}, {('p50', 'p99')[place]}", linewidth=1.2,
                )  # fmt: skip
        ax.set(xlabel="requests per second", ylabel=unit, yscale="log")
        style.plain_ticks(ax)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    style.title(fig, title)
    at = len(rates) // 2
    said = "; ".join(
        f"{name} TTFT {_pair(rows[at]['ttft'], 1)} s, TPOT {_pair(rows[at]['tpot'], 1e3)} ms"
        for name, rows in found.items()
    )
    return fig, f"{title}. At {rates[at]:g} requests per second, p50 and p99: {said}."


def knees(
    rates: Sequence[float],
    shares: Mapping[str, Sequence[float]],
    found: Mapping[str, float],
    goal: float,
    title: str,
) -> Drawn:
    """Goodput over the rate, and the rate to which `goal` of the requests keep the limits."""
    fig, (ax,) = figure(1, width=7.0, height=3.6)
    ax.plot(rates, rates, color=GREY, linestyle=":", label="all that come")
    for i, (name, row) in enumerate(shares.items()):
        good = [rate * share for rate, share in zip(rates, row, strict=True)]
        ax.plot(rates, good, color=COLOURS[i], marker=MARKERS[i], linestyle=LINES[i % 4],
                label=f"{name}: knee {style.number(found[name])} / s")  # fmt: skip
        if found[name]:
            ax.plot(
                [found[name]], [goal * found[name]], color=COLOURS[i], marker="*", markersize=13
            )
    ax.set(xlabel="requests per second that come", ylabel="within both limits, per second")
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    said = "; ".join(f"{name} {style.number(found[name])}" for name in shares)
    return fig, f"{title}. Knees at {goal:.0%}, requests per second: {said}."


def trade(
    sizes: Sequence[int], found: Mapping[str, Sequence[tuple[float, float]]], title: str
) -> Drawn:
    """TTFT against TPOT at p99 over the budget of a step; found: {clock: (ttft, tpot) seconds}."""
    fig, (ax,) = figure(1, width=7.0, height=3.6)
    for i, (name, points) in enumerate(found.items()):
        x, y = [1e3 * tpot for _, tpot in points], [1e3 * ttft for ttft, _ in points]
        ax.plot(x, y, color=COLOURS[i], marker=MARKERS[i], linestyle=LINES[i % 4], label=name)
    ax.set(xlabel="TPOT, p99 (ms)", ylabel="TTFT, p99 (ms)", xscale="log", yscale="log")
    style.plain_ticks(ax)
    taken: list[tuple[float, float]] = []  # where a label stands, in points
    for i, points in enumerate(found.values()):
        for size, (ttft, tpot) in zip(sizes, points, strict=True):
            x, y = ax.transData.transform((1e3 * tpot, 1e3 * ttft)) * 72 / fig.dpi
            if all(abs(x - a) > 24 or abs(y - b) > 9 for a, b in taken):  # else unreadable
                taken.append((x, y))
                ax.annotate(f"{size}", (1e3 * tpot, 1e3 * ttft), (5, 4), fontsize=8,
                            textcoords="offset points", color=COLOURS[i])  # fmt: skip
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    said = "; ".join(
        f"{name}: " + ", ".join(
            f"{size} tokens {1e3 * a:.0f} and {1e3 * b:.1f} ms"
            for size, (a, b) in zip(sizes, points, strict=True)
        )
        for name, points in found.items()
    )  # fmt: skip
    return fig, f"{title}. TTFT and TPOT at p99 by tokens of a step, {said}."


def groups(
    found: Mapping[str, Mapping[str, float]], title: str, label: str, log: bool = False
) -> Drawn:
    """Bars {group: {bar: value}}, a colour and a hatch for each bar, with their numbers."""
    bars = list(dict.fromkeys(name for row in found.values() for name in row))
    fig, (ax,) = figure(1, width=max(6.0, 1.1 + 0.62 * len(found) * len(bars)), height=3.4)
    width = 0.8 / len(bars)
    for j, name in enumerate(bars):
        at = [i + width * (j - (len(bars) - 1) / 2) for i in range(len(found))]
        values = [row.get(name, math.nan) for row in found.values()]
        drawn = ax.bar(at, values, width * 0.92, color=COLOURS[j % 6], alpha=0.75, label=name,
                       hatch=("", "//", "..", "xx", "\\\\", "++")[j % 6])  # fmt: skip
        ax.bar_label(drawn, [style.number(v) if v == v else "" for v in values], fontsize=7)
    ax.set_xticks(range(len(found)), list(found))
    ax.set_ylabel(label)
    if log:
        ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    said = "; ".join(
        f"{group}: " + ", ".join(f"{name} {style.number(v)}" for name, v in row.items())
        for group, row in found.items()
    )
    return fig, f"{title}. {label}, {said}."


def opening(runs: Mapping[str, object], until: float, title: str) -> Drawn:
    """Requests that run and that wait over time, a panel for each server; one scale."""
    fig, axes = figure(len(runs), width=9.0, height=3.0)
    top, times = 0, [until * i / 600 for i in range(601)]
    for ax, (name, run) in zip(axes, runs.items(), strict=True):
        running = [
            sum(len(s.work) for s in run.steps if s.start <= t < s.start + s.seconds) for t in times
        ]
        inside = [sum(at <= t < ends[-1] for at, ends in run.log) for t in times]
        ax.fill_between(times, inside, color=AMBER, alpha=0.35, step="post", label="wait")
        ax.fill_between(times, running, color=BLUE, alpha=0.7, step="post", label="are computed")
        ax.set(xlabel="seconds", title=name, xlim=(0, until))
        top = max(top, *inside)
    for ax in axes:
        ax.set(ylim=(0, 1.05 * top))
    axes[0].set_ylabel("requests")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    style.title(fig, title)
    return fig, title
