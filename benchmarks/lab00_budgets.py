"""Training and energy in the chapter on the roofline, by formula.

    python benchmarks/lab00_budgets.py    writes course/chapters/_generated/lab00_chinchilla.md,
                                          lab00_rounding.md, lab00_use.md and lab00_joules.md

The other tables of that chapter: lab00_tables.py, and lab00_measured.py for what is timed.
"""

from lab00_tables import EIGHT, H100, SEVEN, write

from efflib.models import scaling
from efflib.serving import energy

TDP = 700.0  # watts of an H100 SXM: its datasheet, and a lecture


def chinchilla() -> None:
    rows = []
    for row in scaling.TABLE:
        exact = scaling.training_flops(row.parameters, row.tokens)
        laws = (scaling.by_law(row.flops, law) for law in (scaling.HOFFMANN, scaling.BESIROGLU))
        cells = [f"{row.parameters / 1e9:g}", f"{row.flops:.2e}", f"{row.tokens / 1e9:,g}"]
        cells += [f"{exact / row.flops:.2f}", f"{row.tokens / row.parameters:.1f}"]
        rows.append([*cells, *(f"{x.ratio:.0f}" for x in laws)])
    head = ["N, 10⁹", "FLOPs", "D, 10⁹", "6 N D / FLOPs", "D / N", "by the loss", "fitted again"]
    write("chinchilla", head, rows)


def rounding() -> None:
    """How far D / N at Gopher's compute hangs on digits of the exponents that are not printed."""
    law, half, rows = scaling.HOFFMANN, 0.005, []
    for name, compute in (("Gopher's compute", scaling.GOPHER), ("1.92e+19", 1.92e19)):
        found = [
            scaling.by_law(compute, law._replace(alpha=law.alpha + i, beta=law.beta + j)).ratio
            for i in (-half, half)
            for j in (-half, half)
        ]
        printed = scaling.by_law(compute, law).ratio
        digits = scaling.by_law(compute, scaling.HOFFMANN_TEX).ratio
        cells = [f"{printed:.0f}", f"{digits:.0f}", f"{min(found):.0f} to {max(found):.0f}"]
        rows.append([name, *cells])
    write("rounding", ["", "D / N as printed", "0.3392 and 0.2849", "0.34 and 0.28 ± 0.005"], rows)


def use() -> None:
    """The cheapest model of the loss that Chinchilla's best reaches for Llama-2-7B's compute."""
    spent = scaling.training_flops(SEVEN.parameters(), 2e12)
    law, rows = scaling.BESIROGLU, []
    best = scaling.by_law(spent, law)
    loss = law.loss(*best)
    for used in (0, 1e12, 1e13, 1e14):
        found = scaling.cheapest(loss, used, law)
        saved = 1 - scaling.lifetime_flops(found, used) / scaling.lifetime_flops(best, used)
        cells = [f"{found.parameters / 1e9:.1f}", f"{found.tokens / 1e12:.2f}"]
        rows.append([f"{used:.0e}" if used else "0", *cells, f"{found.ratio:.0f}", f"{saved:.0%}"])
    write("use", ["tokens used", "N, 10⁹", "D, 10¹²", "D / N", "FLOPs saved in all"], rows)
    print(f"Llama-2-7B: {2e12 / SEVEN.parameters():.0f} tokens a parameter")
    print(f"loss {loss:.4f}; Llama-2-7B's by the law {law.loss(SEVEN.parameters(), 2e12):.4f}")


def joules() -> None:
    rows, prompt, new = [], 100, 100
    prices = {
        "arithmetic, fp16": energy.Prices(energy.FP16_FLOP, 0),
        "bytes, HBM2": energy.Prices(0, energy.HBM2_BYTE),
        "both": energy.HBM2,
        "both, DRAM of 2014": energy.HOROWITZ,
    }
    for name, paid in prices.items():
        each = (energy.sentence_joules(EIGHT, prompt, new, H100, paid, b).sum for b in (1, 32, 256))
        rows.append([name, *(f"{x:.3g}" for x in each)])
    each = [energy.by_power(EIGHT, prompt, new, H100, TDP, b).sum for b in (1, 32, 256)]
    rows.append([f"{TDP:.0f} W for the least time", *(f"{x:.3g}" for x in each)])
    flop, byte = 1e12 * TDP / H100.peak, 1e12 * TDP / H100.bandwidth
    print(f"{TDP:.0f} W: {flop:.2f} pJ a FLOP and {byte:.0f} pJ a byte at a full roof")
    write("joules", ["joules a sentence", "alone", "32 in a batch", "256"], rows)


if __name__ == "__main__":
    chinchilla()
    rounding()
    use()
    joules()
