"""Numbers and figures of the chapter on ternary weights and distillation.

    python benchmarks/lab15_tables.py             writes course/chapters/_generated/lab15_*.md
                                                  and course/figures/lab15/*.svg, prints the tables
    python benchmarks/lab15_tables.py opening     only this part (or some, see PARTS)

The trainings are those of `lab15_runs.py` and `lab15_draft.py`; here their files are read.
"""

import json
import sys
from pathlib import Path

import lab15_draft as drafts
import lab15_runs as runs

from efflib.finetuning.bills import apart
from efflib.finetuning.distillation import forward_kl, reverse_kl
from efflib.finetuning.gaussians import fit, mixture
from efflib.plots import distilling as plots
from efflib.plots import placements, style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab15"


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
    title = "Rounding to three values ruins the model; a short training through it does not"
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


def table(kind: str, ways, key: str, control: str) -> str:
    """Ways with their spread, whether apart from the control, and the rate found."""
    done, lines = (
        kept(drafts.FILE),
        [f"| | {key} | beside the control | rate |", "|---|---|---|---|"],
    )
    for way in ways:
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
        if name == way and int(seed) in runs.SEEDS:
            done.setdefault(int(width), []).append(entry)
    return done


def sizes() -> None:
    """Loss by size, three ways of counting it; the controls."""
    counts = {"weights of linears": "linears", "bits of the whole model": "bits"}
    named = {"float": "float", "tensor": "ternary", "channel": "ternary, a scale a row"}
    panels = {
        title: {
            named[way]: [(r[0][key], [e["loss"] for e in r]) for r in found(way).values()]
            for way in runs.WAYS
        }
        for title, key in counts.items()
    }
    inside = {way: found(way) for way in runs.WAYS}
    panels["bits of linears"] = {
        named[way]: [
            ((16 if way == "float" else 1.6) * r[0]["linears"], [e["loss"] for e in r])
            for r in inside[way].values()
        ]
        for way in runs.WAYS
    }
    alt = "Three panels of held-out loss against size for float and ternary models."
    save(plots.sizes(panels, "Float and ternary on equal text"), "sizes", alt)
    lines = [
        "| width | float | ternary | ternary, a scale a row | apart by |",
        "|---|---|---|---|---|",
    ]
    for width in runs.WIDTHS:
        values = {way: [e["loss"] for e in inside[way][width]] for way in runs.WAYS}
        gap = placements.mean(values["tensor"]) - placements.mean(values["float"])
        cells = " | ".join(placements.plus_minus(v) for v in values.values())
        lines.append(f"| {width} | {cells} | {gap:.3f} |")
    write("lab15_sizes", "\n".join(lines) + "\n")
    kinds = list(inside["float"][runs.WIDTHS[0]][0]["rounded"])
    lines = ["| width | float | " + " | ".join(kinds) + " |", "|---|" + (len(kinds) + 1) * "---|"]
    for width, entries in inside["float"].items():
        cells = [f"{placements.mean([e['loss'] for e in entries]):.2f}"]
        cells += [f"{placements.mean([e['rounded'][k] for e in entries]):.2f}" for k in kinds]
        lines.append(f"| {width} | " + " | ".join(cells) + " |")
    write("lab15_rounded", "\n".join(lines) + "\n")


PARTS = {f.__name__: f for f in (opening, modes, ternary, draft, sizes)}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
