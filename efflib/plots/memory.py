"""Memory of a cache: which row holds what, and where it goes.  Every function returns
(figure, alt text)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import AMBER, BLUE, COLOURS, DARK_TEXT, GREY, LIGHT_TEXT, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
KINDS = {  # of rows: colour, hatch
    "used": (BLUE, ""),
    "reserved": ("#9ecae1", "//"),
    "internal": (AMBER, "xx"),
    "external": ("#d9a5c5", ".."),
    "free": ("#eeeeee", ""),
}


def _cell(
    ax, x: float, y: float, text: str, colour: str | None, width: float = 1.0, hatch: str = ""
) -> None:
    from matplotlib.patches import Rectangle

    look = {"facecolor": colour or "none", "edgecolor": GREY, "linewidth": 0.8, "hatch": hatch}
    ax.add_patch(Rectangle((x, y), width, 0.8, **look))
    ink = {"color": LIGHT_TEXT if colour in (BLUE,) else DARK_TEXT} if colour else {}
    ax.text(x + width / 2, y + 0.4, text, ha="center", va="center", fontsize=8, **ink)


def blocks(
    rows: Sequence[Sequence[str]],
    tables: dict[str, tuple[list[int], int]],
    title: str,
    others: Sequence[int] = (),
) -> Drawn:
    """The rows of all blocks, and the table of every sequence.

    rows: [blocks][block_size] words, "" where nothing is; tables: {name: (blocks, length)};
    others: blocks of requests whose text is not shown.
    """
    size = len(rows[0])
    owners = {b: [n for n, (table, _) in tables.items() if b in table] for b in range(len(rows))}
    places = {name: i for i, name in enumerate(tables)}
    fig, (left, right) = figure(columns=2, width=10.0, height=0.35 * len(rows) + 1.3)
    left.get_gridspec().set_width_ratios((5, 3))  # words are longer than numbers
    for b, words in enumerate(rows):
        y = len(rows) - b
        mark = "others" if b in others else "+".join(owners[b])
        left.text(-0.15, y + 0.4, f"block {b}", ha="right", va="center", fontsize=9)
        left.text(size * 2 + 0.15, y + 0.4, mark, ha="left", va="center", fontsize=9)
        for i, word in enumerate(words):
            colour = None
            if owners[b]:
                colour = "#dddddd" if len(owners[b]) > 1 else LIGHT[places[owners[b][0]] % 4]
            _cell(left, 2 * i, y, word, colour if word else None, 2.0, "//" if b in others else "")
    left.set(xlim=(-1.6, 2 * size + 1.4), ylim=(0.8, len(rows) + 1.1))
    left.set_title("memory", fontsize=10)
    _tables(right, tables, size, len(rows))
    for ax in (left, right):
        ax.set_axis_off()
    style.title(fig, title)
    said = [f"others: blocks {', '.join(map(str, others))}"] if others else []
    said += [f"{n}: blocks {', '.join(map(str, t))}, {k} tokens" for n, (t, k) in tables.items()]
    return fig, f"{title}. " + "; ".join(said)


def _tables(ax, tables: dict[str, tuple[list[int], int]], size: int, top: int) -> None:
    """The table of every sequence, one below the other, and how many rows are filled."""
    y = top
    for place, (name, (table, length)) in enumerate(tables.items()):
        ax.text(-0.2, y + 0.4, f"{name}: block", ha="right", va="center", fontsize=9)
        ax.text(-0.2, y - 0.5, "rows filled", ha="right", va="center", fontsize=9)
        for i, b in enumerate(table):
            _cell(ax, i, y, str(b), LIGHT[place % 4])
            _cell(ax, i, y - 0.9, str(min(size, length - size * i)), None)
        y -= 2.4
    widest = max([3, *(len(table) for table, _ in tables.values())])
    ax.set(xlim=(-2.2, widest + 0.2), ylim=(0.8, top + 1.1))
    ax.set_title("block tables", fontsize=10)


LIGHT = ["#9ecae1", "#fdd0a2", "#a1d9b2", "#e0b8d4"]  # of sequences


def shares(values: dict[str, dict[str, float]], title: str) -> Drawn:
    """Where the memory goes, a bar for each allocator.  values: {allocator: {kind: share}}."""
    fig, (ax,) = figure(width=9.0, height=0.5 * len(values) + 1.6)
    names = list(values)[::-1]
    for kind, (colour, hatch) in KINDS.items():
        if all(kind in values[name] for name in names):
            before = [
                sum(values[n][k] for k in list(KINDS)[: list(KINDS).index(kind)] if k in values[n])
                for n in names
            ]
            widths = [100 * values[name][kind] for name in names]
            ax.barh(
                names, widths, left=[100 * b for b in before], color=colour, hatch=hatch,
                edgecolor=GREY, linewidth=0.5, label=kind, height=0.7,
            )  # fmt: skip
    for y, name in enumerate(names):
        used = 100 * values[name]["used"]
        inside = used > 12
        where, ink = ("right", LIGHT_TEXT) if inside else ("left", DARK_TEXT)
        at = used - 1 if inside else used + 1
        ax.text(at, y, f"{used:.1f} %", va="center", ha=where, color=ink, fontsize=9)
    ax.set(xlim=(0, 100), xlabel="rows of the cache, mean over steps in which requests wait, in %")
    ax.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.32))
    style.title(fig, title)
    said = (
        f"{name}: " + ", ".join(f"{kind} {100 * share:.1f} %" for kind, share in row.items())
        for name, row in values.items()
    )
    return fig, "Shares of the rows of a cache. " + "; ".join(said)


def running(curves: dict[str, list[int]], title: str, ylabel: str) -> Drawn:
    """How many sequences run at every step, a step line for each allocator."""
    fig, (ax,) = figure(width=8.0, height=3.2)
    styles = ["-", "--", "-.", ":"]
    for i, (name, values) in enumerate(curves.items()):
        ax.plot(values, label=name, color=COLOURS[i % 6], linestyle=styles[i % 4], linewidth=1.5)
    ax.set(xlabel="step", ylabel=ylabel)
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=9)
    style.title(fig, title)
    said = (f"{name}: at most {max(v)}, {len(v)} steps" for name, v in curves.items())
    return fig, f"{ylabel} against steps. " + "; ".join(said)


def opening(used: float, title: str) -> Drawn:
    """One bar of memory, of which only the used part is explained."""
    fig, (ax,) = figure(width=8.0, height=1.9)
    part = 100 * used
    ax.barh([""], [part], color=BLUE, height=0.6)
    ax.barh([""], [100 - part], left=[part], color="#eeeeee", edgecolor=GREY, height=0.6)
    ax.text(part / 2, 0, "tokens", ha="center", va="center", color=LIGHT_TEXT, fontsize=10)
    ax.text((100 + part) / 2, 0, "?", ha="center", va="center", color=DARK_TEXT, fontsize=18)
    ax.set(xlim=(0, 100), xlabel="rows of the cache while requests wait, in %")
    style.title(fig, title)
    return fig, f"{title}: {part:.0f} % tokens, the rest marked with a question mark"
