"""Numbers and figures of the chapter on GPTQ and rotation.

    python benchmarks/lab11_tables.py            writes course/chapters/_generated/lab11_*.md
                                                 and course/figures/lab11/*.svg, prints the tables
    python benchmarks/lab11_tables.py bits       one part: see `main`

The shipped model and variants of the same function; groups of 64 unless said otherwise; calibration
on 8 windows of 256 tokens of training text. What is measured is the loss on 8 windows of held-out
code in nats per token above the float model's, or the perplexity: means over three seeds, which
read other windows and place large channels elsewhere, with their range. Run it again whenever the
checkpoint changes. Takes about a quarter of an hour on two cores.
"""

import sys
from functools import partial
from pathlib import Path
from statistics import mean

import lab11_controls as simpler
import lab11_figures as pictures
import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.hessian import gram
from efflib.models.gains import with_unit_gains
from efflib.models.recorded import record
from efflib.plots import style
from efflib.quantization.awq_model import awq
from efflib.quantization.gptq import bits_a_weight, dequantize_gptq, gptq, gptq_model
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.low_bit import with_low_bits
from efflib.quantization.ptq import quantize_model
from efflib.quantization.rotation import incoherence, peaks, random_hadamard, rotate
from efflib.quantization.size import bits_per_weight, quantizable_linears, weight_bits
from efflib.quantization.smoothquant import channel_maxima, smooth
from efflib.zoo.outliers import merged_twins, with_outliers
from efflib.zoo.phenomena import gptq as story
from efflib.zoo.phenomena.awq import bias_corrected
from efflib.zoo.phenomena.story import losses, perplexity
from efflib.zoo.windows import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab11"
SEEDS = (0, 1, 2)
SCALE = Scale(windows=8, calibration=8, steps=0)
GROUP = story.GROUP
STATIC = {"act_order": True, "grids": "static"}
FEW, MANY = {3: 20.0, 5: 20.0}, story.GAINS  # large components: two as in lab 3, and three
Made = tuple[nn.Module, float]  # a model, and the bits that its weights take


class Texts:
    """What one seed reads: held-out text, and calibration text [n, T] of both kinds."""

    def __init__(self, seed: int) -> None:
        self.seed, self.plain = seed, zoo.load("target")
        self.held_out = {s: windows(s, True, SCALE, seed) for s in ("code", "prose")}
        self.calibration = {s: windows(s, False, SCALE, seed)[:, :-1] for s in ("code", "prose")}
        self.code = self.calibration["code"]
        self.exact = {s: losses(self.plain, text).mean() for s, text in self.held_out.items()}

    def added(self, made: nn.Module, split: str = "code") -> float:
        """Nats per token above the shipped model's, and that of all models of its function."""
        return (losses(made, self.held_out[split]).mean() - self.exact[split]).item()


def write(name: str, text: str) -> None:
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text(text, encoding="utf-8")
    print(text, f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])


def spread(values: list[float]) -> str:
    """0.93 (0.90 to 0.97)"""
    low, high = style.number(min(values)), style.number(max(values))
    return style.number(mean(values)) + ("" if low == high else f" ({low} to {high})")


def table(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([k, *v]) + " |" for k, v in rows.items())]) + "\n"


# ---- weights ---------------------------------------------------------------------------------


def rounded(model: nn.Module, bits: int, group: int | str = GROUP) -> Made:
    shapes = [tuple(m.weight.shape) for m in quantizable_linears(model).values()]
    total = sum(weight_bits(shape, bits, group, False) for shape in shapes)
    weights = sum(n * k for n, k in shapes)
    return quantize_model(model, bits, group)[0], bits_per_weight(total, (weights,))


def repaired(model: nn.Module, ids: Tensor, bits: int, group=GROUP, **options) -> Made:
    made, total = gptq_model(model, ids, bits, group, **options)
    return made, bits_a_weight(model, total)


def ways(model: nn.Module, texts: Texts, bits: int) -> dict[str, Made]:
    """Every way to round the same model to the same number of bits."""
    rtn, size = rounded(model, bits)
    return {
        "RTN": (rtn, size),
        "RTN, biases corrected": (bias_corrected(model, rtn, record(model, texts.code)), size),
        "GPTQ": repaired(model, texts.code, bits),
        "GPTQ, act-order": repaired(model, texts.code, bits, **STATIC),
        "GPTQ, act-order and g_idx": repaired(model, texts.code, bits, act_order=True),
        "AWQ": (awq(model, texts.code, bits, GROUP), size),
    }


def bits() -> None:
    """The main table and its figures: ways and bits, on the model as trained."""
    model, found, sizes = zoo.load("target"), {}, {}
    for texts in map(Texts, SEEDS):
        for b in (4, 3, 2):
            for way, (made, size) in ways(model, texts, b).items():
                found.setdefault((way, b), []).append(texts.added(made))
                sizes[way, b] = size
    rows = {}
    for way in dict.fromkeys(way for way, _ in found):
        cells = [f"{sizes[way, b]:.2f}: {spread(found[way, b])}" for b in (4, 3, 2)]
        rows[way] = cells
    write("lab11_bits.md", table(["bits a weight: added loss", "4", "3", "2"], rows))
    picture("bits.svg", pictures.against_bits(found, sizes))


def groups() -> None:
    """3 bits: sizes of groups, and the moment at which a group's grid is found."""
    model, found, sizes = zoo.load("target"), {}, {}
    kinds = {
        "RTN": None,
        "static: of the float weights": {"grids": "static"},
        "fresh: of the weights as they have become": {"grids": "fresh"},
        "lazy: as the authors' code, blocks of 128": {"grids": "lazy"},
    }
    for texts in map(Texts, SEEDS):
        for group in ("channel", 64, 32):
            for kind, options in kinds.items():
                if options is None:
                    made, sizes[group] = rounded(model, 3, group)
                elif group == "channel" and kind != "static: of the float weights":
                    pass  # one group, found before anything changes: the same
                else:
                    made, _ = repaired(model, texts.code, 3, group, **options)
                found.setdefault((kind, group), []).append(texts.added(made))
    head = ["a row", "64", "32"]
    head = [f"{name} ({sizes[g]:.2f} bits)" for name, g in zip(head, sizes, strict=True)]
    rows = {k: [spread(found[k, g]) if (k, g) in found else "" for g in sizes] for k in kinds}
    write("lab11_groups.md", table(["3 bits, a grid for", *head], rows))


def hessians() -> None:
    """2 bits: what is left of the gain if less is known about the inputs."""
    model, found, same = zoo.load("target"), {}, []
    for texts in map(Texts, SEEDS):
        made = {"RTN": rounded(model, 2)[0], **simpler.spectra(model, texts.code, texts.seed)}
        for way, m in made.items():
            found.setdefault(way, []).append(texts.added(m))
        pairs = zip(*(m.state_dict().values() for m in list(made.values())[:2]), strict=True)
        same.append(all(torch.equal(a, b) for a, b in pairs))
    print("the diagonal alone gives the weights of RTN bit by bit:", all(same))
    rows = {way: [spread(values)] for way, values in found.items()}
    write("lab11_hessians.md", table(["2 bits", "added loss"], rows))


def ranges() -> None:
    """2 bits: the range of the grids, for every way."""
    model, found = zoo.load("target"), {}
    for texts in map(Texts, SEEDS):
        made = simpler.ranges(model, texts.code, texts.calibration["prose"])
        for way, m in made.items():
            for split in ("code", "prose"):
                found.setdefault((way, split), []).append(texts.added(m, split))
    rows = {w: [spread(found[w, s]) for s in ("code", "prose")] for w in made}
    write("lab11_ranges.md", table(["2 bits, added loss", "read on code", "on prose"], rows))


def dampings() -> None:
    """2 bits: what damping does on the text that was calibrated on, and on the other kind."""
    model, found = zoo.load("target"), {}
    for texts in map(Texts, SEEDS):
        for key, m in simpler.dampings(model, texts.calibration).items():
            found.setdefault(key, []).append(texts.added(m))
    ways = dict.fromkeys(way for way, _ in found)
    rows = {way: [spread(found[way, text]) for text in ("code", "prose")] for way in ways}
    head = ["2 bits, added loss on code", "calibrated on code", "on prose"]
    write("lab11_damping.md", table(head, rows))


def controls() -> None:
    """2 bits: other damping, other texts, and layers measured on the float model."""
    model, found = zoo.load("target"), {}
    for texts in map(Texts, SEEDS):
        run = partial(repaired, model, texts.code, 2)
        made = {
            "RTN": rounded(model, 2)[0],
            "GPTQ, damping 0.01": run()[0],
            "GPTQ, calibrated on prose": repaired(model, texts.calibration["prose"], 2)[0],
            "damping 0": run(damping=0.0)[0],
            "damping 0.1": run(damping=0.1)[0],
            "damping 1": run(damping=1.0)[0],
            "all layers measured on the float model": run(sequential=False)[0],
        }
        inputs = record(model, texts.code)
        repaired_too = bias_corrected(model, made["GPTQ, damping 0.01"], inputs)
        made["GPTQ, and biases corrected"] = repaired_too
        for way, m in made.items():
            for split in ("code", "prose") if way in list(made)[:3] else ("code",):
                found.setdefault((way, split), []).append(texts.added(m, split))
    names = dict.fromkeys(way for way, _ in found)
    rows = {way: [spread(found[way, "code"])] for way in names}
    write("lab11_controls.md", table(["2 bits", "added loss"], rows))
    both = {w: [spread(found[w, s]) for s in ("code", "prose")] for w in list(names)[:3]}
    write("lab11_texts.md", table(["2 bits, added loss", "read on code", "on prose"], both))


def large_weights() -> None:
    """3 bits with large channels, and with their twins merged."""
    plain, found = zoo.load("target"), {}
    for texts in map(Texts, SEEDS):
        large = with_outliers(plain, texts.code, FEW, extra=story.EXTRA, seed=texts.seed)
        for kind, model in (("large channels", large), ("twins merged", merged_twins(large))):
            made = {
                "RTN": rounded(model, 3)[0],
                "GPTQ": repaired(model, texts.code, 3)[0],
                "AWQ": awq(model, texts.code, 3, GROUP),
                "rotated, RTN": rounded(turned(model, texts.seed), 3)[0],
                "rotated, GPTQ": repaired(turned(model, texts.seed), texts.code, 3)[0],
            }
            for way, m in made.items():
                found.setdefault((way, kind), []).append(texts.added(m))
    kinds = ("large channels", "twins merged")
    rows = {way: [spread(found[way, k]) for k in kinds] for way in made}
    write("lab11_large.md", table(["3 bits, added loss", *kinds], rows))


def distances() -> None:
    """2 bits: how far weights and outputs move, each layer by itself; the opening picture."""
    model, texts = zoo.load("target"), Texts(0)
    calibration = record(model, texts.code)
    moved: dict[str, list[float]] = {}
    for name, linear in quantizable_linears(model).items():
        w, h = linear.weight.detach(), gram(calibration.inputs[name])
        pair = (quantize_weight(w, 2, GROUP), gptq(w, h, 2, GROUP))
        for way, v in zip(
            "AB", (dequantize_weight(pair[0]), dequantize_gptq(pair[1])), strict=True
        ):
            e = (w - v).double()
            moved.setdefault(f"weights {way}", []).append((e.norm() / w.norm()).item())
            share = ((e @ h) * e).sum() / ((w.double() @ h) * w).sum()
            moved.setdefault(f"outputs {way}", []).append(share.sqrt().item())
            diagonal = (e.square() * h.diagonal()).sum() / ((w.double() @ h) * w).sum()
            moved.setdefault(f"apart {way}", []).append(diagonal.sqrt().item())
    rows = {"RTN": "A", "GPTQ": "B"}
    parts = ("weights", "apart", "outputs")
    cells = {way: [f"{mean(moved[f'{p} {k}']):.3f}" for p in parts] for way, k in rows.items()}
    head = ["2 bits", "weights", "outputs, if channels had nothing in common", "outputs"]
    write("lab11_distances.md", table(head, cells))
    made = {"A": rounded(model, 2)[0], "B": repaired(model, texts.code, 2)[0]}
    lost = {k: perplexity(m, texts.held_out["code"]) for k, m in made.items()}
    exact = perplexity(model, texts.held_out["code"])
    far = {k: mean(moved[f"weights {k}"]) for k in "AB"}
    picture("opening.svg", pictures.opening(far, lost, exact))


# ---- rotation --------------------------------------------------------------------------------


def turned(model: nn.Module, seed: int) -> nn.Module:
    heads = random_hadamard(model.config.head_dim, seed + 1)
    return rotate(model, random_hadamard(model.config.hidden_size, seed), heads)


def variants(texts: Texts) -> dict[str, nn.Module]:
    plain = zoo.load("target")
    few, many = (
        with_outliers(plain, texts.code, gains, extra=story.EXTRA, seed=texts.seed)
        for gains in (FEW, MANY)
    )
    return {
        "as trained": plain,
        "2 large": few,
        "2 large, merged": merged_twins(few),
        "3 large": many,
    }


def rotation() -> None:
    """Perplexity with weights and inputs in few bits: plain, smoothed, rotated."""
    formats = {"W8A8": (8, 8), "W16A6": (None, 6), "W4A4": (4, 4)}
    found: dict[tuple[str, str, str], list[float]] = {}
    for texts in map(Texts, SEEDS):
        held_out = texts.held_out["code"]
        for kind, model in variants(texts).items():
            folded = turned(model, texts.seed)
            names = [n for n in quantizable_linears(model) if n.endswith("down_proj")]
            online = dict.fromkeys(names, random_hadamard(model.config.intermediate_size, 2))
            made = {
                "plain": (model, None),
                "smoothed": (smooth(model, channel_maxima(model, texts.code), 0.5), None),
                "rotated": (folded, None),
                "and online": (folded, online),
            }
            found.setdefault((kind, "float", ""), []).append(perplexity(model, held_out))
            for way, (m, rotations) in made.items():
                for label, pair in formats.items():
                    value = perplexity(with_low_bits(m, *pair, GROUP, rotations), held_out)
                    found.setdefault((kind, label, way), []).append(value)
    kinds = dict.fromkeys(key[0] for key in found)
    rows = {"float": [spread(found[k, "float", ""]) for k in kinds]}
    for label in formats:
        for way in made:
            rows[f"{label}, {way}"] = [spread(found[k, label, way]) for k in kinds]
    write("lab11_rotation.md", table(["perplexity", *kinds], rows))
    picture("rotation.svg", pictures.rotated(found, list(kinds)))


def absorbed() -> None:
    """What of the rotated model's gain is rotation: gains absorbed alone, and turned alone.

    The emulation makes channels large by the norms' gains, and to turn a model these have to be
    absorbed by what reads them.
    """
    formats = {"W16A6": (None, 6), "W4A4": (4, 4)}
    found: dict[tuple[str, str], list[float]] = {}
    for texts in map(Texts, SEEDS):
        held_out = texts.held_out["code"]
        for kind, model in variants(texts).items():
            every = {
                name: random_hadamard(linear.in_features, texts.seed)
                for name, linear in quantizable_linears(model).items()
            }
            made = {
                "gains absorbed, not turned": (with_unit_gains(model), None),
                "gains in place, all inputs turned online": (model, every),
            }
            for label, pair in formats.items():
                for way, (m, rotations) in made.items():
                    value = perplexity(with_low_bits(m, *pair, GROUP, rotations), held_out)
                    found.setdefault((f"{label}, {way}", kind), []).append(value)
    kinds = dict.fromkeys(kind for _, kind in found)
    names = dict.fromkeys(way for way, _ in found)
    rows = {way: [spread(found[way, k]) for k in kinds] for way in names}
    write("lab11_absorbed.md", table(["perplexity", *kinds], rows))


def smoothings() -> None:
    """What alpha decides, and GPTQ on every way out."""
    formats = {"W16A6": (None, 6), "W4A4": (4, 4)}
    found: dict[tuple[str, str], list[float]] = {}
    for texts in map(Texts, SEEDS):
        held_out = texts.held_out["code"]
        for kind, model in list(variants(texts).items())[1::2]:  # two and three large components
            for way, m in simpler.smoothings(model, texts.code).items():
                for label, pair in formats.items():
                    value = perplexity(with_low_bits(m, *pair, GROUP), held_out)
                    found.setdefault((f"{label}, {way}", kind), []).append(value)
            ways = simpler.ways_out(model, texts.code, turned(model, texts.seed))
            for way, m in ways.items():
                for by, low in zip(("RTN", "GPTQ"), simpler.with_gptq(m, texts.code), strict=True):
                    key = (f"W4A4, {way}, weights by {by}", kind)
                    found.setdefault(key, []).append(perplexity(low, held_out))
    kinds = dict.fromkeys(kind for _, kind in found)
    names = sorted(dict.fromkeys(way for way, _ in found), key=lambda way: "weights by" in way)
    rows = {way: [spread(found[way, k]) for k in kinds] for way in names}
    write("lab11_smoothing.md", table(["perplexity", *kinds], rows))


def measured_peaks() -> None:
    """max / rms of weights, and of the tokens that linears read, before and after."""
    texts, rows = Texts(0), {}
    q = random_hadamard(192 + story.EXTRA, 0).float()
    for kind, model in variants(texts).items():
        ways = {
            kind: model,
            f"{kind}, gains absorbed": with_unit_gains(model),
            f"{kind}, and turned": turned(model, 0),
        }
        for label, m in ways.items():
            inputs = record(m, texts.code[:4]).inputs
            cells = [f"{mean(incoherence(x.weight) for x in quantizable_linears(m).values()):.1f}"]
            for reads in (("q_proj", "up_proj"), ("o_proj",), ("down_proj",)):
                each = [peaks(x).mean().item() for n, x in inputs.items() if n.endswith(reads)]
                cells.append(f"{mean(each):.1f}")
            rows[label] = cells
            if label == "3 large":
                before = inputs["model.layers.2.self_attn.q_proj"]
                means = (peaks(x).mean().item() for x in (before, before @ q))
                print("of the figure's input, as it is and turned:", *(f"{x:.1f}" for x in means))
    head = ["max / rms, means", "weights", "after norms", "before o_proj", "before down_proj"]
    write("lab11_peaks.md", table(head, rows))
    picture("channels.svg", pictures.channels(before, before @ q))


def main(parts: list[str]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    every = {
        "distances": distances,
        "peaks": measured_peaks,
        "bits": bits,
        "hessians": hessians,
        "ranges": ranges,
        "dampings": dampings,
        "controls": controls,
        "rotation": rotation,
        "absorbed": absorbed,
        "smoothings": smoothings,
        "groups": groups,
        "large": large_weights,
    }
    for part in parts or every:
        every[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
