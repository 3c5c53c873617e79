"""The engine switch by switch, and under load: the tables of the page on it.

    python benchmarks/engine_tables.py switches      tokens/s here, counted work, a GPU's seconds
    python benchmarks/engine_tables.py load          waiting over the rate, beside the simulator

switches: ten requests of `benchmarks/engine.py` on the target, in memory for four of the longest.
From all switches off to all on, one more in each row.  Seconds here are the processor's; passes,
tokens and bytes are counted, and the last column says how long Llama-3.1-8B on an H100 would take
for the same steps (`engine.bills`).

load: forty requests on the draft, with that machine's clock, at several rates; first tokens (TTFT)
and further ones (TPOT) at the median and the 99th percentile, and requests a second that kept both
limits.  Beside it lab 14's simulator with the same scheduler, arrivals and lengths.  In the last
column the share of proposals that held; drawn: the same requests at temperature 1, not greedy.
"""

import argparse
import time
from random import Random

import torch
from engine import trace as requests_of

from efflib import zoo
from efflib.decoding.sampling import Sampling
from efflib.engine.bills import MACHINES, bill, serve, step_bill
from efflib.engine.engine import Engine, Sizes, run
from efflib.engine.proposals import Lookup
from efflib.engine.switches import Switches, build
from efflib.serving.metrics import Served, percentile, times
from efflib.serving.metrics import goodput as goodput_of
from efflib.serving.schedulers import line_after, preempting
from efflib.traffic.simulate import Arrival, Limits, clock, simulate

ORDER = ("batched", "chunked", "paged", "speculative", "quantized")
RATES = (10, 40, 160)  # requests per second
TTFT, TPOT = 0.1, 0.012  # limits, in seconds
MEMORY = 1120  # tokens: four requests of the longest kind


def switches() -> None:
    model, asked = zoo.load("target"), requests_of(10)
    sizes = Sizes(block=16, budget=256, most=10, longest=280)
    print(f"{'switched on':<14}{'tokens/s':>9}{'passes':>8}{'read':>7}{'GB':>8}{'GPU, s':>8}")
    on = Switches(False, False, False, False, False)
    for name in ("none", *ORDER):
        on = on if name == "none" else on._replace(**{name: True})
        engine = build(model, on, sizes, MEMORY)
        begin = time.process_time()
        answers = run(engine, asked)
        spent = time.process_time() - begin
        total = bill(MACHINES["w4a16" if on.quantized else "as_is"], engine.log)
        label = name if name == "none" else f"+ {name}"
        print(
            f"{label:<14}{sum(map(len, answers)) / spent:>9.0f}{total.passes:>8}{total.read:>7}"
            f"{total.bytes / 1e9:>8.0f}{total.seconds:>8.2f}"
        )


def row(name: str, rate: float, log: list[Served]) -> str:
    each = [times(served) for served in log]
    first, further = [t.ttft for t in each], [t.tpot for t in each if t.tpot is not None]
    cells = [percentile(values, q) * 1e3 for values in (first, further) for q in (50, 99)]
    good = goodput_of(log, TTFT, TPOT)
    return f"{name:<22}{rate:>6}" + "".join(f"{cell:>9.1f}" for cell in cells) + f"{good:>9.2f}"


def load() -> None:
    model, machine = zoo.load("draft"), MACHINES["as_is"]
    asked, sizes = requests_of(40, seed=1), Sizes(blocks=128, block=16, budget=256, most=16)
    print(
        f"{'':<22}{'rate':>6}{'TTFT 50':>9}{'99, ms':>9}{'TPOT 50':>9}{'99, ms':>9}"
        f"{'goodput':>9}{'held':>9}"
    )
    for rate in RATES:
        gaps, now, arrivals = Random(0), 0.0, []
        for _ in asked:
            arrivals.append(now := now + gaps.expovariate(rate))
        served = list(zip(arrivals, asked, strict=True))
        pairs = [Arrival(at, len(r.prompt), r.max_tokens) for at, r in served]
        limits = Limits(sizes.budget, sizes.most, sizes.block, sizes.blocks)
        run_ = simulate(pairs, preempting, clock(machine), limits, line_after=line_after)
        print(row("simulator", rate, [Served(at, tuple(when)) for at, when in run_.log]))
        drawn = [(at, r._replace(sampling=Sampling(), seed=i)) for i, (at, r) in enumerate(served)]
        ways = {"engine": (served, None), "engine, proposals": (served, Lookup())}
        ways["the same, drawn"] = drawn, Lookup()
        for name, (some, proposer) in ways.items():
            engine = Engine(model, sizes, proposer=proposer)
            log = serve(engine, some, lambda did: step_bill(machine, did).seconds)
            held = f"{engine.accepted / engine.proposed:>9.0%}" if proposer else ""
            print(row(name, rate, log) + held, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=("switches", "load"))
    torch.set_num_threads(1)
    {"switches": switches, "load": load}[parser.parse_args().table]()


if __name__ == "__main__":
    main()
