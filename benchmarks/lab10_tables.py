"""Numbers and figures of the chapter on LoRA and QLoRA, on the zoo's model.

    python benchmarks/lab10_tables.py            writes course/chapters/_generated/lab10_*.md
                                                 and course/figures/lab10/*.svg, prints the tables
    python benchmarks/lab10_tables.py memory     only this part (or some, see PARTS)

The text is that of the lab (`efflib.zoo.headers`): C++ headers that torch carries, Python of the
corpus.  STEPS steps, means over SEEDS with the range.  About four minutes of one core.
"""

import copy
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import nn

from efflib import zoo
from efflib.finetuning.lora import LoRALinear, add_lora, base_weight, merge_lora, update
from efflib.finetuning.memory import (
    GB,
    LLAMA,
    METHODS,
    finetuning_bytes,
    lora_parameters,
    paged_out,
)
from efflib.finetuning.qlora import add_qlora
from efflib.finetuning.training import finetune
from efflib.plots import finetuning as plots
from efflib.plots import placements, style
from efflib.quantization.nf4 import NF4Linear, dequantize_nf4, nf4_bits, nf4_codebook, quantize_nf4
from efflib.sparsity.wanda import prune_wanda
from efflib.zoo.evaluation import held_out_segments, token_losses
from efflib.zoo.headers import headers, pieces
from efflib.zoo.phenomena.lora import TARGETS
from efflib.zoo.tokenizer import text_ids

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab10"
SEEDS, STEPS, BATCH, LENGTH = 3, 30, 4, 64
RATES = {"rank 1": 1e-2, "rank 4": 1e-2, "rank 16": 5e-3, "all weights": 1e-3}
NF4, CONTROL = "rank 4, NF4", "control: rank 4 on Python"
CARD = 48 * GB
TWO = (0, 1)  # seeds of the smaller tables


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(figure, name: str, alt: str) -> None:
    style.save(figure, FIGURES / f"{name}.svg", alt)


def perplexity(model: nn.Module, text: torch.Tensor) -> float:
    return token_losses(model, text, context=128, stride=128).double().mean().exp().item()


def train(model: nn.Module, lr: float, seed: int, kind: str = "C++") -> nn.Module:
    source = headers("training") if kind == "C++" else text_ids("code", held_out=False)
    batches = pieces(source, STEPS * BATCH, LENGTH, seed).split(BATCH)
    return finetune(model, batches, lr, seed)[0]


def share(model: nn.Module, base: nn.Module) -> float:
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return 100 * trained / sum(p.numel() for p in base.parameters())


def memory() -> None:
    """Bytes of four Llamas, and the opening picture."""
    lines = ["| | | weights | gradients | optimizer | activations | all, GB | out of 48 GB |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for size, shape in LLAMA.items():
        for method in METHODS:
            held = finetuning_bytes(shape, method)
            try:
                paged = f"{paged_out(held, CARD) / GB:.1f} paged"
            except ValueError:
                paged = "does not fit"
            cells = " | ".join(f"{value / GB:.1f}" for value in (*held, held.total))
            fits = "fits" if held.total <= CARD else paged
            lines.append(f"| {size} | {method} | {cells} | {fits} |")
    shape = LLAMA["65B"]
    wide = finetuning_bytes(shape, "qlora").total + 2 * 2 * lora_parameters(shape, 64)
    block = sum(n * k for n, k in shape.linears) * 2
    lines += [
        f"\n65B by QLoRA with the updates and their gradients in float32: {wide / GB:.1f} GB; "
        f"a card of 48 GiB has {48 * 2**30 / GB:.1f}. The linears of one block, decoded to 16 "
        f"bits: {block / GB:.1f} GB; of all {shape.layers}: {shape.layers * block / GB:.1f}."
    ]
    write("lab10_memory", "\n".join(lines) + "\n")
    names = {"full": "all weights", "lora": "LoRA", "qlora": "QLoRA"}
    sums = {names[m]: finetuning_bytes(LLAMA["65B"], m).total / GB for m in METHODS}
    alt = "Bars: " + ", ".join(f"{name} {value:.0f} GB" for name, value in sums.items())
    head = "Training a model of 65 billion parameters, in three ways"
    save(plots.opening(sums, CARD / GB, head), "opening", f"{alt}; a line marks a card of 48 GB.")


def grid(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(what 16 equal steps from least to largest stand for, codes); 32 bits for 64 weights."""
    low, high = blocks.aminmax(dim=1, keepdim=True)
    low, step = low.half().float(), ((high - low) / 15).half().float()
    codes = ((blocks - low) / step).round().clamp(0, 15)
    return codes * step + low, codes


def symmetric(blocks: torch.Tensor) -> torch.Tensor:
    step = blocks.abs().amax(1, keepdim=True) / 7
    return (blocks / step).round() * step


FORMATS: dict[str, Callable] = {
    "NF4": lambda blocks: dequantize_nf4(quantize_nf4(blocks, double=False)),
    "NF4, double quantization": lambda blocks: dequantize_nf4(quantize_nf4(blocks)),
    "16 equal steps from least to largest": lambda blocks: grid(blocks)[0],
    "15 equal steps around 0": symmetric,
}


def formats() -> None:
    """Errors of 4 bits, the bits themselves, and how often the codes are used."""
    torch.manual_seed(0)
    normal = torch.randn(4096, 64)
    codes = grid(normal)[1]
    ways = {way: rounded(normal) for way, rounded in FORMATS.items()}
    size = normal.square().mean().sqrt()
    lines = ["| 4 bits, blocks of 64, normal weights | error, of the weights' size |", "|---|---|"]
    lines += [
        f"| {way} | {((back - normal).square().mean().sqrt() / size):.4f} |"
        for way, back in ways.items()
    ]
    bits = [nf4_bits((4096, 4096), double) / 4096**2 for double in (False, True)]
    lines.append(f"\nBits a weight, 4096 x 4096: {bits[0]:.3f}, doubly quantized {bits[1]:.3f}.")
    write("lab10_formats", "\n".join(lines) + "\n")
    packed = quantize_nf4(normal, double=False).packed
    nf4 = torch.cat([packed >> 4, packed & 0xF]).long()
    books = {"NF4": (nf4_codebook(), nf4), "equal steps": (torch.linspace(-1, 1, 16), codes.long())}
    used = {
        name: (levels, torch.bincount(c.flatten(), minlength=16) / c.numel())
        for name, (levels, c) in books.items()
    }
    shares = {name: share.clamp(min=1e-12) for name, (_, share) in used.items()}
    bits = {name: -(share * share.log2()).sum().item() for name, share in shares.items()}
    head = f"NF4's codes carry {bits['NF4']:.2f} bits, those of the grid {bits['equal steps']:.2f}"
    alt = "Stems at 16 levels, as high as the share of normal weights: more even for NF4."
    save(plots.levels_and_use(used, head), "levels", alt)


def quality() -> None:
    """The same formats judged by the model: perplexity, and the difference a piece of text."""
    base = zoo.load("target")
    texts = pieces(headers("held out"), 64, 128, seed=0), held_out_segments("code", 8192)
    names = linear_names(base)

    def judged(rounded: Callable | None) -> tuple[float, list[torch.Tensor]]:
        model, off, size = copy.deepcopy(base), 0.0, 0.0
        for name in names if rounded else ():
            w = model.get_submodule(name).weight
            new = rounded(w.data.reshape(-1, 64)).reshape(w.shape)
            off, size = off + (new - w.data).square().sum(), size + w.data.square().sum()
            w.data = new
        losses = [token_losses(model, t, context=128, stride=128).double() for t in texts]
        return float(off / size) ** 0.5 if rounded else 0.0, losses

    lines = ["| the model's linears in | error | C++ | Python | loss beyond NF4's: C++ | Python |"]
    lines.append("|---|---|---|---|---|---|")
    _, nf4 = judged(FORMATS["NF4"])
    for way, rounded in {"float32": None, **FORMATS}.items():
        error, losses = judged(rounded)
        shown = [f"{loss.mean().exp():.2f}" for loss in losses]
        for loss, other in zip(losses, nf4, strict=True):
            by_piece = (loss - other).reshape(64, -1).mean(1)  # 64 pieces of text
            spread = by_piece.std() / 8
            same = way in ("NF4", "float32")
            shown.append("" if same else f"{by_piece.mean():.3f} ± {spread:.3f}")
        lines.append(f"| {way} | {error:.4f} | " + " | ".join(shown) + " |")
    write("lab10_quality", "\n".join(lines) + "\n")


def linear_names(model: nn.Module) -> list[str]:
    return [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "lm_head"]


def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """C++ and Python."""
    return pieces(headers("held out"), 16, 128, seed=0), held_out_segments("code", 2048)


def start_of(way: str, seed: int) -> nn.Module:
    base = zoo.load("target")
    r = int(way.split("rank ")[1][:2].strip(", ")) if "rank" in way else 0
    add = add_qlora if "NF4" in way else add_lora
    return add(base, r, 2 * r, TARGETS, seed=seed) if r else base


@cache
def trained(way: str, seed: int) -> nn.Module:
    kind = "Python" if way == CONTROL else "C++"
    return train(start_of(way, seed), RATES.get(way, RATES["rank 4"]), seed, kind)


def learning() -> None:
    """The table of methods, with its figure."""
    base, (cpp, python) = zoo.load("target"), held_out()
    frozen = perplexity(base, cpp), perplexity(base, python)
    lines = ["| trained | share | C++ | Python |", "|---|---|---|---|"]
    lines.append(f"| nothing | 0 | {frozen[0]:.2f} | {frozen[1]:.2f} |")
    points = {}
    for way in (*RATES, NF4, CONTROL):
        runs = [trained(way, seed) for seed in range(SEEDS)]
        new, old = ([perplexity(model, text) for model in runs] for text in (cpp, python))
        shown = " | ".join(placements.plus_minus(v, 4) for v in (new, old))
        part = share(start_of(way, 0), base)
        lines.append(f"| {way} | {part:.2f} % | {shown} |")
        if way in RATES:
            points[way] = (part, new, old)
    write("lab10_learning", "\n".join(lines) + "\n")
    gained = [frozen[0] - placements.mean(points[way][1]) for way in ("rank 4", "all weights")]
    head = f"Rank 4 gets {gained[0] / gained[1]:.0%} of what all weights get"
    alt = "Left, perplexity of C++ falls with the share that is trained; right, of Python rises."
    save(plots.learned_and_forgotten(points, frozen, head), "learning", alt)


def factors() -> None:
    """alpha / r against alpha / sqrt(r), at one alpha and one learning rate."""
    base, (cpp, _) = zoo.load("target"), held_out()
    lines = ["| $\\alpha$ = 8, learning rate 3e-3 | rank 4 | rank 64 |", "|---|---|---|"]
    for stabilized, name in ((False, "$\\alpha / r$"), (True, "$\\alpha / \\sqrt r$")):
        cells = []
        for r in (4, 64):
            runs = []
            for seed in TWO:
                start = add_lora(base, r, 8.0, TARGETS, seed=seed, rank_stabilized=stabilized)
                runs.append(perplexity(train(start, 3e-3, seed), cpp))
            cells.append(placements.plus_minus(runs, 4))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    write("lab10_factors", "\n".join(lines) + "\n")


def changes(seed: int) -> dict[str, tuple[torch.Tensor, ...]]:
    """{layer: (u, s, v) of the change that a full fine-tune made}."""
    base, full = zoo.load("target"), trained("all weights", seed)
    return {
        n: torch.linalg.svd(
            (full.get_submodule(n).weight - base.get_submodule(n).weight).detach(),
            full_matrices=False,
        )
        for n in linear_names(base)
    }


def with_change(seed: int, changed: dict[str, torch.Tensor]) -> float:
    """C++ with other changes of the linears; the fine-tune's norms and embedding stay."""
    base, model = zoo.load("target"), copy.deepcopy(trained("all weights", seed))
    for name, change in changed.items():
        model.get_submodule(name).weight.data = base.get_submodule(name).weight.data + change
    return perplexity(model, held_out()[0])


def product(u: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return u * s @ v


def ranks() -> None:
    """The full fine-tune's change: cut to rank r, and parts of it of equal norm."""
    lines = ["| rank kept | share of the change's squares | of a random one | C++ |"]
    lines.append("|---|---|---|---|")
    parts = changes(0)
    chance = torch.linalg.svdvals(torch.randn(192, 512)).square()
    for r in (1, 4, 16, 64, 192):
        kept = [(s[:r].square().sum() / s.square().sum()).item() for _, s, _ in parts.values()]
        cut = {n: product(u[:, :r], s[:r], v[:r]) for n, (u, s, v) in parts.items()}
        lines.append(
            f"| {r} | {placements.plus_minus(kept, 2)} | {(chance[:r].sum() / chance.sum()):.2f} | "
            f"{with_change(0, cut):.2f} |"
        )
    write("lab10_ranks", "\n".join(lines) + "\n")


def to_norm_of(change: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return change * (other.norm() / change.norm())


def equal_norms() -> None:
    """Which directions of the change matter, at equal norms."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for seed in TWO:
        parts = changes(seed)
        whole = {n: product(*p) for n, p in parts.items()}
        cut = {n: product(u[:, :4], s[:4], v[:4]) for n, (u, s, v) in parts.items()}
        rest = {n: whole[n] - cut[n] for n in whole}
        ways = {
            "all of it": whole,
            "its four strongest directions": cut,
            "the rest, without these four": rest,
            "all of it, made as small as the four": {n: to_norm_of(whole[n], cut[n]) for n in cut},
            "the rest, made as small as the four": {n: to_norm_of(rest[n], cut[n]) for n in cut},
            "all of it, times 0.3": {n: 0.3 * w for n, w in whole.items()},
        }
        total = sum(w.square().sum() for w in whole.values())
        none = with_change(seed, {n: torch.zeros_like(w) for n, w in whole.items()})
        best = with_change(seed, whole)
        for way, change in ways.items():
            squares = sum(w.square().sum() for w in change.values()) / total
            value = with_change(seed, change)
            rows.setdefault(way, []).append((squares.item(), value, (none - value) / (none - best)))
    lines = ["| change of the linears | its squares | C++ | of the linears' gain |"]
    lines.append("|---|---|---|---|")
    for way, runs in rows.items():
        squares, values, gains = zip(*runs, strict=True)
        shown = " / ".join(f"{value:.2f}" for value in values)
        gained = " / ".join(f"{gain:.0%}" for gain in gains)
        lines.append(f"| {way} | {placements.mean(squares):.2f} | {shown} | {gained} |")
    lines.append("\nTwo fine-tunes, on other text each; embedding and norms are the fine-tune's.")
    write("lab10_equal_norms", "\n".join(lines) + "\n")


def adapted(model: nn.Module) -> dict[str, LoRALinear]:
    return {n: m for n, m in model.named_modules() if isinstance(m, LoRALinear)}


def transplants() -> None:
    """Updates beside the weights that they were trained with, and beside the others."""
    cpp, _ = held_out()
    lines = ["| trained beside | put beside float32 | put beside NF4 |", "|---|---|---|"]
    for way, name in (("rank 4", "float32"), (NF4, "NF4")):
        cells = []
        for place in ("rank 4", NF4):
            runs = []
            for seed in TWO:
                model = copy.deepcopy(start_of(place, seed))
                for n, layer in adapted(trained(way, seed)).items():
                    new = model.get_submodule(n)
                    new.a.data, new.b.data = layer.a.data, layer.b.data
                runs.append(perplexity(model, cpp))
            cells.append(" / ".join(f"{value:.2f}" for value in runs))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    base = start_of(NF4, 0)
    before = perplexity(base, cpp)
    for n, layer in adapted(base).items():  # the nearest of rank 4 to what NF4 has rounded away
        error = zoo.load("target").get_submodule(n).weight.detach() - base_weight(layer.base)
        u, s, v = torch.linalg.svd(error, full_matrices=False)
        layer.a.data, layer.b.data = v[:4], u[:, :4] * s[:4] / layer.scale
    lines.append(
        f"\nNot trained: {before:.2f} in NF4; with the four strongest directions of its error put "
        f"back {perplexity(base, cpp):.2f}."
    )
    write("lab10_transplants", "\n".join(lines) + "\n")


def merging() -> None:
    """What arrives of an update whose base lies in NF4, merged onto it and onto the weights of
    before it was rounded; and of the same update, made smaller and larger."""
    base, (cpp, _) = zoo.load("target"), held_out()
    qlora = trained(NF4, 0)
    again, original = merge_lora(qlora), copy.deepcopy(base)
    layers = adapted(qlora)
    for name, layer in layers.items():
        original.get_submodule(name).weight.data += update(layer)
    lines = ["| | C++ | of the update arrives |", "|---|---|---|"]
    lines.append(f"| beside NF4 | {perplexity(qlora, cpp):.2f} | |")
    lines.append(f"| merged into float32 | {perplexity(again, cpp):.2f} | |")
    for head, model in (("merged", again), ("merged onto the original weights", original)):
        arrived = asked = 0.0
        for name, layer in layers.items():
            before = base_weight(layer.base) if model is again else base.get_submodule(name).weight
            stored = NF4Linear(model.get_submodule(name))
            arrived += ((stored.weight_hat() - before).double() * update(layer)).sum().item()
            asked += update(layer).square().sum().item()
            model.set_submodule(name, stored)
        figure = f"{perplexity(model, cpp):.2f} | {arrived / asked:.0%}"
        lines.append(f"| {head}, then rounded to NF4 | {figure} |")
    write("lab10_merging", "\n".join(lines) + "\n")
    lines = ["| the update times | codes that change | of it arrives |", "|---|---|---|"]
    for times in (0.0, 0.1, 0.3, 1.0, 3.0):
        arrived = asked = moved = count = 0.0
        for layer in layers.values():
            before, change = base_weight(layer.base), times * update(layer)
            after = dequantize_nf4(quantize_nf4((before + change).float()))
            moved, count = moved + codes_moved(before, before + change), count + before.numel()
            arrived += ((after - before).double() * change).sum().item()
            asked += change.square().sum().item()
        part = f"{arrived / asked:.1%}" if times else ""
        lines.append(f"| {times:g} | {moved / count:.2%} | {part} |")
    write("lab10_sizes", "\n".join(lines) + "\n")


def codes_moved(before: torch.Tensor, after: torch.Tensor) -> int:
    """How many weights get another code, when what is on levels is rounded anew."""
    packed = [quantize_nf4(w.float(), double=False).packed for w in (before, after)]
    halves = [torch.cat([p >> 4, p & 0xF]) for p in packed]
    return int((halves[0] != halves[1]).sum())


def repair() -> None:
    """LoRA beside a model that was pruned as in lab 4."""
    base, (_, python) = zoo.load("target"), held_out()
    texts = pieces(text_ids("code", held_out=False), 16, 128, seed=7)
    lines = ["| Wanda | pruned | with LoRA, rank 4 |", "|---|---|---|"]
    for name, pattern in (("50 %", 0.5), ("4:8", (4, 8)), ("2:4", (2, 4))):
        pruned = prune_wanda(base, texts, pattern)
        after = [
            perplexity(train(add_lora(pruned, 4, 8, TARGETS, seed=s), 3e-3, s, "Python"), python)
            for s in range(SEEDS)
        ]
        lines.append(
            f"| {name} | {perplexity(pruned, python):.2f} | {placements.plus_minus(after)} |"
        )
    write("lab10_repair", "\n".join(lines) + f"\nDense: {perplexity(base, python):.2f}.\n")


PARTS = {
    part.__name__: part
    for part in (
        *(memory, formats, quality, learning, factors, ranks, equal_norms),
        *(transplants, merging, repair),
    )
}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
