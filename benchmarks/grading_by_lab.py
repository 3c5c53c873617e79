"""What it takes to grade one notebook of each lab, stock nbgrader's autograde and ours.

    python benchmarks/grading_by_lab.py [LAB ...] [--submissions 20] [--rounds 3] [--markdown FILE]

As in grading.py, one process against one: the same solved notebooks without demo cells, and
medians over the rounds.  Ours runs all tests, and in the column "visible" those that nbgrader runs
and no more.  Default: all labs.
"""

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import grading
from grading import ROOT, Bench

from autograder.labs.manifest import lab_names, load_lab

CONTESTANTS = {
    "nbgrader": (grading.stock, 1),
    "ours": (grading.ours, 1),
    "visible": (partial(grading.ours, name="visible"), 1),
}
HEAD = "| lab | nbgrader, CPU s each | ours | visible | nbgrader to ours | to visible |"


def measured(lab: str, submissions: int, rounds: int) -> dict[str, float]:
    """CPU seconds of one submission, by contestant."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), load_lab(lab, ROOT))
        grading.make_courses(bench, submissions)
        took = grading.rounds(bench, CONTESTANTS, rounds)
    return {
        who: statistics.median(cpu for _, cpu in own) / submissions for who, own in took.items()
    }


def row(lab: str, cpu: dict[str, float]) -> str:
    ratios = [cpu["nbgrader"] / cpu[who] for who in ("ours", "visible")]
    return f"| {lab} | " + " | ".join(f"{value:.2f}" for value in [*cpu.values(), *ratios]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labs", nargs="*", metavar="LAB")
    parser.add_argument("--submissions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    lines = [HEAD, "|---|" + 5 * "--:|"]
    for lab in options.labs or lab_names(ROOT):
        print(lab, flush=True)
        lines.append(row(lab, measured(lab, options.submissions, options.rounds)))
        if options.markdown:  # labs take long: what is known stands there
            options.markdown.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
