"""Numbers and figures of the chapter on speculative decoding, on the zoo's pair.

    python benchmarks/lab09_tables.py            writes course/chapters/_generated/lab09_*.md
                                                 and course/figures/lab09/*.svg, prints the tables

Tokens and passes are counted and depend on the seeds alone; means over SEEDS slices of held-out
code, with the range.  c and w are seconds that the processor spent on passes in this process, by
its own clock, in turns, the least of many: another machine gives others.  About a minute.
"""

import time
from math import prod
from pathlib import Path
from statistics import mean

import torch

from efflib import zoo
from efflib.decoding.drafts import LookupDraft, ModelDraft
from efflib.decoding.replay import replay, same_choice, shuffled
from efflib.decoding.sampling import Sampling, filtered_probabilities, generate
from efflib.decoding.speculative import expected_tokens, speculative_generate
from efflib.decoding.speed import best_gamma, needed_acceptance, speedup
from efflib.decoding.tree import ModelTree, tree_generate
from efflib.models import KVCache, Llama
from efflib.plots import speculation, style
from efflib.zoo.phenomena.story import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab09"
SEEDS, ROWS, PROMPT, NEW = 3, 6, 64, 64
GAMMAS = [1, 2, 4, 8, 16, 32, 50]
TEMPERATURES = (0.0, 0.5, 1.0, 1.5)
# chains and trees, by the passes of the draft that they take
WIDTHS = ((1,), (10,), (1, 1), (3, 2), (1, 1, 1), (2, 2, 1), (1,) * 10)
COSTS = (0.3, 0.2, 0.1, 0.05, 0.01)  # of a pass of the draft


def spread(values: list[float]) -> str:
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(drawn: speculation.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)


def agreements(target: Llama, draft: Llama, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where two models choose alike on the target's greedy text [n, NEW], and that text."""
    rows = windows("code", True, Scale(ROWS, 1, NEW), seed)[:, : 1 + PROMPT]
    own = generate(target, rows, NEW)
    return same_choice(target, draft, own, 1 + PROMPT), own


def rate_at(target: Llama, draft: Llama, temperature: float, seed: int) -> float:
    """Mean of sum min(p, q) over text that the target samples."""
    rows = windows("code", True, Scale(ROWS, 1, NEW), seed)[:, : 1 + PROMPT]
    sampling, generator = Sampling(temperature), torch.Generator().manual_seed(seed)
    ids = generate(target, rows, NEW, sampling, generator)
    p, q = (
        filtered_probabilities(m(ids)[:, PROMPT:-1].flatten(0, 1), sampling)
        for m in (target, draft)
    )
    return torch.minimum(p, q).sum(-1).mean().item()


def pass_costs(*cases: tuple[Llama, int]) -> list[float]:
    """Least seconds of the processor for a pass of a model over so many tokens behind PROMPT."""
    ids, caches = torch.ones(1, PROMPT, dtype=torch.int64), [KVCache() for _ in cases]
    times: list[list[float]] = [[] for _ in cases]
    for (model, _), cache in zip(cases, caches, strict=True):
        model(ids, cache=cache)
    for _ in range(150):
        for (model, tokens), cache, row in zip(cases, caches, times, strict=True):
            start = time.thread_time()
            model(ids[:, :tokens], cache=cache)
            row.append(time.thread_time() - start)
            cache.truncate(PROMPT)
    return [min(row) for row in times]


def rounds_table(target: Llama, draft: Llama) -> tuple[float, dict[str, list[float]]]:
    """The acceptance, and tokens a pass for every draft length; writes the table."""
    torch.manual_seed(0)
    drafts = {"draft": draft, "random draft": Llama(draft.config).eval()}
    same = {
        name: [agreements(target, model, seed)[0] for seed in range(SEEDS)]
        for name, model in drafts.items()
    }
    rates = [s.float().mean().item() for s in same["draft"]]
    lines = ["| proposals | tokens a pass | in other orders | formula | random draft |"]
    lines.append("|---|---|---|---|---|")
    found = {"draft": [], "random draft": [], "formula": []}
    for gamma in GAMMAS:
        each = {name: [replay(s, gamma) for s in rows] for name, rows in same.items()}
        by_formula = expected_tokens(mean(rates), gamma)
        for name, values in (*each.items(), ("formula", [by_formula])):
            found[name].append(mean(values))
        orders = shuffled(same["draft"], gamma)
        lines.append(
            f"| {gamma} | {spread(each['draft'])} | {orders[10]:.2f} to {orders[-11]:.2f} | "
            f"{by_formula:.2f} | {spread(each['random draft'])} |"
        )
    write("lab09_rounds", "\n".join(lines) + f"\n\nAcceptance: {spread(rates)}.\n")
    return mean(rates), found


def speed_table(rate: float, target: Llama, draft: Llama) -> None:
    """What the model of speed makes of the costs here, and of others; with its figure."""
    one, nine, small = pass_costs((target, 1), (target, 9), (draft, 1))
    cost, wider = small / one, max(0.0, (nine / one - 1) / 8)
    lines = ["| c | w | best γ | times plain at this acceptance | acceptance that 2 × needs |"]
    lines.append("|---|---|---|---|---|")
    cases = [(cost, wider, "here: "), *((c, 0.02, "") for c in COSTS)]
    for c, w, name in cases:
        best, needed = best_gamma(rate, c, w), needed_acceptance(2, c, w)
        said = "none" if needed is None else f"{needed:.2f}"
        speed = speedup(rate, best, c, w)
        lines.append(f"| {name}{c:.2f} | {w:.3f} | {best} | {speed:.2f} | {said} |")
    write("lab09_speed", "\n".join(lines) + f"\n\nAcceptance {rate:.2f}.\n")
    rows = {
        f"a = {a:.2f}, c = {c:.2f}": [speedup(a, g, c, w) for g in GAMMAS]
        for a, c, w in ((rate, cost, wider), (0.8, 0.05, 0.02), (0.9, 0.05, 0.02))
    }
    labels = ("proposals in a round", "times as fast as plain")
    head = "Speed rises to a best draft length and falls behind it"
    save(speculation.curves(GAMMAS, {}, rows, labels, head, 1.0), "speed")


def drafts_table(target: Llama, draft: Llama) -> None:
    """Other ways to guess: lookups and trees; tokens a pass, and passes of the draft a round."""
    rows = windows("code", True, Scale(ROWS, 1, NEW), 0)[:, None, : 1 + PROMPT]
    lines = [
        "| guesses | nodes | passes of the draft a round | tokens a pass |",
        "|---|---|---|---|",
    ]
    for name, make in (("lookup, up to 8", LookupDraft), ("chain of 8", lambda: ModelDraft(draft))):
        runs = [speculative_generate(target, make(), row, NEW, 8) for row in rows]
        each = [NEW / run.passes for run in runs]
        lines.append(f"| {name} | 8 | {0 if make is LookupDraft else 8} | {spread(each)} |")
    for widths in WIDTHS:
        runs = [tree_generate(target, ModelTree(draft, widths), row, NEW) for row in rows]
        each = [NEW / run.passes for run in runs]
        name = "tree " + " × ".join(map(str, widths))
        name = f"chain of {len(widths)}" if set(widths) == {1} else name
        nodes = sum(prod(widths[: i + 1]) for i in range(len(widths)))
        lines.append(f"| {name} | {nodes} | {len(widths)} | {spread(each)} |")
    write("lab09_drafts", "\n".join(lines) + "\n")


def opening(target: Llama, draft: Llama) -> None:
    tokenizer = zoo.load_tokenizer()
    prompt = torch.tensor([[zoo.BEGIN_ID, *tokenizer.encode(zoo.PROMPTS[1]).ids]])
    own = generate(target, prompt, NEW)
    same = same_choice(target, draft, own, prompt.shape[1])[0].tolist()
    words = [tokenizer.decode([t]) for t in own[0, prompt.shape[1] :].tolist()]
    head = "Blue: guessed by the small model. Bold: written by the large one"
    save(speculation.text_of_two(words, same, head), "opening")


@torch.no_grad()
def main() -> None:
    target, draft = zoo.load("target"), zoo.load("draft")
    opening(target, draft)
    rate, found = rounds_table(target, draft)
    labels = ("proposals in a round", "tokens per pass of the target")
    head = "A good draft gives several tokens a pass; a random one gives one"
    measured = {name: found[name] for name in ("draft", "random draft")}
    formula = {f"formula at a = {rate:.2f}": found["formula"]}
    save(speculation.curves(GAMMAS, measured, formula, labels, head, 1.0), "rounds")
    lines = ["| temperature | acceptance |", "|---|---|"]
    for temperature in TEMPERATURES:
        rates = [rate_at(target, draft, temperature, seed) for seed in range(SEEDS)]
        lines.append(f"| {temperature} | {spread(rates)} |")
    write("lab09_temperature", "\n".join(lines) + "\n")
    speed_table(rate, target, draft)
    drafts_table(target, draft)
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.1, 0.1])
    rest = ((p - q).clamp(min=0) / (p - q).clamp(min=0).sum()).tolist()
    head = "What both share is accepted; a rejection draws what is missing"
    names = ["low", "high", "mid", "never"]
    save(speculation.overlap(names, p.tolist(), q.tolist(), rest, head), "overlap")


if __name__ == "__main__":
    main()
