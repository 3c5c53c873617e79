"""Numbers and figures of the chapter on batching.

    python benchmarks/lab14_tables.py            writes course/chapters/_generated/lab14_*.md
                                                 and course/figures/lab14/*.svg, prints the tables
    python benchmarks/lab14_tables.py load       one part: see `PARTS`

Everything but `live` is simulated: Llama-3.1-8B in 16 bits on an H100, steps by the roofline of
lab 0, so the numbers are the same everywhere.  `live` runs the shipped model on this processor, and
differs from run to run.  Takes about five minutes on one core.
"""

import sys
from functools import partial
from pathlib import Path
from statistics import mean

from efflib import zoo
from efflib.models.ragged import Engine, fit, fitted_clock, timed
from efflib.plots import batching as pictures
from efflib.plots import style
from efflib.serving import load, pools
from efflib.serving.radix import Radix
from efflib.serving.schedulers import line_after, mixed_chunks, preempting, prefill_first
from efflib.traffic.arrivals import draw_lengths, poisson
from efflib.traffic.dropping import conversations, four_ends
from efflib.traffic.simulate import (
    LLAMA_8B,
    Arrival,
    Limits,
    clock,
    counts,
    dynamic,
    simulate,
    static,
    step_seconds,
)
from efflib.traffic.traces import Lengths
from efflib.traffic.trials import (
    ANY,
    LIVE_CASES,
    in_eights,
    in_turn,
    live_requests,
    pair_of,
    pools_of,
    serve,
    stands_still,
)

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab14"
CHUNKS = 512
LIMITS = (0.5, 0.010)  # seconds: first token, each further one
SERVERS = {  # scheduler, gate, tokens a step
    "static": (prefill_first, static(64), ANY),
    "dynamic": (prefill_first, dynamic(64, 0.5), ANY),
    "prompts apart": (prefill_first, None, 8192),
    "mixed": (mixed_chunks, None, CHUNKS),
}
SEEDS = (0, 1, 2)
POOLS = pools.prefill_pool, pools.hand_over, pools.decode_pool


def write(name: str, rows: list[list[str]]) -> None:
    """A table, its first row the head."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])
    print(f"wrote {name}: {drawn[1]}", flush=True)


def of(name: str, trace, seconds=None):
    schedule, gate, budget = SERVERS[name]
    return serve(schedule, trace, gate, seconds, budget=budget)


def spread(values: list[float]) -> str:
    low, high = style.number(min(values)), style.number(max(values))
    return style.number(mean(values)) + ("" if low == high else f" ({low} to {high})")


# ---- parts ---------------------------------------------------------------------------------


def opening() -> None:
    trace = poisson(30, draw_lengths(600))
    runs = {"A": of("static", trace), "B": of("mixed", trace)}
    title = "Two servers: the same model, GPU and requests, 30 a second"
    drawn = pictures.opening(runs, 15.0, title)
    alt = (
        "Two servers with the same model, machine and requests: in A ever more requests wait while "
        "the batch runs empty again and again, in B nearly all that are inside are computed."
    )
    picture("opening.svg", (drawn[0], alt))


def chart() -> None:
    seven = [Arrival(0.0, 1, n) for n in (6, 8, 6, 7, 3, 3, 2)]
    tables = {}
    for name in ("static", "prompts apart", "mixed"):
        schedule, gate, budget = SERVERS[name]
        gate = static(4) if gate else None
        run = serve(schedule, seven, gate, lambda work: 1.0, budget=budget, most=4)
        tables[name] = pictures.rows_of(run, 4)
    picture("chart.svg", pictures.chart(tables, 8, "Eight steps, four rows, seven requests"))
    run = serve(mixed_chunks, poisson(45, draw_lengths(60)), budget=CHUNKS, most=24)
    later = [
        i
        for i, step in enumerate(run.steps)
        if i > 150 and len(step.work) < max(n for _, n, _ in step.work)
    ]  # with a piece of a prompt
    picture("batch.svg", pictures.batch(run, later[0], 24, CHUNKS))


def offline() -> None:
    rows = [["640 requests, all there", "static", "continuous", "ratio"]]
    for seed in SEEDS:
        many = draw_lengths(640, seed=seed)
        kinds = {"as they come": many, "sorted by an oracle": sorted(many, key=lambda p: p[1])}
        if not seed:
            kinds["all of one length"] = [(400, 100)] * 640
        for kind, pairs in kinds.items():
            there = [Arrival(0.0, *pair) for pair in pairs]
            a, b = of("static", there).seconds, of("prompts apart", there).seconds
            rows.append([f"{kind}, seed {seed}", f"{a:.2f} s", f"{b:.2f} s", f"{a / b:.2f}"])
    write("lab14_offline.md", rows)
    rare, rows = poisson(0.5, draw_lengths(200)), [["one request in 2 s", "tokens/s", "TTFT, p50"]]
    ways = {"static": (static(64), ANY), "dynamic, 0.5 s": (dynamic(64, 0.5), ANY)}
    ways |= {"dynamic, 0 s": (dynamic(64, 0.0), ANY), "continuous": (None, 8192)}
    for name, (gate, budget) in ways.items():
        run = serve(prefill_first, rare, gate, budget=budget)
        wait = load.tails(run.log)["ttft"][0]
        rows.append([name, f"{run.throughput:.1f}", f"{style.number(wait)} s"])
    write("lab14_low_load.md", rows)


def over_load() -> None:
    rates, pairs = (10, 20, 30, 40, 50, 60, 70, 80), draw_lengths(1000)
    runs = {name: [of(name, poisson(r, pairs)) for r in rates] for name in SERVERS}
    tails = {name: [load.tails(run.log) for run in row] for name, row in runs.items()}
    title = "Static batches wait at any rate; prompts kept apart hold up answers"
    picture("load.svg", pictures.over_load(rates, tails, title))
    rows = [["40 requests/s", "tokens/s", "in a step", "TTFT p50, p99", "TPOT p50, p99"]]
    at = rates.index(40)
    for name, row in runs.items():
        t, n = tails[name][at], counts(row[at])["requests a step"]
        rows.append(
            [name, f"{row[at].throughput:.0f}", f"{n:.1f}"]
            + [", ".join(style.number(k * v) for v in t[w]) + u
               for w, k, u in (("ttft", 1, " s"), ("tpot", 1e3, " ms"))]
        )  # fmt: skip
    write("lab14_load.md", rows)
    shares = {n: [load.attained(run.log, *LIMITS) for run in row] for n, row in runs.items()}
    knees = {n: load.knee(list(zip(rates, row, strict=True)), 0.9) for n, row in shares.items()}
    title = (
        f"Goodput: mixed pieces stand {knees['mixed'] / knees['prompts apart']:.1f} times the rate"
    )
    picture("goodput.svg", pictures.knees(rates, shares, knees, 0.9, title))


def batches() -> None:
    """Is it the size of a batch, or its timeout?  Other sizes, and none waits for company."""
    rates, pairs = (10, 30), draw_lengths(1000)
    rows = [["TTFT p50", *(f"static, {r}/s" for r in rates), *(f"timeout 0, {r}/s" for r in rates)]]
    for size in (16, 64, 256):
        row = [f"batches of {size}"]
        for gate in (static(size), dynamic(size, 0.0)):
            for rate in rates:
                run = serve(prefill_first, poisson(rate, pairs), gate, most=size)
                row.append(f"{style.number(load.tails(run.log)['ttft'][0])} s")
        rows.append(row)
    write("lab14_batches.md", rows)


def knee_of(name, come=poisson, limits=LIMITS, seed=0, seconds=None, rates=None, count=1000):
    pairs = draw_lengths(count, seed=seed)
    runs = [
        (r, of(name, come(r, pairs, seed), seconds)) for r in rates or (20, 30, 40, 50, 60, 70, 80)
    ]
    return load.knee([(r, load.attained(run.log, *limits)) for r, run in runs], 0.9)


def sceptic() -> None:
    low = (5, 10, 20, 30, 40)
    cases = {
        "0.5 s, 10 ms": {},
        "0.1 s, 25 ms": {"limits": (0.1, 0.025)},
        "bursts of 8": {"come": in_eights, "rates": (10, 20, 30, 40, 50, 60, 70)},
        "no overlap in the clock": {"seconds": in_turn, "rates": low},
        "5 ms more a step; 20 ms a token": {
            "seconds": clock(LLAMA_8B._replace(fixed=0.005)), "limits": (0.5, 0.02), "rates": low,
        },
        "a trace of 200 requests": {"count": 200, "rates": (20, 40, 60, 80, 120)},
    }  # fmt: skip
    rows = [["knee, requests/s", "prompts apart", "mixed"]]
    for case, how in cases.items():
        found = {n: [knee_of(n, seed=s, **how) for s in SEEDS] for n in ("prompts apart", "mixed")}
        rows.append([case, *(spread(v) for v in found.values())])
    write("lab14_sceptic.md", rows)


def now_and_then(every: int):
    """Prompts apart, but only in one of so many steps while somebody is answered."""
    since = 0

    def schedule(running, waiting, *limits):
        nonlocal since
        since = since + 1 if running and since < every - 1 else 0
        return prefill_first(running, [] if since else waiting, *limits)

    return schedule


def one_prompt(running, waiting, *limits):
    """Prompts apart, at most one of them a step."""
    return prefill_first(running, waiting[:1], *limits)


def repairs() -> None:
    """What else differs between prompts apart and mixed: how often, how many, how large."""
    rates, pairs = (20, 30, 40, 50, 60, 70), draw_lengths(1000)
    ways = {
        "prompts apart": (lambda: prefill_first, 8192),
        "at most one prompt a step": (lambda: one_prompt, 8192),
        "prompts in every 8th step": (lambda: now_and_then(8), 8192),
        "prompts in every 16th step": (lambda: now_and_then(16), 8192),
    }
    ways |= {f"mixed, {size} tokens": (lambda: mixed_chunks, size) for size in (8192, 1024, 512)}
    rows = [["", "knee, requests/s", "TPOT p99 at 40/s", "TTFT p99 at 40/s"]]
    for name, (make, budget) in ways.items():
        logs = {r: serve(make(), poisson(r, pairs), budget=budget).log for r in rates}
        found = load.knee([(r, load.attained(log, *LIMITS)) for r, log in logs.items()], 0.9)
        t = load.tails(logs[40])
        late = f"{1e3 * t['tpot'][1]:.1f} ms", f"{style.number(t['ttft'][1])} s"
        rows.append([name, f"{found:.1f}", *late])
    write("lab14_repairs.md", rows)


def sizes() -> None:
    each, pairs = (128, 256, 512, 1024, 2048, 8192), draw_lengths(1000)
    clocks = {"roofline, 50/s": (50, clock(LLAMA_8B)), "no overlap, 30/s": (30, in_turn)}
    clocks["5 ms a step, 20/s"] = (20, clock(LLAMA_8B._replace(fixed=0.005)))
    found = {}
    for name, (rate, seconds) in clocks.items():
        trace = poisson(rate, pairs)
        rows = [serve(mixed_chunks, trace, seconds=seconds, budget=b) for b in each]
        tails = [load.tails(run.log) for run in rows]
        found[name] = [(t["ttft"][1], t["tpot"][1]) for t in tails]
    title = "Too small a piece and prompts wait; too large and answers do"
    picture("sizes.svg", pictures.trade(each, found, title))


def with_room(least: int, running, waiting, free: int, *limits):
    """`preempting`, where nobody is admitted while fewer than `least` blocks are free."""
    return preempting(running, waiting if free >= least else [], free, *limits)


def memory() -> None:
    pairs = draw_lengths(1000)
    once = sum(p + n - 1 for p, n in pairs)
    head = ["blocks of 16", "mixed", "preempting", "TTFT p99", "computed again", "in time"]
    rows = [[*head, "a tenth kept free: again", "in time"]]
    for blocks in (2500, 1800, 1500, 1200, 900):
        stuck = stands_still(mixed_chunks, poisson(40, pairs), budget=CHUNKS, blocks=blocks)
        plain = "stands still" if stuck else "gets through"
        run = serve(preempting, poisson(40, pairs), back=line_after, budget=CHUNKS, blocks=blocks)
        tail = style.number(load.tails(run.log)["ttft"][1])
        kept = serve(
            partial(with_room, blocks // 10), poisson(40, pairs), back=line_after,
            budget=CHUNKS, blocks=blocks,
        )  # fmt: skip
        both = [
            text
            for one in (run, kept)
            for text in (
                f"{100 * one.recomputed / once:.1f} %", f"{load.attained(one.log, *LIMITS):.0%}"
            )
        ]  # fmt: skip
        rows.append([blocks, plain, f"{run.throughput:.0f} tokens/s", f"{tail} s", *both])
    write("lab14_memory.md", rows)


def ends() -> None:
    rows = [
        ["traffic", "room", "leading go", "tails go", "whole leaves go", "whole leaves, shared"]
    ]
    kinds = {"8 long conversations": (8, 12, 3000, 0), "60 that begin alike": (60, 4, 300, 4000)}
    for kind, shape in kinds.items():
        for part in (0.9, 0.75, 0.5, 0.25):
            costs = {"leading": [], "tails": [], "leaves": [], "shared": []}
            for seed in SEEDS:
                cost = four_ends(conversations(*shape, seed=seed), Radix, part, LLAMA_8B)
                for row, value in zip(costs.values(), cost.values(), strict=True):
                    row.append(value)
            rows.append([kind, f"{part:.0%}", *(spread(v) for v in costs.values())])
    write("lab14_ends.md", rows)


def two_pools() -> None:
    plain = clock(LLAMA_8B)
    shapes = {"400 in, 100 out": draw_lengths(2500)}
    shapes["1500 in, 30 out"] = draw_lengths(2500, Lengths(1500, 0.5, 4096), Lengths(30, 0.8, 512))
    shapes["100 in, 200 out"] = draw_lengths(2500, Lengths(100, 0.8, 1024), Lengths(200, 0.6, 1024))
    sets = {
        "4 mixed": pair_of(SERVERS["mixed"], 4),
        "4, prompts first": pair_of(SERVERS["prompts apart"], 4),
        "2 + 2": pools_of(*POOLS, 2, 2),
        "1 + 3": pools_of(*POOLS, 1, 3),
        "3 + 1": pools_of(*POOLS, 3, 1),
    }
    cases = {name: (pairs, plain, LIMITS) for name, pairs in shapes.items()}
    cases["no overlap"] = (shapes["400 in, 100 out"], in_turn, LIMITS)
    cases["6 ms a token"] = (shapes["400 in, 100 out"], plain, (0.5, 0.006))
    rows = [
        ["four GPUs, knee, requests/s", "4 mixed", "4, prompts first", "2 + 2", "1 + 3", "3 + 1"]
    ]
    for case, (pairs, seconds, limits) in cases.items():
        row = [case]
        for make in sets.values():
            points = []
            for rate in (40, 80, 120, 160, 200, 240, 280, 320):
                log = make(poisson(rate, pairs), seconds)
                points.append((rate, load.attained(log, *limits)))
                if points[-1][1] < 0.5:
                    break
            row.append(style.number(load.knee(points, 0.9)))
        rows.append(row)
    write("lab14_pools.md", rows)
    rows = [["link", "400 tokens cross in", "TTFT p50", "second token after it, p50"]]
    for name, speed in (("NVLink, 450 GB/s", 450e9), ("network, 50 GB/s", 50e9),
                        ("network, 5 GB/s", 5e9), ("network, 2.5 GB/s", 2.5e9)):  # fmt: skip
        log = pools_of(*POOLS, link=speed)(poisson(30, shapes["400 in, 100 out"][:1000]), plain)
        gap = sorted(t[1] - t[0] for _, t in log if len(t) > 1)
        crossing = 1e3 * 400 * LLAMA_8B.row / speed
        ttft = 1e3 * load.tails(log)["ttft"][0]
        rows.append(
            [name, f"{crossing:.2f} ms", f"{ttft:.1f} ms", f"{1e3 * gap[len(gap) // 2]:.1f} ms"]
        )
    write("lab14_links.md", rows)


def live() -> None:
    model = zoo.load("target")
    prompts, trace = live_requests()
    parts = fit(LIVE_CASES, timed(model, LIVE_CASES, repeats=5))
    ways = {
        "static": (prefill_first, static(8), None, Limits(ANY, 8)),
        "dynamic": (prefill_first, dynamic(8, 0.05), None, Limits(ANY, 8)),
        "prompts apart": (prefill_first, None, None, Limits(512, 8)),
        "mixed": (mixed_chunks, None, None, Limits(48, 8)),
        "preempting, 40 blocks of 8": (preempting, None, line_after, Limits(48, 8, 8, 40)),
    }
    rows = [["tokens/s, one core of a CPU", "live", "simulated", "off", "steps"]]
    for name, (schedule, gate, back, limits) in ways.items():
        runs = [
            simulate(trace, schedule, Engine(model, prompts), limits, gate, back) for _ in range(3)
        ]
        told = simulate(trace, schedule, fitted_clock(parts), limits, gate, back)
        speeds = sorted(run.throughput for run in runs)
        off = told.throughput / speeds[1] - 1
        row = [name, spread(speeds), f"{told.throughput:.0f}", f"{off:+.0%}", len(runs[0].steps)]
        rows.append(row)
    write("lab14_live.md", rows)


def roof() -> None:
    rows = [["a step of Llama-3.1-8B on an H100", "tokens", "ms", "tokens/s"]]
    for name, work in (
        ("1 answer, 600 cached", [(0, 1, 600)]),
        ("64 answers, 600 cached each", [(0, 1, 600)] * 64),
        ("a prompt of 400", [(0, 400, 0)]),
        ("a prompt of 2000", [(0, 2000, 0)]),
        ("64 answers and a piece of 448", [(0, 1, 600)] * 64 + [(0, 448, 0)]),
    ):
        tokens, seconds = sum(n for _, n, _ in work), step_seconds(LLAMA_8B, work)
        rows.append([name, tokens, f"{1e3 * seconds:.1f}", f"{tokens / seconds:,.0f}"])
    write("lab14_steps.md", rows)


PARTS = {
    "opening": opening, "chart": chart, "roof": roof, "offline": offline, "load": over_load,
    "batches": batches,
    "sceptic": sceptic, "repairs": repairs, "sizes": sizes, "memory": memory, "ends": ends,
    "pools": two_pools, "live": live,
}  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
