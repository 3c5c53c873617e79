"""Numbers and figures of the chapter on speculative decoding, on the zoo's pair.

    python benchmarks/lab09_tables.py            writes course/chapters/_generated/lab09_*.md
                                                 and course/figures/lab09/*.svg, prints the tables

Tokens and passes are counted and depend on the seeds alone; means over SEEDS slices of held-out
code, with the range.  c and w are seconds that the processor spent on passes in this process, by
its own clock, in rounds as the loop makes them (g passes of the draft, then one of the target), the
least of many: another machine gives others, and a busy one larger ones.  About a minute.
"""

import time
from math import prod
from pathlib import Path
from statistics import mean

import torch

from efflib import zoo
from efflib.decoding.drafts import lookup
from efflib.decoding.replay import (
    constants,
    ranks,
    replay,
    replayed,
    rounds,
    same_choice,
    shuffled,
    tree_rounds,
)
from efflib.decoding.sampling import Sampling, filtered_probabilities, generate
from efflib.decoding.speculative import acceptance_probability, expected_tokens, residual
from efflib.decoding.speed import best_gamma, needed_acceptance, speedup
from efflib.lab.chances import stopped, table
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
CASES = ((0.2, 0.05), (0.1, 0.02), (0.05, 0.005), (0.01, 0.005))  # (c, w)
ROUNDS = (1, 2, 4, 8)  # proposals of the rounds that c and w are measured in


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


def round_costs(target: Llama, draft: Llama) -> dict[int, tuple[float, float]]:
    """{g: (c, w)} of rounds of g proposals behind PROMPT tokens; writes the table."""
    ids, caches = torch.ones(1, PROMPT, dtype=torch.int64), {m: KVCache() for m in (target, draft)}

    def spent(model: Llama, tokens: int) -> float:
        start = time.thread_time()
        model(ids[:, :tokens], cache=caches[model])
        return time.thread_time() - start

    def forget() -> None:
        for cache in caches.values():
            cache.truncate(PROMPT)

    for model in caches:
        spent(model, PROMPT)
    plain, drafts, checks = [], {g: [] for g in ROUNDS}, {g: [] for g in ROUNDS}
    for _ in range(150):  # all kinds in turns, so that a busy time is busy for all
        for _ in range(4):
            plain.append(spent(target, 1))
            forget()
        for g in ROUNDS:
            drafts[g].append(sum(spent(draft, 1) for _ in range(g)) / g)
            checks[g].append(spent(target, g + 1))
            forget()
    one = min(plain)
    costs = {g: (min(drafts[g]) / one, max(0.0, min(checks[g]) / one - 1) / g) for g in ROUNDS}
    lines = ["| proposals in a round | c | w |", "|---|---|---|"]
    lines += [f"| {g} | {c:.2f} | {w:.3f} |" for g, (c, w) in costs.items()]
    write("lab09_costs", "\n".join(lines) + f"\n\nA plain pass: {1e3 * one:.2f} ms.\n")
    return costs


def stops_table() -> None:
    """Three rules that end the draft's proposals, enumerated for three pairs of models."""

    def verify(proposed, q, p, coin, pick):
        for i, token in enumerate(proposed.tolist()):
            if not coin(acceptance_probability(p[i], q[i])[token]):
                last = torch.tensor([pick(residual(p[i], q[i]))])
                return torch.cat([proposed[:i], last])
        return torch.cat([proposed, torch.tensor([pick(p[-1])])])

    rules = {
        "stop behind a token where the largest q is below 0.5": lambda row, t: (
            True,
            row.max() >= 0.5,
        ),
        "stop behind a drawn token whose q is below 0.5": lambda row, t: (True, row[t] >= 0.5),
        "do not propose a drawn token whose q is below 0.5": lambda row, t: (row[t] >= 0.5, True),
    }
    lines = ["| rule | largest error of a text's probability, three pairs of models |", "|---|---|"]
    for name, rule in rules.items():
        off = []
        for seed in range(3):
            rng = torch.Generator().manual_seed(seed)
            off.append(stopped(rule, table(rng, 3, 3), table(rng, 3, 3), 2, verify))
        lines.append(f"| {name} | {', '.join(f'{x:.0e}' for x in off)} |")
    write("lab09_stops", "\n".join(lines) + "\n")


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


def speed_table(rate: float, cost: float, wider: float) -> None:
    """What the model of speed makes of the costs here, and of others; with its figure."""
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


def drafts_table(target: Llama, draft: Llama, here: tuple[float, float]) -> None:
    """Other ways to guess, on one greedy text of each of six prompts, and on the same once more."""
    prompts = windows("code", True, Scale(ROWS, 1, NEW), 0)[:, : 1 + PROMPT]
    texts = generate(target, prompts, NEW)[:, None]  # [ROWS, 1, 1 + PROMPT + NEW]
    begun = torch.cat([texts[:, 0], texts[:, 0, 1:9]], dim=1)  # the text, and how it begins
    again = generate(target, begun, NEW)[:, None]
    lines = ["| guesses | new text | the same text once more |", "|---|---|---|"]
    names = {"lookup, up to 8": [], "chain of 8": []}
    speeds = {"lookup, up to 8": [], "the draft at its best length": []}
    for rows in (texts, again):
        looked, same = [], []
        for row in rows:
            ids = row[0].tolist()
            found = replayed(
                ids,
                len(ids) - NEW,
                lambda n, room, ids=ids: lookup(torch.tensor(ids[:n]), 8).tolist(),
            )
            looked.append(found)
            same.append(same_choice(target, draft, row, len(ids) - NEW)[0].tolist())
        names["lookup, up to 8"].append(spread([NEW / passes for passes, _ in looked]))
        names["chain of 8"].append(spread([NEW / rounds(s, 8)[0] for s in same]))
        passes, proposed = map(sum, zip(*looked, strict=True))
        speeds["lookup, up to 8"].append(NEW * ROWS / (passes + proposed * here[1]))
        speeds["the draft at its best length"].append(max(constants(same, sum(here)).values()))
    lines += [f"| {name}, tokens a pass | {a} | {b} |" for name, (a, b) in names.items()]
    lines += [f"| {name}, times plain | {a:.2f} | {b:.2f} |" for name, (a, b) in speeds.items()]
    write("lab09_lookups", "\n".join(lines) + "\n")
    trees_table(draft, texts, here)


def trees_table(draft: Llama, texts: torch.Tensor, here: tuple[float, float]) -> None:
    cases = (here, *CASES)
    heads = " | ".join(f"c {c:.2f}, w {w:.3f}" for c, w in cases)
    lines = [f"| guesses | nodes | passes of the draft a round | tokens a pass | {heads} |"]
    lines.append("|---" * (4 + len(cases)) + "|")
    places = [ranks(draft, row, row.shape[1] - NEW) for row in texts]
    for widths in WIDTHS:
        passes = [tree_rounds(row, widths) for row in places]
        nodes = sum(prod(widths[: i + 1]) for i in range(len(widths)))
        name = "tree " + " × ".join(map(str, widths))
        name = f"chain of {len(widths)}" if set(widths) == {1} else name
        rate = NEW * ROWS / sum(passes)
        speeds = (rate / (1 + len(widths) * c + nodes * w) for c, w in cases)
        said = " | ".join(f"{speed:.2f}" for speed in speeds)
        each = spread([NEW / p for p in passes])
        lines.append(f"| {name} | {nodes} | {len(widths)} | {each} | {said} |")
    write("lab09_trees", "\n".join(lines) + "\n")


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
    here = round_costs(target, draft)[4]
    speed_table(rate, *here)
    drafts_table(target, draft, here)
    stops_table()
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.1, 0.1])
    rest = ((p - q).clamp(min=0) / (p - q).clamp(min=0).sum()).tolist()
    head = "What both share is accepted; a rejection draws what is missing"
    names = ["low", "high", "mid", "never"]
    save(speculation.overlap(names, p.tolist(), q.tolist(), rest, head), "overlap")


if __name__ == "__main__":
    main()
