"""Measure every story of the course on the shipped models.

    python -m efflib.zoo.phenomena                    the table, and the chapters' figures
    python -m efflib.zoo.phenomena awq sinks          some stories only
    python -m efflib.zoo.phenomena --quick --seeds 3  the reduced setting that the tests run

Writes course/figures/phenomena/<story>.svg and, when all stories were measured at full scale,
course/chapters/_generated/phenomena.md. A claim that does not hold is printed as such.
"""

import argparse
import time
from pathlib import Path

import torch

from efflib.plots import style
from efflib.zoo.phenomena import STORIES, module
from efflib.zoo.phenomena.story import FULL, QUICK, Claim

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "course" / "chapters" / "_generated" / "phenomena.md"
FIGURES = ROOT / "course" / "figures" / "phenomena"
Measured = list[dict[str, float]]  # the figures of a story, for every seed


def measure(name: str, scale, seeds: int) -> Measured:
    start, found = time.monotonic(), []
    for seed in range(seeds):
        found.append(module(name).measure(scale, seed))
    print(f"{name}  ({time.monotonic() - start:.0f} s)")
    return found


def worst(name: str, measured: Measured) -> list[Claim]:
    """Each claim with the smallest value that any seed gave it."""
    rows = [module(name).claims(figures) for figures in measured]
    return [min(same, key=lambda claim: claim.value) for same in zip(*rows, strict=True)]


def show(figures: dict[str, float], claims: list[Claim]) -> None:
    for key, value in figures.items():
        print(f"    {key:40s} {value:10.3f}")
    for claim in claims:
        verdict = "yes" if claim.holds else "NO "
        print(f"  {verdict} {claim.text}: {claim.value:.3f}, wanted {claim.bar:.3f}")


def rows(name: str, figures: dict[str, float], claims: list[Claim]) -> str:
    """One section of the chapter's table: what was claimed, and the figures it rests on."""
    story = (module(name).__doc__ or "").split("\n\n")[0].replace("\n", " ")
    lines = [
        f"## {name}",
        "",
        story,
        "",
        "| claim | measured | wanted | holds |",
        "|---|---|---|---|",
    ]
    for claim in claims:
        holds = "yes" if claim.holds else "**no**"
        text = claim.text.replace("|", r"\|")  # |X| would end the table's cell
        lines.append(f"| {text} | {claim.value:.3f} | {claim.bar:.3f} | {holds} |")
    cells = ", ".join(f"{key} {value:.2f}" for key, value in figures.items())
    picture = [
        f"```{{figure}} ../figures/phenomena/{name}.svg",
        f":alt: {alt(name, claims)}",
        "```",
    ]
    return "\n".join([*lines, "", *picture, "", f"Figures: {cells}.", ""])


def alt(name: str, claims: list[Claim]) -> str:
    """A text for those who do not see the figure: the claims that hold."""
    return f"{name}: " + "; ".join(claim.text for claim in claims if claim.holds)


def draw(name: str, figures: dict[str, float], claims: list[Claim]) -> None:
    figure, axes = style.figure(columns=2, width=9.0)
    module(name).plot(figures, axes)
    style.save(figure, FIGURES / f"{name}.svg", alt(name, claims))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m efflib.zoo.phenomena", description=__doc__)
    parser.add_argument("stories", nargs="*", metavar="STORY", help=", ".join(STORIES))
    parser.add_argument("--quick", action="store_true", help="the reduced setting of the tests")
    parser.add_argument("--seeds", type=int, default=1, help="slices of text; the worst is judged")
    options = parser.parse_args()
    if unknown := [name for name in options.stories if name not in STORIES]:
        parser.error(f"no story {unknown[0]!r}; there are {', '.join(STORIES)}")
    torch.manual_seed(0)
    sections = []
    for name in options.stories or STORIES:
        measured = measure(name, QUICK if options.quick else FULL, options.seeds)
        claims = worst(name, measured)
        show(measured[0], claims)
        if not options.quick:
            draw(name, measured[0], claims)
            sections.append(rows(name, measured[0], claims))
    if not options.quick and not options.stories:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text("\n".join(sections))
        print(f"written: {TABLE}")


if __name__ == "__main__":
    main()
