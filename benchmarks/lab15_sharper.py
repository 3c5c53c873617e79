"""A table of lab 15's chapter: drafts at the temperature at which each is accepted most often."""

import lab15_draft as drafts

from efflib.finetuning.bills import apart
from efflib.plots import placements

CONTROL = "forward KL, library"


def sharper_table(done: dict) -> str:
    """done: what `lab15_draft.py` keeps.  One temperature for all seeds of a way.

    "" while runs are missing.
    """
    best = {}
    for way in drafts.SHARPENED:
        rate = done[f"draft | {way} | rate"]
        runs = [done.get(f"sharpened | {way} | {rate} | {seed}") for seed in drafts.SEEDS]
        if None in runs:
            return ""
        at = {t: [run[str(t)] for run in runs] for t in drafts.TEMPERATURES}
        t = max(at, key=lambda t: placements.mean(at[t]))
        best[way] = t, at[t], at[1.0]
    control = best[CONTROL][1]
    lines = [
        "| | at 1 | at its best | which is | beside forward KL there |",
        "|---|---|---|---|---|",
    ]
    for way, (t, own, plain) in best.items():
        verdict = "control" if way == CONTROL else "alike"
        if way != CONTROL and apart(own, control):
            verdict = "better" if placements.mean(own) > placements.mean(control) else "worse"
        cells = f"{placements.plus_minus(plain)} | {placements.plus_minus(own)} | {t}"
        lines.append(f"| {way} | {cells} | {verdict} |")
    return "\n".join(lines) + "\n"
