"""Numbers and figures of the chapter on token pruning.

    python benchmarks/lab12_tables.py            writes course/chapters/_generated/lab12_*.md
                                                 and course/figures/lab12/*.svg, prints the tables
    python benchmarks/lab12_tables.py rules      one part: see `main`

The shipped model on windows of held-out code of 256 tokens behind the begin token, eight for each
of three seeds. Caches read token by token; numbers are means over the seeds with their range.  Run
it again whenever the checkpoint changes.  Takes about ten minutes on two cores.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import lab12_figures as pictures
import torch
import torch.nn.functional as F
from torch import Tensor

from efflib import zoo
from efflib.attention import eviction, oracle, selection, spatten
from efflib.attention.eviction import Rule
from efflib.attention.maps import probabilities, recorded
from efflib.models.llama import causal_mask
from efflib.plots import style
from efflib.plots import tokens as drawings
from efflib.zoo import recall
from efflib.zoo.windows import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab12"
SEEDS = (0, 1, 2)
SCALE = Scale(windows=8, calibration=1, steps=0)
SIZES = (16, 32, 64)
PROMPT = 192  # of a window: may be pruned in a cascade, by what it looks at itself

model = zoo.load("target")
LAYERS, HEADS = model.config.num_hidden_layers, model.config.num_attention_heads


@torch.no_grad()
def losses(ids: Tensor, attention: Callable | None = None) -> Tensor:
    """The loss of every token of ids [B, 1 + T]. [B, T]"""
    with eviction.attending(model, attention or probabilities_times_values):
        logits = model(ids[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def probabilities_times_values(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return probabilities(q, k, mask) @ v


def perplexity(loss: Tensor) -> float:
    return loss.double().mean().exp().item()


def texts(seed: int, length: int = 256) -> Tensor:
    return windows("code", True, SCALE._replace(length=length), seed)


def write(name: str, text: str) -> None:
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text(text, encoding="utf-8")
    print(text, f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])


def spread(values: list[float], digits: int = 3) -> str:
    """16.0 (15.1 to 17.0)"""
    low, high = (f"{f(values):#.{digits}g}" for f in (min, max))
    return f"{mean(values):#.{digits}g}" + ("" if low == high else f" ({low} to {high})")


def table(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([k, *v]) + " |" for k, v in rows.items())]) + "\n"


# ---- keeping few -------------------------------------------------------------------------------


def per_query(mass: Tensor, positions: Tensor, layer: int) -> Tensor:
    """The mass divided by the number of queries that could look at a token."""
    return mass / (positions.max() + 1 - positions)


def rules(size: int, futures: list[Tensor]) -> dict[str, Rule]:
    half = size // 2
    named = {
        "recent": "recent",
        "half recent, half random": "random",
        "4 sinks + recent": "sinks",
        "H2O": "h2o",
        "TOVA": "tova",
    }
    found = {label: eviction.rule(name, size) for label, name in named.items()}
    found["H2O, a mean over queries"] = Rule(recent=half, score=per_query)
    found["oracle of the future"] = oracle.oracle_rule(futures)
    return found


def keep_few() -> None:
    """The main table: rules and sizes, and paired differences."""
    found, exact, lost = {}, [], {}
    for seed in SEEDS:
        ids = texts(seed)
        exact.append(perplexity(losses(ids)))
        futures = recorded(model, ids[:, :-1], lambda p: oracle.future_mass(p, HEADS))
        for size in SIZES:
            for way, rule in rules(size, futures).items():
                loss = losses(ids, oracle.in_one_pass(size, rule))
                found.setdefault((way, size), []).append(perplexity(loss))
                lost.setdefault((way, size), []).append(loss.double().mean(1))
    ways = list(dict.fromkeys(way for way, _ in found))
    rows = {way: [spread(found[way, size]) for size in SIZES] for way in ways}
    rows["everything kept"] = [spread(exact)] * len(SIZES)
    write("lab12_rules.md", table(["tokens a head", *map(str, SIZES)], rows))
    pairs = (
        ("4 sinks + recent", "recent"),
        ("H2O", "4 sinks + recent"),
        ("TOVA", "H2O"),
        ("H2O, a mean over queries", "H2O"),
    )
    rows = {}
    for a, b in pairs:
        cells = []
        for size in SIZES:
            x, y = (torch.cat(lost[way, size]) for way in (a, b))
            d = x - y
            apart = ((x.var() + y.var()) / len(d)).sqrt()
            cells.append(f"{d.mean():+.3f} ± {d.std() / len(d) ** 0.5:.3f} ({apart:.2f})")
        rows[f"{a} - {b}"] = cells
    write("lab12_pairs.md", table(["nats per token", *map(str, SIZES)], rows))
    shown = ["recent", "4 sinks + recent", "H2O", "oracle of the future"]
    picture("opening.svg", pictures.opening({w: found[w, 16] for w in shown}, exact))
    drawn = [w for w in ways if "random" not in w]
    picture(
        "rules.svg", pictures.against_size({k: v for k, v in found.items() if k[0] in drawn}, exact)
    )


def none_of_the_first(mass: Tensor, positions: Tensor, layer: int) -> Tensor:
    """The mass, but the first tokens of a text leave before all others."""
    return mass.masked_fill(positions < eviction.SINKS, -1.0)


def first_tokens() -> None:
    """What the first tokens gain without a choice, and a choice by mass without the first ones."""
    ways = {
        "recent": lambda size: Rule(recent=size),
        "begin token + recent": lambda size: Rule(sinks=1, recent=size - 1),
        "4 sinks + recent": lambda size: Rule(sinks=4, recent=size - 4),
        "H2O": lambda size: Rule(recent=size // 2),
        "H2O, none of the first four": lambda size: Rule(recent=size // 2, score=none_of_the_first),
    }
    found = {}
    for seed in SEEDS:
        for size in (16, 64):
            for way, rule in ways.items():
                loss = losses(texts(seed), oracle.in_one_pass(size, rule(size)))
                found.setdefault((way, size), []).append(perplexity(loss))
    rows = {way: [spread(found[way, size]) for size in (16, 64)] for way in ways}
    write("lab12_first.md", table(["tokens a head", "16", "64"], rows))


def time() -> None:
    """16 tokens: what a rule remembers, and how far an oracle sees."""
    found: dict[str, list[float]] = {}
    made = {
        f"mass times {d:g} a step, half recent": Rule(recent=8, decay=d)
        for d in (0.0, 0.9, 0.99, 1.0)
    }
    made["mass only, none recent"] = Rule()
    made["newest row only, none recent (TOVA)"] = Rule(decay=0.0)
    for seed in SEEDS:
        ids = texts(seed)
        for way, rule in made.items():
            found.setdefault(way, []).append(perplexity(losses(ids, oracle.in_one_pass(16, rule))))
        for horizon in (1, 8, 32, None):
            futures = recorded(
                model, ids[:, :-1], lambda p, h=horizon: oracle.future_mass(p, HEADS, h)
            )
            way = f"oracle, {'all' if horizon is None else horizon} ahead"
            loss = losses(ids, oracle.in_one_pass(16, oracle.oracle_rule(futures)))
            found.setdefault(way, []).append(perplexity(loss))
    write(
        "lab12_time.md",
        table(["16 tokens a head", "perplexity"], {k: [spread(v)] for k, v in found.items()}),
    )


def variants() -> None:
    """H2O at 32 tokens: one choice for a layer, positions in the cache, a prompt at once."""
    found: dict[str, list[float]] = {}
    rule = eviction.rule("h2o", 32)
    for seed in SEEDS[:2]:
        ids = texts(seed)[:4]
        for way, attention in {
            "every head for itself": oracle.in_one_pass(32, rule),
            "one choice for a layer": oracle.in_one_pass(32, rule, "layer"),
            "first 128 tokens read at once, then token by token": oracle.in_one_pass(
                32, rule, prompt=128
            ),
        }.items():
            found.setdefault(way, []).append(perplexity(losses(ids, attention)[:, 128:]))
        cache = eviction.EvictingCache(32, rule, theta=model.config.rope_theta)
        logits = eviction.evicted_logits(model, ids[:, :-1], cache).transpose(1, 2)
        loss = F.cross_entropy(logits, ids[:, 1:], reduction="none")
        found.setdefault("positions in the cache", []).append(perplexity(loss[:, 128:]))
    rows = {k: [spread(v)] for k, v in found.items()}
    write(
        "lab12_variants.md",
        table(["H2O, 32 tokens a head", "perplexity of tokens 128 to 255"], rows),
    )


# ---- reading few -------------------------------------------------------------------------------


def by_means(page: int, pages: int) -> Callable:
    """Pages chosen by the product with their mean key: half of the summary, and no bound."""

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        mean_key = torch.stack([x.mean(2) for x in k.split(page, dim=2)], 2)
        newest = torch.arange(q.shape[2]) // page
        rated = selection.page_bounds(q, mean_key, mean_key)
        chosen = selection.chosen_pages(rated, pages, newest)
        seen = chosen.repeat_interleave(page, -1)[..., : k.shape[2]] & mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    return attention


def read_few() -> None:
    """Pages of several sizes, and each query's own best keys, with what is kept and read."""
    found, all_of = {}, 257 * 64
    ways = {"everything": (None, (1.0, 1.0))}
    for page, pages in ((4, 4), (4, 8), (4, 16), (16, 2), (16, 4), (16, 8)):
        cost = selection.cost(257, 32, page, pages)
        share = (cost.kept / all_of, cost.read / all_of)
        ways[f"{pages} pages of {page}"] = (selection.selected_attention(page, pages), share)
    for page, pages in ((4, 8), (16, 4)):
        cost = selection.cost(257, 32, page, pages)
        half = math.ceil(257 / page) * 32  # of the summaries
        share = ((cost.kept - half) / all_of, (cost.read - half) / all_of)
        ways[f"{pages} pages of {page} by their means"] = (by_means(page, pages), share)
    ways["each query's best 16"] = (selection.top_keys_attention(16), (1.0, float("nan")))
    for seed in SEEDS:
        for way, (attention, _) in ways.items():
            found.setdefault(way, []).append(perplexity(losses(texts(seed), attention)))
    rows = {
        way: [
            f"{cost[0]:.2f}",
            "all keys" if cost[1] != cost[1] else f"{cost[1]:.2f}",
            spread(found[way]),
        ]
        for way, (_, cost) in ways.items()
    }
    write("lab12_pages.md", table(["", "kept, of everything", "read", "perplexity"], rows))


def certain() -> None:
    """How many pages have to be read to be certain of the largest product, of the last query."""
    rows = {}
    ids = texts(0)[:4, :-1]
    for page in (4, 16):
        taken: list[float] = []

        def attention(q, k, v, mask, page=page, taken=taken):
            low, high = selection.page_boxes(k, page)
            pages, need = low.shape[2], []
            for b in range(q.shape[0]):
                for h in range(q.shape[1]):
                    parts = k[b, h].split(page)
                    need.append(
                        selection.find_largest(
                            q[b, h, -1], low[b, h], high[b, h], parts.__getitem__
                        )[1]
                    )
            taken.append(mean(need) / pages)
            return probabilities_times_values(q, k, v, mask)

        with torch.no_grad(), eviction.attending(model, attention):
            model(ids)
        rows[f"pages of {page}"] = [f"{share:.2f}" for share in taken]
    write(
        "lab12_certain.md", table(["share of pages", *(f"layer {i}" for i in range(LAYERS))], rows)
    )


@torch.no_grad()
def hits(ids: Tensor, attention: Callable | None = None) -> tuple[float, float]:
    """(share of the second and third word that is the first choice, mean log probability)."""
    with eviction.attending(model, attention or probabilities_times_values):
        scores = model(ids[:, :-1])[:, recall.WORDS].log_softmax(-1)
    right = ids[:, recall.WORDS, None]
    return (scores.argmax(-1, keepdim=True) == right).double().mean().item(), scores.gather(
        2, right
    ).mean().item()


def names() -> None:
    """A name from 150 and 300 tokens back, 64 tokens a head."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    over_queries = Rule(recent=32, score=per_query)
    for gap in (150, 300):
        for seed in SEEDS:
            ids, blank = recall.name_texts(16, gap, seed)
            ways = {
                "everything": (ids, None),
                "another name in the first line": (blank, None),
                **{w: (ids, oracle.in_one_pass(64, eviction.rule(n, 64))) for w, n in
                   {"4 sinks + recent": "sinks", "H2O": "h2o", "TOVA": "tova"}.items()},
                "H2O, a mean over queries": (ids, oracle.in_one_pass(64, over_queries)),
                "16 pages of 4": (ids, selection.selected_attention(4, 16)),
                "4 pages of 16": (ids, selection.selected_attention(16, 4)),
            }  # fmt: skip
            for way, (which, attention) in ways.items():
                found.setdefault((way, gap), []).append(hits(which, attention))
    rows = {}
    for way in dict.fromkeys(way for way, _ in found):
        cells = []
        for gap in (150, 300):
            share = [f"{100 * f(h for h, _ in found[way, gap]):.0f}" for f in (mean, min, max)]
            cells.append(f"{share[0]} ({share[1]} to {share[2]}) %")
            cells.append(f"{mean(p for _, p in found[way, gap]):.1f}")
        rows[way] = cells
    head = ["64 tokens a head", "150 back: hits", "log p", "300 back: hits", "log p"]
    write("lab12_names.md", table(head, rows))


# ---- SpAtten -----------------------------------------------------------------------------------


def schedule(last: float) -> list[int]:
    return [round(PROMPT * (1 - (1 - last) * min(1, (i + 1) / 5))) for i in range(LAYERS)]


def by_number(value: Tensor) -> Callable:
    return lambda p, score, alive, keep: (
        score,
        spatten.keep_best(value.expand_as(score), alive, keep),
    )


def a_mean(p: Tensor, score: Tensor, alive: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    could = alive.flip(1).cumsum(1).flip(1).clamp(min=1)
    return spatten.cascade_tokens(p / could[:, None, None], score, alive, keep)


def anew(p: Tensor, score: Tensor, alive: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    return score, spatten.keep_best(p.sum((1, 2)), torch.ones_like(alive), keep)


def cascades() -> None:
    """A prompt pruned layer by layer, and its controls; the table of prefixes."""
    place, found = torch.arange(PROMPT).float(), {}
    for seed in SEEDS:
        ids = texts(seed)
        noise = torch.rand(PROMPT, generator=torch.Generator().manual_seed(seed))
        ways = {
            "SpAtten's sum": spatten.cascade_tokens,
            "a mean over queries": a_mean,
            "chosen anew in each layer": anew,
            "random": by_number(noise),
            "recent": by_number(place),
            "4 sinks + recent": by_number(place.masked_fill(place < 4, 1e9)),
        }
        found.setdefault(("nothing pruned", 0), []).append(perplexity(losses(ids)[:, PROMPT:]))
        for last in (0.5, 0.25, 0.125):
            for way, choose in ways.items():
                made = spatten.Cascade(PROMPT, schedule(last), choose=choose)
                found.setdefault((way, last), []).append(perplexity(losses(ids, made)[:, PROMPT:]))
    ways = list(dict.fromkeys(w for w, _ in found if w != "nothing pruned"))
    rows = {w: [spread(found[w, f]) for f in (0.5, 0.25, 0.125)] for w in ways}
    rows["nothing pruned"] = [spread(found["nothing pruned", 0])] * 3
    head = [
        "192 tokens of prompt, behind the fifth layer",
        *(str(schedule(f)[-1]) for f in (0.5, 0.25, 0.125)),
    ]
    write("lab12_cascade.md", table(head, rows))
    ids = texts(0)[:1]
    made = spatten.Cascade(PROMPT, schedule(0.125))
    losses(ids, made)
    words = [zoo.load_tokenizer().decode([i]) for i in ids[0, :28].tolist()]
    words[0] = "<s>"
    alive = torch.stack([x[0, :28] for x in made.history])
    title = "The first 28 of 192 tokens, layer by layer: what is gone does not return"
    picture("prefixes.svg", drawings.prefixes(words, alive, title))


def heads() -> None:
    """Head pruning in a cascade, with the heads of each layer counted in other orders."""
    keeps, found = [6, 5, 5, 4, 4, 4], {"as stored": [], "exchanged": []}
    for seed in SEEDS:
        ids = texts(seed)
        made = spatten.Cascade(PROMPT, [PROMPT] * LAYERS, heads=keeps)
        found["as stored"].append(perplexity(losses(ids, made)[:, PROMPT:]))
        for draw in range(4):
            generator = torch.Generator().manual_seed(100 * seed + draw)
            before = {}
            for i, layer in enumerate(model.model.layers):
                before[i] = exchange(layer.self_attn, torch.randperm(HEADS, generator=generator))
            made = spatten.Cascade(PROMPT, [PROMPT] * LAYERS, heads=keeps)
            found["exchanged"].append(perplexity(losses(ids, made)[:, PROMPT:]))
            for i, layer in enumerate(model.model.layers):
                layer.self_attn.load_state_dict(before[i])
    rows = {way: [spread(values)] for way, values in found.items()}
    write("lab12_heads.md", table([f"heads kept behind each layer: {keeps}", "perplexity"], rows))


@torch.no_grad()
def exchange(attention, order: Tensor) -> dict[str, Tensor]:
    """Put the heads of a layer in another order, which changes no output; its state before."""
    before = {k: v.clone() for k, v in attention.state_dict().items()}
    d = attention.config.head_dim
    rows = (order[:, None] * d + torch.arange(d)).flatten()
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(attention, name).weight.copy_(before[f"{name}.weight"][rows])
    attention.o_proj.weight.copy_(before["o_proj.weight"][:, rows])
    return before


def values() -> None:
    """Local value pruning, with and without dividing by what is left."""
    found: dict[tuple[str, int], list[float]] = {}
    for seed in SEEDS:
        for keep in (8, 16, 32, 64):

            def pruned(q, k, v, mask, keep=keep):
                return spatten.pruned_values(probabilities(q, k, mask), v, keep)

            for way, attention in (
                ("as SpAtten", pruned),
                ("divided by what is left", selection.top_keys_attention(keep)),
            ):
                found.setdefault((way, keep), []).append(perplexity(losses(texts(seed), attention)))
    rows = {
        way: [spread(found[way, keep]) for keep in (8, 16, 32, 64)]
        for way in ("as SpAtten", "divided by what is left")
    }
    write("lab12_values.md", table(["values fetched for a query", "8", "16", "32", "64"], rows))


def bits() -> None:
    """High bits first: how often the low ones are needed by the bound, and what it costs."""
    rows = {}
    for bits_, low in ((8, 4), (8, 2), (12, 4)):
        for tolerance in (0.05, 0.2, 1.0):
            lost, shares = [], []

            def attention(q, k, v, mask, how=(bits_, low, tolerance), shares=shares):
                p, fetched = spatten.progressive(q, k, mask, *how)
                shares.append(fetched.float().mean().item())
                return p.to(v.dtype) @ v

            for seed in SEEDS:
                ids = texts(seed)[:4]
                lost.append((losses(ids, attention) - losses(ids)).double().mean().item())
            share = mean(shares)
            name = "never (no bound)" if tolerance == 1.0 else f"{tolerance}"
            read = f"{bits_ - low + share * low:.1f}"
            rows[f"{bits_ - low} + {low}, {name}"] = [f"{100 * share:.0f} %", read, spread(lost, 2)]
    head = [
        "bits, largest shift allowed",
        "rows that need the low bits",
        "bits read",
        "loss added, nats",
    ]
    write("lab12_bits.md", table(head, rows))


def local_and_heavy() -> None:
    """Who is there for every query of one head, by three rules."""
    ids = texts(0)[:1, :97]
    panels = {}
    for name, rule in (
        ("local", Rule(recent=16)),
        ("heavy", Rule()),
        ("local and heavy", Rule(recent=8)),
    ):
        seen: dict[int, Tensor] = {}

        def attention(q, k, v, mask, rule=rule, seen=seen):
            kept, there = eviction.KeptTokens(16, rule), torch.zeros(q.shape[2], q.shape[2]) > 0
            outs = []
            for t in range(q.shape[2]):
                x = (y[:, :, t : t + 1] for y in (q, k, v))
                qt, kt, vt = x
                keys, held = kept.append(kt, vt)
                there[t, kept.positions[0, 2]] = True
                outs.append(kept.attend(qt, keys, held, causal_mask(1, keys.shape[2])))
            seen[len(seen)] = there
            return torch.cat(outs, 2)

        losses(ids, attention)
        panels[name] = seen[3]
    title = "16 tokens of one head: local, heavy, and half of each"
    picture("local_and_heavy.svg", drawings.kept_maps(panels, title))


PARTS = {
    f.__name__: f
    for f in (keep_few, first_tokens, time, variants, read_few, certain, names, cascades, heads,
              values, bits, local_and_heavy)
}  # fmt: skip


def main(parts: list[str]) -> None:
    for name in parts or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
