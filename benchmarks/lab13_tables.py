"""Tables and figures of the chapter on mixtures of experts, measured on the zoo's models.

    python benchmarks/lab13_tables.py            writes course/chapters/_generated/lab13_*.md
                                                 and course/figures/lab13/*.svg, prints the tables
    python benchmarks/lab13_tables.py drops      one part: see `main`

Three seeds; each reads other windows of held-out and of training text.  Means over the seeds, with
the smallest and the largest.
"""

import math
import sys
from pathlib import Path
from statistics import mean

import lab13_figures as pictures
import torch

from efflib import zoo
from efflib.meter.roofline import GPUS
from efflib.moe.balance import balancing_loss, load
from efflib.moe.capacity import admitted, capacity
from efflib.moe.router import route
from efflib.moe.traffic import sent, woken
from efflib.plots import style
from efflib.sparsity import contextual
from efflib.zoo.phenomena import moe as story
from efflib.zoo.phenomena.skipping import CONTROLS, WAYS, Skipping
from efflib.zoo.phenomena.story import losses
from efflib.zoo.windows import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab13"
SEEDS = (0, 1, 2)
SCALE = Scale(windows=16, calibration=32, steps=0)
NAMES = {
    "dense": "learnable_sink",
    "mixture": "moe",
    "mixture, no balancing loss": "moe_unbalanced",
}
MIXTURES = {"with balancing loss": "moe", "without": "moe_unbalanced"}
FACTORS = [0.5, 1.0, 1.25, 1.5, 2.0, 3.0]
BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # neurons, by those active
SIZES = [1, 2, 4, 8, 16, 32, 64]
MANY = [1, 2, 4, 8, 16, 64, 256, 1024, 2048, 4096]


def write(name: str, text: str) -> None:
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text(text, encoding="utf-8")
    print(text, f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])


def spread(values: list[float], digits: int = 2) -> str:
    """0.93 (0.90 to 0.97)"""
    shown = [f"{v:.{digits}f}" for v in (mean(values), min(values), max(values))]
    return shown[0] if shown[1] == shown[2] else f"{shown[0]} ({shown[1]} to {shown[2]})"


def table(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([k, *v]) + " |" for k, v in rows.items())]) + "\n"


def models() -> None:
    """Sizes and losses of the three, and the difference of mixture and dense text by text."""
    rows, found = {}, {}
    for name, key in NAMES.items():
        model = zoo.load(key)
        total = sum(p.numel() for p in model.parameters())
        idle = sum(
            (1 - m.k / len(m.experts)) * sum(p.numel() for p in m.experts.parameters())
            for m in getattr(model, "mixtures", list)()
        )
        cells = [f"{total / 1e6:.2f} M", f"{(total - idle) / 1e6:.2f} M"]
        for split in ("code", "prose"):
            texts = [windows(split, True, SCALE, seed) for seed in SEEDS]
            found[name, split] = [losses(model, text).mean().item() for text in texts]
            cells.append(spread([math.exp(v) for v in found[name, split]]))
        rows[name] = cells
    write("lab13_models.md", table(["", "all", "for a token", "code", "prose"], rows))
    for name in list(NAMES)[1:]:
        pairs = zip(found[name, "code"], found["dense", "code"], strict=True)
        print(f"{name} minus dense, nats on code:", [f"{a - b:+.3f}" for a, b in pairs])


def balance() -> None:
    """Loads while the models trained; loss and load at the end."""
    logs = {name: zoo.training_log(key) for name, key in MIXTURES.items()}
    shares = {n: [[layer[0] for layer in e["load"]] for e in log] for n, log in logs.items()}
    steps = [entry["step"] for entry in logs["without"]]
    picture("busiest.svg", pictures.busiest(steps, shares))
    ids, rows = windows("code", True, SCALE, 0)[:, :-1], {}
    for name, key in MIXTURES.items():
        model, cells = zoo.load(key), []
        layers = story.choices(model, ids)
        for m, experts in zip(model.mixtures(), layers, strict=True):
            f = load(experts, 8)
            idle = int((f < 0.01).sum())
            loss = balancing_loss(m.logits, experts).item()
            cells.append(f"{f.max():.2f}, {idle} idle, loss {loss:.2f}")
        rows[name] = cells
    write("lab13_balance.md", table(["busiest expert", *(f"layer {i}" for i in range(4))], rows))


def drops() -> None:
    """Choices without a place, and what that costs."""
    found, rows = {}, {}
    for name, key in MIXTURES.items():
        model, runs, added = zoo.load(key), [], {f: [] for f in (1.0, 1.5, 2.0)}
        for seed in SEEDS:
            text = windows("code", True, SCALE, seed)
            layers = story.choices(model, text[:, :-1])
            runs.append([mean(story.dropped(e, f, batch=256) for e in layers) for f in FACTORS])
            exact = losses(model, text, batch=1).mean().item()
            for factor, values in added.items():
                capped = losses(story.with_capacity(model, factor), text, batch=1)
                values.append(capped.mean().item() - exact)
        found[name] = runs
        for factor, values in added.items():
            share = [run[FACTORS.index(factor)] for run in runs]
            rows.setdefault(f"{factor:g}", []).extend([spread(share), spread(values)])
    head = ["factor", *(f"{n}: {what}" for n in MIXTURES for what in ("dropped", "loss added"))]
    write("lab13_drops.md", table(head, rows))
    picture("drops.svg", pictures.drops(FACTORS, found))


def orders() -> None:
    """Factor 1: both orders of the queue, as the text comes and in random order; who is dropped."""
    model, cells = zoo.load("moe"), {}
    for order in ("tokens", "choices"):
        added: dict[str, list[float]] = {
            "first": [],
            "second": [],
            "both": [],
            "text": [],
            "lot": [],
        }
        for seed in SEEDS:
            text = windows("code", True, SCALE, seed)
            exact = losses(model, text, batch=1).mean().item()
            places = capacity(256, 8, 2, 1.0)
            parts = [p for e in story.choices(model, text[:, :-1]) for p in e.split(256)]
            gone = ~torch.stack([admitted(p, places, order) for p in parts])
            for what, value in zip(("first", "second"), gone.double().mean((0, 1)), strict=True):
                added[what].append(value.item())
            added["both"].append(gone.all(2).double().mean().item())
            for what in ("text", "lot"):
                capped = story.with_capacity(model, 1.0, order, seed if what == "lot" else None)
                added[what].append(losses(capped, text, batch=1).mean().item() - exact)
        cells[f'"{order}"'] = [spread(v) for v in added.values()]
    head = ["order", "first choices", "second", "tokens without any"]
    head += ["loss added, queue as the text", "in random order"]
    write("lab13_orders.md", table(head, cells))


def lots() -> None:
    """Drops at factor 1 by the size of the batch: as text, dealt by lot, and with even loads."""
    g, sizes = torch.Generator().manual_seed(0), (64, 256, 1024, 4096)
    found: dict[str, list[list[float]]] = {}
    for seed in SEEDS:
        ids = windows("code", True, SCALE, seed)[:, :-1]
        layers, lot = story.choices(zoo.load("moe"), ids), torch.randperm(ids.numel(), generator=g)
        ways = {
            "batches of text": layers,
            "tokens dealt by lot": [e[lot] for e in layers],
            "even loads, by lot": [torch.rand(len(lot), 8, generator=g).argsort(1)[:, :2]],
        }
        for way, rows in ways.items():
            own = [mean(story.dropped(e, 1.0, batch=b) for e in rows) for b in sizes]
            found.setdefault(way, []).append(own)
    cells = {w: [spread([r[i] for r in rows]) for i in range(4)] for w, rows in found.items()}
    write("lab13_lots.md", table(["tokens in a batch", *map(str, sizes)], cells))


def divided() -> None:
    """Experts in common, by layer: the same token in another context, the next one, chance."""
    told = {"shuffled": "same token, context shuffled", "next": "other token, same context"}
    told["chance"] = "any two tokens"
    found: dict[tuple[str, str], list[list[float]]] = {}
    for name, key in MIXTURES.items():
        for seed in SEEDS:
            parts = [windows(kind, True, SCALE, seed)[:8, :-1] for kind in ("code", "prose")]
            for way, values in story.divided(zoo.load(key), torch.cat(parts), seed).items():
                found.setdefault((name, way), []).append(values)
    rows = {}
    for (name, way), runs in found.items():
        cells = [spread([run[i] for run in runs]) for i in range(4)]
        rows[f"{name}: {told[way]}"] = cells
    head = ["experts in common", *(f"layer {i}" for i in range(4))]
    write("lab13_divided.md", table(head, rows))


def differ(ids: torch.Tensor, own: torch.Tensor) -> list[float]:
    """Shares of the load by which the halves of the windows ids [W, T] differ; own [W, T, E].

    All their tokens; what the other tokens alone would do; the same tokens.  For tokens that occur
    in both halves: the mean experts of a token in the first, and in the second.  Weighted as the
    second has these tokens, the first's means are what other tokens alone would do.
    """
    parts, rows = ids.flatten().chunk(2), own.flatten(0, 1).chunk(2)
    size = 1 + int(ids.max())
    often = torch.stack([torch.bincount(part, minlength=size) for part in parts]).double()
    often *= (often > 0).all(0)
    share = often / often.sum(1, keepdim=True)  # [2, V]
    sums = torch.stack([torch.zeros(size, own.shape[2]).double().index_add(0, p, o)
                        for p, o in zip(parts, rows, strict=True)])  # fmt: skip
    each = sums / often.clamp(min=1)[..., None]  # of a token, in either half
    first, second = (share[i] @ each[i] for i in (0, 1))
    moved = share[1] @ each[0]
    pairs = ((first, second), (first, moved), (moved, second))
    return [0.5 * (a - b).abs().sum().item() for a, b in pairs]


def subjects() -> None:
    """Loads of code and of prose: how much of their difference is that of their tokens.

    The control is the same statistic of the same windows, dealt by lot into two halves.
    """
    told = ("code and prose", "other tokens alone", "the same tokens", "the same, windows by lot")
    found: dict[str, list[list[float]]] = {way: [] for way in told}
    above, g = [], torch.Generator().manual_seed(0)
    for seed in SEEDS:
        ids = torch.cat([windows(kind, True, SCALE, seed)[:, :-1] for kind in ("code", "prose")])
        deals = [torch.randperm(len(ids), generator=g) for _ in range(100)]
        rows, over = [], []
        for experts in story.choices(zoo.load("moe"), ids):
            own = torch.nn.functional.one_hot(experts, 8).double().mean(1).view(*ids.shape, 8)
            seen = differ(ids, own)
            lots = [differ(ids[deal], own[deal])[2] for deal in deals]
            rows.append([*seen, mean(lots)])
            over.append(sum(v >= seen[2] for v in lots))
        for way, values in zip(told, zip(*rows, strict=True), strict=True):
            found[way].append(list(values))
        above.append(over)
    cells = {w: [spread([r[i] for r in rows]) for i in range(4)] for w, rows in found.items()}
    cells["of 100 such deals, as much as code and prose"] = [
        ", ".join(str(over[i]) for over in above) for i in range(4)
    ]
    head = ["share of the load that differs", *(f"layer {i}" for i in range(4))]
    write("lab13_subjects.md", table(head, cells))


def before() -> None:
    """Experts in common with the same token in another window, by the token before it."""
    told = ("the same token before it", "another one")
    found: dict[str, list[list[float]]] = {way: [] for way in told}
    for seed in SEEDS:
        g = torch.Generator().manual_seed(seed)
        parts = [windows(kind, True, SCALE, seed)[:8, :-1] for kind in ("code", "prose")]
        text = torch.cat(parts)
        ids, window = text.flatten(), torch.arange(text.numel()) // text.shape[1]
        fellow = (ids[:, None] == ids) & (window[:, None] != window)
        inside = torch.arange(len(ids)) % text.shape[1] > 0
        alike = ids.roll(1)[:, None] == ids.roll(1)
        ways = [fellow & inside & alike, fellow & inside & ~alike]
        rows = inside & ways[0].any(1) & ways[1].any(1)
        layers = story.choices(zoo.load("moe"), text)
        for way, mask in zip(told, ways, strict=True):
            partner = (torch.rand(mask.shape, generator=g) * mask)[rows].argmax(1)
            found[way].append([story.in_common(e[rows], e[partner]) for e in layers])
        print(f"seed {seed}: {int(rows.sum())} tokens with a partner of each kind")
    cells = {w: [spread([r[i] for r in rows]) for i in range(4)] for w, rows in found.items()}
    write("lab13_before.md", table(["experts in common", *(f"layer {i}" for i in range(4))], cells))


def traffic() -> None:
    """Experts woken by batches of three kinds beside the formula; bytes between four devices."""
    rows = {"formula": [f"{woken(8, 2, b):.1f}" for b in SIZES]}
    ids, curves, links = windows("code", True, SCALE, 0)[:, :-1], {}, {}
    for name, key in MIXTURES.items():
        layers = story.choices(zoo.load(key), ids)
        for kind in ("one text", "many texts", "by lot"):
            each = [
                mean(story.woken_by(e, story.batches(ids, kind, b, 0)) for e in layers)
                for b in SIZES
            ]
            rows[f"{name}: {kind}"] = [f"{v:.1f}" for v in each]
            curves[f"{name}, {kind}"] = each
        place, tokens = torch.arange(8) // 2, ids.numel()
        home = torch.arange(tokens) * 4 // tokens
        for once in (False, True):
            moved = [sent(e, home, place, 4, 256, once) for e in layers]
            into = [m.sum(0).double() for m in moved]
            cell = f"{mean(int(m.sum()) for m in moved) / tokens:.0f} bytes, "
            cell += f"busiest {mean((i.max() / i.mean()).item() for i in into):.2f}"
            links.setdefault("once" if once else "each choice", []).append(cell)
    write("lab13_woken.md", table(["tokens", *map(str, SIZES)], rows))
    write("lab13_sent.md", table(["a row of 256 bytes is sent", *MIXTURES], links))
    shown = {k: v for k, v in curves.items() if "by lot" not in k}
    picture("woken.svg", pictures.woken(SIZES, shown, [woken(8, 2, b) for b in SIZES]))
    kilobytes = 2 * 3 * 128 * 160 / 1000
    read = {"A": [2 * kilobytes for _ in SIZES]}
    read["B"] = [kilobytes * v for v in curves["with balancing loss, many texts"]]
    picture("opening.svg", pictures.opening(SIZES, read))


def bill() -> None:
    """A layer of Mixtral 8x7B on an H100 by its data sheet."""
    h100, expert = GPUS["H100"], 3 * 4096 * 14336

    def seconds(read: float, used: float, batch: int) -> float:
        bytes_, flops = 2 * expert * read, 2 * expert * used * batch
        return max(bytes_ / h100.bandwidth, flops / h100.tensor["bf16"])

    found = {
        "mixture, 2 of 8": [seconds(woken(8, 2, b), 2, b) for b in MANY],
        "dense, as much work": [seconds(2, 2, b) for b in MANY],
        "dense, as many weights": [seconds(8, 8, b) for b in MANY],
    }
    rows = {
        n: [f"{1e6 * s / b:.3g}" for s, b in zip(v, MANY, strict=True)] for n, v in found.items()
    }
    pairs = zip(found["mixture, 2 of 8"], found["dense, as much work"], strict=True)
    rows["mixture / dense, as much work"] = [f"{m / d:.2f}" for m, d in pairs]
    write("lab13_bill.md", table(["µs a token", *map(str, MANY)], rows))
    picture("bill.svg", pictures.bill(MANY, found))


def skipping() -> None:
    """Loss added by skipped neurons against bytes; recall; unions of a batch."""
    found: dict[str, dict[float, list[tuple[float, float]]]] = {}
    hits: dict[str, list[list[float]]] = {}
    for seed in SEEDS:
        made = Skipping(windows("code", False, SCALE, seed)[:, :-1])
        text = windows("code", True, SCALE, seed)
        exact = losses(made.model, text).mean().item()
        held = made.read(text[:, :-1])
        truth = [
            contextual.active_neurons(x, m.gate_proj.weight.detach())
            for x, m in zip(held, made.mlps, strict=True)
        ]
        for way in (*WAYS, *CONTROLS):
            for factor in BUDGETS:
                lost = losses(made.made(way, factor), text).mean().item() - exact
                own = found.setdefault(way, {}).setdefault(factor, [])
                own.append((made.share(way, factor), lost))
            chosen = [
                contextual.chosen_neurons(made.scores(way, i, x), made.budget(i, 1.0))
                for i, x in enumerate(held)
            ]
            pairs = zip(chosen, truth, strict=True)
            hits.setdefault(way, []).append([contextual.recall(c, t) for c, t in pairs])
    rows = {}
    for way, points in found.items():
        rows[way] = [
            f"{mean(s for s, _ in own):.0%}: {spread([v for _, v in own])}"
            for own in points.values()
        ]
    head = ["neurons, by those active", *(f"{f:g}" for f in BUDGETS)]
    write("lab13_skipping.md", table(head, rows))
    recalls = {w: [spread([run[i] for run in runs]) for i in range(4)] for w, runs in hits.items()}
    recalls["active neurons"] = [f"{d:.0%}" for d in made.density]
    write("lab13_recall.md", table(["recall", *(f"layer {i}" for i in range(4))], recalls))
    curves = {
        w: [(mean(s for s, _ in o), mean(v for _, v in o)) for o in p.values()]
        for w, p in found.items()
    }
    shown = {w: c[1:] for w, c in curves.items() if w != "random, one set"}
    picture("skipped.svg", pictures.skipped(shown))
    unions = {}
    for i, t in enumerate(truth):
        rows64 = t[: 64 * 64].view(64, 64, -1)  # 64 batches of consecutive tokens
        shares = [mean(r[:b].any(0).double().mean().item() for r in rows64) for b in SIZES]
        unions[f"layer {i}"] = [f"{s:.0%}" for s in shares]
    write("lab13_unions.md", table(["tokens of one text", *map(str, SIZES)], unions))


def derived() -> None:
    """The least balancing loss of two experts and k = 1, by number."""
    shares = [0.5, 0.6, 0.7, 0.75, 0.8, 0.9]
    rows = {"sure": [], "by a hair, others sure": []}
    for share in shares:
        many = round(1000 * share)
        for way, gap in (("sure", 30.0), ("by a hair, others sure", 1e-3)):
            logits = torch.tensor([[gap, 0.0]] * many + [[0.0, 30.0]] * (1000 - many))
            loss = balancing_loss(logits, route(logits, 1).experts).item()
            rows[way].append(f"{loss:.3f}")
    write("lab13_least.md", table(["share of the busier", *map(str, shares)], rows))


def main(parts: list[str]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    every = {
        "models": models,
        "balance": balance,
        "drops": drops,
        "lots": lots,
        "orders": orders,
        "divided": divided,
        "subjects": subjects,
        "before": before,
        "traffic": traffic,
        "bill": bill,
        "skipping": skipping,
        "derived": derived,
    }
    for part in parts or every:
        every[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
