"""Numbers and figures of the chapter on ternary weights and distillation.

    python benchmarks/lab15_tables.py             writes course/chapters/_generated/lab15_*.md
                                                  and course/figures/lab15/*.svg, prints the tables
    python benchmarks/lab15_tables.py opening     only this part (or some, see PARTS)

The trainings are those of `lab15_runs.py` and `lab15_draft.py`; here their files are read.
"""

import itertools
import json
import math
import sys
from pathlib import Path

import lab15_draft as drafts
import lab15_runs as runs

from efflib import zoo
from efflib.finetuning.bills import apart
from efflib.finetuning.distillation import forward_kl, reverse_kl
from efflib.finetuning.gaussians import fit, mixture
from efflib.plots import distilling as plots
from efflib.plots import placements, style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab15"
NAMED = {"float": "float", "tensor": "ternary", "channel": "ternary, a scale a row"}
FOUR = "float, rounded to 4 bits after training"


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(figure, name: str, alt: str) -> None:
    FIGURES.mkdir(exist_ok=True)
    style.save(figure, FIGURES / f"{name}.svg", alt)


def kept(file: Path) -> dict:
    return json.loads(file.read_text())


def losses(kind: str, way: str, key: str) -> list[float]:
    """A number of the three runs of a way, at the rate that its search found."""
    done = kept(drafts.FILE)
    rate = done[f"{kind} | {way} | rate"]
    return [done[f"{kind} | {way} | {rate} | {seed}"][key] for seed in drafts.SEEDS]


def opening() -> None:
    start = kept(drafts.FILE)["start"]
    bars = {
        "float": [start["float"]["loss"]],
        "rounded to three values": [start["rounded"]["loss"]],
        f"{drafts.STEPS} steps through the rounding": losses(
            "ternary", "hard labels, library", "loss"
        ),
    }
    plain, ruined, back = (placements.mean(v) for v in bars.values())
    share = (ruined - back) / (ruined - plain)
    title = f"Three values ruin the model; a short training through them brings {share:.0%} back"
    alt = "; ".join(f"{name} {placements.mean(v):.2f}" for name, v in bars.items())
    save(plots.opening(bars, title), "opening", alt)


def modes() -> None:
    """Where reverse KL settles, by distance and start; and the picture."""
    lines = ["| modes apart | forward KL | reverse KL from 0.5 | from 2 |", "|---|---|---|---|"]
    for apart_by in range(1, 8):
        teacher = mixture(float(apart_by), 0.5)
        ends = [fit(forward_kl, teacher, 2.0, 1.0)]
        ends += [fit(reverse_kl, teacher, at, 1.0) for at in (0.5, 2.0)]
        cells = " | ".join(f"{e.mean + 0.0:.1f} ± {e.deviation:.1f}" for e in ends)
        lines.append(f"| {apart_by} | {cells} |")
    write("lab15_modes", "\n".join(lines).replace("-0.0", "0.0") + "\n")
    teacher = mixture(6.0, 0.5)
    found = {
        "forward KL": fit(forward_kl, teacher, 2.0, 1.0),
        "reverse KL, from 2": fit(reverse_kl, teacher, 2.0, 1.0),
        "reverse KL, from 0.5": fit(reverse_kl, teacher, 0.5, 1.0),
    }
    title = "Reverse KL keeps to one mode from a start near it, and covers both from the middle"
    alt = "; ".join(
        f"{n}: mean {f.mean:.1f}, deviation {f.deviation:.1f}" for n, f in found.items()
    )
    save(plots.fits(teacher, found, title), "modes", alt)


def ended(kind: str, way: str) -> bool:
    """Whether its rate was found and all of its runs are there."""
    done = kept(drafts.FILE)
    rate = done.get(f"{kind} | {way} | rate")
    return all(f"{kind} | {way} | {rate} | {seed}" in done for seed in drafts.SEEDS)


def table(kind: str, ways, key: str, control: str) -> str:
    """Ways with their spread, whether apart from the control, and the rate found."""
    done = kept(drafts.FILE)
    lines = [f"| | {key} | beside the control | rate |", "|---|---|---|---|"]
    for way in filter(lambda way: ended(kind, way), ways):
        own, other = losses(kind, way, key), losses(kind, control, key)
        verdict = "control" if way == control else "alike"
        if way != control and apart(own, other):
            up = placements.mean(own) > placements.mean(other)
            verdict = "better" if up == (key == "acceptance") else "worse"
        rate = done[f"{kind} | {way} | rate"]
        lines.append(f"| {way} | {placements.plus_minus(own)} | {verdict} | {rate:g} |")
    return "\n".join(lines) + "\n"


def draft() -> None:
    start = kept(drafts.FILE)["start"]
    text = table("draft", drafts.DRAFT, "acceptance", "hard labels, library")
    text += "\nAs cut out {:.3f}, whole {:.3f}, the shipped draft {:.3f}.\n".format(
        *(start[k]["acceptance"] for k in ("cut", "whole", "shipped draft"))
    )
    write("lab15_draft", text)


def ternary() -> None:
    start = kept(drafts.FILE)["start"]
    text = table("ternary", drafts.TERNARY, "loss", "hard labels, library")
    text += "\nFloat {:.2f}, rounded alone {:.2f}, with a scale a row {:.2f}.\n".format(
        *(start[k]["loss"] for k in ("float", "rounded", "rounded, rows"))
    )
    write("lab15_ternary", text)


def found(way: str) -> dict[int, list[dict]]:
    """{width: the runs of its seeds}, without the searches."""
    done: dict[int, list[dict]] = {}
    for key, entry in kept(runs.FILE).items():
        name, width, _, seed = key.split(" ")
        if name == way and int(seed) in runs.SEEDS[int(width)]:
            done.setdefault(int(width), []).append(entry)
    return done


def points(counted: str) -> dict[str, list[tuple[float, list[float]]]]:
    """{way: [(count, losses of the seeds)] by width}; counted: "weights", "model" or "linears"."""
    lines = {}
    for way, name in NAMED.items():
        each = {"weights": 1, "linears": 16 if way == "float" else 1.6}.get(counted)
        lines[name] = [
            (each * r[0]["linears"] if each else r[0]["bits"], [e["loss"] for e in r])
            for r in found(way).values()
        ]
    if counted != "weights":
        lines[FOUR] = [
            (
                4 * r[0]["linears"] if counted == "linears" else r[0]["bits of 4"],
                [e["rounded"]["4 bits, channel"] for e in r],
            )
            for r in found("float").values()
        ]
    return {name: line for name, line in lines.items() if line}


def between(line: list[tuple[float, list[float]]], count: float) -> float | None:
    """The loss at a count, along the logarithm of counts between two sizes; None outside."""
    for (a, low), (b, high) in itertools.pairwise(line):
        if a <= count <= b:
            share = math.log(count / a) / math.log(b / a)
            return (1 - share) * placements.mean(low) + share * placements.mean(high)
    return None


def shown(values: list[float]) -> str:
    """One run as it is, several with their spread."""
    return placements.plus_minus(values) if len(values) > 1 else f"{values[0]:#.3g}"


def sizes() -> None:
    """Loss by size, three ways of counting it; what is apart by how much."""
    titles = {"weights": "weights of linears", "model": "bits of the whole model"}
    titles |= {"linears": "bits of linears"}
    title = "Ternary: behind at equal weights, ahead of 16 bits at equal bits, not always of 4"
    alt = "Three panels of held-out loss against size for float, rounded and ternary models."
    panels = {name: points(counted) for counted, name in titles.items()}
    save(plots.sizes(panels, title), "sizes", alt)
    inside = {way: found(way) for way in runs.WAYS}
    lines = [
        "| width | float | ternary | ternary, a scale a row | ternary is behind, seed by seed |",
        "|---|---|---|---|---|",
    ]
    for width in runs.WIDTHS:
        values = {way: [e["loss"] for e in inside[way].get(width, [])] for way in runs.WAYS}
        gaps = [t - f for f, t in zip(values["float"], values["tensor"], strict=True)]
        cells = " | ".join(shown(v) if v else "not run" for v in values.values())
        gap = f"{placements.mean(gaps):.3f} ({min(gaps):.3f} to {max(gaps):.3f})"
        lines.append(f"| {width} | {cells} | {gap} |")
    write("lab15_sizes", "\n".join(lines) + "\n")
    lines = [
        "| counted | ternary, width | bits | its loss | float, 16 bits | float, 4 bits |",
        "|---|---|---|---|---|---|",
    ]
    for counted in ("model", "linears"):
        ways = points(counted)
        for width, (bits, own) in zip(runs.WIDTHS, ways["ternary"], strict=True):
            others = [between(ways[way], bits) for way in ("float", FOUR)]
            cells = " | ".join("none so small" if v is None else f"{v:.2f}" for v in others)
            lines.append(
                f"| {titles[counted]} | {width} | {bits / 1e6:.2f} M | "
                f"{placements.mean(own):.2f} | {cells} |"
            )
    write("lab15_bits", "\n".join(lines) + "\n")


def rounded() -> None:
    """Rounding after training: the models of `lab15_runs.py`, and the zoo's draft."""
    models = {
        f"width {width}": (
            placements.mean([e["loss"] for e in entries]),
            {k: placements.mean([e["rounded"][k] for e in entries]) for k in entries[0]["rounded"]},
            placements.mean([e["loss"] for e in found("tensor")[width]]),
        )
        for width, entries in found("float").items()
    }
    draft = zoo.load("draft")
    models["the zoo's draft"] = runs.held_out(draft), runs.rounded(draft), None
    kinds = list(models["the zoo's draft"][1])
    lines = ["| | float | " + " | ".join(kinds) + " | trained ternary |"]
    lines += ["|---|---|" + (len(kinds) + 1) * "---|"]
    for name, (plain, by_kind, trained) in models.items():
        cells = [f"{v:.2f}" for v in (plain, *by_kind.values())]
        cells += ["see below" if trained is None else f"{trained:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    write("lab15_rounded", "\n".join(lines) + "\n")


PARTS = {f.__name__: f for f in (opening, modes, ternary, draft, sizes, rounded)}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
