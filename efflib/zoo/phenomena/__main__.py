"""Measure every story of the course on the shipped models.

    python -m efflib.zoo.phenomena                    the table, and the chapters' figures
    python -m efflib.zoo.phenomena awq sinks          some stories only
    python -m efflib.zoo.phenomena --quick            the reduced setting that the tests run
    python -m efflib.zoo.phenomena awq --model FOLDER --text FILE      on a model of one's own

Everything is measured under three seeds, which differ in slices of text and, where there are any,
in the places of outliers. A claim holds if it holds under every seed; one that does not is printed
as such. Without --quick each story's section is written to course/chapters/_generated/phenomena/,
its figure to course/figures/phenomena/, and course/chapters/_generated/phenomena.md is put together
from the sections when there is one of every story.
"""

import argparse
import time
from pathlib import Path

import torch

from efflib.plots import style
from efflib.zoo.phenomena import STORIES, module, on_a_model
from efflib.zoo.phenomena.story import FULL, QUICK, Mean
from efflib.zoo.phenomena.table import Judged, alt, section

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "course" / "chapters" / "_generated" / "phenomena.md"
SECTIONS = TABLE.parent / "phenomena"
FIGURES = ROOT / "course" / "figures" / "phenomena"
Measured = list[dict[str, float]]  # the figures of a story, for every seed


def measure(name: str, scale, seeds: int) -> Measured:
    start, found = time.monotonic(), []
    for seed in range(seeds):
        found.append(module(name).measure(scale, seed))
    print(f"{name}  ({time.monotonic() - start:.0f} s)")
    return found


def judged(name: str, measured: Measured) -> list[Judged]:
    """Each claim with its mean, and as the worst of the seeds has it."""
    rows = [module(name).claims(figures) for figures in measured]
    columns = list(zip(*rows, strict=True))
    worst = [min(same, key=lambda claim: claim.value) for same in columns]
    return [
        Judged(claim, sum(c.value for c in same) / len(same))
        for claim, same in zip(worst, columns, strict=True)
    ]


def show(figures: dict[str, Mean], claims: list[Judged]) -> None:
    for key, value in figures.items():
        print(f"    {key:40s} {value:10.3f}  ({value.low:.3f} to {value.high:.3f})")
    for claim, mean in claims:
        verdict = "yes" if claim.holds else "NO "
        print(f"  {verdict} {claim.text}: {mean:.3f}, worst {claim.value:.3f}, ", end="")
        print(f"wanted {claim.bar:.3f}")


def draw(name: str, figures: dict[str, Mean], claims: list[Judged]) -> None:
    figure, axes = style.figure(columns=2, width=9.0)
    module(name).plot(figures, axes)
    style.save(figure, FIGURES / f"{name}.svg", alt(name, claims))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m efflib.zoo.phenomena", description=__doc__)
    parser.add_argument("stories", nargs="*", metavar="STORY", help=", ".join(STORIES))
    parser.add_argument("--quick", action="store_true", help="the reduced setting of the tests")
    parser.add_argument("--seeds", type=int, default=3, help="of text and places of outliers")
    on_a_model.add_options(parser)
    options = parser.parse_args()
    if options.model:
        return own_model(parser, options)
    if unknown := [name for name in options.stories if name not in STORIES]:
        parser.error(f"no story {unknown[0]!r}; there are {', '.join(STORIES)}")
    torch.manual_seed(0)
    for name in options.stories or STORIES:
        measured = measure(name, QUICK if options.quick else FULL, options.seeds)
        figures, claims = Mean.of(measured), judged(name, measured)
        show(figures, claims)
        if not options.quick:
            draw(name, figures, claims)
            write(SECTIONS / f"{name}.md", section(name, figures, claims, options.seeds))
    sections = [SECTIONS / f"{name}.md" for name in STORIES]
    if not options.quick and all(file.is_file() for file in sections):
        write(TABLE, "\n".join(file.read_text() for file in sections))


def own_model(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.stories or options.text is None:
        parser.error("--model needs a STORY and --text FILE")
    for name in options.stories:
        try:
            on_a_model.run(name, options)
        except ValueError as error:
            parser.error(str(error))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(f"written: {file}")


if __name__ == "__main__":
    main()
