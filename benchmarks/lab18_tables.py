"""The tables and figures of lab 18's chapter, with the reference's parts in the lab's own engine.

    python benchmarks/lab18_tables.py            writes course/chapters/_generated/lab18_*.md
                                                 and course/figures/lab18/*.svg, prints the tables
    python benchmarks/lab18_tables.py orders     one part: see `PARTS`

The parts are those of the solution (solutions/lab18_engine), read from its cells, in
`efflib.traffic.joined`; requests are the notebook's.  All but the tokens per second of this
processor is counted: the same everywhere.
"""

import argparse
import time
from itertools import compress, permutations, product
from pathlib import Path
from random import Random

import torch

from autograder.labs.source import read_percent
from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.plots import batching as bars
from efflib.plots import engine as pictures
from efflib.plots import style
from efflib.traffic.joined import Joined, Parts, Room, trace
from efflib.traffic.simulate import LLAMA_8B

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab18"
ON = ("batched", "pieces", "blocks", "proposals", "4 bits")
MEMORY, LONGEST, BITS = 672, 168, 4.625
MANY = 37  # of each request of a pass: of 8 they make 296
H100 = LLAMA_8B._asdict()
H100_4 = H100 | {"weights": H100["head"] + (H100["weights"] - H100["head"]) * BITS / 16}


def solved() -> dict:
    """The names that the solution cells define."""
    names: dict = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn}
    for cell in read_percent(ROOT / "solutions" / "lab18_engine" / "engine.py").cells:
        if cell.metadata.get("solution"):
            exec(cell.source, names)
    return names


OWN = solved()
PARTS_OF = Parts(*(OWN[n] for n in ("layout", "step", "slots", "attend", "Blocks", "take_out")))


def write(name: str, rows: list[list]) -> None:
    """A table, its first row the head."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])
    print(f"wrote {name}: {drawn[1]}", flush=True)


def followed(text: list[int], n: int) -> list[int]:
    """What followed when the two newest tokens last stood together, at most four."""
    ends = [i for i in range(2, len(text)) if text[i - 2 : i] == text[-2:]]
    return text[ends[-1] : ends[-1] + min(n, 4)] if ends else []


def engine_of(on, models, memory: int = MEMORY, longest: int = LONGEST) -> Joined:
    block = 16 if "blocks" in on else longest
    budget, most = 64 if "pieces" in on else 10**6, 8 if "batched" in on else 1
    room = Room(memory // block, block, budget, most)
    return Joined(models["4 bits" in on], PARTS_OF, room, followed if "proposals" in on else None)


def bill(engine: Joined, machine: dict) -> dict[str, float]:
    """What its passes read, and how long that machine takes for them."""
    keys = sum(cached + n for pieces, _ in engine.log for _, cached, n in pieces)
    return {
        "passes": len(engine.log),
        "tokens read": sum(n for pieces, _ in engine.log for _, _, n in pieces),
        "GB": (machine["weights"] * len(engine.log) + machine["row"] * keys) / 1e9,
        "GPU, s": sum(OWN["seconds"](machine, *did) for did in engine.log),
        "many, s": sum(OWN["seconds"](machine, p * MANY, n * MANY) for p, n in engine.log),
    }


def one_by_one(model, asked) -> list[list[int]]:
    rows = [generate(model, torch.tensor([prompt]), n)[0] for prompt, n in asked]
    return [row[len(prompt) :].tolist() for row, (prompt, _) in zip(rows, asked, strict=True)]


def models_of(name: str):
    model = zoo.load(name).double()
    return model, OWN["quantized"](model, 32)


# ---- parts ---------------------------------------------------------------------------------


def opening() -> None:
    models = models_of("draft")
    logs = {}
    for name, on in (("A", ()), ("B", ON[:4])):
        engine = engine_of(on, models)
        engine.run(trace(12))
        logs[name] = engine.log
    title = "Two programs: one model, the same twelve requests, every text the same"
    drawn = pictures.opening(logs, title)
    alt = (
        "Two programs answer the same twelve requests. A has one in each of its hundreds of "
        "passes; B has up to eight in each, and is done after a fraction of them."
    )
    picture("opening.svg", (drawn[0], alt))


def switches() -> None:
    models, asked = models_of("target"), trace(12)
    right = [one_by_one(model, asked) for model in models]
    rows = [
        [
            "switched on",
            "tokens/s here",
            "passes",
            "tokens read",
            "GB",
            "H100, s",
            f"{MANY} of each, s",
            "texts",
        ]
    ]
    times = {}
    for i in range(6):
        on, begin = ON[:i], time.process_time()
        engine = engine_of(on, models)
        answers = engine.run(asked)
        rate = sum(map(len, answers)) / (time.process_time() - begin)
        row = bill(engine, H100_4 if i == 5 else H100)
        name = f"+ {on[-1]}" if on else "none"
        times[name] = {"H100": row["GPU, s"]}
        same = "equal" if answers == right[i == 5] else "differ"
        rows.append([name, round(rate), *map(style.number, row.values()), same])
    write("lab18_switches.md", rows)
    title = "From none to all, one switch more in each: seconds of an H100"
    picture("switches.svg", bars.groups(times, title, "seconds", log=True))


def orders() -> None:
    """What each switch gains, first of all and last of all, and over all orders."""
    models, asked, times = models_of("draft"), trace(12), {}
    for bits in product((0, 1), repeat=5):
        on = tuple(compress(ON, bits))
        engine = engine_of(on, models)
        engine.run(asked)
        times[frozenset(on)] = bill(engine, H100_4 if bits[4] else H100)["GPU, s"]
    rows = [["switch", "first", "last", "least", "most"]]
    for name in ON:
        gains = []
        for order in permutations(ON):
            before = frozenset(order[: order.index(name)])
            gains.append(times[before] / times[before | {name}])
        first = times[frozenset()] / times[frozenset([name])]
        last = times[frozenset(ON) - {name}] / times[frozenset(ON)]
        rows.append([name, *(f"{x:.2f}" for x in (first, last, min(gains), max(gains)))])
    write("lab18_orders.md", rows)


def proposals() -> None:
    kinds = {f"{share:.0%} hold": (H100, 500, share) for share in (0.2, 0.5, 0.7, 0.9)}
    kinds |= {f"70 %, {cached} cached": (H100, cached, 0.7) for cached in (0, 4000)}
    kinds |= {"70 %, 4 bits": (H100_4, 500, 0.7)}
    rows = [["requests", *kinds]]
    for many in (1, 16, 64, 128, 256, 512):
        rows.append([many, *(OWN["best_gamma"](m, many, c, a, 16) for m, c, a in kinds.values())])
    write("lab18_proposals.md", rows)


class Unfound(OWN["Blocks"]):
    """Blocks in which no beginning is found: one token of a text is always left to compute."""

    def start(self, name, text):
        return super().start(name, text[:1])


def by_lot(text: list[int], n: int) -> list[int]:
    return Random(len(text)).choices(text, k=min(n, 4))


def controls() -> None:
    """What else differs between two bars: finding and room, proposals that hold and any."""
    model, asked = zoo.load("target").double(), trace(12)
    room, right = Room(42, 16, 64, 8), one_by_one(model, asked)
    unfound = PARTS_OF._replace(blocks=Unfound)
    rows = [
        ["", "passes", "tokens read", "put back", "held", "H100, s", f"{MANY} of each, s", "texts"]
    ]
    for name, parts, propose in (
        ("blocks", PARTS_OF, None),
        ("blocks, nothing found", unfound, None),
        ("proposals", PARTS_OF, followed),
        ("proposals by lot", PARTS_OF, by_lot),
    ):
        engine = Joined(model, parts, room, propose)
        same = "equal" if engine.run(asked) == right else "differ"
        row = bill(engine, H100)
        numbers = [style.number(row[k]) for k in ("passes", "tokens read")]
        held = f"{engine.held} of {engine.proposed}" if propose else ""
        times = [style.number(row[k]) for k in ("GPU, s", "many, s")]
        rows.append([name, *numbers, engine.put_back, held, *times, same])
    write("lab18_controls.md", rows)


def memory() -> None:
    """The same requests in ever less memory: who is put back, and what it costs."""
    models, asked = models_of("draft"), trace(12)
    right = one_by_one(models[0], asked)
    rows = [["blocks of 16", "passes", "tokens read", "put back", "found", "H100, s", "texts"]]
    for blocks in (84, 42, 24, 16, 11):
        engine = engine_of(ON[:4], models, memory=16 * blocks)
        same = "equal" if engine.run(asked) == right else "differ"
        row = bill(engine, H100)
        numbers = [style.number(row[k]) for k in ("passes", "tokens read")]
        rows.append(
            [blocks, *numbers, engine.put_back, engine.found, style.number(row["GPU, s"]), same]
        )
    write("lab18_memory.md", rows)


def one_pass() -> None:
    engine, news = engine_of(ON[:4], models_of("target")), []
    for prompt, n in trace(12):
        engine.add(prompt, n)
    while engine.busy:
        news.append(engine.step())
    picture("one_pass.svg", pictures.one_pass(engine.log, news, 8))


PARTS = {
    "opening": opening, "switches": switches, "orders": orders, "proposals": proposals,
    "controls": controls, "memory": memory, "one_pass": one_pass,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; default: all")
    torch.set_num_threads(1)
    for name in parser.parse_args().parts or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
